// @ts-check
/**
 * Preact, its hooks, and the template tag `html`. Modules of the pages import them from here.
 *
 * A template builds elements; text is never parsed as HTML, so no name or payload can become markup.
 */

import { h, render, Component, Fragment, createContext, options } from '../vendor/preact.js';
import htm from '../vendor/htm.js';

export { h, render, Component, Fragment, createContext, options };
export {
  useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useReducer, useContext, useId,
} from '../vendor/hooks.js';

/** Builds elements from a template: html`<p class="note">${text}</p>`. @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(h);

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

/** Longest time for which a pressed button keeps the page as it is. */
const PRESSED_MS_MAX = 1000;
/** What would draw the page now. @type {(() => void) | null} */
let waiting = null;
let isPressed = false;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let limit;

// While a button of the pointer is down, nothing is drawn: a live update that moved what is under the pointer would swallow the click.
window.addEventListener('pointerdown', () => {
  isPressed = true;
  clearTimeout(limit);
  limit = setTimeout(release, PRESSED_MS_MAX);
}, true);
for (const name of ['pointerup', 'pointercancel', 'blur']) window.addEventListener(name, release, true);
options.debounceRendering = (/** @type {() => void} */ draw) => {
  if (isPressed) waiting = draw;
  else Promise.resolve().then(draw);
};

/** Draws what has waited, after the click. */
function release() {
  isPressed = false;
  clearTimeout(limit);
  if (waiting) setTimeout(waiting);
  waiting = null;
}

/** Builds elements from a template: html`<p class="note">${text}</p>`. @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(h);

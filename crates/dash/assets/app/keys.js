// @ts-check
/** Calls functions for keys. Single letters act only outside of fields and dialogs, and can be turned off. */

import { useLayoutEffect, useRef } from './html.js';
import { preferences } from './preferences.js';

/** How long a `g` waits for the letter of a page. */
const PREFIX_MS = 1500;

/** @typedef {Record<string, (event: KeyboardEvent) => void>} Bindings keys such as `j`, `Enter`, `g d`, `Control+k` */

/** @type {{ bindings: () => Bindings }[]} the latest ones come first */
const layers = [];
let prefixUntil = 0;

document.addEventListener('keydown', (event) => {
  if (event.defaultPrevented || event.isComposing) return;
  const name = nameOf(event);
  if (name === null) return;
  const isPlain = !name.includes('+');
  if (isPlain && (isTyping(event.target) || document.querySelector('dialog[open]'))) return;
  if (isPlain && name.length === 1 && !preferences.value.letterKeys) return;
  // The time of the press: on a busy machine, the page receives it later.
  const withPrefix = event.timeStamp < prefixUntil ? `g ${name}` : name;
  prefixUntil = 0;
  if (name === 'g' && withPrefix === 'g') {
    prefixUntil = event.timeStamp + PREFIX_MS;
    return;
  }
  for (const layer of layers) {
    const action = layer.bindings()[withPrefix];
    if (action) {
      event.preventDefault();
      action(event);
      return;
    }
  }
});

/** Returns the name of the pressed key, or null if it is a modifier or belongs to the browser. @param {KeyboardEvent} event */
function nameOf(event) {
  if (event.metaKey || event.ctrlKey) return event.altKey || event.key.length !== 1 ? null : `Control+${event.key.toLowerCase()}`;
  return event.altKey ? null : event.key;
}

/** Returns whether a key would type into an element or use it. @param {EventTarget | null} target */
function isTyping(target) {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !['checkbox', 'radio', 'button'].includes(target.type);
  return target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

/** Binds keys while a component is shown, from the moment at which it appears. The component that appeared last comes first. @param {Bindings} bindings */
export function useKeys(bindings) {
  const latest = useRef(bindings);
  latest.current = bindings;
  useLayoutEffect(() => {
    const layer = { bindings: () => latest.current };
    layers.unshift(layer);
    return () => void layers.splice(layers.indexOf(layer), 1);
  }, []);
}

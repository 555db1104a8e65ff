// @ts-check
/** Tells short news: as toasts for the eye, and in a live region for screen readers, which says at most one line in ten seconds. */

import { html } from '../html.js';
import { Observable, useObservable } from '../observable.js';
import { words } from '../words.js';

const TOAST_MS = 5000;
const ANNOUNCE_EVERY_MS = 10_000;

const toasts = new Observable(/** @type {{ id: number, text: string }[]} */ ([]));
const announcement = new Observable('');
let lastId = 0;
let announcedAt = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let waiting;

/** Shows a toast, and announces it. @param {string} text */
export function say(text) {
  lastId += 1;
  const id = lastId;
  toasts.set([...toasts.value.slice(-2), { id, text }]);
  setTimeout(() => toasts.set(toasts.value.filter((toast) => toast.id !== id)), TOAST_MS);
  clearTimeout(waiting);
  announcedAt = Date.now();
  announcement.set(text);
}

/** Announces a change to screen readers. If a line was announced within ten seconds, the latest one waits. @param {string} text */
export function announce(text) {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    announcedAt = Date.now();
    announcement.set(text);
  }, Math.max(0, announcedAt + ANNOUNCE_EVERY_MS - Date.now()));
}

/** The place where toasts appear. */
export function Toasts() {
  const shown = useObservable(toasts);
  const text = useObservable(announcement);
  return html`<div class="toasts">
      ${shown.map((toast) => html`<div class="toast" key=${toast.id}>${toast.text}
        <button type="button" class="plain" aria-label=${words.parts.close} onClick=${() => toasts.set(shown.filter((each) => each !== toast))}>×</button></div>`)}
    </div>
    <div class="only-read" role="status" aria-live="polite">${text}</div>`;
}

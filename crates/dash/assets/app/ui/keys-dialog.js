// @ts-check
/** The list of all keys. */

import { html } from '../html.js';
import { words } from '../words.js';
import { Dialog } from './dialog.js';

/** Keys that open pages. The table of pages sets them, so that this module need not import all pages. @type {[keys: string, page: string][]} */
export const pageKeys = [];

/** @param {{ onClose: () => void }} props */
export function KeysDialog({ onClose }) {
  return html`<${Dialog} title=${words.keys.title} onClose=${onClose}><${KeysTable} /><//>`;
}

/** The keys as a table. */
export function KeysTable() {
  return html`<table class="keys"><caption class="only-read">${words.keys.title}</caption><tbody>
    ${[...words.keys.rows, ...pageKeys].map(([keys, does]) => html`<tr key=${keys}><th scope="row">${keys.split(' / ').map((key, at) => html`${at > 0 ? ' ' : ''}<kbd>${key}</kbd>`)}</th><td>${does}</td></tr>`)}
  </tbody></table>`;
}

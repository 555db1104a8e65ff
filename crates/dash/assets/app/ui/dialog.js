// @ts-check
/** Dialogs. The browser's own element moves the focus inside, keeps it there, and gives it back at the end. */

import { html, useId, useLayoutEffect, useRef } from '../html.js';
import { words } from '../words.js';

/**
 * A dialog that is open while it is shown. An element with `data-focus` gets the focus, else the first one.
 * @param {{ title: any, onClose: () => void, class?: string, children?: any, actions?: any }} props
 */
export function Dialog({ title, onClose, class: className = '', children, actions }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const titleId = useId();
  // At once: a key that is pressed after the dialog was asked for belongs to it.
  useLayoutEffect(() => {
    const dialog = element.current;
    const opener = document.activeElement;
    dialog?.showModal();
    const wanted = dialog?.querySelector('[data-focus]:not([data-focus="false"])');
    if (wanted instanceof HTMLElement) wanted.focus();
    return () => {
      dialog?.close();
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  const onPointerDown = (/** @type {PointerEvent} */ event) => event.target === element.current && onClose();
  return html`<dialog ref=${element} class=${className} aria-labelledby=${titleId} onPointerDown=${onPointerDown}
    onCancel=${(/** @type {Event} */ event) => { event.preventDefault(); onClose(); }}>
    <div class="dialog-body">
      <header><h2 id=${titleId}>${title}</h2><button type="button" class="plain" aria-label=${words.parts.close} onClick=${onClose}>×</button></header>
      ${children}
      ${actions && html`<footer class="actions">${actions}</footer>`}
    </div>
  </dialog>`;
}

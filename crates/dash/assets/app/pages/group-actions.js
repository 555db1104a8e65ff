// @ts-check
/** The actions of a group: remove it, remove a consumer and move its entries to another one. */

import { commands } from '../cli.js';
import { counted } from '../format.js';
import { html, useState } from '../html.js';
import { status } from '../live.js';
import { printable } from '../printable.js';
import { words } from '../words.js';
import { ActionDialog } from '../ui/action.js';
import { Field, Name } from '../ui/parts.js';

const text = words.groupActions;
const place = () => status.value?.place ?? '';
const entries = (/** @type {number} */ number) => counted(number, words.entry.one, words.entry.many);

/** @param {{ stream: string, group: string, onClose: () => void, onDone: () => void }} props */
export function RemoveGroupDialog({ stream, group, onClose, onDone }) {
  const [force, setForce] = useState(false);
  const form = html`<label class="check"><input type="checkbox" checked=${force} onChange=${() => setForce(!force)} /> ${text.force}</label>`;
  return html`<${ActionDialog} title=${html`${text.remove} <${Name} name=${group} max=${40} />`} path="/group/remove" body=${{ stream, group, force }} form=${form} cli=${commands(place()).groupRemove(stream, group, force)}
    describe=${(/** @type {any} */ plan) => {
      const active = /** @type {string[]} */ (plan.active_consumers ?? []).map(printable);
      const dropped = plan.pending_dropped ?? 0;
      return {
        // The number to type is that of the entries that the group forgets; the group itself is always one thing.
        count: Math.max(1, dropped), button: text.removeButton(printable(group), printable(stream)),
        text: html`<p>${text.removePlan} ${dropped > 0 ? text.dropped(entries(dropped)) : text.nothingDropped}</p>`,
        refuse: active.length > 0 && !force ? text.active(active.join(', ')) : undefined,
      };
    }} done=${() => text.removed(printable(group))} onClose=${onClose} onDone=${onDone} />`;
}

/** @param {{ stream: string, group: string, consumer: any, consumers: any[], onClose: () => void, onDone: () => void }} props */
export function RemoveConsumerDialog({ stream, group, consumer, consumers, onClose, onDone }) {
  const others = consumers.filter((each) => each.consumer !== consumer.consumer).sort((a, b) => (a.idle_ms ?? 1e15) - (b.idle_ms ?? 1e15));
  const [heir, setHeir] = useState(consumer.pending > 0 ? others[0]?.consumer ?? '' : '');
  const form = html`<${Field} label=${text.heir} hint=${text.heirHint}><select value=${heir} onChange=${(/** @type {any} */ event) => setHeir(event.target.value)}>
    <option value="">${text.noHeir}</option>${others.map((each) => html`<option key=${each.consumer} value=${each.consumer}>${printable(each.consumer)}</option>`)}</select><//>`;
  return html`<${ActionDialog} title=${html`${text.removeConsumer} <${Name} name=${consumer.consumer} max=${40} />`} path="/consumer/remove" body=${{ stream, group, consumer: consumer.consumer, heir: heir || null }} form=${form}
    cli=${commands(place()).consumerRemove(stream, group, consumer.consumer, heir || null)}
    describe=${(/** @type {any} */ plan) => {
      const held = plan.moved ?? 0;
      return { count: Math.max(1, held), button: text.consumerButton(printable(consumer.consumer)), text: html`<p>${held > 0 ? text.moves(entries(held), printable(heir)) : text.holdsNothing}${plan.heir_is_new ? ` ${text.heirIsNew}` : ''}</p>`, refuse: held > 0 && !heir ? text.needsHeir : undefined };
    }} done=${() => text.consumerRemoved(printable(consumer.consumer))} onClose=${onClose} onDone=${onDone} />`;
}

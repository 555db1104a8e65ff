// @ts-check
/** The actions on dead letters: redrive them to their group or to all groups, and delete them. Both run as jobs. */

import { commands } from '../cli.js';
import { count, counted, duration } from '../format.js';
import { html, useState } from '../html.js';
import { status } from '../live.js';
import { words } from '../words.js';
import { ActionDialog } from '../ui/action.js';
import { Choices, Field, Name } from '../ui/parts.js';

const text = words.dlqActions;
const letters = (/** @type {number} */ number) => counted(number, text.one, text.many);

/** @typedef {{ stream: string, dlq: string | null, filter: any, onClose: () => void, onDone: () => void }} Props */

/** Returns a whole number above zero, null if nothing was typed, undefined if it is neither. @param {string} typed */
const whole = (typed) => (typed.trim() === '' ? null : /^[1-9]\d{0,8}$/.test(typed.trim()) ? Number(typed) : undefined);

/** @param {Props} props */
export function RedriveDialog({ stream, dlq, filter, onClose, onDone }) {
  const [to, setTo] = useState('group');
  const [rate, setRate] = useState('');
  const [limit, setLimit] = useState('');
  const perSecond = whole(rate);
  const most = whole(limit);
  const body = perSecond === undefined || most === undefined ? null : { stream, dlq, filter, to, rate: perSecond, limit: most };
  const form = html`<${Choices} label=${text.to} value=${to} choices=${text.destinations} onChange=${setTo} />
    <div class="form-row"><${Field} label=${text.rate} error=${perSecond === undefined ? text.notWhole : null}><input inputmode="numeric" value=${rate} placeholder=${text.noLimit} data-focus onInput=${(/** @type {any} */ event) => setRate(event.target.value)} /><//>
      <${Field} label=${text.limit} error=${most === undefined ? text.notWhole : null}><input inputmode="numeric" value=${limit} placeholder=${text.noLimit} onInput=${(/** @type {any} */ event) => setLimit(event.target.value)} /><//></div>`;
  return html`<${ActionDialog} title=${html`${text.redriveTitle} <${Name} name=${stream} max=${40} />`} path="/dlq/redrive" body=${body} form=${form} onClose=${onClose} onDone=${onDone}
    cli=${commands(status.value?.place ?? '').redrive(stream, { ...filter, dlq, rate: perSecond ?? null, limit: most ?? null, all_groups: to === 'all_groups' })}
    describe=${(/** @type {any} */ plan) => redrivePlan(plan, perSecond ?? null)} />`;
}

/** Says what a redrive would do. @param {any} plan @param {number | null} rate @returns {import('../ui/action.js').Plan} */
function redrivePlan(plan, rate) {
  const back = plan.matched - plan.gone - plan.no_group - plan.unknown_group - plan.other_stream;
  const skipped = /** @type {[number, string][]} */ ([
    [plan.gone - plan.payload_gone, text.gone], [plan.payload_gone, text.payloadGone], [plan.no_group, text.noGroup], [plan.unknown_group, text.unknownGroup], [plan.other_stream, text.otherStream],
  ]).filter(([number]) => number > 0);
  return {
    count: back, button: text.redriveButton(back),
    text: html`<p><strong>${letters(back)}</strong> ${text.back}${plan.added > 0 ? ` ${text.added(count(plan.added))}` : ''}${rate && back > 0 ? ` ${text.takes(duration((back / rate) * 1000))}` : ''}</p>
      ${skipped.length > 0 && html`<ul class="note">${skipped.map(([number, why]) => html`<li key=${why}>${count(number)} ${why}</li>`)}</ul>`}`,
    refuse: back === 0 ? text.nothing : undefined,
  };
}

/** @param {Props} props */
export function PurgeDialog({ stream, dlq, filter, onClose, onDone }) {
  return html`<${ActionDialog} title=${html`${text.purgeTitle} <${Name} name=${stream} max=${40} />`} path="/dlq/purge" body=${{ stream, dlq, filter }} onClose=${onClose} onDone=${onDone}
    cli=${commands(status.value?.place ?? '').purge(stream, { ...filter, dlq })}
    describe=${(/** @type {any} */ plan) => ({ count: plan.matched, button: text.purgeButton(plan.matched, stream), text: html`<p><strong>${letters(plan.matched)}</strong> ${text.purgePlan}</p>` })} />`;
}

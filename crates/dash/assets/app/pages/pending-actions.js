// @ts-check
/** The actions on pending entries: claim for a consumer, release, extend, acknowledge. */

import { useGet } from '../api.js';
import { commands } from '../cli.js';
import { counted } from '../format.js';
import { html, useEffect, useRef, useState } from '../html.js';
import { status } from '../live.js';
import { printable } from '../printable.js';
import { words } from '../words.js';
import { ActionDialog } from '../ui/action.js';
import { Field, Name } from '../ui/parts.js';

const text = words.pending;

/** @typedef {'claim' | 'nack' | 'extend' | 'ack'} PendingVerb */

/**
 * @param {{ verb: PendingVerb, stream: string, group: string, ids: string[] | null, filter: any, matched: number, named: string[], onClose: () => void, onDone: () => void }} props
 * `ids`: null for all rows that match the filter; `named`: the ids that are known, for the command line
 */
export function PendingDialog({ verb, stream, group, ids, filter, matched, named, onClose, onDone }) {
  const [consumer, setConsumer] = useState('');
  const said = text.verbs[verb];
  const what = ids === null ? { filter } : { ids };
  const body = verb === 'claim' && consumer === '' ? null : { stream, group, ...what, ...(verb === 'claim' ? { consumer } : {}) };
  const run = commands(status.value?.place ?? '');
  // The commands take ids. If these are too many, `pending claim` can choose entries by their idle time alone.
  const byIds = named.length === 0 ? null : verb === 'claim' ? run.pendingClaimIds(stream, group, consumer, named) : run.pending(verb, stream, group, named);
  const byIdleTime = verb === 'claim' && ids === null && !filter.consumer && !filter.deliveries_min && !filter.stuck;
  const cli = verb === 'claim' && consumer === '' ? null : byIdleTime ? run.pendingClaim(stream, group, consumer, filter.idle_ms_min ?? 0, matched) : byIds;
  const form = verb === 'claim' ? html`<${Claimant} stream=${stream} group=${group} from=${filter.consumer} value=${consumer} onChange=${setConsumer} />` : undefined;
  return html`<${ActionDialog} title=${html`${said.title} <${Name} name=${group} max=${40} />`} path=${`/pending/${verb}`} body=${body} form=${form} eager=${verb === 'claim'} cli=${cli} onClose=${onClose} onDone=${onDone}
    describe=${(/** @type {any} */ plan) => ({
      count: plan.matched, button: said.confirm(plan.matched, printable(consumer)),
      text: html`<p>${plan.exact === false ? '≥' : ''}<strong>${counted(plan.matched, words.entry.one, words.entry.many)}</strong> ${said.plan}</p>`,
    })}
    done=${(/** @type {any} */ answer) => text.done(said.done, answer.done, answer.changed_hands ?? 0, answer.skipped ?? 0)} />`;
}

/** The consumer that gets the entries: one of the group, at first the one that asked last, or a new name. @param {{ stream: string, group: string, from: string | null, value: string, onChange: (name: string) => void }} props */
function Claimant({ stream, group, from, value, onChange }) {
  const found = useGet('/group', { stream, group });
  const consumers = [...(found.data?.consumers ?? [])].sort((a, b) => (a.idle_ms ?? 1e15) - (b.idle_ms ?? 1e15));
  const likely = consumers.find((each) => each.consumer !== from)?.consumer ?? '';
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    if (likely === '' || input.current?.value !== '') return;
    onChange(likely);
    // The proposal is selected, so that typing replaces it.
    input.current.value = likely;
    input.current.select();
  }, [likely]);
  return html`<${Field} label=${text.claimant} hint=${text.claimantHint}>
    <input ref=${input} list="claimants" value=${value} data-focus autocomplete="off" spellcheck=${false} onInput=${(/** @type {any} */ event) => onChange(event.target.value)} />
    <datalist id="claimants">${consumers.map((each) => html`<option key=${each.consumer} value=${each.consumer} />`)}</datalist><//>`;
}

// @ts-check
/** The delayed messages of a stream: when each is due and what it says; cancel them, or add them now. */

import { useGet } from '../api.js';
import { commands } from '../cli.js';
import { counted, duration } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { status } from '../live.js';
import { setQuery } from '../router.js';
import { words } from '../words.js';
import { ActionDialog, useMay } from '../ui/action.js';
import { CliLine, Loaded, Moment, Name, Panel, useNow } from '../ui/parts.js';
import { DataTable } from '../ui/table.js';
import { FieldsLine } from '../ui/values.js';

const text = words.delayed;
const PAGE = 100;
/** The list is read again every five seconds, so a message stays in it for a while after the server has added it. */
const OVERDUE_AFTER_MS = 10_000;
const messages = (/** @type {number} */ number) => counted(number, text.one, text.many);

/** Says how long a message still waits. @param {{ due: number }} props */
function DueIn({ due }) {
  const left = due - useNow();
  if (left > 0) return duration(left);
  return left > -OVERDUE_AFTER_MS ? html`<span class="soft">${text.dueNow}</span>` : html`<span class="warn-text">${text.overdue}</span>`;
}

/** @type {import('../ui/table.js').Column<any>[]} */
const COLUMNS = [
  { key: 'ticket', label: text.ticket, class: 'id', main: true, cell: (row) => row.ticket },
  { key: 'due', label: text.due, cell: (row) => html`<${Moment} ms=${row.due_ms} />` },
  { key: 'in', label: text.dueIn, align: 'number', cell: (row) => html`<${DueIn} due=${row.due_ms} />` },
  { key: 'fields', label: text.fields, class: 'wide', cell: (row) => html`<${FieldsLine} fields=${row.fields} max=${5} />` },
];

/** @param {{ stream: string, query: URLSearchParams }} props */
export function Delayed({ stream, query }) {
  const after = query.get('after');
  const isPossible = status.value?.capabilities?.delayed_entries !== false;
  const page = useGet(isPossible ? '/delayed' : null, { stream, after, count: PAGE }, { every_ms: 5000 });
  const [selected, setSelected] = useState(/** @type {Set<string>} */ (new Set()));
  const [verb, setVerb] = useState(/** @type {'cancel' | 'now' | null} */ (null));
  const mayAct = useMay()('/delayed/cancel');
  useEffect(() => setSelected(new Set()), [stream, after]);
  if (!isPossible) return html`<${Panel} title=${text.title}><p>${text.notPossible} ${text.notPossibleText}</p><//>`;
  const rows = /** @type {any[]} */ (page.data?.items ?? []);
  const tickets = rows.map((row) => row.ticket).filter((ticket) => selected.has(ticket));
  const done = () => {
    setSelected(new Set());
    page.reload();
  };
  return html`<${Panel} class="table-panel" title=${text.title}>
      <${Loaded} from=${page}>${(/** @type {any} */ data) => html`
        <${DataTable} caption=${text.title} columns=${COLUMNS} rows=${rows} rowKey=${(/** @type {any} */ row) => row.ticket} selection=${mayAct ? { selected, onSelect: setSelected } : undefined} empty=${text.none} />
        ${(rows.length > 0 || after) && html`<div class="pager acts">
          ${mayAct && html`<button type="button" disabled=${tickets.length === 0} onClick=${() => setVerb('now')}>${text.now(messages(tickets.length))}</button>
            <button type="button" class="danger" disabled=${tickets.length === 0} onClick=${() => setVerb('cancel')}>${text.cancel(messages(tickets.length))}</button>`}
          ${after && html`<button type="button" class="small" onClick=${() => setQuery({ after: null })}>${text.first}</button>`}
          ${data.next && html`<button type="button" class="small" onClick=${() => setQuery({ after: data.next })}>${words.table.next} →</button>`}</div>`}`}<//>
      <div class="cli-foot"><${CliLine} line=${after ? null : commands(status.value?.place ?? '').delayedList(stream, PAGE)} /></div><//>
    ${verb && html`<${DelayedDialog} verb=${verb} stream=${stream} tickets=${tickets} onClose=${() => setVerb(null)} onDone=${done} />`}`;
}

/** @param {{ verb: 'cancel' | 'now', stream: string, tickets: string[], onClose: () => void, onDone: () => void }} props */
function DelayedDialog({ verb, stream, tickets, onClose, onDone }) {
  const isCancel = verb === 'cancel';
  return html`<${ActionDialog} title=${html`${isCancel ? text.cancelTitle : text.nowTitle} <${Name} name=${stream} max=${40} />`} path=${`/delayed/${verb}`} body=${{ stream, tickets }} onClose=${onClose} onDone=${onDone}
    cli=${commands(status.value?.place ?? '').delayed(isCancel ? 'rm' : 'now', stream, tickets)}
    describe=${(/** @type {any} */ plan) => ({
      count: plan.matched, button: isCancel ? text.cancelButton(plan.matched) : text.nowButton(plan.matched),
      text: html`<p><strong>${messages(plan.matched)}</strong> ${isCancel ? text.cancelPlan : text.nowPlan}${plan.matched < plan.asked ? ` ${text.gone(messages(plan.asked - plan.matched))}` : ''}</p>`,
    })}
    done=${(/** @type {any} */ answer) => (isCancel ? text.cancelled : text.added)(messages(answer.done))} />`;
}

// @ts-check
/** The consumers of a group with their workers, and its pending entries by idle time. */

import { count, counted, duration, durationArgument, isNumber } from '../format.js';
import { html } from '../html.js';
import { words } from '../words.js';
import { Count, Duration, Link, Name, Panel, Text } from '../ui/parts.js';
import { DataTable, useLocalTable } from '../ui/table.js';

const text = words.groupParts;
/** A consumer that asked for nothing for this long, and holds entries, looks dead. */
const SILENT_MS = 60_000;

/** @param {{ data: any, here: any, onRemove: ((consumer: any) => void) | null }} props */
export function Consumers({ data, here, onRemove }) {
  const rows = /** @type {any[]} */ (data.consumers ?? []);
  // The pending entries of a logical stream are on the pages of its partitions.
  const logical = data.partitions !== null;
  /** @type {import('../ui/table.js').Column<any>[]} */
  const columns = [
    { key: 'consumer', label: text.consumer, main: true, value: (row) => row.consumer, cell: (row) => (logical ? html`<${Name} name=${row.consumer} max=${40} />` : html`<${Link} page="pending" query=${{ ...here, c: row.consumer }} data-main=${true}><${Name} name=${row.consumer} max=${40} /><//>`) },
    { key: 'pending', label: words.overview.pending, align: 'number', value: (row) => row.pending, cell: (row) => (row.pending > 0 && !logical ? html`<${Link} page="pending" query=${{ ...here, c: row.consumer }}><${Count} value=${row.pending} /><//>` : html`<${Count} value=${row.pending} />`) },
    { key: 'asked', label: text.asked, hint: text.askedHint, align: 'number', value: (row) => row.idle_ms, cell: (row) => html`<span class=${row.idle_ms > SILENT_MS && row.pending > 0 ? 'bad-text' : undefined}><${Duration} ms=${row.idle_ms} why=${text.neverAsked} /></span>` },
    { key: 'got', label: text.got, hint: text.gotHint, align: 'number', value: (row) => row.inactive_ms, cell: (row) => html`<${Duration} ms=${row.inactive_ms} why=${text.gotUnknown} />` },
    { key: 'worker', label: text.worker, class: 'wide', value: (row) => row.workers?.length ?? 0, cell: (row) => (row.workers?.length > 0 ? row.workers.map((/** @type {any} */ worker) => html`<${Worker} key=${worker.instance} worker=${worker} />`) : html`<span class="soft">${text.noHeartbeat}</span>`) },
    ...(onRemove ? [{ key: 'remove', label: words.table.actions, class: 'tools', cell: (/** @type {any} */ row) => html`<button type="button" class="small" onClick=${() => onRemove(row)}>${text.remove}</button>` }] : []),
  ];
  const table = useLocalTable({ rows, columns, rowKey: (row) => row.consumer, prefix: 'c', first: ['pending', true] });
  return html`<${DataTable} caption=${text.title} ...${table.props} empty=${text.none} />`;
}

/** @param {{ worker: any }} props */
function Worker({ worker }) {
  return html`<div class="worker"><span class=${worker.alive ? 'good-text' : 'bad-text'}>${worker.alive ? worker.state : text.late(duration(worker.heartbeat_age_ms))}</span>
    <span title=${text.hostTitle}><${Text} text=${`${worker.host ?? '?'}:${worker.pid ?? '?'}`} /></span>
    <span class="soft" title=${text.slotsTitle}>${text.slots(worker.busy ?? 0, worker.slots ?? 0)}</span>
    ${worker.version && html`<span class="soft">${worker.version}</span>`}</div>`;
}

/** @param {{ data: any, here: any }} props */
export function Histogram({ data, here }) {
  const bars = /** @type {any[]} */ (data.histogram ?? []).filter((bar) => bar.count > 0);
  const most = Math.max(1, ...bars.map((bar) => bar.count));
  const scan = data.scan;
  return html`<${Panel} title=${text.histogram}>
    ${bars.length === 0 ? html`<p class="soft">${data.pending > 0 ? text.notCounted : text.nothingPending}</p>` : html`<div class="histogram">
      ${bars.map((bar) => html`<${Link} key=${bar.idle_ms_min} class="bar" page="pending" query=${{ ...here, idle: bar.idle_ms_min > 0 ? durationArgument(bar.idle_ms_min) : null }}>
        <span class="bar-label">${range(bar)}</span><span class="bar-track"><span class=${`bar-fill ${bar.idle_ms_min >= 300_000 ? 'bad' : ''}`} style=${{ width: `${Math.max(0.6, (100 * bar.count) / most)}%` }}></span></span>
        <span class="bar-count">${count(bar.count)}</span><//>`)}</div>
      ${(scan?.released ?? data.released) > 0 && html`<p class="hint">${text.released(counted(scan?.released ?? data.released, words.entry.one, words.entry.many))}</p>`}
      ${scan && scan.complete === false && html`<p class="hint">${text.scanned(counted(scan.looked_at, words.entry.one, words.entry.many))}</p>`}`}
    ${bars.length > 0 && data.pending > 0 && isNumber(data.oldest_pending_ms) && html`<p class="hint">${text.oldestPending} <${Duration} ms=${data.oldest_pending_ms} /> ${words.entry.ago}.</p>`}
  <//>`;
}

/** @param {any} bar */
function range(bar) {
  if (bar.idle_ms_max === null || bar.idle_ms_max === undefined) return text.over(duration(bar.idle_ms_min));
  return bar.idle_ms_min === 0 ? text.under(duration(bar.idle_ms_max)) : `${duration(bar.idle_ms_min)} – ${duration(bar.idle_ms_max)}`;
}

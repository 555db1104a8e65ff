// @ts-check
/** The workers by heartbeat, late ones first; and the consumers of other clients, which send none. */

import { useGet } from '../api.js';
import { counted, duration } from '../format.js';
import { html, useRef, useState } from '../html.js';
import { useLive } from '../live.js';
import { words } from '../words.js';
import { useMay } from '../ui/action.js';
import { Ago, Count, Duration, Link, Loaded, Name, Panel, Rate, Text } from '../ui/parts.js';
import { DataTable, FilterBar, useLocalTable } from '../ui/table.js';
import { RemoveConsumerDialog } from './group-actions.js';

const text = words.workers;

/**
 * Returns one row for each worker, and one for each consumer without a worker. A consumer can have several workers.
 * @param {any[]} consumers @param {(worker: any) => number | null} rateOf
 */
const rowsOf = (consumers, rateOf) => consumers.flatMap((consumer) => {
  const of = { stream: consumer.stream, group: consumer.group, consumer: consumer.consumer, entry: consumer };
  const key = JSON.stringify([of.stream, of.group, of.consumer]);
  if (consumer.workers.length === 0) return [{ ...of, key, worker: null }];
  return consumer.workers.map((/** @type {any} */ worker) => ({ ...of, key: `${key}${worker.instance}`, worker, rate: rateOf(worker) }));
});

/** Returns a function that tells how many entries a worker acknowledged per second between its last two heartbeats. */
function useRates() {
  const known = useRef(/** @type {Map<string, { beat: number, done: number, rate: number | null }>} */ (new Map()));
  return (/** @type {any} */ worker) => {
    const old = known.current.get(worker.instance);
    if (!old || worker.beat_at_ms !== old.beat) {
      const rate = old && worker.beat_at_ms > old.beat && worker.acknowledged >= old.done ? ((worker.acknowledged - old.done) * 1000) / (worker.beat_at_ms - old.beat) : null;
      known.current.set(worker.instance, { beat: worker.beat_at_ms, done: worker.acknowledged, rate });
    }
    return known.current.get(worker.instance)?.rate ?? null;
  };
}

/** A worker whose handler failed too often pauses for a while. */
const isOpen = (/** @type {any} */ row) => row.worker.state === 'circuit_open';
const place = (/** @type {any} */ row) => html`<${Link} page="group" query=${{ s: row.stream, g: row.group }}><${Name} name=${row.stream} max=${32} /> / <${Name} name=${row.group} max=${32} /><//>`;
const held = (/** @type {any} */ row) => html`<${Link} page="pending" query=${{ s: row.stream, g: row.group, c: row.consumer }}><${Count} value=${row.entry.pending} /><//>`;
const searched = (/** @type {any} */ row) => `${row.stream} ${row.group} ${row.consumer} ${row.worker?.host ?? ''}:${row.worker?.pid ?? ''} ${row.worker?.state ?? ''}`;

/** @type {import('../ui/table.js').Column<any>[]} */
const WORKER_COLUMNS = [
  { key: 'consumer', label: text.worker, main: true, value: (row) => row.consumer, cell: (row) => html`<${Link} page="pending" query=${{ s: row.stream, g: row.group, c: row.consumer }} data-main=${true}><${Name} name=${row.consumer} max=${40} /><//>` },
  { key: 'state', label: text.state, class: 'nowrap', value: (row) => (!row.worker.alive ? row.worker.heartbeat_age_ms : isOpen(row) ? 1 : 0), cell: (row) => html`<span class=${!row.worker.alive ? 'bad-text' : isOpen(row) ? 'warn-text' : 'good-text'} title=${row.worker.alive && isOpen(row) ? text.circuitOpen : undefined}>${row.worker.alive ? row.worker.state.replaceAll('_', ' ') : words.groupParts.late(duration(row.worker.heartbeat_age_ms))}</span>` },
  { key: 'group', label: text.group, class: 'wide', value: (row) => `${row.stream} ${row.group}`, cell: place },
  { key: 'host', label: text.host, class: 'nowrap', value: (row) => `${row.worker.host}:${row.worker.pid}`, cell: (row) => html`<bdi><${Text} text=${`${row.worker.host ?? '?'}:${row.worker.pid ?? '?'}`} /></bdi>` },
  { key: 'busy', label: text.busy, hint: words.groupParts.slotsTitle, align: 'number', value: (row) => row.worker.busy / Math.max(1, row.worker.slots), cell: (row) => `${row.worker.busy}/${row.worker.slots}${row.worker.slots_max > row.worker.slots ? ` (≤${row.worker.slots_max})` : ''}` },
  { key: 'pending', label: words.overview.pending, align: 'number', value: (row) => row.entry.pending, cell: held },
  { key: 'rate', label: text.rate, hint: text.rateHint, align: 'number', value: (row) => row.rate, cell: (row) => html`<${Rate} value=${row.rate} />` },
  { key: 'done', label: text.acknowledged, hint: text.acknowledgedHint, align: 'number', value: (row) => row.worker.acknowledged, cell: (row) => html`<${Count} value=${row.worker.acknowledged} short=${true} />` },
  { key: 'retried', label: text.retried, align: 'number', value: (row) => row.worker.retried, cell: (row) => html`<${Count} value=${row.worker.retried} short=${true} />` },
  { key: 'dead', label: text.dead, align: 'number', value: (row) => row.worker.dead, cell: (row) => html`<${Count} value=${row.worker.dead} short=${true} />` },
  { key: 'up', label: text.up, align: 'number', value: (row) => -row.worker.started_at_ms, cell: (row) => html`<${Ago} ms=${row.worker.started_at_ms} />` },
  { key: 'version', label: text.version, value: (row) => row.worker.version, cell: (row) => html`<span title=${row.worker.listen ? text.listens(row.worker.listen) : undefined}><${Text} text=${row.worker.version ?? '-'} /></span>` },
];

/** @param {(row: any) => void} onRemove @param {boolean} mayAct @returns {import('../ui/table.js').Column<any>[]} */
const consumerColumns = (onRemove, mayAct) => [
  { key: 'consumer', label: words.groupParts.consumer, main: true, value: (row) => row.consumer, cell: (row) => html`<${Link} page="pending" query=${{ s: row.stream, g: row.group, c: row.consumer }} data-main=${true}><${Name} name=${row.consumer} max=${40} /><//>` },
  { key: 'group', label: text.group, class: 'wide', value: (row) => `${row.stream} ${row.group}`, cell: place },
  { key: 'pending', label: words.overview.pending, align: 'number', value: (row) => row.entry.pending, cell: held },
  { key: 'asked', label: words.groupParts.asked, hint: words.groupParts.askedHint, align: 'number', value: (row) => row.entry.idle_ms, cell: (row) => html`<${Duration} ms=${row.entry.idle_ms} why=${words.groupParts.neverAsked} />` },
  { key: 'got', label: words.groupParts.got, hint: words.groupParts.gotHint, align: 'number', value: (row) => row.entry.inactive_ms, cell: (row) => html`<${Duration} ms=${row.entry.inactive_ms} why=${words.groupParts.gotUnknown} />` },
  ...(mayAct ? [{ key: 'remove', label: words.table.actions, class: 'tools', cell: (/** @type {any} */ row) => html`<button type="button" class="small" onClick=${() => onRemove(row)}>${words.groupParts.remove}</button>` }] : []),
];

export function Workers() {
  useLive('jobs');
  const found = useGet('/consumers', {}, { every_ms: 2000 });
  const rateOf = useRates();
  const [removing, setRemoving] = useState(/** @type {any} */ (null));
  const mayAct = useMay()('/consumer/remove');
  return html`<div class="page-head"><h1>${text.title}</h1></div>
    <${Loaded} from=${found}>${(/** @type {any} */ data) => {
      const consumers = /** @type {any[]} */ (data);
      const rows = rowsOf(consumers, rateOf);
      const alive = rows.filter((row) => row.worker?.alive).length;
      const late = rows.filter((row) => row.worker && !row.worker.alive).length;
      return html`<section class=${`answer ${late > 0 ? 'degraded' : 'ok'}`}><p class="verdict">${alive + late === 0 ? text.none : text.answer(counted(alive, text.one, text.many), late)}</p></section>
        <${WorkerTable} rows=${rows.filter((row) => row.worker)} />
        <${ConsumerTable} rows=${rows.filter((row) => !row.worker)} columns=${consumerColumns(setRemoving, mayAct)} />
        ${removing && html`<${RemoveConsumerDialog} stream=${removing.stream} group=${removing.group} consumer=${removing.entry} consumers=${consumers.filter((each) => each.stream === removing.stream && each.group === removing.group)} onClose=${() => setRemoving(null)} onDone=${found.reload} />`}`;
    }}<//>`;
}

/** @param {{ rows: any[] }} props */
function WorkerTable({ rows }) {
  const table = useLocalTable({ rows, columns: WORKER_COLUMNS, rowKey: (row) => row.key, text: searched, first: ['state', true] });
  return html`<${Panel} class="table-panel" title=${text.heartbeats}><${FilterBar} value=${table.filter} onInput=${table.setFilter} matched=${table.matched} total=${rows.length} />
    <${DataTable} caption=${text.heartbeats} ...${table.props} rowClass=${(/** @type {any} */ row) => (row.worker.alive && !isOpen(row) ? '' : 'degraded')} empty=${text.none} /><//>`;
}

/** @param {{ rows: any[], columns: import('../ui/table.js').Column<any>[] }} props */
function ConsumerTable({ rows, columns }) {
  const table = useLocalTable({ rows, columns, rowKey: (row) => row.key, text: searched, prefix: 'c', first: ['asked', true] });
  return html`<${Panel} class="table-panel" title=${text.others} actions=${html`<span class="hint">${text.othersHint}</span>`}><${FilterBar} main=${false} label=${text.filterOthers} value=${table.filter} onInput=${table.setFilter} matched=${table.matched} total=${rows.length} />
    <${DataTable} caption=${text.others} ...${table.props} empty=${text.noOthers} /><//>`;
}

// @ts-check
/** The partitions of a logical stream, and those of one of its groups. Each leads to its ordinary page. */

import { html } from '../html.js';
import { words } from '../words.js';
import { Ago, Count, Duration, Health, Link, Name, Panel, Rate } from '../ui/parts.js';
import { DataTable, useLocalTable } from '../ui/table.js';
import { timeOfId } from '../format.js';

const text = words.partitions;

/** Says that a stream is a partition, and leads to the logical stream or its group. @param {{ data: any, group?: string }} props */
export function PartitionOf({ data, group }) {
  if (data?.partition_of === null || data?.partition_of === undefined) return null;
  const query = group === undefined ? { s: data.partition_of } : { s: data.partition_of, g: group };
  return html`<p class="hint">${text.partOf(data.partition)} <${Link} page=${group === undefined ? 'stream' : 'group'} query=${query}><${Name} name=${data.partition_of} max=${48} /><//></p>`;
}

/** @param {{ rows: any[], group: string, worst: number | null }} props */
export function GroupPartitions({ rows, group, worst }) {
  /** @type {import('../ui/table.js').Column<any>[]} */
  const columns = [
    { key: 'health', label: words.overview.health, class: 'narrow', value: (row) => ['ok', 'unknown', 'degraded', 'critical'].indexOf(row.health), cell: (row) => html`<${Health} health=${row.health} brief=${true} />` },
    { key: 'number', label: text.number, main: true, align: 'number', value: (row) => row.partition, cell: (row) => html`<${Link} page="group" query=${{ s: row.stream, g: group }} data-main=${true} class=${row.partition === worst ? 'strong' : undefined} title=${row.partition === worst ? text.worst : row.stream}>${row.partition}<//>` },
    { key: 'owner', label: text.owner, hint: text.ownerHint, value: (row) => row.consumer ?? row.owner, cell: (row) => (row.owner === null ? html`<span class="unknown" title=${text.noOwner}>-</span>` : html`<${Name} name=${row.consumer ?? row.owner} max=${40} />`) },
    { key: 'fence', label: text.fence, hint: text.fenceHint, align: 'number', value: (row) => row.fence, cell: (row) => (row.fence === null ? html`<span class="unknown" title=${text.noOwner}>-</span>` : String(row.fence)) },
    { key: 'lag', label: words.overview.lag, hint: words.overview.lagHint, align: 'number', value: (row) => row.lag, cell: (row) => html`<${Count} value=${row.lag} exact=${row.lag_exact} why=${words.overview.lagUnknown} />` },
    { key: 'oldest', label: words.overview.oldest, hint: words.overview.oldestHint, align: 'number', value: (row) => row.oldest_unread_ms, cell: (row) => html`<${Duration} ms=${row.oldest_unread_ms} exact=${row.oldest_unread_exact} why=${words.overview.oldestNone} />` },
    { key: 'pending', label: words.overview.pending, hint: words.overview.pendingHint, align: 'number', value: (row) => row.pending, cell: (row) => (row.pending > 0 ? html`<${Link} page="pending" query=${{ s: row.stream, g: group }}><${Count} value=${row.pending} /><//>` : html`<${Count} value=${row.pending} />`) },
    { key: 'in', label: words.overview.inRate, align: 'number', value: (row) => row.rates?.in, cell: (row) => html`<${Rate} value=${row.rates?.in} />` },
    { key: 'out', label: words.overview.outRate, align: 'number', value: (row) => row.rates?.out, cell: (row) => html`<${Rate} value=${row.rates?.out} />` },
    { key: 'dead', label: words.overview.deadShort, hint: words.overview.deadHint, align: 'number', value: (row) => row.dead_letters, cell: (row) => (row.dead_letters > 0 ? html`<${Link} page="dlq" query=${{ s: row.stream, group }}><${Count} value=${row.dead_letters} /><//>` : html`<${Count} value=${row.dead_letters} />`) },
  ];
  const table = useLocalTable({ rows, columns, rowKey: (row) => row.stream, prefix: 'p', first: ['number', false] });
  return html`<${Panel} class="table-panel" title=${text.title(rows.length)}><${DataTable} caption=${text.title(rows.length)} ...${table.props} rowClass=${(/** @type {any} */ row) => row.health ?? ''} /><//>`;
}

/** @param {{ rows: any[], missing: number[] }} props */
export function StreamPartitions({ rows, missing }) {
  /** @type {import('../ui/table.js').Column<any>[]} */
  const columns = [
    { key: 'number', label: text.number, main: true, align: 'number', value: (row) => row.partition, cell: (row) => html`<${Link} page="stream" query=${{ s: row.stream }} data-main=${true} title=${row.stream}>${row.partition}<//>` },
    { key: 'length', label: words.stream.entries, align: 'number', value: (row) => row.length, cell: (row) => html`<${Count} value=${row.length} />` },
    { key: 'added', label: text.added, hint: text.addedHint, align: 'number', value: (row) => row.entries_added, cell: (row) => html`<${Count} value=${row.entries_added} />` },
    { key: 'in', label: words.overview.inRate, align: 'number', value: (row) => row.rates?.in, cell: (row) => html`<${Rate} value=${row.rates?.in} />` },
    { key: 'newest', label: words.stream.newest, align: 'number', value: (row) => (row.last_entry ? timeOfId(row.last_entry) : null), cell: (row) => html`<${Ago} ms=${row.last_entry ? timeOfId(row.last_entry) : null} why=${words.stream.noEntries} />` },
    { key: 'dead', label: words.overview.deadShort, hint: words.overview.deadHint, align: 'number', value: (row) => row.dead_letters, cell: (row) => (row.dead_letters > 0 ? html`<${Link} page="dlq" query=${{ s: row.stream }}><${Count} value=${row.dead_letters} /><//>` : html`<${Count} value=${row.dead_letters} />`) },
  ];
  const table = useLocalTable({ rows, columns, rowKey: (row) => row.stream, prefix: 'p', first: ['number', false] });
  return html`<${Panel} class="table-panel" title=${text.title(rows.length)}>
    ${missing.length > 0 && html`<p class="note bad-text">${text.missing(missing.join(', '))}</p>`}
    <${DataTable} caption=${text.title(rows.length)} ...${table.props} /><//>`;
}

// @ts-check
/** The tables of the server page: slow commands, statistics of commands, clients, and what INFO tells. */

import { useGet } from '../api.js';
import { bytes, isNumber, micros } from '../format.js';
import { html, useRef } from '../html.js';
import { clip } from '../printable.js';
import { perSecond } from '../series.js';
import { words } from '../words.js';
import { Ago, Count, Duration, Loaded, Moment, Panel, Rate, Text, Unknown } from '../ui/parts.js';
import { DataTable, FilterBar, useLocalTable } from '../ui/table.js';

const text = words.server;
/** Longest part of a slow command that the table shows. */
const COMMAND_CHARACTERS_MAX = 300;

/** @typedef {import('../ui/table.js').Column<any>} Column */

const took = (/** @type {number | null} */ us) => (isNumber(us) ? html`<span title=${`${us.toLocaleString()} µs`}>${micros(us)}</span>` : html`<${Unknown} />`);
const Words = (/** @type {{ text: string }} */ { text: shown }) => (shown === '' ? html`<span class="soft">-</span>` : html`<bdi title=${shown.length > 60 ? clip(shown, 2000) : undefined}><${Text} text=${clip(shown, 60)} /></bdi>`);

/** @type {Column[]} */
const SLOW_COLUMNS = [
  { key: 'at', label: text.at, main: true, value: (row) => row.at_ms, cell: (row) => html`<${Moment} ms=${row.at_ms} /> <span class="soft">(<${Ago} ms=${row.at_ms} /> ${words.entry.ago})</span>` },
  { key: 'took', label: text.took, align: 'number', value: (row) => row.took_us, cell: (row) => html`<strong>${took(row.took_us)}</strong>` },
  { key: 'client', label: text.client, value: (row) => row.client_name || row.client, cell: (row) => html`<${Words} text=${[row.client_name, row.client].filter(Boolean).join(' ')} />` },
  { key: 'command', label: text.command, class: 'wide mono', value: (row) => row.command.join(' '), cell: (row) => html`<span class="fields-line"><bdi><${Text} text=${clip(row.command.join(' '), COMMAND_CHARACTERS_MAX)} /></bdi></span>` },
];

/** @param {{ from: any, settings: any, onReset: (() => void) | null }} props */
export function SlowLog({ from, settings, onReset }) {
  return html`<div id="slow"><${Panel} class="table-panel" title=${text.slowLog} actions=${html`<span class="hint">${threshold(settings)}</span>
      ${onReset && html`<button type="button" class="small" disabled=${!from.data?.length} onClick=${onReset}>${text.resetSlow}</button>`}`}>
    <${Loaded} from=${from}>${(/** @type {any[]} */ rows) => html`<${SlowTable} rows=${rows} />`}<//><//></div>`;
}

/** Says from when on a command is slow. @param {any} settings */
function threshold(settings) {
  const us = Number(settings?.['slowlog-log-slower-than'] ?? NaN);
  return us < 0 ? text.thresholdOff : isNumber(us) ? text.threshold(micros(us)) : '';
}

/** @param {{ rows: any[] }} props */
function SlowTable({ rows }) {
  const columns = rows.some((row) => row.node) ? [...SLOW_COLUMNS, NODE_COLUMN] : SLOW_COLUMNS;
  const table = useLocalTable({ rows, columns, rowKey: (row) => `${row.node ?? ''} ${row.id}`, text: (row) => `${row.command.join(' ')} ${row.client} ${row.client_name ?? ''}`, prefix: 'l', first: ['at', true] });
  return html`${rows.length > 0 && html`<${FilterBar} value=${table.filter} onInput=${table.setFilter} matched=${table.matched} total=${rows.length} />`}
    <div class="scrolling"><${DataTable} caption=${text.slowLog} ...${table.props} empty=${text.slowNone} /></div>`;
}

/** The node of a cluster. @type {Column} */
const NODE_COLUMN = { key: 'node', label: text.node, value: (row) => row.node, cell: (row) => html`<${Words} text=${row.node ?? ''} />` };

/** @type {Column[]} */
const COMMAND_COLUMNS = [
  { key: 'name', label: text.command, main: true, value: (row) => row.name, cell: (row) => html`<span class="mono"><${Text} text=${row.name.replaceAll('|', ' ').toUpperCase()} /></span>` },
  { key: 'rate', label: text.perSecond, align: 'number', value: (row) => row.per_s, cell: (row) => html`<${Rate} value=${row.per_s} />` },
  { key: 'calls', label: text.calls, align: 'number', value: (row) => row.calls, cell: (row) => html`<${Count} value=${row.calls} short=${true} />` },
  { key: 'average', label: text.average, align: 'number', value: (row) => row.avg_us, cell: (row) => took(row.avg_us) },
  { key: 'total', label: text.total, align: 'number', value: (row) => row.total_us, cell: (row) => took(row.total_us) },
  { key: 'errors', label: text.errors, align: 'number', value: (row) => row.errors, cell: (row) => html`<span class=${row.errors > 0 ? 'warn-text' : undefined}><${Count} value=${row.errors} /></span>` },
];

/** The statistics of commands. The rates come from two answers of the server. @param {{ rows: any[] }} props */
export function Commands({ rows: given }) {
  const before = useRef(/** @type {{ at: number, given: any[], calls: Map<string, number>, rates: Map<string, number | null> }} */ ({ at: 0, given: [], calls: new Map(), rates: new Map() }));
  if (before.current.given !== given) {
    const now = Date.now();
    const calls = new Map(given.map((row) => [row.name, row.calls]));
    before.current = { at: now, given, calls, rates: perSecond(before.current.calls, calls, now - before.current.at) };
  }
  const rows = given.map((row) => ({ ...row, per_s: row.per_s ?? before.current.rates.get(row.name) ?? null, total_us: isNumber(row.avg_us) ? row.avg_us * row.calls : null }));
  const table = useLocalTable({ rows, columns: COMMAND_COLUMNS, rowKey: (row) => row.name, prefix: 'm', first: ['total', true] });
  return html`<div id="commands"><${Panel} class="table-panel" title=${text.commandList}><div class="scrolling"><${DataTable} caption=${text.commandList} ...${table.props} empty=${text.commandsUnknown} /></div><//></div>`;
}

/** @type {Column[]} */
const CLIENT_COLUMNS = [
  { key: 'name', label: text.name, main: true, value: (row) => row.name, cell: (row) => html`<${Words} text=${row.name || `#${row.id}`} />` },
  { key: 'address', label: text.address, value: (row) => row.address, cell: (row) => html`<${Words} text=${row.address} />` },
  { key: 'user', label: text.user, value: (row) => row.user, cell: (row) => html`<${Words} text=${row.user ?? ''} />` },
  { key: 'age', label: text.age, align: 'number', value: (row) => row.age_ms, cell: (row) => html`<${Duration} ms=${row.age_ms} />` },
  { key: 'idle', label: text.idle, align: 'number', value: (row) => row.idle_ms, cell: (row) => html`<${Duration} ms=${row.idle_ms} />` },
  { key: 'command', label: text.command, value: (row) => row.command, cell: (row) => html`<span class="mono"><${Words} text=${row.command ?? ''} /></span>` },
  { key: 'state', label: text.state, value: (row) => row.blocked, cell: (row) => (row.blocked ? text.waits : html`<span class="soft">-</span>`) },
  { key: 'memory', label: text.memoryOf, align: 'number', value: (row) => row.memory_bytes, cell: (row) => (isNumber(row.memory_bytes) ? bytes(row.memory_bytes) : html`<${Unknown} why=${text.unknownHere} />`) },
  { key: 'library', label: text.library, value: (row) => row.library, cell: (row) => html`<${Words} text=${row.library ?? ''} />` },
];

export function Clients() {
  const found = useGet('/clients', {}, { every_ms: 5000 });
  return html`<div id="clients"><${Panel} class="table-panel" title=${text.clientList}><${Loaded} from=${found}>${(/** @type {any[]} */ rows) => html`<${ClientTable} rows=${rows} />`}<//><//></div>`;
}

/** @param {{ rows: any[] }} props */
function ClientTable({ rows }) {
  const columns = rows.some((row) => row.node) ? [...CLIENT_COLUMNS, NODE_COLUMN] : CLIENT_COLUMNS;
  const table = useLocalTable({ rows, columns, rowKey: (row) => `${row.node ?? ''} ${row.id}`, text: (row) => `${row.name} ${row.address} ${row.user ?? ''} ${row.command ?? ''} ${row.library ?? ''}`, prefix: 'c', first: ['idle', false] });
  return html`<${FilterBar} main=${false} label=${text.clientList} value=${table.filter} onInput=${table.setFilter} matched=${table.matched} total=${rows.length} />
    <div class="scrolling"><${DataTable} caption=${text.clientList} ...${table.props} empty=${text.noClients} /></div>`;
}

/** What the server tells about durability, its settings, and all of INFO. @param {{ facts: Record<string, string>, settings: Record<string, string> }} props */
export function Facts({ facts, settings }) {
  const known = text.factNames.filter(([name]) => facts[name] !== undefined);
  const shown = (/** @type {string} */ value) => (value === '' ? html`<span class="unknown">${text.empty}</span>` : html`<bdi><${Text} text=${value} /></bdi>`);
  const list = (/** @type {[string, string, string][]} */ rows) => html`<dl class="properties">${rows.map(([name, label, value]) => html`<dt key=${name} title=${name}>${label}</dt><dd key=${`${name} value`} class="mono">${shown(value)}</dd>`)}</dl>`;
  const plain = (/** @type {Record<string, string>} */ from) => /** @type {[string, string, string][]} */ (Object.entries(from).map(([name, value]) => [name, name, value]));
  return html`<div class="columns"><${Panel} title=${text.persistence}>${list(known.map(([name, label]) => [name, label, facts[name]]))}<//>
      <${Panel} title=${text.settings}>${list(plain(settings ?? {}))}<//></div>
    <${Panel}><details class="more-info"><summary>${text.allFacts}</summary>${list(plain(facts).filter(([name]) => !name.startsWith('cmdstat_')))}</details><//>`;
}

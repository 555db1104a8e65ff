// @ts-check
/** The last actions, logins and refusals: who did what, from where, and what came of it. */

import { useGet } from '../api.js';
import { html } from '../html.js';
import { useLive } from '../live.js';
import { setQuery } from '../router.js';
import { words } from '../words.js';
import { Link, Loaded, Moment, Name, Panel, Text } from '../ui/parts.js';
import { DataTable, FilterBar, useLocalTable } from '../ui/table.js';

const text = words.audit;
/** The members that have columns of their own. */
const SHOWN = ['at', 'at_ms', 'from', 'user', 'action', 'stream', 'group', 'error', 'dry_run', 'key'];

/** Returns what else a record says. @param {any} record */
const detailsOf = (record) => Object.entries(record).filter(([name, value]) => !SHOWN.includes(name) && value !== null).map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`).join(' ');

/** What an action was about, with a link. @param {{ record: any }} props */
function Subject({ record: { stream, group } }) {
  if (typeof stream !== 'string') return html`<span class="soft">-</span>`;
  const names = html`<${Name} name=${stream} max=${32} />${typeof group === 'string' && html` / <${Name} name=${group} max=${32} />`}`;
  return typeof group === 'string' ? html`<${Link} page="group" query=${{ s: stream, g: group }}>${names}<//>` : html`<${Link} page="stream" query=${{ s: stream }}>${names}<//>`;
}

/** @type {import('../ui/table.js').Column<any>[]} */
const COLUMNS = [
  { key: 'at', label: text.at, main: true, value: (row) => row.at_ms, cell: (row) => html`<${Moment} ms=${row.at_ms} />` },
  { key: 'action', label: text.action, class: 'nowrap', value: (row) => row.action, cell: (row) => html`<span class="mono"><${Text} text=${row.action} /></span>` },
  { key: 'subject', label: text.subject, class: 'nowrap', value: (row) => `${row.stream ?? ''} ${row.group ?? ''}`, cell: (row) => html`<${Subject} record=${row} />` },
  { key: 'user', label: text.user, class: 'nowrap', value: (row) => row.user, cell: (row) => html`<bdi><${Text} text=${row.user ?? '-'} /></bdi>` },
  { key: 'from', label: text.from, class: 'nowrap', value: (row) => row.from, cell: (row) => html`<${Text} text=${row.from ?? '-'} />` },
  { key: 'result', label: text.result, class: 'result', value: (row) => row.error ?? '', cell: (row) => (row.error ? html`<span class="bad-text"><${Text} text=${row.error} /></span>` : row.action === 'refused' ? html`<span class="bad-text">${text.refused}</span>` : row.dry_run ? html`<span class="soft">${text.preview}</span>` : html`<span class="good-text">${text.ok}</span>`) },
  { key: 'details', label: text.details, class: 'wide', cell: (row) => html`<span class="fields-line soft"><bdi><${Text} text=${detailsOf(row)} /></bdi></span>` },
];

/** @param {{ query: URLSearchParams }} props */
export function Audit({ query }) {
  useLive('jobs');
  const found = useGet('/audit', {}, { every_ms: 5000 });
  return html`<div class="page-head"><h1>${text.title}</h1></div><p class="soft">${text.note}</p>
    <${Loaded} from=${found}>${(/** @type {any[]} */ records) => html`<${Records} records=${records} withPreviews=${query.get('previews') === '1'} />`}<//>`;
}

/** @param {{ records: any[], withPreviews: boolean }} props */
function Records({ records, withPreviews }) {
  const rows = records.map((record, at) => ({ ...record, key: `${record.at_ms} ${records.length - at}` })).filter((row) => withPreviews || !row.dry_run);
  const table = useLocalTable({ rows, columns: COLUMNS, rowKey: (row) => row.key, text: (row) => `${row.action} ${row.stream ?? ''} ${row.group ?? ''} ${row.user ?? ''} ${row.from ?? ''} ${row.error ?? ''} ${detailsOf(row)}`, first: ['at', true] });
  return html`<${Panel} class="table-panel"><${FilterBar} value=${table.filter} onInput=${table.setFilter} matched=${table.matched} total=${rows.length}>
      <label class="check"><input type="checkbox" checked=${withPreviews} onChange=${() => setQuery({ previews: !withPreviews }, { replace: true })} /> ${text.previews}</label><//>
    <${DataTable} caption=${text.title} ...${table.props} empty=${text.none} /><//>`;
}

// @ts-check
/** Dead letters: which streams have some; why and with which error messages died; redrive and delete those that match. */

import { apiUrl, useGet } from '../api.js';
import { commands } from '../cli.js';
import { counted, parseDuration, timeOfId } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { useKeys } from '../keys.js';
import { status, useLive } from '../live.js';
import { setQuery } from '../router.js';
import { words } from '../words.js';
import { useMay } from '../ui/action.js';
import { useCommands } from '../ui/palette.js';
import { Ago, CliLine, Count, Draft, Link, Loaded, Name, Panel, ProblemNote, Text } from '../ui/parts.js';
import { DataTable, FilterBar, useLocalTable } from '../ui/table.js';
import { FieldsLine } from '../ui/values.js';
import { PurgeDialog, RedriveDialog } from './dlq-actions.js';

const text = words.dlq;
const PAGE = 50;

/** @param {{ query: URLSearchParams }} props */
export function DeadLetters({ query }) {
  useLive('jobs');
  const stream = query.get('s');
  return stream === null ? html`<${Streams} of=${query.get('of')} query=${query} />` : html`<${Letters} stream=${stream} query=${query} />`;
}

/** The streams that have dead letters: all, or those of the partitions of a stream. @param {{ of: string | null, query: URLSearchParams }} props */
function Streams({ of, query }) {
  const found = useGet('/dlq', { stream: of }, { every_ms: 5000 });
  return html`<div class="page-head"><h1>${text.title}${of !== null && html` <span class="crumbs">${words.pending.of}</span> <${Link} page="stream" query=${{ s: of }}><${Name} name=${of} max=${48} /><//>`}</h1></div>
    <${Loaded} from=${found}>${(/** @type {any[]} */ rows) => html`<${StreamTable} rows=${rows} />`}<//>
    <${CliLine} line=${of !== null || query.get('q') ? null : commands(status.value?.place ?? '').dlqStreams()} />`;
}

/** @param {{ rows: any[] }} props */
function StreamTable({ rows }) {
  /** @type {import('../ui/table.js').Column<any>[]} */
  const columns = [
    { key: 'name', label: text.letterStream, main: true, value: (row) => row.dead_letters, cell: (row) => html`<${Link} page="dlq" query=${{ s: row.streams?.[0] ?? row.dead_letters, dlq: row.dead_letters }} data-main=${true}><${Name} name=${row.dead_letters} max=${48} /><//>` },
    { key: 'of', label: text.ofStreams, class: 'wide', cell: (row) => (row.streams ?? []).map((/** @type {string} */ name) => html`<${Link} key=${name} page="dlq" query=${{ s: name, dlq: row.dead_letters }} class="listed"><${Name} name=${name} max=${40} /><//>`) },
    { key: 'newest', label: text.lastDied, align: 'number', value: (row) => (row.last_entry ? timeOfId(row.last_entry) : null), cell: (row) => html`<${Ago} ms=${row.last_entry ? timeOfId(row.last_entry) : null} />` },
    { key: 'length', label: text.letters, align: 'number', value: (row) => row.length, cell: (row) => html`<${Link} page="dlq" query=${{ s: row.streams?.[0] ?? row.dead_letters, dlq: row.dead_letters }}><${Count} value=${row.length} /><//>` },
  ];
  const table = useLocalTable({ rows, columns, rowKey: (row) => row.dead_letters, text: (row) => `${row.dead_letters} ${(row.streams ?? []).join(' ')}`, first: ['length', true] });
  return html`<${Panel} class="table-panel"><${FilterBar} value=${table.filter} onInput=${table.setFilter} matched=${table.matched} total=${rows.length} />
    <${DataTable} caption=${text.title} ...${table.props} empty=${text.none} /><//>`;
}

/** Returns the filter that the address holds, with the names of the API. @param {URLSearchParams} query */
function filterOf(query) {
  return {
    reason: query.get('reason') || null, error: query.get('error') || null, group: query.get('group') || null,
    older_ms: parseDuration(query.get('older') ?? ''), newer_ms: parseDuration(query.get('newer') ?? ''),
  };
}

/** @param {string} stream @param {string | null} dlq @returns {import('../ui/table.js').Column<any>[]} */
const columns = (stream, dlq) => [
  { key: 'id', label: text.id, class: 'id', main: true, cell: (row) => html`<${Link} page="entry" query=${{ s: dlq ?? stream, id: row.id, of: stream }} data-main=${true}>${row.id}<//>` },
  { key: 'group', label: text.group, cell: (row) => (row.group === null ? html`<span class="unknown" title=${text.noGroupHint}>-</span>` : html`<${Link} page="group" query=${{ s: row.stream || stream, g: row.group }}><${Name} name=${row.group} max=${32} /><//>`) },
  { key: 'reason', label: text.reason, class: 'nowrap', cell: (row) => html`<${Text} text=${row.reason ?? '-'} />` },
  { key: 'deliveries', label: text.deliveries, align: 'number', cell: (row) => html`<${Count} value=${row.deliveries} why=${text.deliveriesUnknown} />` },
  { key: 'died', label: text.died, hint: text.diedHint, align: 'number', cell: (row) => html`<${Ago} ms=${row.dead_at_ms} />` },
  { key: 'error', label: text.error, class: 'wide', cell: (row) => html`<div class="row-error"><${Text} text=${row.error || row.error_type || '-'} />${row.redrives > 0 && html` <span class="soft">${text.redriven(row.redrives)}</span>`}</div><${FieldsLine} fields=${row.fields} max=${4} />` },
];

/** @param {{ stream: string, query: URLSearchParams }} props */
function Letters({ stream, query }) {
  const dlq = query.get('dlq');
  const filter = filterOf(query);
  const after = query.get('after');
  const page = useGet('/dlq/letters', { stream, dlq, ...filter, after, count: PAGE }, { every_ms: 5000 });
  const [selected, setSelected] = useState(/** @type {Set<string>} */ (new Set()));
  const [dialog, setDialog] = useState(/** @type {'redrive' | 'purge' | null} */ (null));
  const may = useMay();
  const [mayRedrive, mayPurge] = [may('/dlq/redrive'), may('/dlq/purge')];
  const mayAct = mayRedrive || mayPurge;
  const key = JSON.stringify([stream, dlq, filter, after]);
  useEffect(() => setSelected(new Set()), [key]);
  const data = page.data;
  const rows = /** @type {any[]} */ (data?.items ?? []);
  // A link to the redrive of one dead letter names it, wherever in the list it is.
  const only = query.get('ids');
  const ids = only !== null ? [only] : rows.map((row) => row.id).filter((id) => selected.has(id));
  const chosen = ids.length > 0 ? ids.length : data?.matched ?? 0;
  const said = `${data?.exact === false && ids.length === 0 ? '≥' : ''}${counted(chosen, words.dlqActions.one, words.dlqActions.many)}`;
  const start = (/** @type {'redrive' | 'purge'} */ kind) => () => chosen > 0 && setDialog(kind);
  useKeys({ ...(mayRedrive ? { r: start('redrive') } : {}), ...(mayPurge ? { D: start('purge') } : {}) });
  useCommands([...(mayRedrive ? [{ text: text.redriveCommand, run: start('redrive'), keys: 'r' }] : []), ...(mayPurge ? [{ text: text.purgeCommand, run: start('purge'), keys: 'D' }] : [])]);
  const acted = { ...filter, ids: ids.length > 0 ? ids : null };
  const common = { stream, dlq, filter: acted, onClose: () => setDialog(null), onDone: () => { setSelected(new Set()); page.reload(); } };
  return html`<div class="page-head"><h1>${text.title} <span class="crumbs">${words.pending.of}</span> <${Link} page="stream" query=${{ s: stream }}><${Name} name=${stream} max=${48} /><//></h1>
      ${mayAct && data && html`<div class="actions">${mayRedrive && html`<button type="button" class="primary" disabled=${chosen === 0} onClick=${start('redrive')}>${text.redrive(said)}</button>`}
        ${mayPurge && html`<button type="button" class="danger" disabled=${chosen === 0} onClick=${start('purge')}>${text.purge(said)}</button>`}</div>`}</div>
    ${only !== null && html`<p class="note">${text.onlyOne} <code>${only}</code> <button type="button" class="small" onClick=${() => setQuery({ ids: null })}>${text.chooseOthers}</button></p>`}
    ${data && (data.by_reason.length > 0 || filter.error || filter.reason) && html`<div class="columns"><${Breakdown} title=${text.byReason} rows=${data.by_reason} name="reason" chosen=${filter.reason} />
      <${Breakdown} title=${text.byError} rows=${data.by_error} name="error" chosen=${filter.error} /></div>`}
    <${Panel} class="table-panel">
      <${Controls} query=${query} page=${data} />
      ${page.problem && html`<${ProblemNote} problem=${page.problem} retry=${page.reload} />`}
      ${!data && !page.problem && html`<p class="loading pad">${words.parts.loading}</p>`}
      ${data && html`<${DataTable} caption=${text.title} columns=${columns(stream, data.dead_letters)} rows=${rows} rowKey=${(/** @type {any} */ row) => row.id} selection=${mayAct ? { selected, onSelect: setSelected } : undefined} empty=${text.noMatch} />
        <div class="pager">
          <a class="button small" href=${apiUrl('/dlq/letters', { stream, dlq, ...filter, count: 500 })} download="dead-letters.json">${words.overview.export}</a>
          ${after && html`<button type="button" class="small" onClick=${() => setQuery({ after: null })}>${text.restart}</button>`}
          ${data.next && html`<button type="button" class="small" onClick=${() => setQuery({ after: data.next })}>${words.table.next} →</button>`}
        </div>`}
      <div class="cli-foot"><${CliLine} line=${after ? null : commands(status.value?.place ?? '').dlqList(stream, { ...filter, dlq, count: PAGE })} /></div>
    <//>
    ${dialog === 'redrive' && html`<${RedriveDialog} ...${common} />`}
    ${dialog === 'purge' && html`<${PurgeDialog} ...${common} />`}`;
}

/** How many dead letters have each reason or error. A click shows only these. @param {{ title: string, rows: any[], name: 'reason' | 'error', chosen: string | null }} props */
function Breakdown({ title, rows = [], name, chosen }) {
  const most = Math.max(1, ...rows.map((row) => row.count));
  return html`<${Panel} title=${title} actions=${chosen !== null && html`<button type="button" class="small" onClick=${() => setQuery({ [name]: null, after: null })}>${text.showAll}</button>`}>
    ${rows.length === 0 && html`<p class="soft">${text.noMatch}</p>`}
    <div class="histogram long-labels">${rows.slice(0, 12).map((row) => {
      const value = row[name] ?? '';
      const label = value === '' ? text.noText : value;
      // Numbers in errors are replaced by `#`, so only the part before the first one can filter.
      const asked = name === 'error' ? value.split('#')[0].trim() : value;
      return html`<${Link} key=${value} class=${`bar ${chosen === asked && asked !== '' ? 'chosen' : ''}`} page="dlq" query=${{ ...Object.fromEntries(new URLSearchParams(location.search)), [name]: asked || null, after: null }}>
        <span class="bar-label"><${Text} text=${label} /></span><span class="bar-track"><span class="bar-fill bad" style=${{ width: `${Math.max(0.6, (100 * row.count) / most)}%` }}></span></span><span class="bar-count"><${Count} value=${row.count} /></span><//>`;
    })}</div><//>`;
}

/** @param {{ query: URLSearchParams, page: any }} props */
function Controls({ query, page }) {
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setQuery({ [name]: event.target.value.trim(), after: null }, { replace: true });
  const bad = ['older', 'newer'].some((name) => query.get(name) && parseDuration(query.get(name) ?? '') === null);
  const chosen = query.get('reason') ?? '';
  const reasons = [...new Set([...(page?.by_reason ?? []).map((/** @type {any} */ row) => row.reason), chosen])].filter(Boolean);
  const input = (/** @type {'error' | 'group' | 'older' | 'newer'} */ name, /** @type {string} */ placeholder = '') => html`<label>${text.filters[name]} <${Draft} class=${name === 'error' ? '' : 'short'} value=${query.get(name) ?? ''} placeholder=${placeholder} onChange=${set(name)} /></label>`;
  return html`<form class="filter-bar browse" role="search" aria-label=${text.title} onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <label>${text.filters.reason} <select value=${chosen} onChange=${set('reason')}><option value="">${text.any}</option>${reasons.map((reason) => html`<option key=${reason} value=${reason}>${reason}</option>`)}</select></label>${input('group', text.any)}${input('error', text.anyText)}${input('older', '30d')}${input('newer', '1h')}
    ${bad && html`<span class="field-error" role="alert">${words.streamActions.badDuration}</span>`}
    ${page && html`<span class="matched"><${Count} value=${page.matched} exact=${page.exact} /> ${text.match}</span>`}
  </form>`;
}

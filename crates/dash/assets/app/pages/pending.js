// @ts-check
/** The pending entries of a group: who has what since when, what it says, and actions on single rows or on all that match. */

import { useGet } from '../api.js';
import { commands } from '../cli.js';
import { counted, parseDuration } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { useKeys } from '../keys.js';
import { status, useLive } from '../live.js';
import { setQuery } from '../router.js';
import { words } from '../words.js';
import { useMay } from '../ui/action.js';
import { useCommands } from '../ui/palette.js';
import { CliLine, Count, Draft, Duration, Link, Moment, Name, Panel, ProblemNote, Text } from '../ui/parts.js';
import { DataTable } from '../ui/table.js';
import { FieldsLine } from '../ui/values.js';
import { PendingDialog } from './pending-actions.js';

const text = words.pending;
const PAGE = 100;
/** From these values on, the health of a group counts an entry as stuck. */
const STUCK_IDLE_MS = 300_000;
const STUCK_DELIVERIES = 5;

/** @typedef {import('./pending-actions.js').PendingVerb} PendingVerb */
/** @type {PendingVerb[]} */
const VERBS = ['claim', 'nack', 'extend', 'ack'];
const KEYS = { claim: 'C', nack: 'N', extend: 'E', ack: 'A' };
const isStuck = (/** @type {any} */ row) => row.idle_ms >= STUCK_IDLE_MS || row.deliveries >= STUCK_DELIVERIES;

/** @param {string} stream @returns {import('../ui/table.js').Column<any>[]} */
const columns = (stream) => [
  { key: 'id', label: text.id, class: 'id', main: true, cell: (row) => html`<${Link} page="entry" query=${{ s: stream, id: row.id }} data-main=${true}>${row.id}<//>` },
  { key: 'consumer', label: text.consumer, cell: (row) => (row.consumer === null ? html`<span class="soft" title=${text.releasedHint}>${text.released}</span>` : html`<button type="button" class="plain link" onClick=${() => setQuery({ c: row.consumer, after: null })}><${Name} name=${row.consumer} max=${32} /></button>`) },
  { key: 'idle', label: text.idle, hint: text.idleHint, align: 'number', cell: (row) => html`<span class=${row.idle_ms >= STUCK_IDLE_MS ? 'bad-text' : undefined}><${Duration} ms=${row.idle_ms} why=${text.releasedHint} /></span>` },
  { key: 'deliveries', label: text.deliveries, align: 'number', cell: (row) => html`<span class=${row.deliveries >= STUCK_DELIVERIES ? 'bad-text' : undefined}><${Count} value=${row.deliveries} /></span>` },
  { key: 'age', label: text.age, hint: text.ageHint, align: 'number', cell: (row) => html`<${Duration} ms=${row.age_ms} why=${words.browser.noTime} />` },
  { key: 'fields', label: text.fields, class: 'wide', cell: (row) => html`${row.fields === null ? html`<span class="warn-text" title=${text.goneHint}>${text.gone}</span>` : html`<${FieldsLine} fields=${row.fields} max=${4} />`}${row.error && html`<div class="row-error"><${Text} text=${row.error} />${row.due_at_ms && html` <span class="soft">${text.due} <${Moment} ms=${row.due_at_ms} /></span>`}</div>`}` },
];

/** @param {{ query: URLSearchParams }} props */
export function Pending({ query }) {
  const stream = query.get('s') ?? '';
  const group = query.get('g') ?? '';
  const filter = filterOf(query);
  const after = query.get('after');
  const page = useGet('/pending', { stream, group, ...filter, after, count: PAGE }, { every_ms: 5000 });
  const [selected, setSelected] = useState(/** @type {Set<string>} */ (new Set()));
  const [all, setAll] = useState(false);
  const [dialog, setDialog] = useState(/** @type {PendingVerb | null} */ (null));
  const may = useMay();
  const verbs = VERBS.filter((verb) => may(`/pending/${verb}`));
  const mayAct = verbs.length > 0;
  useLive('jobs');
  const key = JSON.stringify([stream, group, filter, after]);
  useEffect(() => {
    setSelected(new Set());
    setAll(false);
  }, [key]);

  const rows = /** @type {any[]} */ (page.data?.rows ?? []);
  const matched = page.data?.matched ?? 0;
  // A row that was acknowledged meanwhile is no longer part of the choice.
  const ids = rows.map((row) => row.id).filter((id) => selected.has(id));
  const chosen = all ? matched : ids.length;
  const start = (/** @type {PendingVerb} */ verb) => () => chosen > 0 && setDialog(verb);
  useKeys(Object.fromEntries(verbs.map((verb) => [KEYS[verb], start(verb)])));
  useCommands(verbs.map((verb) => ({ text: text.verbs[verb].command, run: start(verb) })));
  const done = () => {
    setSelected(new Set());
    setAll(false);
    page.reload();
  };
  return html`<div class="page-head"><h1>${text.title} <span class="crumbs">${text.of}</span> <${Link} page="stream" query=${{ s: stream }}><${Name} name=${stream} max=${40} /><//> <span class="crumbs">/</span> <${Link} page="group" query=${{ s: stream, g: group }}><${Name} name=${group} max=${40} /><//></h1></div>
    <${Panel} class="table-panel">
      <${Controls} query=${query} matched=${page.data ? { matched, exact: page.data.exact } : null} />
      ${page.problem && html`<${ProblemNote} problem=${page.problem} retry=${page.reload} />`}
      ${!page.data && !page.problem && html`<p class="loading pad">${words.parts.loading}</p>`}
      ${page.data && html`
        <${DataTable} caption=${text.title} columns=${columns(stream)} rows=${rows} rowKey=${(/** @type {any} */ row) => row.id} rowClass=${(/** @type {any} */ row) => (isStuck(row) ? 'critical' : '')}
          selection=${mayAct ? { selected: all ? new Set(rows.map((row) => row.id)) : selected, onSelect: (/** @type {Set<string>} */ next) => { setAll(false); setSelected(next); } } : undefined} empty=${Object.values(filter).some(Boolean) ? text.noMatch : text.none} />
        <div class="pager acts">
          ${mayAct && rows.length > 0 && html`<label class="check"><input type="checkbox" checked=${all} onChange=${() => setAll(!all)} /> ${text.all(matched, page.data.exact)}</label>
            <span class="with">${text.with(counted(chosen, words.entry.one, words.entry.many))}</span>
            ${verbs.map((verb) => html`<button type="button" key=${verb} class=${verb === 'ack' ? 'danger' : ''} disabled=${chosen === 0} onClick=${start(verb)} title=${text.verbs[verb].hint}>${text.verbs[verb].button}</button>`)}`}
          ${after && html`<button type="button" class="small" onClick=${() => setQuery({ after: null })}>${text.first}</button>`}
          ${page.data.next && html`<button type="button" class="small" onClick=${() => setQuery({ after: page.data.next })}>${words.table.next} →</button>`}
        </div>`}
      <div class="cli-foot"><${CliLine} line=${filter.deliveries_min || after ? null : commands(status.value?.place ?? '').pendingList(stream, group, { ...filter, count: PAGE })} /></div>
    <//>
    ${dialog && html`<${PendingDialog} verb=${dialog} stream=${stream} group=${group} ids=${all ? null : ids} filter=${filter} matched=${matched} named=${all && rows.length === matched ? rows.map((row) => row.id) : ids} onClose=${() => setDialog(null)} onDone=${done} />`}`;
}

/** Returns the filter that the address holds, with the names of the API. @param {URLSearchParams} query */
function filterOf(query) {
  const idle = parseDuration(query.get('idle') ?? '');
  const deliveries = Number(query.get('deliveries') ?? '');
  return { idle_ms_min: idle, consumer: query.get('c'), deliveries_min: deliveries > 1 ? Math.floor(deliveries) : null, stuck: query.get('stuck') === '1' || null };
}

/** Which rows to show, and how many match. @param {{ query: URLSearchParams, matched: { matched: number, exact: boolean } | null }} props */
function Controls({ query, matched }) {
  const idle = query.get('idle') ?? '';
  const bad = idle !== '' && parseDuration(idle) === null;
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setQuery({ [name]: event.target.value.trim(), after: null }, { replace: true });
  return html`<form class="filter-bar browse" role="search" aria-label=${text.title} onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <label>${text.idleMin} <${Draft} class="short" value=${idle} placeholder="5m" list="idles" aria-invalid=${bad} onChange=${set('idle')} /></label>
    <datalist id="idles"><option value="30s" /><option value="5m" /><option value="30m" /><option value="1d" /></datalist>
    <label>${text.consumer} <${Draft} value=${query.get('c') ?? ''} placeholder=${text.anyConsumer} onChange=${set('c')} /></label>
    <label>${text.deliveriesMin} <${Draft} class="short" inputmode="numeric" value=${query.get('deliveries') ?? ''} placeholder="1" onChange=${set('deliveries')} /></label>
    <label class="check" title=${text.stuckHint}><input type="checkbox" checked=${query.get('stuck') === '1'} onChange=${(/** @type {any} */ event) => setQuery({ stuck: event.target.checked ? '1' : null, after: null }, { replace: true })} /> ${text.stuckOnly}</label>
    ${bad && html`<span class="field-error" role="alert">${words.streamActions.badDuration}</span>`}
    ${matched && html`<span class="matched"><${Count} value=${matched.matched} exact=${matched.exact} /> ${text.match}</span>`}
  </form>`;
}

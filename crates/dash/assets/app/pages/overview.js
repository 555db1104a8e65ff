// @ts-check
/** The overview: is anything wrong right now, and why; then one row for each group, and for each stream without one. */

import { apiUrl, useGet } from '../api.js';
import { commands } from '../cli.js';
import { bound, eta } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { useKeys } from '../keys.js';
import { status, useLive, watchOf } from '../live.js';
import { open, setQuery } from '../router.js';
import { patchRows } from '../rows.js';
import { words } from '../words.js';
import { Choices, CliLine, Count, Duration, Fact, Health, Link, Name, Panel, ProblemNote, Rate, Sparkline, Text } from '../ui/parts.js';
import { DataTable, FilterBar, useHold, useOrder } from '../ui/table.js';
import { announce } from '../ui/toasts.js';

const ROWS = 100;
/** Number of unwell groups that the head explains. One more takes no more place than the line that would count it. */
const REASONS = 4;
const text = words.overview;

/** @param {any} row */
const Eta = (row) => html`<span class=${row.eta === 'never' ? 'bad-text' : row.eta === 'caught_up' ? 'zero' : undefined} title=${text.etaTitles[row.eta]}>${eta(row)}</span>`;

/** Returns the page of a row. @param {any} row */
export const pageOfRow = (row) => (row.group === null ? { page: 'stream', query: { s: row.stream } } : { page: 'group', query: { s: row.stream, g: row.group } });

/** Returns the page of the pending entries of a row: those of a logical stream are on the pages of its partitions. @param {any} row @param {any} [filter] */
const pendingOfRow = (row, filter = {}) => (row.partition_count > 0 ? pageOfRow(row) : { page: 'pending', query: { s: row.stream, g: row.group, ...filter } });

/** The columns of a row of groups. The overview and the page of a stream show them. @type {import('../ui/table.js').Column<any>[]} */
export const GROUP_COLUMNS = [
  { key: 'health', label: text.health, sorts: true, value: (row) => ['ok', 'unknown', 'degraded', 'critical'].indexOf(row.health), class: 'narrow', cell: (row) => html`<${Health} health=${row.health} brief=${true} />` },
  { key: 'name', label: text.stream, sorts: true, main: true, cell: (row) => (row.openable === false ? html`<span title=${text.notOpenable}><${Name} name=${row.stream} max=${48} /></span>` : html`<${Link} page="stream" query=${{ s: row.stream }}><${Name} name=${row.stream} max=${48} /><//>${row.partition_count > 0 && html` <span class="soft">${words.partitions.title(row.partition_count)}</span>`}`) },
  { key: 'group', label: text.group, main: true, value: (row) => row.group, cell: (row) => (row.group === null ? html`<span class="unknown">${text.noGroup}</span>` : row.openable === false ? html`<${Name} name=${row.group} max=${48} />` : html`<${Link} page="group" query=${{ s: row.stream, g: row.group }} data-main=${true} class="strong"><${Name} name=${row.group} max=${48} /><//>`) },
  { key: 'lag', label: text.lag, sorts: true, value: (row) => row.lag, align: 'number', hint: text.lagHint, cell: (row) => (row.group === null ? '' : html`<${Count} value=${row.lag} exact=${row.lag_exact} short=${row.lag > 9_999_999} why=${text.lagUnknown} />`) },
  { key: 'trend', label: text.trend, hint: text.trendHint, class: 'trend', cell: (row) => (row.group === null ? '' : html`<${Sparkline} values=${row.lag_trend} label=${text.trendLabel(bound(row.lag, row.lag_exact, '≥'))} />`) },
  { key: 'oldest', label: text.oldest, sorts: true, value: (row) => row.oldest_unread_ms, align: 'number', hint: text.oldestHint, cell: (row) => (row.group === null ? '' : html`<${Duration} ms=${row.oldest_unread_ms} exact=${row.oldest_unread_exact} why=${text.oldestNone} />`) },
  { key: 'pending', label: text.pending, sorts: true, value: (row) => row.pending, align: 'number', hint: text.pendingHint, cell: (row) => (row.group === null ? '' : row.pending > 0 ? html`<${Link} ...${pendingOfRow(row)}><${Count} value=${row.pending} /><//>` : html`<${Count} value=${row.pending} />`) },
  { key: 'stuck', label: text.stuck, sorts: true, value: (row) => row.stuck, align: 'number', hint: text.stuckHint, cell: (row) => (row.group === null ? '' : row.stuck > 0 ? html`<${Link} ...${pendingOfRow(row, { stuck: '1' })} class="bad-text"><${Count} value=${row.stuck} /><//>` : html`<${Count} value=${row.stuck} />`) },
  { key: 'in', label: text.inRate, sorts: true, value: (row) => row.rates?.in, align: 'number', cell: (row) => html`<${Rate} value=${row.rates?.in} />` },
  { key: 'out', label: text.outRate, sorts: true, value: (row) => row.rates?.out, align: 'number', cell: (row) => (row.group === null ? '' : html`<${Rate} value=${row.rates?.out} />`) },
  { key: 'eta', label: text.eta, sorts: true, value: (row) => row.eta_ms, align: 'number', hint: text.etaHint, cell: (row) => (row.group === null ? '' : Eta(row)) },
  { key: 'dead', label: text.deadShort, sorts: true, value: (row) => row.dead_letters, align: 'number', hint: text.deadHint, cell: (row) => (row.dead_letters > 0 ? html`<${Link} page="dlq" query=${row.partition_count > 0 ? { of: row.stream } : { s: row.stream, group: row.group }}><${Count} value=${row.dead_letters} /><//>` : html`<${Count} value=${row.dead_letters} />`) },
];

/** @param {{ query: URLSearchParams }} props */
export function Overview({ query }) {
  const q = query.get('q') ?? '';
  const health = query.get('health') ?? '';
  const sort = query.get('sort') ?? 'health';
  const desc = query.has('sort') ? query.get('desc') === '1' : true;
  const offset = Number(query.get('offset') ?? 0) || 0;
  const asked = { q: q || null, health: health || null, sort, desc, offset: offset || null, count: ROWS };
  const watch = watchOf('overview', asked);
  const [state, setState] = useState(/** @type {any} */ (null));
  const first = useGet('/overview', asked);
  useEffect(() => {
    // Number 0: the dashboard has not looked at the store yet.
    if (first.data && first.data.look > 0) setState(fromAnswer(watch, first.data));
  }, [first.data]);
  useLive(watch, {
    totals: (totals) => setState((/** @type {any} */ old) => old && { ...old, totals: totals.totals ?? totals }),
    rows: (event) => setState((/** @type {any} */ old) => {
      const base = old?.watch === watch ? old : { watch, totals: old?.totals ?? null, rows: new Map(), order: [] };
      return { ...base, ...patchRows(base, event), matched: event.matched, offset: event.offset };
    }),
  });

  const { held, handlers } = useHold();
  const order = useOrder(state?.order ?? [], held, watch);
  const onSort = (/** @type {string} */ key) => {
    const descending = key === sort ? !desc : key !== 'name';
    setQuery({ sort: key, desc: descending, offset: null }, { replace: true });
  };
  const columns = GROUP_COLUMNS.map((column) => (column.key === 'group' ? { ...column, value: undefined } : column));
  const sortKeys = columns.filter((column) => column.sorts).map(({ key }) => key);
  const page = (/** @type {number} */ by) => {
    const next = offset + by * ROWS;
    if (next >= 0 && (by < 0 || next < (state?.matched ?? 0))) setQuery({ offset: next || null });
  };
  // Enter in the filter opens the first row of the list that it asks for, as soon as that is here.
  const [opening, setOpening] = useState(/** @type {string | null} */ (null));
  const openFirst = (/** @type {string} */ value) => setOpening(watchOf('overview', { ...asked, q: value || null, offset: null }));
  useEffect(() => {
    if (opening === null || state?.watch !== opening) return;
    setOpening(null);
    const row = state.rows.get(state.order[0]);
    if (row) open(pageOfRow(row).page, pageOfRow(row).query);
  }, [opening, state]);
  useKeys({ s: () => onSort(sortKeys[(sortKeys.indexOf(sort) + 1) % sortKeys.length]), '[': () => page(-1), ']': () => page(1) });

  const rows = order.map((key) => state?.rows.get(key)).filter(Boolean);
  const totals = state?.totals;
  return html`<h1 class="only-read">${words.nav.overview}</h1>
    ${!state && first.problem && html`<${ProblemNote} problem=${first.problem} retry=${first.reload} />`}
    ${!state && !first.problem && html`<p class="loading">${words.parts.loading}</p>`}
    ${totals && html`<${Answer} totals=${totals} /><${Totals} totals=${totals} />`}
    <${Panel} class="table-panel">
      <${FilterBar} value=${q} onInput=${(/** @type {string} */ value) => { setOpening(null); setQuery({ q: value, offset: null }, { replace: true }); }} onEnter=${openFirst} matched=${state?.matched} total=${totals && !q && !health ? state?.matched : null}>
        <${Choices} label=${text.health} value=${health} choices=${[['', text.all], ['critical', words.health.critical], ['degraded', words.health.degraded], ...(totals?.unknown > 0 || health === 'unknown' ? [['unknown', words.health.unknown]] : []), ['ok', words.health.ok]]}
          onChange=${(/** @type {string} */ value) => setQuery({ health: value, offset: null })} />
        <a class="button small" href=${apiUrl('/overview', { ...asked, count: null })} download="overview.json">${text.export}</a>
      <//>
      ${state && html`<${DataTable} caption=${text.title} columns=${columns} rows=${rows} rowKey=${(/** @type {any} */ row) => row.key} sort=${sort} desc=${desc} onSort=${onSort} hold=${handlers}
        rowClass=${(/** @type {any} */ row) => row.health ?? ''} empty=${q || health ? text.nothing : text.empty} />`}
      ${state && state.matched > ROWS && html`<nav class="pager" aria-label=${words.table.rows}><button type="button" disabled=${offset === 0} onClick=${() => page(-1)}>${words.table.previous} <kbd>[</kbd></button>
        <span>${words.table.range(offset + 1, Math.min(offset + ROWS, state.matched), state.matched)}</span>
        <button type="button" disabled=${offset + ROWS >= state.matched} onClick=${() => page(1)}>${words.table.next} <kbd>]</kbd></button></nav>`}
    <//>
    <${CliLine} line=${q || health || state?.matched > ROWS ? null : commands(status.value?.place ?? '').overview()} />`;
}

/** @param {string} watch @param {any} answer */
function fromAnswer(watch, answer) {
  return {
    watch, totals: answer.totals, matched: answer.matched, offset: answer.offset,
    rows: new Map(answer.rows.map((/** @type {any} */ row) => [row.key, row])), order: answer.rows.map((/** @type {any} */ row) => row.key),
  };
}

/** The answer to "is anything wrong right now?", with the reasons of the worst groups. @param {{ totals: any }} props */
function Answer({ totals }) {
  const unwell = totals.critical + totals.degraded;
  const worst = useGet(unwell > 0 ? '/overview' : null, { sort: 'health', desc: true, count: REASONS + 1 }, { every_ms: 5000 });
  const sentence = unwell + totals.unknown === 0 ? text.well : `${text.counts(totals.critical, totals.degraded, totals.unknown, totals.ok)}.`;
  useEffect(() => announce(text.announce(sentence)), [totals.critical, totals.degraded]);
  const tone = totals.critical > 0 ? 'critical' : totals.degraded > 0 ? 'degraded' : totals.unknown > 0 ? 'unknown' : 'ok';
  const rows = (worst.data?.rows ?? []).slice(0, unwell === REASONS + 1 ? unwell : REASONS).filter((/** @type {any} */ row) => ['critical', 'degraded'].includes(row.health) && row.findings?.length > 0);
  return html`<section class=${`answer ${tone}`}>
    <p class="verdict"><${Health} health=${tone} brief=${true} /> ${sentence}</p>
    ${unwell > 0 && rows.length > 0 && html`<ul class="reasons">${rows.map((/** @type {any} */ row) => html`<li key=${row.key}><${Health} health=${row.health} brief=${true} />
      <${Link} ...${pageOfRow(row)}><${Name} name=${row.stream} max=${40} /> / <${Name} name=${row.group ?? ''} max=${40} /><//>
      <span class="why">${row.findings.filter((/** @type {any} */ finding) => finding.health !== 'ok').map((/** @type {any} */ finding) => finding.text).map((/** @type {string} */ each, /** @type {number} */ at) => html`${at > 0 ? '; ' : ''}<${Text} text=${each} />`)}</span></li>`)}
      ${unwell > rows.length && html`<li class="more"><${Link} page="" query=${{ sort: 'health', desc: true }}>${text.more(unwell - rows.length)}<//></li>`}</ul>`}
  </section>`;
}

/** The totals of the store. Each number leads to what it counts. @param {{ totals: any }} props */
function Totals({ totals }) {
  const sorted = (/** @type {string} */ sort) => ({ page: '', query: { sort, desc: true } });
  return html`<dl class="facts">
    <${Fact} label=${text.streams} page="" query=${{ sort: 'name' }}><${Count} value=${totals.streams} short=${true} /><//>
    <${Fact} label=${text.groups} page=""><${Count} value=${totals.groups} short=${true} /><//>
    <${Fact} label=${text.lag} ...${sorted('lag')}><${Count} value=${totals.lag} exact=${totals.lag_exact} short=${true} /><//>
    <${Fact} label=${text.pending} ...${sorted('pending')}><${Count} value=${totals.pending} short=${true} /><//>
    <${Fact} label=${text.stuck} tone=${totals.stuck > 0 ? 'bad' : ''} ...${sorted('stuck')}><${Count} value=${totals.stuck} short=${true} /><//>
    <${Fact} label=${text.dead} tone=${totals.dead_letters > 0 ? 'warn' : ''} page="dlq"><${Count} value=${totals.dead_letters} short=${true} /><//>
    <${Fact} label=${text.in} ...${sorted('in')}><${Rate} value=${totals.in} unit=${true} /><//>
    <${Fact} label=${text.out} ...${sorted('out')}><${Rate} value=${totals.out} unit=${true} /><//>
    <${Fact} label=${text.workers} page="workers"><${Count} value=${totals.workers} short=${true} /><//>
  </dl>`;
}

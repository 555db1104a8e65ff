// @ts-check
/** The entries of a stream: by id or moment, in pages, and a bounded search that can be stopped. */

import { Problem, apiUrl, get, useGet } from '../api.js';
import { commands } from '../cli.js';
import { count, timeOfId } from '../format.js';
import { html, useEffect, useMemo, useRef, useState } from '../html.js';
import { useKeys } from '../keys.js';
import { status } from '../live.js';
import { idAfter, position, searchTerm } from '../positions.js';
import { setQuery } from '../router.js';
import { words } from '../words.js';
import { useMay } from '../ui/action.js';
import { Ago, CliLine, CopyButton, Draft, Link, Panel, ProblemNote } from '../ui/parts.js';
import { DataTable } from '../ui/table.js';
import { say } from '../ui/toasts.js';
import { FieldsLine } from '../ui/values.js';
import { DeleteDialog } from './stream-actions.js';

const text = words.browser;
const PAGE = 50;
const SCAN = 100_000;
const FOUND_MAX = 500;

/** @param {string} stream @returns {import('../ui/table.js').Column<any>[]} */
const columns = (stream) => [
  { key: 'id', label: text.id, class: 'id', main: true, cell: (entry) => html`<${Link} page="entry" query=${{ s: stream, id: entry.id }} data-main=${true}>${entry.id}<//>` },
  { key: 'age', label: text.age, align: 'number', cell: (entry) => html`<${Ago} ms=${entry.at_ms ?? timeOfId(entry.id)} why=${text.noTime} />` },
  { key: 'fields', label: text.fields, class: 'wide', cell: (entry) => html`<${FieldsLine} fields=${entry.fields} />` },
];

/** @param {{ stream: string, query: URLSearchParams, version: number }} props `version` changes when an action has changed the entries */
export function StreamBrowser({ stream, query, version }) {
  const typed = query.get('from') ?? '';
  const oldestFirst = query.get('order') === 'asc';
  const find = query.get('find') ?? '';
  // `10m` before now stays one moment until somebody types another one.
  const start = useMemo(() => (typed === '' ? null : position(typed, Date.now())), [typed]);
  const cursor = query.get('at') ?? start;
  const asked = { stream, order: oldestFirst ? 'asc' : 'desc', count: PAGE, ...(oldestFirst ? { from: cursor } : { to: cursor }) };
  const bad = typed !== '' && start === null;
  const page = useGet(bad || find ? null : '/entries', asked);
  const [deleting, setDeleting] = useState(/** @type {string[] | null} */ (null));
  const [selected, setSelected] = useState(/** @type {Set<string>} */ (new Set()));
  const mayAct = useMay()('/entries/delete');
  const items = page.data?.items ?? [];
  useEffect(() => setSelected(new Set()), [page.data]);
  useEffect(() => { if (version > 0) page.reload(); }, [version]);

  const onward = () => page.data?.next && setQuery({ at: page.data.next });
  const backward = async () => {
    if (!items[0]) return;
    const before = oldestFirst ? { order: 'desc', to: items[0].id, count: PAGE + 1 } : { order: 'asc', from: idAfter(items[0].id), count: PAGE };
    const answer = await get('/entries', { stream, ...before }).catch((problem) => say(problem.message));
    const found = (answer?.items ?? []).filter((/** @type {any} */ entry) => entry.id !== items[0].id);
    if (found.length === 0) say(text.noMore);
    else setQuery({ at: found[found.length - 1].id });
  };
  useKeys({ '[': oldestFirst ? backward : onward, ']': oldestFirst ? onward : backward });

  return html`<${Panel} class="table-panel" title=${text.title}>
    <${Controls} typed=${typed} bad=${bad} oldestFirst=${oldestFirst} find=${find} field=${query.get('field') ?? ''} />
    ${bad && html`<p class="note warn">${text.badPosition(typed)}</p>`}
    ${page.problem && html`<${ProblemNote} problem=${page.problem} retry=${page.reload} />`}
    ${find && !bad && html`<${Search} key=${`${stream} ${find} ${query.get('field')} ${cursor} ${oldestFirst}`} stream=${stream} find=${find} field=${query.get('field') ?? ''} from=${cursor} oldestFirst=${oldestFirst} />`}
    ${!find && !bad && (page.data ? html`
      <${DataTable} caption=${text.title} columns=${columns(stream)} rows=${items} rowKey=${(/** @type {any} */ entry) => entry.id} selection=${mayAct ? { selected, onSelect: setSelected } : undefined} empty=${text.empty} />
      <div class="pager actions-bottom">
        ${selected.size > 0 && html`<button type="button" onClick=${() => setDeleting([...selected])}>${text.delete(selected.size)}</button>`}
        <a class="button small" href=${apiUrl('/entries', { ...asked, count: 500 })} download="entries.json">${text.export}</a>
        <button type="button" class="small" onClick=${page.reload}>${text.reload}</button>
        <button type="button" disabled=${oldestFirst ? !query.get('at') : !page.data.next} onClick=${oldestFirst ? backward : onward}>← ${words.table.older} <kbd>[</kbd></button>
        <button type="button" disabled=${oldestFirst ? !page.data.next : !cursor || cursor === '+'} onClick=${oldestFirst ? onward : backward}>${words.table.newer} → <kbd>]</kbd></button>
      </div>` : !page.problem && html`<p class="loading pad">${words.parts.loading}</p>`)}
    <div class="pad"><${CliLine} line=${bad || find ? null : cliLine(stream, cursor, oldestFirst)} /></div>
    ${deleting && html`<${DeleteDialog} stream=${stream} ids=${deleting} onClose=${() => setDeleting(null)} onDone=${page.reload} />`}
  <//>`;
}

/** Returns the command that prints the same entries, oldest first. It reads towards newer entries, or the last ones. @param {string} stream @param {string | null} cursor @param {boolean} oldestFirst */
function cliLine(stream, cursor, oldestFirst) {
  const { entries } = commands(status.value?.place ?? '');
  const isEnd = cursor === null || cursor === '+';
  if (!oldestFirst) return isEnd ? entries(stream, { count: PAGE }) : null;
  if (cursor === '+') return null;
  const from = cursor === null || cursor === '-' ? 'earliest' : cursor.startsWith('t') ? new Date(Number(cursor.slice(1))).toISOString() : cursor;
  return entries(stream, { from, count: PAGE });
}

/** Where to start, in which order, and what to find. @param {{ typed: string, bad: boolean, oldestFirst: boolean, find: string, field: string }} props */
function Controls({ typed, bad, oldestFirst, find, field }) {
  const findInput = useRef(/** @type {HTMLInputElement | null} */ (null));
  useKeys({ '/': () => { findInput.current?.focus(); findInput.current?.select(); } });
  const submit = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
    setQuery({ from: String(form.get('from')).trim(), order: form.get('order') === 'asc' ? 'asc' : null, find: String(form.get('find')), field: String(form.get('field')).trim(), at: null });
  };
  return html`<form class="filter-bar browse" role="search" aria-label=${text.title} onSubmit=${submit}>
    <label>${text.from} <${Draft} name="from" value=${typed} placeholder=${text.fromPlaceholder} title=${text.fromTitle} aria-invalid=${bad} list="positions" /></label>
    <datalist id="positions"><option value="earliest" /><option value="latest" /><option value="10m" /><option value="2h" /></datalist>
    <select name="order" aria-label=${text.order} onChange=${(/** @type {any} */ event) => event.target.form.requestSubmit()}><option value="desc" selected=${!oldestFirst}>${text.newestFirst}</option><option value="asc" selected=${oldestFirst}>${text.oldestFirst}</option></select>
    <label class="find-field">${text.find} <${Draft} inputRef=${findInput} type="search" name="find" value=${find} placeholder=${text.findPlaceholder} title=${text.findTitle} /></label>
    <label>${text.in} <${Draft} name="field" class="short" value=${field} placeholder=${text.anyField} /></label>
    <button type="submit" class="primary">${text.go}</button>
  </form>`;
}

/** A search that runs on the server, and ends with its bounds, a click, or this page. @param {{ stream: string, find: string, field: string, from: string | null, oldestFirst: boolean }} props */
function Search({ stream, find, field, from, oldestFirst }) {
  const [found, setFound] = useState(/** @type {any[]} */ ([]));
  const [progress, setProgress] = useState({ scanned: 0, at: '', before: 0 });
  const [end, setEnd] = useState(/** @type {{ why: string, next: string | null } | null} */ (null));
  const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
  const source = useRef(/** @type {EventSource | null} */ (null));
  const run = (/** @type {string | null} */ start, /** @type {number} */ before) => {
    source.current?.close();
    setEnd(null);
    setProblem(null);
    const asked = { stream, ...searchTerm(find, field), order: oldestFirst ? 'asc' : 'desc', [oldestFirst ? 'from' : 'to']: start, scan: SCAN };
    const opened = new EventSource(apiUrl('/search', asked));
    source.current = opened;
    const on = (/** @type {string} */ name, /** @type {(data: any) => void} */ action) => opened.addEventListener(name, (event) => source.current === opened && action(JSON.parse(/** @type {MessageEvent} */ (event).data)));
    on('found', (data) => setFound((/** @type {any[]} */ old) => (old.length < FOUND_MAX ? [...old, data.entry] : old)));
    on('progress', (data) => setProgress({ scanned: data.scanned, at: data.at, before }));
    on('end', (data) => {
      opened.close();
      setProgress({ scanned: data.scanned, at: data.next ?? '', before });
      setEnd(data);
    });
    on('problem', (data) => {
      opened.close();
      setEnd({ why: 'error', next: null });
      setProblem(new Problem(data));
    });
    opened.onerror = () => {
      opened.close();
      if (source.current !== opened) return;
      setEnd({ why: 'error', next: null });
      // An event stream does not tell why it was refused; the same request as a plain one does.
      get('/search', asked).then(() => setProblem(new Problem({ title: words.errors.noAnswer })), setProblem);
    };
  };
  const stop = () => {
    source.current?.close();
    setEnd({ why: 'stopped', next: progress.at || null });
  };
  useEffect(() => {
    run(from, 0);
    return () => source.current?.close();
  }, []);
  const scanned = progress.before + progress.scanned;
  return html`<div class="search-state" aria-live="polite">
      ${!end && html`<span class="spinner" aria-hidden="true"></span>`}
      <span>${text.searched(count(scanned), count(found.length))}${end ? ` ${text.ends[/** @type {'done'} */ (end.why)] ?? ''}` : ''}</span>
      ${!end && html`<button type="button" class="small" onClick=${stop}>${text.stop}</button>`}
      ${end?.next && html`<button type="button" class="small" onClick=${() => run(end.next, scanned)}>${text.goOn}</button>`}
      <button type="button" class="small" onClick=${() => setQuery({ find: null, field: null })}>${text.endSearch}</button>
      ${found.length > 0 && html`<${CopyButton} text=${found.map(({ id }) => id).join('\n')} label=${text.copyIds} />`}
    </div>
    ${problem && html`<${ProblemNote} problem=${problem} />`}
    <${DataTable} caption=${text.found} columns=${columns(stream)} rows=${found} rowKey=${(/** @type {any} */ entry) => entry.id} empty=${end ? text.notFound : text.searching} />`;
}

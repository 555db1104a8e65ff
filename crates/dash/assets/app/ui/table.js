// @ts-check
/**
 * Tables: sorted by their heads, moved through with j and k, drawn in part if they are long, and as cards on a phone.
 *
 * Rows never move under the pointer. While it is on the table, and for two seconds after, rows keep their places; new rows come last.
 * A change of the sort or filter moves them at once.
 */

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../html.js';
import { useKeys } from '../keys.js';
import { setQuery, useRoute } from '../router.js';
import { heldOrder, matches, parseFilter, select, sorted, windowOf } from '../rows.js';
import { counted } from '../format.js';
import { words } from '../words.js';

/** How long rows stay in their places after the pointer has left. */
const HOLD_MS = 2000;
/** Tables with more rows are drawn in part. */
const DRAW_ALL_MAX = 200;

/**
 * @template T
 * @typedef {object} Column
 * @property {string} key names the column in the address
 * @property {string} label
 * @property {(row: T) => any} cell
 * @property {(row: T) => import('../rows.js').SortValue} [value] value to sort by; without it, the column does not sort
 * @property {boolean} [sorts] the server sorts by this column
 * @property {'number'} [align]
 * @property {string} [hint] tooltip of the head
 * @property {boolean} [main] the head of the card on a phone
 * @property {string} [class]
 */

/** Returns whether the pointer is, or was within two seconds, on an element; and the handlers that tell. */
export function useHold() {
  const [held, setHeld] = useState(false);
  const timer = useRef(/** @type {any} */ (undefined));
  const release = () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setHeld(false), HOLD_MS);
  };
  const hold = (/** @type {PointerEvent} */ event) => {
    clearTimeout(timer.current);
    setHeld(true);
    if (event.pointerType === 'touch') release();
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  return { held, handlers: { onPointerEnter: hold, onPointerMove: held ? undefined : hold, onPointerDown: hold, onPointerLeave: release } };
}

/**
 * Returns the keys in the order to show.
 * @param {readonly string[]} order the order the rows would have now @param {boolean} held @param {string} request changes when the visitor sorts or filters
 */
export function useOrder(order, held, request) {
  const shown = useRef({ request, keys: order });
  const keys = held && shown.current.request === request ? heldOrder(shown.current.keys, order) : order;
  shown.current = { request, keys };
  return keys;
}

/**
 * A table of rows in a given order.
 * @template T
 * @param {object} props
 * @param {string} props.caption says to screen readers what the table shows
 * @param {Column<T>[]} props.columns
 * @param {readonly T[]} props.rows
 * @param {(row: T) => string} props.rowKey
 * @param {string} [props.sort] @param {boolean} [props.desc] @param {(key: string) => void} [props.onSort]
 * @param {{ selected: Set<string>, onSelect: (selected: Set<string>) => void }} [props.selection]
 * @param {(row: T) => string} [props.rowClass]
 * @param {any} [props.empty] what to show without rows
 * @param {any} [props.hold] handlers of `useHold`
 */
export function DataTable({ caption, columns, rows, rowKey, sort, desc, onSort, selection, rowClass, empty, hold = {} }) {
  const body = useRef(/** @type {HTMLTableSectionElement | null} */ (null));
  const anchor = useRef(/** @type {string | null} */ (null));
  const view = useWindow(body, rows.length);
  const keys = rows.map(rowKey);
  useRowKeys(body);
  useKeptFocus(body);
  const toggle = (/** @type {string} */ key, /** @type {boolean} */ range) => {
    if (!selection) return;
    selection.onSelect(select(selection.selected, keys, key, anchor.current, range));
    anchor.current = key;
  };
  useKeys(selection ? { x: () => { const key = focusedRow(body.current); if (key !== null) toggle(key, false); } } : {});
  const all = selection && keys.length > 0 && keys.every((key) => selection.selected.has(key));
  const width = columns.length + (selection ? 1 : 0);
  return html`<div class="table-frame" ...${hold}>
    ${onSort && html`<${PhoneSort} columns=${columns} sort=${sort} desc=${desc} onSort=${onSort} />`}
    <table role="table" aria-rowcount=${rows.length + 1}>
      <caption class="only-read">${caption}</caption>
      <thead role="rowgroup"><tr role="row">
        ${selection && html`<th role="columnheader" class="select"><input type="checkbox" aria-label=${words.table.selectAll} checked=${all}
          onChange=${() => selection.onSelect(all ? new Set() : new Set(keys))} /></th>`}
        ${columns.map((column) => html`<${Head} key=${column.key} column=${column} sort=${sort} desc=${desc} onSort=${onSort} />`)}
      </tr></thead>
      <tbody role="rowgroup" ref=${body}>
        ${view.before > 0 && html`<${Space} key="before" width=${width} height=${view.before} />`}
        ${rows.slice(view.first, view.last).map((row, at) => {
          const key = keys[view.first + at];
          const selected = selection?.selected.has(key);
          return html`<tr role="row" key=${key} data-key=${key} class=${`${rowClass?.(row) ?? ''}${selected ? ' selected' : ''}`} aria-rowindex=${view.first + at + 2}>
            ${selection && html`<td role="cell" class="select"><input type="checkbox" aria-label=${words.table.select} checked=${selected}
              onClick=${(/** @type {MouseEvent} */ event) => toggle(key, event.shiftKey)} /></td>`}
            ${columns.map((column) => html`<td role="cell" key=${column.key} data-label=${column.label} class=${cellClass(column)}>${column.cell(row)}</td>`)}
          </tr>`;
        })}
        ${view.after > 0 && html`<${Space} key="after" width=${width} height=${view.after} />`}
        ${rows.length === 0 && html`<tr role="row" key="empty"><td role="cell" class="empty" colspan=${width}>${empty ?? words.table.empty}</td></tr>`}
      </tbody>
    </table>
  </div>`;
}

/** @param {Column<any>} column */
const cellClass = (column) => [column.align === 'number' ? 'number' : '', column.main ? 'main' : '', column.class ?? ''].join(' ').trim() || undefined;

/** The head of a column; a button if the column sorts. @param {any} props */
function Head({ column, sort, desc, onSort }) {
  const sorts = onSort && (column.value || column.sorts);
  const active = sorts && sort === column.key;
  const order = active ? (desc ? 'descending' : 'ascending') : undefined;
  return html`<th role="columnheader" scope="col" class=${cellClass(column)} aria-sort=${order} title=${column.hint}>
    ${sorts ? html`<button type="button" onClick=${() => onSort(column.key)}>${column.label}<span class="arrow" aria-hidden="true">${active ? (desc ? '▼' : '▲') : ''}</span></button>` : column.class === 'tools' ? html`<span class="only-read">${column.label}</span>` : column.label}
  </th>`;
}

/** The choice of the sort where cards have no heads. @param {any} props */
function PhoneSort({ columns, sort, desc, onSort }) {
  const choices = columns.filter((/** @type {any} */ column) => column.value || column.sorts);
  return html`<div class="phone-sort"><label>${words.table.sortBy} <select value=${sort ?? ''} onChange=${(/** @type {any} */ event) => onSort(event.target.value)}>
    ${choices.map((/** @type {any} */ column) => html`<option key=${column.key} value=${column.key}>${column.label}</option>`)}
  </select></label><button type="button" class="small" onClick=${() => sort && onSort(sort)}>${desc ? words.table.descending : words.table.ascending}</button></div>`;
}

/** The place of rows that are not drawn. @param {{ width: number, height: number }} props */
function Space({ width, height }) {
  return html`<tr aria-hidden="true" class="space"><td colspan=${width} style=${{ height: `${height}px` }}></td></tr>`;
}

/** Returns the slice of rows to draw. @param {{ current: HTMLElement | null }} body @param {number} count */
function useWindow(body, count) {
  const [view, setView] = useState({ top: 0, height: 1000, rowHeight: 32 });
  const isLong = count > DRAW_ALL_MAX;
  useLayoutEffect(() => {
    if (!isLong) return undefined;
    let frame = 0;
    const measure = () => {
      frame = 0;
      const element = body.current;
      const row = element?.querySelector('tr[data-key]');
      if (!element || !row) return;
      const next = { top: -element.getBoundingClientRect().top, height: window.innerHeight, rowHeight: row.getBoundingClientRect().height || 32 };
      setView((old) => (Math.abs(old.top - next.top) < 64 && old.height === next.height && Math.abs(old.rowHeight - next.rowHeight) < 1 ? old : next));
    };
    const schedule = () => { frame ||= requestAnimationFrame(measure); };
    measure();
    window.addEventListener('scroll', schedule, { passive: true });
    window.addEventListener('resize', schedule);
    return () => {
      cancelAnimationFrame(frame);
      window.removeEventListener('scroll', schedule);
      window.removeEventListener('resize', schedule);
    };
  }, [isLong]);
  return isLong ? windowOf({ count, ...view, top: Math.max(0, view.top) }) : { first: 0, last: count, before: 0, after: 0 };
}

/** Returns the key of the row that has the focus, or null. @param {HTMLElement | null} body */
function focusedRow(body) {
  const row = document.activeElement?.closest('tr[data-key]');
  return row instanceof HTMLElement && body?.contains(row) ? row.dataset.key ?? null : null;
}

/** Moves the focus between rows with j, k and the arrows. A row's first link gets it, so Enter opens the row. @param {{ current: HTMLElement | null }} body */
function useRowKeys(body) {
  const move = (/** @type {number} */ by) => () => {
    const rows = [...(body.current?.querySelectorAll('tr[data-key]') ?? [])];
    const at = rows.findIndex((row) => row.contains(document.activeElement));
    const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, at + by))];
    const target = next?.querySelector('[data-main]') ?? next?.querySelector('a[href], button, input');
    if (target instanceof HTMLElement) {
      target.focus({ preventScroll: true });
      next.scrollIntoView({ block: 'nearest' });
    }
  };
  useKeys({ j: move(1), k: move(-1), ArrowDown: move(1), ArrowUp: move(-1) });
}

/** Gives the focus back to an element that lost it because its row moved. @param {{ current: HTMLElement | null }} body */
function useKeptFocus(body) {
  const focused = useRef(/** @type {HTMLElement | null} */ (null));
  const active = document.activeElement;
  focused.current = active instanceof HTMLElement && body.current?.contains(active) ? active : null;
  useLayoutEffect(() => {
    const element = focused.current;
    if (element && element.isConnected && document.activeElement !== element) element.focus({ preventScroll: true });
  });
}

/**
 * Sorts and filters rows that the page has, and keeps sort and filter in the address. In the main table, the one without a prefix, the key s sorts.
 * @template T
 * @param {object} options
 * @param {readonly T[]} options.rows
 * @param {Column<T>[]} options.columns
 * @param {(row: T) => string} options.rowKey
 * @param {(row: T) => string} [options.text] text that the filter searches
 * @param {string} [options.prefix] distinguishes several tables of a page in the address
 * @param {[key: string, desc: boolean]} [options.first] sort at first; without it, rows stay as they come
 */
export function useLocalTable({ rows, columns, rowKey, text, prefix = '', first }) {
  const { query } = useRoute();
  const names = { sort: `${prefix}sort`, desc: `${prefix}desc`, q: `${prefix}q` };
  const sort = query.get(names.sort) ?? first?.[0];
  const desc = query.has(names.sort) ? query.get(names.desc) === '1' : first?.[1] ?? false;
  const filter = query.get(names.q) ?? '';
  const { held, handlers } = useHold();
  const byKey = useMemo(() => new Map(rows.map((row) => [rowKey(row), row])), [rows]);
  const order = useMemo(() => {
    const filterWords = parseFilter(filter);
    const found = text && filterWords.length > 0 ? rows.filter((row) => matches(filterWords, text(row))) : rows;
    const value = columns.find((column) => column.key === sort)?.value;
    return (value ? sorted(found, value, desc) : found).map(rowKey);
  }, [rows, sort, desc, filter]);
  const keys = useOrder(order, held, `${sort} ${desc} ${filter}`);
  const onSort = (/** @type {string} */ key) => {
    const column = columns.find((each) => each.key === key);
    setQuery({ [names.sort]: key, [names.desc]: key === sort ? !desc : column?.align === 'number' }, { replace: true });
  };
  const sortKeys = columns.filter((column) => column.value).map(({ key }) => key);
  const isMain = prefix === '';
  useKeys(isMain && sortKeys.length > 0 ? { s: () => onSort(sortKeys[(sortKeys.indexOf(sort ?? '') + 1) % sortKeys.length]) } : {});
  return {
    filter, matched: keys.length,
    setFilter: (/** @type {string} */ value) => setQuery({ [names.q]: value }, { replace: true }),
    props: { columns, rowKey, rows: /** @type {T[]} */ (keys.map((key) => byKey.get(key)).filter((row) => row !== undefined)), sort, desc, onSort, hold: handlers },
  };
}

/** How long the filter waits for the next letter. */
const TYPING_MS = 150;

/**
 * The filter of a table, and how many rows match. `/` moves the focus here, Escape empties it.
 * @param {{ value: string, onInput: (value: string) => void, onEnter?: (value: string) => void, matched?: number | null, total?: number | null, label?: string, main?: boolean, children?: any }} props
 */
export function FilterBar({ value, onInput, onEnter, matched, total, label = words.table.filter, main = true, children }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const timer = useRef(/** @type {any} */ (undefined));
  const [typed, setTyped] = useState(/** @type {string | null} */ (null));
  useKeys(main ? { '/': () => { input.current?.focus(); input.current?.select(); } } : {});
  const tell = (/** @type {string} */ text) => {
    clearTimeout(timer.current);
    setTyped(null);
    if (text !== value) onInput(text);
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'Escape') {
      tell('');
      input.current?.blur();
    } else if (event.key === 'Enter') {
      tell(input.current?.value ?? '');
      onEnter?.(input.current?.value ?? '');
    } else return;
    event.preventDefault();
  };
  const type = (/** @type {string} */ text) => {
    setTyped(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => tell(text), TYPING_MS);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  return html`<div class="filter-bar" role="search" aria-label=${label}>
    <input type="search" ref=${input} aria-label=${label} placeholder=${main ? `${label}  /` : label} value=${typed ?? value} onKeyDown=${onKeyDown}
      onInput=${(/** @type {any} */ event) => type(event.target.value)} />
    ${children}
    ${typeof matched === 'number' && html`<span class="matched">${matched === total || typeof total !== 'number' ? counted(matched, words.table.row, words.table.rows) : words.table.matched(matched, total)}</span>`}
  </div>`;
}

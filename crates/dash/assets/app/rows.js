// @ts-check
/**
 * Sorts, filters, patches and windows the rows of a table. Knows no DOM.
 */

/**
 * @typedef {string | number | boolean | null | undefined} SortValue
 */

const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: 'base' });

/** Compares two values of a column. Unknown values are smaller than all others. @param {SortValue} a @param {SortValue} b */
export function compare(a, b) {
  const aUnknown = a === null || a === undefined;
  const bUnknown = b === null || b === undefined;
  if (aUnknown || bUnknown) return Number(bUnknown) - Number(aUnknown);
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return collator.compare(String(a), String(b));
}

/**
 * Returns the rows in order. Rows that are equal keep their order.
 * @template T
 * @param {readonly T[]} rows @param {(row: T) => SortValue} value @param {boolean} descending
 */
export function sorted(rows, value, descending) {
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => sign * compare(value(a), value(b)));
}

/**
 * Parses the words of a filter: all must occur. `-word` must not occur; quotes keep spaces.
 * @param {string} text
 */
export function parseFilter(text) {
  const words = [];
  for (const [, minus, quoted, plain] of text.matchAll(/(-?)(?:"([^"]*)"?|(\S+))/g)) {
    const word = (quoted ?? plain ?? '').toLocaleLowerCase();
    if (word !== '') words.push({ word, not: minus === '-' });
  }
  return words;
}

/** Returns whether a text matches the words of a filter. @param {ReturnType<typeof parseFilter>} words @param {string} text */
export function matches(words, text) {
  const lower = text.toLocaleLowerCase();
  return words.every(({ word, not }) => lower.includes(word) !== not);
}

/**
 * Applies a `rows` event: changed rows, rows that are gone, and the order of the keys.
 * @template T
 * @param {{ rows: Map<string, T>, order: string[] }} state
 * @param {{ set?: Record<string, T>, gone?: string[], order?: string[] }} event
 */
export function patchRows(state, event) {
  const rows = new Map(state.rows);
  for (const [key, row] of Object.entries(event.set ?? {})) rows.set(key, row);
  for (const key of event.gone ?? []) rows.delete(key);
  const order = (event.order ?? [...new Set([...state.order, ...rows.keys()])]).filter((key) => rows.has(key));
  return { rows, order };
}

/**
 * Returns the keys to show while rows must not move: those shown before that still exist, in their places, then new ones.
 * @param {readonly string[]} shown @param {readonly string[]} order the order that the rows would have now
 */
export function heldOrder(shown, order) {
  const wanted = new Set(order);
  const kept = shown.filter((key) => wanted.has(key));
  const already = new Set(kept);
  return [...kept, ...order.filter((key) => !already.has(key))];
}

/**
 * Returns the slice of rows to draw, and the heights of the space before and after it.
 * @param {{ count: number, rowHeight: number, top: number, height: number, overscan?: number }} view `top`: pixels scrolled past the first row
 */
export function windowOf({ count, rowHeight, top, height, overscan = 12 }) {
  const first = Math.max(0, Math.min(count, Math.floor(top / rowHeight) - overscan));
  const last = Math.max(first, Math.min(count, Math.ceil((top + height) / rowHeight) + overscan));
  return { first, last, before: first * rowHeight, after: (count - last) * rowHeight };
}

/**
 * Returns a selection after a click with or without Shift.
 * @param {Set<string>} selected @param {readonly string[]} keys keys in the order shown @param {string} key @param {string | null} anchor
 * @param {boolean} range
 */
export function select(selected, keys, key, anchor, range) {
  const next = new Set(selected);
  const on = !selected.has(key);
  const from = range && anchor !== null ? keys.indexOf(anchor) : -1;
  const to = keys.indexOf(key);
  const some = from >= 0 && to >= 0 ? keys.slice(Math.min(from, to), Math.max(from, to) + 1) : [key];
  for (const each of some) on ? next.add(each) : next.delete(each);
  return next;
}

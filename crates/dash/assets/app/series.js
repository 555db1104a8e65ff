// @ts-check
/** Describes series of numbers: shapes of sparklines, sentences and tables beside charts. Knows no DOM. */

import { isNumber } from './format.js';

/**
 * Returns the points of a sparkline as a path of SVG. Gaps in the numbers are gaps in the line.
 * @param {readonly (number | null)[]} values @param {number} width @param {number} height
 */
export function sparkPath(values, width, height) {
  const known = values.filter(isNumber);
  if (known.length < 2) return '';
  const highest = Math.max(...known, 1);
  const step = width / Math.max(1, values.length - 1);
  let path = '';
  let pen = false;
  values.forEach((value, at) => {
    if (!isNumber(value)) {
      pen = false;
      return;
    }
    const x = (at * step).toFixed(1);
    const y = (height - 1.5 - (value / highest) * (height - 3)).toFixed(1);
    path += `${pen ? 'L' : 'M'}${x} ${y}`;
    pen = true;
  });
  return path;
}

/** Returns the first, last, lowest and highest known value, or null. @param {readonly (number | null)[]} values */
export function summary(values) {
  const known = values.filter(isNumber);
  if (known.length === 0) return null;
  let lowest = known[0];
  let highest = known[0];
  for (const value of known) {
    if (value < lowest) lowest = value;
    if (value > highest) highest = value;
  }
  return { first: known[0], last: known[known.length - 1], lowest, highest, known: known.length };
}

/** Says whether values grow, shrink or stay: compares the means of the first and last third. @param {readonly (number | null)[]} values @returns {'grows' | 'shrinks' | 'steady' | 'unknown'} */
export function trend(values) {
  const known = values.filter(isNumber);
  if (known.length < 3) return 'unknown';
  const third = Math.max(1, Math.floor(known.length / 3));
  const mean = (/** @type {number[]} */ some) => some.reduce((sum, value) => sum + value, 0) / some.length;
  const before = mean(known.slice(0, third));
  const after = mean(known.slice(-third));
  const enough = Math.max(1, 0.05 * Math.max(Math.abs(before), Math.abs(after)));
  if (after - before > enough) return 'grows';
  return before - after > enough ? 'shrinks' : 'steady';
}

/**
 * Returns about this number of rows of a table for a chart: the last point and points at equal distances before it.
 * @param {number} points @param {number} rowsMax @returns {number[]} indexes, newest first
 */
export function tableRows(points, rowsMax) {
  const step = Math.max(1, Math.ceil(points / rowsMax));
  const rows = [];
  for (let at = points - 1; at >= 0; at -= step) rows.push(at);
  return rows;
}

/**
 * Returns the growth of counters per second, by name. A counter that is new or began again has none.
 * @param {Map<string, number>} before @param {Map<string, number>} after @param {number} ms time between both @returns {Map<string, number | null>}
 */
export function perSecond(before, after, ms) {
  return new Map([...after].map(([name, value]) => {
    const old = before.get(name);
    return [name, old === undefined || value < old || ms <= 0 ? null : ((value - old) * 1000) / ms];
  }));
}

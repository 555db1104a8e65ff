// @ts-check
/** Positions in a stream, as people type them and as the API takes them. Knows no DOM. */

import { isEntryId, parseMoment } from './format.js';

/**
 * Returns a position for the API: an id, `-` for the first entry, `+` for the last one, or `t` and milliseconds.
 * Returns null if the text is not a position. An id without its second part is a whole millisecond.
 * @param {string} text `earliest`, `latest`, an id, a moment or a duration before now @param {number} nowMs
 */
export function position(text, nowMs) {
  const trimmed = text.trim();
  const word = trimmed.toLowerCase();
  if (word === 'earliest' || word === '-') return '-';
  if (word === 'latest' || word === '+') return '+';
  if (isEntryId(trimmed) && (trimmed.includes('-') || trimmed.length > 8)) return trimmed;
  const moment = parseMoment(trimmed, nowMs);
  return moment === null ? null : `t${Math.max(0, moment)}`;
}

/** Returns the smallest id after an id. @param {string} id */
export function idAfter(id) {
  const [ms, sequence] = id.split('-');
  const last = 2n ** 64n - 1n;
  return BigInt(sequence ?? 0) === last ? `${BigInt(ms) + 1n}-0` : `${ms}-${BigInt(sequence ?? 0) + 1n}`;
}

/**
 * Splits what somebody searches for: `amount=2` is the field `amount` with the text `2`.
 * @param {string} text @param {string} field a field that was chosen beside it
 */
export function searchTerm(text, field) {
  const pair = field === '' ? /^([\w.:-]{1,64})=(.+)$/s.exec(text) : null;
  return pair ? { field: pair[1], contains: pair[2] } : { field: field || null, contains: text };
}

// @ts-check
/** Says where somebody can act on a finding of the doctor, and writes findings as text. Knows no DOM. */

import { printable } from './printable.js';
import { words } from './words.js';

const text = words.doctor;

/** @typedef {{ page: string, query: import('./routes.js').Query, label: string }} Place */

/**
 * Returns the page where a finding can be mended.
 * @param {any} finding @returns {Place}
 */
export function placeOf({ stream, group, code, consumer }) {
  if (typeof stream !== 'string') return { page: 'server', query: {}, label: text.toServer };
  if (code === 'dead_letters' || code === 'dlq_blocked') return { page: 'dlq', query: { s: stream, group }, label: text.toDead };
  if (code === 'delayed_overdue') return { page: 'stream', query: { s: stream, tab: 'delayed' }, label: text.toDelayed };
  if (typeof group !== 'string') return { page: 'stream', query: { s: stream }, label: text.toStream };
  const here = { s: stream, g: group };
  switch (code) {
    case 'pending_idle': case 'stuck': return { page: 'pending', query: { ...here, stuck: '1' }, label: text.toPending };
    case 'consumer_idle': return { page: 'pending', query: { ...here, c: consumer }, label: text.toPending };
    case 'worker_dead': case 'circuit_open': case 'name_in_use': return { page: 'workers', query: { q: consumer }, label: text.toWorkers };
    default: return { page: 'group', query: here, label: text.toGroup };
  }
}

/** Returns what a finding is about. @param {any} finding */
export const subjectOf = ({ stream, group }) => (typeof stream !== 'string' ? text.server : [stream, group].filter((name) => typeof name === 'string').map(printable).join(' / '));

/** Returns findings as text for a ticket or a chat. @param {any[]} findings */
export const findingsText = (findings) => findings
  .map((each) => `${each.health === 'ok' ? text.remark : each.health}  ${subjectOf(each)}: ${printable(each.text)}${each.way_out ? `\n  ${printable(each.way_out)}` : ''}`)
  .join('\n\n');

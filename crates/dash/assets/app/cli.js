// @ts-check
/**
 * Writes the command line that does what an action of the page does. Knows no DOM.
 *
 * Arguments are quoted for a POSIX shell. A test holds every option against `millstream ... --help`.
 */

import { durationArgument, utc } from './format.js';

const DEFAULT_URL = 'redis://127.0.0.1:6379';

/** Quotes an argument for a POSIX shell. Returns null if no command line can carry it. @param {string} text */
export function quote(text) {
  if (text.includes('\0')) return null;
  if (/^[A-Za-z0-9_@%+=:,./-]+$/.test(text)) return text;
  // eslint-disable-next-line no-control-regex
  if (!/[\u0000-\u001f\u007f]/.test(text)) return `'${text.replaceAll("'", `'\\''`)}'`;
  const escaped = text.replace(/[\\']/g, '\\$&').replace(/[\u0000-\u001f\u007f]/g, (each) => `\\${each.charCodeAt(0).toString(8).padStart(3, '0')}`);
  return `$'${escaped}'`;
}

/**
 * Builds a command line. Returns null if an argument cannot be passed.
 * @param {string} command such as `group reset`
 * @param {string[]} names positional arguments
 * @param {[option: string, value?: string | number | null | false][]} [options] options without a value are flags; null and false leave an option out
 * @param {string} [place] the store
 */
export function line(command, names, options = [], place = '') {
  /** @type {(string | null)[]} */
  const words = ['millstream', ...command.split(' ')];
  if (names.some((name) => name.startsWith('-'))) {
    pushOptions(words, options, place);
    words.push('--', ...names.map(quote));
  } else {
    words.push(...names.map(quote));
    pushOptions(words, options, place);
  }
  return words.includes(null) ? null : words.join(' ');
}

/** @param {(string | null)[]} words @param {[string, (string | number | null | false)?][]} options @param {string} place */
function pushOptions(words, options, place) {
  for (const [option, value] of options) {
    if (value === null || value === false) continue;
    if (value === undefined) words.push(option);
    else if (String(value).startsWith('-')) words.push(quote(`${option}=${value}`));
    else words.push(option, quote(String(value)));
  }
  if (/^[a-z+]+:/.test(place) && place !== DEFAULT_URL) words.push('--url', quote(place));
}

/** @param {number | null | undefined} ms */
const span = (ms) => (ms === null || ms === undefined ? null : durationArgument(ms));

/**
 * @typedef {object} LetterFilter
 * @property {string | null} [reason]
 * @property {string | null} [error]
 * @property {string | null} [group]
 * @property {string[] | null} [ids]
 * @property {number | null} [older_ms]
 * @property {number | null} [newer_ms]
 */

/** @param {LetterFilter} filter @returns {[string, (string | number | null | false)?][]} */
function letterOptions(filter) {
  return [
    ['--reason', filter.reason || null],
    ['--error', filter.error || null],
    ['--group', filter.group || null],
    ...(filter.ids ?? []).map((id) => /** @type {[string, string]} */ (['--id', id])),
    ['--older-than', span(filter.older_ms)],
    ['--newer-than', span(filter.newer_ms)],
  ];
}

/**
 * The commands, one function for each. `place` is the store's URL as `/status` states it.
 * Returns null where the command line has no such option: the page then shows no line.
 * @param {string} place
 */
export function commands(place) {
  /** @param {string} command @param {string[]} names @param {[string, (string | number | null | false)?][]} [options] */
  const make = (command, names, options) => line(command, names, options, place);
  return {
    overview: () => make('lag', []),
    streamInfo: (/** @type {string} */ stream) => make('stream info', [stream]),
    groupDescribe: (/** @type {string} */ stream, /** @type {string} */ group) => make('group describe', [stream, group]),
    /** @param {string} stream @param {{ from?: string | null, count: number }} options without `from`, the last entries */
    entries: (stream, { from = null, count }) =>
      make('tail', [stream], from === null ? [['--last', count], ['--no-follow']] : [['--from', from], ['--count', count], ['--no-follow']]),
    /** @param {string} stream @param {string | null} [group] */
    tail: (stream, group) => make('tail', [stream], [['--group', group || null]]),
    /** @param {string} stream @param {[string, string][]} fields @param {{ producer?: string, iid?: string, delay_ms?: number | null, at_ms?: number | null }} [options] */
    add: (stream, fields, { producer, iid, delay_ms, at_ms } = {}) =>
      fields.some(([name]) => name.includes('=') || name === '')
        ? null
        : make('add', [stream, ...fields.map(([name, value]) => `${name}=${value}`)], [
            ['--producer', producer || null],
            ['--iid', iid || null],
            ['--delay', span(delay_ms)],
            ['--at', at_ms ? utc(at_ms) : null],
          ]),
    /** @param {string} stream @param {string} group @param {string} from */
    groupCreate: (stream, group, from) => make('group create', [stream, group], [['--from', from]]),
    /** @param {string} stream @param {string} group @param {boolean} force */
    groupRemove: (stream, group, force) => make('group rm', [stream, group], [force ? ['--force'] : ['--force', null]]),
    /** @param {string} stream @param {string} group @param {Record<string, any>} to @param {boolean} force */
    groupReset: (stream, group, to, force) => {
      const [option, value] = resetTarget(to);
      return make('group reset', [stream, group], [value === undefined ? [option] : [option, value], ['--execute'], ...(force ? [/** @type {[string]} */ (['--force'])] : [])]);
    },
    /** @param {string} stream @param {string} group @param {string} consumer @param {string | null} heir */
    consumerRemove: (stream, group, consumer, heir) => make('consumer rm', [stream, group, consumer], [['--heir', heir || null]]),
    /** @param {string} stream @param {string} group @param {{ consumer?: string | null, idle_ms_min?: number | null, stuck?: boolean | null, count?: number | null }} [filter] */
    pendingList: (stream, group, { consumer, idle_ms_min, stuck, count } = {}) =>
      make('pending ls', [stream, group], [['--consumer', consumer || null], ['--min-idle', span(idle_ms_min)], stuck ? ['--stuck'] : ['--stuck', null], ['--count', count ?? null]]),
    /** @param {string} stream @param {string} group @param {string} consumer @param {number} idle_ms_min @param {number} count */
    pendingClaim: (stream, group, consumer, idle_ms_min, count) =>
      make('pending claim', [stream, group, consumer], [['--min-idle', span(idle_ms_min)], ['--count', count]]),
    /** @param {string} stream @param {string} group @param {string} consumer @param {string[]} ids */
    pendingClaimIds: (stream, group, consumer, ids) => (ids.length > 100 ? null : make('pending claim', [stream, group, consumer, ...ids])),
    /** @param {'ack' | 'nack' | 'extend'} verb @param {string} stream @param {string} group @param {string[]} ids */
    pending: (verb, stream, group, ids) => (ids.length > 100 ? null : make(`pending ${verb}`, [stream, group, ...ids])),
    dlqStreams: () => make('dlq ls', []),
    /** @param {string} stream @param {LetterFilter & { dlq?: string | null, count: number }} options */
    dlqList: (stream, options) => make('dlq ls', [stream], [['--dlq', options.dlq || null], ...letterOptions(options), ['--newest'], ['--count', options.count]]),
    /** @param {string} stream @param {string} id @param {string | null} [dlq] */
    dlqShow: (stream, id, dlq) => make('dlq show', [stream, id], [['--dlq', dlq || null]]),
    /** @param {string} stream @param {LetterFilter & { dlq?: string | null, rate?: number | null, limit?: number | null, all_groups?: boolean }} options */
    redrive: (stream, options) =>
      make('dlq redrive', [stream], [
        ['--dlq', options.dlq || null],
        ...letterOptions(options),
        ['--rate', options.rate ?? null],
        ['--count', options.limit ?? null],
        ...(options.all_groups ? [/** @type {[string]} */ (['--all-groups'])] : []),
      ]),
    /** @param {string} stream @param {LetterFilter & { dlq?: string | null }} options */
    purge: (stream, options) => make('dlq purge', [stream], [['--dlq', options.dlq || null], ...letterOptions(options)]),
    delayedList: (/** @type {string} */ stream, /** @type {number} */ count) => make('delayed ls', [stream], [['--count', count]]),
    /** @param {'rm' | 'now'} verb @param {string} stream @param {string[]} tickets */
    delayed: (verb, stream, tickets) => (tickets.length > 100 ? null : make(`delayed ${verb}`, [stream, ...tickets])),
    /** @param {string | null} [code] @param {number} [offset] @param {number} [limit] */
    doctor: (code = null, offset = 0, limit = 0) => make('doctor', [], code === null ? [] : [['--code', code], ['--offset', offset || null], ['--limit', limit]]),
    /** The program has no command for the server itself: a client of the store does it. @param {string[]} words such as `config set appendfsync always` */
    server: (words) => (/^rediss?:/.test(place) ? ['redis-cli', ...(place === DEFAULT_URL ? [] : ['-u', quote(place)]), ...words.map(quote)].join(' ') : null),
    streamPolicy: (/** @type {string} */ stream) => make('stream policy', [stream]),
    groupPolicy: (/** @type {string} */ stream, /** @type {string} */ group) => make('group policy', [stream, group]),
  };
}

/** @param {Record<string, any>} to the body of `POST /group/reset` @returns {[string, (string | number)?]} */
function resetTarget(to) {
  if (to.earliest) return ['--to-earliest'];
  if (to.latest) return ['--to-latest'];
  if (to.id !== undefined) return ['--to-id', to.id];
  if (to.time_ms !== undefined) return ['--to-datetime', utc(to.time_ms)];
  if (to.ago_ms !== undefined) return ['--by-duration', durationArgument(to.ago_ms)];
  if (to.shift !== undefined) return ['--shift-by', to.shift];
  return ['--to-group', to.group];
}

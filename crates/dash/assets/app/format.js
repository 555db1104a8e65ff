// @ts-check
/**
 * Formats counts, rates, sizes, durations and times for people. Knows no DOM.
 *
 * Each function has a partner for the tooltip: the cell shows what fits, the tooltip shows the exact value.
 */

/** The text of a value that is unknown. */
export const UNKNOWN = '-';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const oneDigit = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const twoDigits = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 2 });
const short = new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const dayAndClock = new Intl.DateTimeFormat(undefined, {
  year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23',
});

/** @param {unknown} value @returns {value is number} */
export const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);

/** Formats a count with separators: `1,234,567`. @param {number | null | undefined} value */
export function count(value) {
  return isNumber(value) ? whole.format(value) : UNKNOWN;
}

/** Formats a count for a narrow place: `1,980`, `12.3K` from 10,000 on. @param {number | null | undefined} value */
export function countShort(value) {
  if (!isNumber(value)) return UNKNOWN;
  return Math.abs(value) < 10_000 ? whole.format(value) : short.format(value);
}

/** Formats a number with its noun: `1 entry`, `2,000 entries`. @param {number} value @param {string} one @param {string} many */
export function counted(value, one, many) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Formats a count that may be a bound: `1,980`, `≥10,000`, `≤12`. @param {number | null | undefined} value @param {boolean} exact @param {'≥' | '≤'} sign */
export function bound(value, exact, sign) {
  return isNumber(value) ? `${exact ? '' : sign}${count(value)}` : UNKNOWN;
}

/** Formats a rate: `41/s`, `0.25/s`, `0/s`. @param {number | null | undefined} perSecond */
export function rate(perSecond) {
  return isNumber(perSecond) ? `${rateNumber(perSecond)}/s` : UNKNOWN;
}

/** Formats a rate without its unit, for a column whose title has the unit. @param {number | null | undefined} perSecond */
export function rateNumber(perSecond) {
  if (!isNumber(perSecond)) return UNKNOWN;
  const size = Math.abs(perSecond);
  if (size === 0) return '0';
  if (size < 0.01) return perSecond > 0 ? '<0.01' : '>-0.01';
  if (size < 1) return twoDigits.format(perSecond);
  return size < 10 ? oneDigit.format(perSecond) : countShort(Math.round(perSecond));
}

/** Formats a rate of change with its sign: `+3/s`, `-2/s`. @param {number | null | undefined} perSecond */
export function change(perSecond) {
  if (!isNumber(perSecond)) return UNKNOWN;
  return perSecond > 0 ? `+${rate(perSecond)}` : rate(perSecond);
}

/** Formats a number of bytes in decimal units: `33 kB`. @param {number | null | undefined} value */
export function bytes(value) {
  if (!isNumber(value)) return UNKNOWN;
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 999.5 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit === 0 || size >= 99.5 ? whole.format(size) : oneDigit.format(size)} ${units[unit]}`;
}

/** Formats a duration in at most two units, the largest ones: `850ms`, `12s`, `2m 3s`, `3d 4h`. @param {number | null | undefined} ms */
export function duration(ms) {
  if (!isNumber(ms)) return UNKNOWN;
  const value = Math.max(0, ms);
  if (value < SECOND) return `${Math.round(value)}ms`;
  if (value < MINUTE) return `${Math.floor(value / SECOND)}s`;
  if (value < HOUR) return two(value, MINUTE, 'm', SECOND, 's');
  if (value < DAY) return two(value, HOUR, 'h', MINUTE, 'm');
  return two(value, DAY, 'd', HOUR, 'h');
}

/** @param {number} value @param {number} large @param {string} largeUnit @param {number} small @param {string} smallUnit */
function two(value, large, largeUnit, small, smallUnit) {
  const first = Math.floor(value / large);
  const second = Math.floor((value - first * large) / small);
  return second === 0 ? `${first}${largeUnit}` : `${first}${largeUnit} ${second}${smallUnit}`;
}

/** Formats a duration exactly, for a tooltip: `422,013 ms (7m 2s)`. @param {number | null | undefined} ms */
export function durationExact(ms) {
  return isNumber(ms) ? `${whole.format(ms)} ms (${duration(ms)})` : '';
}

/** Formats a duration of a few microseconds or more: `3.1 µs`, `12 ms`. @param {number | null | undefined} us */
export function micros(us) {
  if (!isNumber(us)) return UNKNOWN;
  if (us < 1000) return `${us < 10 ? oneDigit.format(us) : whole.format(us)} µs`;
  const ms = us / 1000;
  return ms < 10_000 ? `${ms < 10 ? oneDigit.format(ms) : whole.format(ms)} ms` : duration(ms);
}

/** Formats the time of day, local: `10:31:02`. @param {number | null | undefined} ms */
export function time(ms) {
  return isNumber(ms) ? clock.format(ms) : UNKNOWN;
}

/** Formats the time of day with milliseconds, local: `10:31:02.114`. @param {number | null | undefined} ms */
export function timeMs(ms) {
  return isNumber(ms) ? `${clock.format(ms)}.${String(Math.floor(ms) % 1000).padStart(3, '0')}` : UNKNOWN;
}

/** Formats a moment, local: the time alone if it is of the last 12 hours, else with the date. @param {number | null | undefined} ms @param {number} nowMs */
export function moment(ms, nowMs) {
  if (!isNumber(ms)) return UNKNOWN;
  return Math.abs(nowMs - ms) < 12 * HOUR ? clock.format(ms) : dayAndClock.format(ms);
}

/** Formats a moment with its date and milliseconds, local: `2026-11-16 10:31:02.114`. @param {number | null | undefined} ms */
export function momentMs(ms) {
  return isNumber(ms) ? `${dayAndClock.format(ms)}.${String(Math.floor(ms) % 1000).padStart(3, '0')}` : UNKNOWN;
}

/** Formats a moment in UTC, for a tooltip: `2026-11-16T10:30:00.000Z`. @param {number | null | undefined} ms */
export function utc(ms) {
  if (!isNumber(ms) || Math.abs(ms) > 8.64e15) return '';
  return new Date(ms).toISOString();
}

/** Returns the time in an entry id, or null if the id is no plausible time. @param {string} id */
export function timeOfId(id) {
  const ms = Number(id.split('-')[0]);
  return Number.isFinite(ms) && ms > 1e11 && ms < 1e14 ? ms : null;
}

/**
 * Formats the time at which a group will have read everything.
 * @param {{ eta: string, eta_ms?: number | null }} row
 */
export function eta(row) {
  switch (row.eta) {
    case 'caught_up': return 'now';
    case 'never': return 'never';
    case 'at': return isNumber(row.eta_ms) ? (row.eta_ms < SECOND ? '<1s' : duration(row.eta_ms)) : UNKNOWN;
    default: return UNKNOWN;
  }
}

const UNITS = /** @type {Record<string, number>} */ ({ ms: 1, s: SECOND, m: MINUTE, h: HOUR, d: DAY, w: 7 * DAY });

/** Parses a duration such as `5m`, `1h30m` or `90s`. Returns milliseconds, or null. @param {string} text */
export function parseDuration(text) {
  const trimmed = text.trim().toLowerCase();
  if (trimmed === '0') return 0;
  if (!/^(\d+(\.\d+)?\s*(ms|s|m|h|d|w)\s*)+$/.test(trimmed)) return null;
  let sum = 0;
  for (const [, digits, , unit] of trimmed.matchAll(/(\d+(\.\d+)?)\s*(ms|s|m|h|d|w)/g)) sum += Number(digits) * UNITS[unit];
  return sum;
}

/** Formats a duration so that the command line and `parseDuration` accept it: `5m`, `1500ms`. @param {number} ms */
export function durationArgument(ms) {
  const whole = Math.round(ms);
  for (const [unit, size] of /** @type {[string, number][]} */ ([['d', DAY], ['h', HOUR], ['m', MINUTE], ['s', SECOND]])) {
    if (whole >= size && whole % size === 0) return `${whole / size}${unit}`;
  }
  return `${whole}ms`;
}

/**
 * Parses a moment: `10m` (before now), `10:30`, `2026-11-16 10:30[:05]` (local), or a time with a zone such as `2026-11-16T10:30Z`.
 * Returns milliseconds since 1970, or null.
 * @param {string} text @param {number} nowMs
 */
export function parseMoment(text, nowMs) {
  const trimmed = text.trim();
  const before = parseDuration(trimmed);
  if (before !== null) return nowMs - before;
  const hour = /^(\d{1,2}):(\d{2})(?::(\d{2}))?$/.exec(trimmed);
  if (hour) {
    const day = new Date(nowMs);
    day.setHours(Number(hour[1]), Number(hour[2]), Number(hour[3] ?? 0), 0);
    return day.getTime() > nowMs ? day.getTime() - DAY : day.getTime();
  }
  if (!/^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$/.test(trimmed)) return null;
  const parsed = Date.parse(trimmed.length === 10 ? `${trimmed}T00:00` : trimmed.replace(' ', 'T'));
  return Number.isNaN(parsed) ? null : parsed;
}

/** Returns whether a text is an entry id, or the first part of one. @param {string} text */
export const isEntryId = (text) => /^\d{1,20}(-\d{1,20})?$/.test(text.trim());

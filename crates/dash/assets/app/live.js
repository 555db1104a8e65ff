// @ts-check
/**
 * Receives live state over one event stream. A visible tab has one connection, a hidden tab has none: browsers allow six to a host.
 *
 * A page says what it watches with `useLive`. When it changes, the connection is opened again with the number of the last look, and
 * the server sends what changed since.
 */

import { Problem, apiUrl, get, hooks } from './api.js';
import { Observable } from './observable.js';
import { preferences } from './preferences.js';
import { queryString } from './routes.js';
import { useEffect, useRef } from './html.js';

/** How long to wait before connecting again. */
const RETRY_MS = 1000;
const RETRY_MS_MAX = 2000;
/** How long after the first event the status is asked for. */
const STATUS_AFTER_MS = 4000;

/**
 * What the page knows about its connection and the store.
 * `lostAt`: since when the dashboard has not answered; `trouble`: since when the store has not answered the dashboard.
 */
export const connection = new Observable({
  state: /** @type {'connecting' | 'live' | 'lost' | 'paused'} */ ('connecting'),
  lostAt: /** @type {number | null} */ (null),
  look: /** @type {number | null} */ (null),
  intervalMs: 2000,
  trouble: /** @type {{ since_ms: number, error: string } | null} */ (null),
});

/** What `/status` answers. */
export const status = new Observable(/** @type {any} */ (null));

/** Why what the page watches cannot be shown, for example because somebody removed the group. */
export const liveProblem = new Observable(/** @type {Problem | null} */ (null));

/** Jobs by id, as `job` events tell them. */
export const jobs = new Observable(/** @type {Record<string, any>} */ ({}));

const EVENTS = ['hello', 'totals', 'rows', 'stream', 'group', 'entries', 'activity', 'job', 'trouble', 'resync', 'problem'];

/** @type {EventSource | null} */
let source = null;
/** @type {string | null} */
let watch = null;
/** @type {Record<string, (data: any) => void>} */
let handlers = {};
let retryMs = RETRY_MS;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let retry;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let refresh;
let paused = false;
/** Look that the page has, for what it watches. @type {number | null} */
let since = null;

/** Opens the connection if the tab is visible, not paused, and somebody watches. */
function connect() {
  clearTimeout(retry);
  source?.close();
  source = null;
  if (watch === null || paused || document.visibilityState === 'hidden') return;
  const opened = new EventSource(apiUrl('/events', { watch, since, interval_ms: preferences.value.intervalMs }));
  source = opened;
  for (const name of EVENTS) {
    opened.addEventListener(name, (event) => {
      if (source === opened) receive(name, /** @type {MessageEvent} */ (event));
    });
  }
  opened.onerror = () => source === opened && lost();
}

/** Asks for the state of the dashboard: the interval of looks follows the number of viewers and the time that a look takes. */
function refreshStatus() {
  get('/status').then((answer) => {
    status.set(answer);
    // An event stream cannot say that the session has ended; the status does.
    if (answer.login !== 'none' && !answer.logged_in) hooks.loginNeeded();
    if (answer.interval_ms) connection.merge({ intervalMs: answer.interval_ms });
  }, () => {});
}

/** @param {string} name @param {MessageEvent} event */
function receive(name, event) {
  const data = JSON.parse(event.data);
  if (event.lastEventId !== '' && Number.isFinite(Number(event.lastEventId))) since = Number(event.lastEventId);
  retryMs = RETRY_MS;
  if (connection.value.state !== 'live') connection.merge({ state: 'live', lostAt: null });
  if (name === 'hello') {
    clearTimeout(refresh);
    refresh = setTimeout(refreshStatus, STATUS_AFTER_MS);
    connection.merge({ look: data.look ?? null, intervalMs: data.interval_ms ?? 2000 });
    if (status.value && data.version && data.version !== status.value.version) location.reload();
  } else if (name === 'trouble') connection.merge({ trouble: data });
  else if (name === 'job') jobs.set({ ...jobs.value, [data.id]: data });
  else if (name === 'resync') since = null;
  else if (name === 'problem') liveProblem.set(new Problem(data));
  else if (name === 'stream' || name === 'group') liveProblem.set(null);
  if (typeof data?.look === 'number') connection.merge({ look: data.look });
  handlers[name]?.(data);
}

/** Tries again after a pause. An event stream that ends because the session ended leads to the login page. */
function lost() {
  source?.close();
  source = null;
  connection.merge({ state: 'lost', lostAt: connection.value.lostAt ?? Date.now() });
  retry = setTimeout(connect, retryMs);
  retryMs = Math.min(2 * retryMs, RETRY_MS_MAX);
  refreshStatus();
}

let intervalMs = preferences.value.intervalMs;
preferences.watch((value) => {
  if (value.intervalMs === intervalMs) return;
  intervalMs = value.intervalMs;
  connect();
});

document.addEventListener('visibilitychange', () => {
  if (document.visibilityState === 'hidden') {
    clearTimeout(retry);
    source?.close();
    source = null;
  } else connect();
});

/** Stops or continues the live updates. The picture stays as it is meanwhile. @param {boolean} on */
export function pause(on) {
  if (paused === on) return;
  paused = on;
  if (on) {
    clearTimeout(retry);
    source?.close();
    source = null;
    connection.merge({ state: 'paused', lostAt: null });
  } else {
    connection.merge({ state: 'connecting' });
    connect();
  }
}

/** Returns whether live updates are paused. */
export const isPaused = () => paused;

/**
 * Watches something while the component is shown.
 * @param {string | null} what such as `group?stream=orders&group=billing`; null: nothing
 * @param {Record<string, (data: any) => void>} [events] functions by event; the latest ones are called
 */
export function useLive(what, events = {}) {
  const latest = useRef(events);
  latest.current = events;
  useEffect(() => {
    if (what === null) return undefined;
    const mine = Object.fromEntries(EVENTS.map((name) => [name, (/** @type {any} */ data) => latest.current[name]?.(data)]));
    handlers = mine;
    watch = what;
    liveProblem.set(null);
    since = null;
    connect();
    return () => {
      if (handlers !== mine) return;
      handlers = {};
      watch = null;
      source?.close();
      source = null;
    };
  }, [what]);
}

/** Returns what to watch, for `useLive`. @param {string} kind @param {import('./routes.js').Query} query */
export const watchOf = (kind, query) => `${kind}${queryString(query)}`;

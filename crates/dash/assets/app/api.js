// @ts-check
/** Sends requests to the API of the dashboard. Turns every failure into a `Problem` that a page can show. */

import { base } from './router.js';
import { queryString } from './routes.js';
import { useCallback, useEffect, useRef, useState } from './html.js';
import { words } from './words.js';

/** Why a request failed: the document `application/problem+json`, or what the browser says. */
export class Problem extends Error {
  /** @param {{ title: string, detail?: string, code?: string, status?: number, way_out?: string, plan?: any }} problem */
  constructor({ title, detail, code, status, way_out, plan }) {
    super(detail || title);
    this.title = title;
    this.detail = detail ?? '';
    this.code = code ?? '';
    this.status = status ?? 0;
    this.wayOut = way_out ?? '';
    /** Whether the same request may succeed soon: nobody answered, or not in time. */
    this.mayPass = code === 'no_answer' || [502, 503, 504].includes(this.status);
    /** The new plan, if the world has moved since the preview. */
    this.plan = plan;
  }
}

/** How long to wait before reading again what got no answer. */
const RETRY_MS = 2000;

/** Is called when the server wants a login. */
export const hooks = { loginNeeded: () => {} };

/** Returns the address of a resource of the API. @param {string} path such as `/overview` @param {import('./routes.js').Query} [query] */
export const apiUrl = (path, query = {}) => `${base}/api/v1${path}${queryString(query)}`;

/** Reads a resource. @param {string} path @param {import('./routes.js').Query} [query] @param {AbortSignal} [signal] @returns {Promise<any>} */
export const get = (path, query, signal) => send('GET', path, query, undefined, signal);

/** Runs an action. @param {string} path @param {any} body @returns {Promise<any>} */
export const post = (path, body) => send('POST', path, {}, body);

/** Deletes a session or stops a job. @param {string} path @param {import('./routes.js').Query} [query] @returns {Promise<any>} */
export const remove = (path, query) => send('DELETE', path, query);

/** @param {string} method @param {string} path @param {import('./routes.js').Query} [query] @param {any} [body] @param {AbortSignal} [signal] */
async function send(method, path, query, body, signal) {
  const headers = /** @type {Record<string, string>} */ ({ Accept: 'application/json' });
  if (method !== 'GET') {
    headers['X-Millstream'] = '1';
    headers['Content-Type'] = 'application/json';
  }
  let response;
  try {
    response = await fetch(apiUrl(path, query), {
      method, headers, signal, credentials: 'same-origin', cache: 'no-store',
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new Problem({ title: words.errors.noAnswer, way_out: words.errors.noAnswerWayOut, code: 'no_answer' });
  }
  if (response.ok) return response.status === 204 ? null : parsed(await response.text());
  const problem = await response.json().catch(() => ({ title: response.statusText || String(response.status) }));
  if (response.status === 401 && path !== '/session') hooks.loginNeeded();
  throw new Problem({ ...problem, status: response.status });
}

/** @param {string} text */
const parsed = (text) => (text === '' ? null : JSON.parse(text));

/**
 * Reads a resource for a component, and again when its address or `version` changes, or if nobody answers. The last answer stays while a newer one loads.
 * @param {string | null} path null: read nothing
 * @param {import('./routes.js').Query} [query]
 * @param {{ every_ms?: number }} [options] with `every_ms`, reads again after this time while the tab is visible
 * @returns {{ data: any, problem: Problem | null, loading: boolean, reload: () => void }}
 */
export function useGet(path, query = {}, options = {}) {
  const address = path === null ? null : apiUrl(path, query);
  const [state, setState] = useState(/** @type {{ address: string | null, data: any, problem: Problem | null }} */ ({ address: null, data: null, problem: null }));
  const [version, setVersion] = useState(0);
  const latest = useRef({ path, query });
  latest.current = { path, query };
  useEffect(() => {
    if (address === null) return undefined;
    const controller = new AbortController();
    const keep = (/** @type {any} */ data, /** @type {Problem | null} */ problem) => setState((/** @type {any} */ old) => ({ address, data: data ?? (old.address === address ? old.data : null), problem }));
    get(/** @type {string} */ (latest.current.path), latest.current.query, controller.signal).then(
      (data) => keep(data, null),
      (error) => controller.signal.aborted || keep(null, error instanceof Problem ? error : new Problem({ title: String(error) })),
    );
    return () => controller.abort();
  }, [address, version]);
  const reload = useCallback(() => setVersion((old) => old + 1), []);
  useEffect(() => {
    if (!options.every_ms || address === null) return undefined;
    const timer = setInterval(() => document.visibilityState === 'visible' && reload(), options.every_ms);
    return () => clearInterval(timer);
  }, [address, options.every_ms]);
  const isCurrent = state.address === address;
  useEffect(() => {
    if (!isCurrent || !state.problem?.mayPass) return undefined;
    const timer = setTimeout(reload, RETRY_MS);
    return () => clearTimeout(timer);
  }, [state, isCurrent]);
  return { data: isCurrent ? state.data : null, problem: isCurrent ? state.problem : null, loading: address !== null && !isCurrent, reload };
}

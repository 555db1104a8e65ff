// @ts-check
/**
 * Turns addresses of pages into places and back. Knows no DOM.
 *
 * Names of streams, groups and consumers travel in the query, never in the path: browsers and proxies change paths.
 */

/** @typedef {Record<string, string | number | boolean | null | undefined>} Query */

/**
 * Returns the query of an address. Leaves out null, undefined and false. An empty text stays, because a name can be empty.
 * @param {Query} query
 */
export function queryString(query) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === false) continue;
    params.set(name, value === true ? '1' : String(value));
  }
  const text = params.toString();
  return text === '' ? '' : `?${text}`;
}

/** Returns the page of a path below the base, without slashes at its ends: `group/reset`; the overview is ''. @param {string} path @param {string} base */
export function pageOf(path, base) {
  const below = path.startsWith(base) ? path.slice(base.length) : path;
  return below.replace(/^\/+|\/+$/g, '');
}

/** Returns the query after a change: values of `changes` replace those of `params`, and empty ones remove them. @param {URLSearchParams} params @param {Query} changes @returns {Query} */
export function changed(params, changes) {
  /** @type {Query} */
  const query = Object.fromEntries(params);
  for (const [name, value] of Object.entries(changes)) query[name] = value === '' ? null : value;
  return query;
}

/** Returns the base path of the pages from the address of one of our modules: the part before `/a/HASH/app/`. @param {string} moduleUrl */
export function baseOf(moduleUrl) {
  const path = new URL(moduleUrl).pathname;
  return path.slice(0, path.lastIndexOf('/app/')).replace(/\/a\/[^/]+$/, '');
}

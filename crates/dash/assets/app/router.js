// @ts-check
/** Follows the address of the page, and changes it. The address holds the whole state of a page that somebody may want to send. */

import { Observable, useObservable } from './observable.js';
import { baseOf, changed, pageOf, queryString } from './routes.js';

/** @typedef {import('./routes.js').Query} Query */

/** The path under which the dashboard is, without a slash at its end. */
export const base = baseOf(import.meta.url);

const here = () => ({ page: pageOf(location.pathname, base), query: new URLSearchParams(location.search) });

/** The page and the query of the address. */
export const route = new Observable(here());

window.addEventListener('popstate', () => route.set(here()));

/** Returns the address of a page. @param {string} page such as `group/reset` @param {Query} [query] */
export const href = (page, query = {}) => `${base}/${page}${queryString(query)}`;

/** Opens a page. @param {string} page @param {Query} [query] */
export function open(page, query = {}) {
  go(href(page, query), false);
}

/** Changes some values of the query of this page. @param {Query} changes @param {{ replace?: boolean }} [options] with `replace`, Back skips this change */
export function setQuery(changes, options) {
  const { page, query } = route.value;
  const next = href(page, changed(query, changes));
  if (next !== location.pathname + location.search) go(next, options?.replace ?? false);
}

/** @param {string} address @param {boolean} replace */
function go(address, replace) {
  const samePage = pageOf(address.split('?')[0], base) === route.value.page;
  history[replace ? 'replaceState' : 'pushState'](replace ? history.state : { ours: true }, '', address);
  route.set(here());
  if (!samePage) window.scrollTo(0, 0);
}

/** Goes back if the page before is one of ours, else to the overview. */
export function back() {
  if (history.state?.ours) history.back();
  else open('');
}

/** Follows links to our own pages without loading the document again. */
document.addEventListener('click', (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest('a[href]') : null;
  if (!(link instanceof HTMLAnchorElement) || link.origin !== location.origin || link.hasAttribute('download') || link.target) return;
  if (!link.pathname.startsWith(`${base}/`) || link.pathname.startsWith(`${base}/api/`) || link.pathname === `${base}/metrics`) return;
  if (link.hash !== '' && link.pathname === location.pathname) return;
  event.preventDefault();
  go(link.pathname + link.search, false);
});

/** Returns the page and the query, and draws the component again when they change. */
export const useRoute = () => useObservable(route);

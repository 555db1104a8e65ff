// @ts-check
/**
 * The table of all pages: path, title, component, and where it is in the navigation.
 *
 * To add a page, write `pages/NAME.js` and add a row.
 */

import { Help } from './pages/help.js';
import { Overview } from './pages/overview.js';
import { words } from './words.js';

/**
 * @typedef {object} Page
 * @property {string} path below the base, without slashes at its ends
 * @property {(query: URLSearchParams) => string} title
 * @property {(props: { query: URLSearchParams }) => any} component
 * @property {{ label: string, keys: string }} [nav] its entry in the navigation; `keys` such as `g d`
 */

/** @type {Page[]} */
export const PAGES = [
  { path: '', title: () => words.nav.overview, component: Overview, nav: { label: words.nav.overview, keys: 'g o' } },
  { path: 'help', title: () => words.nav.help, component: Help },
];

// @ts-check
/**
 * The table of all pages: path, title, component, and where it is in the navigation.
 *
 * To add a page, write `pages/NAME.js` and add a row.
 */

import { Entry } from './pages/entry.js';
import { Group } from './pages/group.js';
import { Help } from './pages/help.js';
import { Overview } from './pages/overview.js';
import { Stream } from './pages/stream.js';
import { Tail } from './pages/tail.js';
import { words } from './words.js';

/**
 * @typedef {object} Page
 * @property {string} path below the base, without slashes at its ends
 * @property {(query: URLSearchParams) => string} title
 * @property {(props: { query: URLSearchParams }) => any} component
 * @property {{ label: string, keys: string }} [nav] its entry in the navigation; `keys` such as `g d`
 */

const ofStream = (/** @type {URLSearchParams} */ query) => query.get('s') ?? '';
const ofGroup = (/** @type {URLSearchParams} */ query) => `${query.get('s') ?? ''} / ${query.get('g') ?? ''}`;

/** @type {Page[]} */
export const PAGES = [
  { path: '', title: () => words.nav.overview, component: Overview, nav: { label: words.nav.overview, keys: 'g o' } },
  { path: 'stream', title: ofStream, component: Stream },
  { path: 'group', title: ofGroup, component: Group },
  { path: 'entry', title: (query) => `${query.get('id') ?? ''} · ${ofStream(query)}`, component: Entry },
  { path: 'tail', title: (query) => `${words.tail.title} · ${ofStream(query)}`, component: Tail },
  { path: 'help', title: () => words.nav.help, component: Help },
];

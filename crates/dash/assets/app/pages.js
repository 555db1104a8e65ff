// @ts-check
/**
 * The table of all pages: path, title, component, and where it is in the navigation.
 *
 * To add a page, write `pages/NAME.js` and add a row.
 */

import { Audit } from './pages/audit.js';
import { DeadLetters } from './pages/dlq.js';
import { Doctor } from './pages/doctor.js';
import { Entry } from './pages/entry.js';
import { Group } from './pages/group.js';
import { Help } from './pages/help.js';
import { Overview } from './pages/overview.js';
import { Pending } from './pages/pending.js';
import { Reset } from './pages/reset.js';
import { Server } from './pages/server.js';
import { Stream } from './pages/stream.js';
import { Tail } from './pages/tail.js';
import { Workers } from './pages/workers.js';
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
  { path: 'group/reset', title: (query) => `${words.reset.title} · ${ofGroup(query)}`, component: Reset },
  { path: 'pending', title: (query) => `${words.pending.title} · ${ofGroup(query)}`, component: Pending },
  { path: 'entry', title: (query) => `${query.get('id') ?? ''} · ${ofStream(query)}`, component: Entry },
  { path: 'tail', title: (query) => `${words.tail.title} · ${ofStream(query)}`, component: Tail },
  { path: 'dlq', title: (query) => [words.dlq.title, query.get('s')].filter(Boolean).join(' · '), component: DeadLetters, nav: { label: words.nav.dead, keys: 'g d' } },
  { path: 'workers', title: () => words.nav.workers, component: Workers, nav: { label: words.nav.workers, keys: 'g w' } },
  { path: 'doctor', title: () => words.nav.doctor, component: Doctor, nav: { label: words.nav.doctor, keys: 'g c' } },
  { path: 'server', title: () => words.nav.server, component: Server, nav: { label: words.nav.server, keys: 'g s' } },
  { path: 'audit', title: () => words.nav.audit, component: Audit, nav: { label: words.nav.audit, keys: 'g a' } },
  { path: 'help', title: () => words.nav.help, component: Help },
];

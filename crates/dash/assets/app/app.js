// @ts-check
/** The frame of all pages: head with navigation and the state of the connection, the page, toasts, jobs, palette, login. */

import { get, hooks, remove } from './api.js';
import { duration } from './format.js';
import { html, useEffect, useRef, useState } from './html.js';
import { useKeys } from './keys.js';
import { connection, isPaused, liveProblem, pause, status } from './live.js';
import { Observable, useObservable } from './observable.js';
import { PAGES } from './pages.js';
import { LoginPage, NotFoundPage } from './pages/login.js';
import { preferences } from './preferences.js';
import { printable } from './printable.js';
import { back, open, useRoute } from './router.js';
import { words } from './words.js';
import { JobTray } from './ui/jobs.js';
import { KeysDialog, pageKeys } from './ui/keys-dialog.js';
import { Palette } from './ui/palette.js';
import { Choices, Guarded, Link, ProblemNote, Text, useNow } from './ui/parts.js';
import { Toasts, announce } from './ui/toasts.js';

const needsLogin = new Observable(false);
hooks.loginNeeded = () => needsLogin.set(true);

pageKeys.push(...PAGES.flatMap(({ nav }) => (nav ? [/** @type {[string, string]} */ ([nav.keys, nav.label])] : [])));

/** Intervals of looks at the store that a visitor can choose. */
const INTERVALS_MS = [100, 500, 1000, 2000, 5000, 15_000, 60_000];

/** How long the dashboard may not answer before the page says so. */
const LOST_AFTER_MS = 1500;

export function App() {
  const { page, query } = useRoute();
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [shown, setShown] = useState(/** @type {'palette' | 'keys' | null} */ (null));
  const known = useObservable(status);
  const login = useObservable(needsLogin);
  const load = () => get('/status').then((answer) => {
    setProblem(null);
    status.set(answer);
    needsLogin.set(answer.login !== 'none' && !answer.logged_in);
  }, setProblem);
  useEffect(() => void load(), []);
  useEffect(() => {
    if (known !== null || !problem) return undefined;
    const timer = setTimeout(load, 2000);
    return () => clearTimeout(timer);
  }, [problem]);

  const found = PAGES.find(({ path }) => path === page);
  const title = found ? printable(found.title(query)) : words.errors.notFound;
  useEffect(() => { document.title = `${title} · millstream`; }, [title]);

  const pages = PAGES.filter(({ nav }) => nav).concat(PAGES.filter(({ path }) => path === 'help'))
    .map(({ path, nav }) => ({ text: nav?.label ?? words.nav.help, kind: words.palette.page, keys: nav?.keys ?? '?', run: () => open(path) }));
  useKeys({
    ...Object.fromEntries(PAGES.flatMap(({ path, nav }) => (nav ? [[nav.keys, () => open(path)]] : []))),
    '?': () => setShown('keys'),
    'Control+k': () => setShown(shown === 'palette' ? null : 'palette'),
    p: () => pause(!isPaused()),
    Escape: () => page !== '' && back(),
  });

  if (login) return html`<${LoginPage} status=${known} onLogin=${load} /><${Toasts} />`;
  if (known === null) return html`<main class="alone">${problem ? html`<${ProblemNote} problem=${problem} retry=${load} />` : html`<p class="loading">${words.parts.loading}</p>`}</main>`;
  return html`<a class="skip" href="#main">${words.nav.skip}</a>
    <${Head} page=${page} onPalette=${() => setShown('palette')} onKeys=${() => setShown('keys')} />
    <${Banner} />
    <${Main}><${Guarded} key=${page}>${found ? html`<${found.component} query=${query} />` : html`<${NotFoundPage} />`}<//><//>
    <${JobTray} /><${Toasts} />
    ${shown === 'palette' && html`<${Palette} pages=${pages} onClose=${() => setShown(null)} />`}
    ${shown === 'keys' && html`<${KeysDialog} onClose=${() => setShown(null)} />`}`;
}

/** The page. It is greyed while it shows a picture that may be old. @param {{ children?: any }} props */
function Main({ children }) {
  const { state, trouble } = useObservable(connection);
  const problem = useObservable(liveProblem);
  return html`<main id="main" tabindex="-1" class=${state === 'lost' || trouble ? 'stale' : undefined}>${problem && html`<${ProblemNote} problem=${problem} />`}${children}</main>`;
}

/** @param {{ page: string, onPalette: () => void, onKeys: () => void }} props */
function Head({ page, onPalette, onKeys }) {
  const known = useObservable(status);
  const menu = useRef(/** @type {HTMLDetailsElement | null} */ (null));
  useEffect(() => {
    const close = (/** @type {Event} */ event) => {
      const outside = event.target instanceof Node && !menu.current?.contains(event.target);
      if (menu.current?.open && (outside || (event instanceof KeyboardEvent && event.key === 'Escape'))) menu.current.open = false;
    };
    document.addEventListener('pointerdown', close);
    document.addEventListener('keydown', close);
    return () => {
      document.removeEventListener('pointerdown', close);
      document.removeEventListener('keydown', close);
    };
  }, []);
  useEffect(() => {
    if (menu.current) menu.current.open = false;
    // On a phone, the navigation scrolls sideways.
    const link = /** @type {HTMLElement | null} */ (document.querySelector('.head nav [aria-current]'));
    if (link?.parentElement) link.parentElement.scrollLeft = link.offsetLeft - link.parentElement.clientWidth / 2;
  }, [page]);
  const logout = () => remove('/session').finally(() => needsLogin.set(true));
  return html`<header class="head">
    <${Link} page="" class="brand" aria-label="millstream"><svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true"><rect width="32" height="32" rx="7" /><path d="M5 12c4-4 7 3 11 0s7-4 11 0M5 18c4-4 7 3 11 0s7-4 11 0M5 24c4-4 7 3 11 0s7-4 11 0" /></svg><span>millstream</span><//>
    <nav aria-label=${words.nav.pages}>${PAGES.filter(({ nav }) => nav).map(({ path, nav }) => html`<${Link} key=${path} page=${path} aria-current=${path === page ? 'page' : undefined} title=${nav?.keys}>${nav?.label}<//>`)}</nav>
    <span class="place" title=${known.place}><bdi><${Text} text=${known.place ?? ''} /></bdi></span>
    ${known.read_only && html`<span class="badge" title=${words.head.readOnlyTitle}>${words.head.readOnly}</span>`}
    <${LiveState} />
    <button type="button" class="find" onClick=${onPalette} title=${words.palette.title}><span>${words.head.find}</span> <kbd>Ctrl K</kbd></button>
    <details class="menu" ref=${menu}><summary aria-label=${words.head.menu} title=${words.head.menu}>⋯</summary><div class="menu-body">
      <${Display} />
      <button type="button" class="plain" onClick=${onKeys}>${words.head.keys} <kbd>?</kbd></button>
      <${Link} page="help">${words.nav.help}<//>
      ${known.login !== 'none' && html`<button type="button" class="plain" onClick=${logout}>${words.head.logout}${known.user ? html` <bdi>${known.user}</bdi>` : ''}</button>`}
      <span class="hint">millstream ${known.version}</span>
    </div></details>
  </header>`;
}

/** The choices of theme, density and keys. */
function Display() {
  const { theme, compact, letterKeys, intervalMs } = useObservable(preferences);
  return html`<div class="display">
    <${Choices} label=${words.head.theme} value=${theme} choices=${words.head.themes} onChange=${(/** @type {any} */ value) => preferences.merge({ theme: value })} />
    <label>${words.head.interval} <select value=${intervalMs ?? ''} onChange=${(/** @type {any} */ event) => preferences.merge({ intervalMs: Number(event.target.value) || null })}>
      <option value="">${words.head.intervalDefault}</option>${INTERVALS_MS.map((ms) => html`<option key=${ms} value=${ms}>${duration(ms)}</option>`)}</select></label>
    <label class="check"><input type="checkbox" checked=${compact} onChange=${() => preferences.merge({ compact: !compact })} /> ${words.head.compact}</label>
    <label class="check"><input type="checkbox" checked=${letterKeys} onChange=${() => preferences.merge({ letterKeys: !letterKeys })} /> ${words.head.letterKeys}</label>
  </div>`;
}

/** Says whether the picture is live, and pauses it. */
function LiveState() {
  const { state, intervalMs } = useObservable(connection);
  const text = state === 'live' ? words.live.live(duration(intervalMs)) : words.live[state];
  return html`<button type="button" class=${`live ${state}`} onClick=${() => pause(!isPaused())} title=${state === 'paused' ? words.live.resumeTitle : words.live.pauseTitle} aria-pressed=${state === 'paused'}>
    <span class="dot" aria-hidden="true"></span>${text}</button>`;
}

/** Says since when the picture is old. */
function Banner() {
  const { state, lostAt, trouble } = useObservable(connection);
  const now = useNow();
  const lostFor = state === 'lost' && lostAt !== null ? now - lostAt : 0;
  const text = lostFor > LOST_AFTER_MS ? words.live.noAnswer(duration(lostFor)) : trouble ? words.live.trouble(duration(now - trouble.since_ms)) : '';
  const bad = text !== '';
  useEffect(() => { if (bad) announce(text); }, [bad]);
  if (!bad) return null;
  return html`<div class="banner"><strong>${text}</strong>${lostFor <= LOST_AFTER_MS && trouble && html` <${Text} text=${trouble.error} />`}</div>`;
}

// @ts-check
/** Keeps what a visitor prefers, in this browser: theme, density, how often the store is looked at, and whether single letters are keys. */

import { Observable } from './observable.js';

const KEY = 'millstream';

function load() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? '{}');
  } catch {
    return {};
  }
}

export const preferences = new Observable({
  theme: /** @type {'system' | 'light' | 'dark'} */ ('system'),
  compact: false,
  letterKeys: true,
  /** How often this visitor wants a look at the store; null: as the dashboard does. */
  intervalMs: /** @type {number | null} */ (null),
  ...load(),
});

function apply() {
  const { theme, compact } = preferences.value;
  const root = document.documentElement;
  root.dataset.theme = theme === 'system' ? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light') : theme;
  root.dataset.density = compact ? 'compact' : 'normal';
}

preferences.watch((value) => {
  try {
    localStorage.setItem(KEY, JSON.stringify(value));
  } catch {
    // A browser that keeps nothing still shows the choice until the page is closed.
  }
  apply();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', apply);
apply();

// Findings of the doctor: where to act on them, and their text.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findingsText, placeOf } from '../assets/app/findings.js';

const about = (/** @type {string} */ code, /** @type {any} */ more = {}) => ({ stream: 'orders', group: 'billing', consumer: null, code, health: 'critical', text: 'text', way_out: 'way', ...more });

test('each finding leads to the page where it can be mended', () => {
  const place = (/** @type {any} */ finding) => {
    const { page, query } = placeOf(finding);
    return [page, Object.fromEntries(Object.entries(query).filter(([, value]) => value !== null && value !== undefined))];
  };
  assert.deepEqual(place(about('stuck')), ['pending', { s: 'orders', g: 'billing', stuck: '1' }]);
  assert.deepEqual(place(about('consumer_idle', { consumer: 'c-1' })), ['pending', { s: 'orders', g: 'billing', c: 'c-1' }]);
  assert.deepEqual(place(about('worker_dead', { consumer: 'c-1' })), ['workers', { q: 'c-1' }]);
  assert.deepEqual(place(about('no_reader')), ['group', { s: 'orders', g: 'billing' }]);
  assert.deepEqual(place(about('dead_letters', { group: null })), ['dlq', { s: 'orders' }]);
  assert.deepEqual(place(about('dlq_blocked')), ['dlq', { s: 'orders', group: 'billing' }]);
  assert.deepEqual(place(about('delayed_overdue', { group: null })), ['stream', { s: 'orders', tab: 'delayed' }]);
  assert.deepEqual(place(about('no_groups', { group: null })), ['stream', { s: 'orders' }]);
  assert.deepEqual(place(about('never_synced', { stream: null, group: null })), ['server', {}]);
  assert.deepEqual(place(about('no_reader', { stream: '', group: '' })), ['group', { s: '', g: '' }]);
});

test('findings as text name their subject, and show misleading characters', () => {
  const text = findingsText([about('stuck', { group: 'a\u202eb' }), about('synced_every_second', { stream: null, group: null, health: 'ok', way_out: '' })]);
  assert.equal(text, 'critical  orders / a⟨U+202E⟩b: text\n  way\n\nremark  server: text');
});

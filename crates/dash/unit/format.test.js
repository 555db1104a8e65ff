// Counts, rates, sizes, durations and moments.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as format from '../assets/app/format.js';

test('durations have at most two units', () => {
  for (const [ms, text] of [[0, '0ms'], [850, '850ms'], [12_400, '12s'], [123_000, '2m 3s'], [3_600_000, '1h'], [276_000_000, '3d 4h'], [null, '-'], [undefined, '-']]) {
    assert.equal(format.duration(ms), text);
  }
});

test('bounds carry their sign, unknown values a dash', () => {
  assert.equal(format.bound(1980, true, '≥'), '1,980');
  assert.equal(format.bound(1980, false, '≥'), '≥1,980');
  assert.equal(format.bound(null, false, '≥'), '-');
  assert.equal(format.count(Number.NaN), '-');
});

test('rates keep small values apart from zero', () => {
  for (const [value, text] of [[0, '0/s'], [0.004, '<0.01/s'], [0.25, '0.25/s'], [3.14, '3.1/s'], [41.2, '41/s'], [12_345, '12.3K/s'], [null, '-']]) assert.equal(format.rate(value), text);
  assert.equal(format.change(3), '+3/s');
});

test('sizes use decimal units', () => {
  for (const [value, text] of [[0, '0 B'], [999, '999 B'], [1000, '1 kB'], [33_400, '33.4 kB'], [999_700, '1 MB'], [812e6, '812 MB']]) assert.equal(format.bytes(value), text);
});

test('durations are parsed as the command line does, and written so that it accepts them', () => {
  for (const [text, ms] of [['5m', 300_000], ['1h30m', 5_400_000], [' 90 s ', 90_000], ['0', 0], ['250ms', 250], ['1.5h', 5_400_000], ['', null], ['5', null], ['m', null], ['5m!', null]]) assert.equal(format.parseDuration(text), ms, text);
  for (const [ms, text] of [[300_000, '5m'], [90_000, '90s'], [1500, '1500ms'], [86_400_000, '1d'], [0, '0ms']]) assert.equal(format.durationArgument(ms), text);
});

test('moments are local unless they have a zone', () => {
  const now = Date.parse('2026-11-18T12:00:00Z');
  assert.equal(format.parseMoment('10m', now), now - 600_000);
  assert.equal(format.parseMoment('2026-11-16T10:30Z', now), Date.parse('2026-11-16T10:30:00Z'));
  assert.equal(format.parseMoment('2026-11-16 10:30', now), new Date(2026, 10, 16, 10, 30).getTime());
  assert.equal(format.parseMoment('2026-11-16', now), new Date(2026, 10, 16).getTime());
  assert.ok(/** @type {number} */ (format.parseMoment('10:30', now)) <= now);
  for (const bad of ['', 'yesterday', '2026-13-40', '99']) assert.equal(format.parseMoment(bad, now), null, bad);
});

test('only plausible times in ids are times', () => {
  assert.equal(format.timeOfId('1731664200000-0'), 1731664200000);
  assert.equal(format.timeOfId('5-1'), null);
  assert.equal(format.timeOfId('18446744073709551615-0'), null);
});

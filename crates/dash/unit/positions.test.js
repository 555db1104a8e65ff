// Positions in a stream, as people type them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { idAfter, position, searchTerm } from '../assets/app/positions.js';

const now = Date.parse('2026-11-18T12:00:00Z');

test('ids, moments and words are positions', () => {
  for (const [text, expected] of [
    ['earliest', '-'], ['Latest ', '+'], ['1731664200000-3', '1731664200000-3'], ['1731664200000', '1731664200000'], ['5-1', '5-1'],
    ['10m', `t${now - 600_000}`], ['2026-11-16T10:30Z', `t${Date.parse('2026-11-16T10:30Z')}`], ['', null], ['soon', null], ['7', null], ['1-2-3', null],
  ]) assert.equal(position(/** @type {string} */ (text), now), expected, String(text));
});

test('the next id follows, also at the end of a millisecond', () => {
  assert.equal(idAfter('5-7'), '5-8');
  assert.equal(idAfter('5'), '5-1');
  assert.equal(idAfter('5-18446744073709551615'), '6-0');
  assert.equal(idAfter('9007199254740993-0'), '9007199254740993-1');
});

test('field=text searches one field, unless a field was chosen', () => {
  assert.deepEqual(searchTerm('sku=9', ''), { field: 'sku', contains: '9' });
  assert.deepEqual(searchTerm('a=b=c', ''), { field: 'a', contains: 'b=c' });
  assert.deepEqual(searchTerm('sku=9', 'data'), { field: 'data', contains: 'sku=9' });
  assert.deepEqual(searchTerm('two words = x', ''), { field: null, contains: 'two words = x' });
});

// Sorting, filtering, patching and windowing of rows.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { heldOrder, matches, parseFilter, patchRows, select, sorted, windowOf } from '../assets/app/rows.js';

test('unknown values sort before all others, and equal rows keep their order', () => {
  const rows = [{ n: 3 }, { n: null }, { n: 10 }, { n: undefined }, { n: 3, second: true }];
  assert.deepEqual(sorted(rows, (row) => row.n, false).map((row) => row.n), [null, undefined, 3, 3, 10]);
  assert.equal(sorted(rows, (row) => row.n, false)[3].second, true);
  assert.deepEqual(sorted(rows, (row) => row.n, true).map((row) => row.n), [10, 3, 3, null, undefined]);
});

test('names sort by their numbers', () => {
  assert.deepEqual(sorted(['w-10', 'w-2', 'W-1'], (name) => name, false), ['W-1', 'w-2', 'w-10']);
});

test('a filter needs all words, leaves out words with a minus, and keeps quoted words whole', () => {
  const text = 'orders billing Two Words';
  for (const [filter, expected] of [['', true], ['ORD bill', true], ['ord mail', false], ['-mail', true], ['-bill', false], ['"two words"', true], ['"billing words"', false], ['"two', true]]) {
    assert.equal(matches(parseFilter(filter), text), expected, filter);
  }
});

test('a patch changes, removes and orders rows, also with hostile keys', () => {
  const state = { rows: new Map([['a', 1], ['b', 2]]), order: ['a', 'b'] };
  const set = JSON.parse('{"__proto__": 7, "b": 3}');
  const next = patchRows(state, { set, gone: ['a'], order: ['b', '__proto__', 'unknown'] });
  assert.deepEqual([...next.rows], [['b', 3], ['__proto__', 7]]);
  assert.deepEqual(next.order, ['b', '__proto__']);
  assert.deepEqual(state.order, ['a', 'b']);
  assert.deepEqual(patchRows(state, { set: { c: 5 } }).order, ['a', 'b', 'c']);
});

test('held rows keep their places, and new ones come last', () => {
  assert.deepEqual(heldOrder(['c', 'a', 'b'], ['a', 'd', 'b']), ['a', 'b', 'd']);
});

test('a window has the rows in view and the space of all others', () => {
  assert.deepEqual(windowOf({ count: 1000, rowHeight: 10, top: 5000, height: 100, overscan: 2 }), { first: 498, last: 512, before: 4980, after: 4880 });
  assert.deepEqual(windowOf({ count: 3, rowHeight: 10, top: 0, height: 100 }), { first: 0, last: 3, before: 0, after: 0 });
  const end = windowOf({ count: 10, rowHeight: 10, top: 99_999, height: 100 });
  assert.ok(end.first <= 10 && end.last === 10 && end.after === 0);
});

test('shift selects a range, in either direction', () => {
  const keys = ['a', 'b', 'c', 'd'];
  assert.deepEqual([...select(new Set(['d']), keys, 'b', 'd', true)].sort(), ['b', 'c', 'd']);
  assert.deepEqual([...select(new Set(['a', 'b']), keys, 'b', 'a', true)], []);
  assert.deepEqual([...select(new Set(), keys, 'c', null, true)], ['c']);
});

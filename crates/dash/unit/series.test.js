// Sparklines, sentences and tables of charts; addresses of pages; hex dumps.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { dumpLine, fromHex, lineCount } from '../assets/app/hex.js';
import { baseOf, changed, pageOf, queryString } from '../assets/app/routes.js';
import { perSecond, sparkPath, summary, tableRows, trend } from '../assets/app/series.js';

test('a gap in the numbers is a gap in the line', () => {
  assert.equal(sparkPath([0, null, 2, 4], 30, 10).match(/M/g)?.length, 2);
  assert.equal(sparkPath([null, 1], 30, 10), '');
});

test('a trend compares the begin and the end', () => {
  assert.equal(trend([1, 1, 5, 9, 9]), 'grows');
  assert.equal(trend([9, 9, 5, 1, 1]), 'shrinks');
  assert.equal(trend([100, 101, 100, 99]), 'steady');
  assert.equal(trend([null, 1, null]), 'unknown');
  assert.deepEqual(summary([null, 3, 1, 2]), { first: 3, last: 2, lowest: 1, highest: 3, known: 3 });
  assert.equal(summary([null]), null);
});

test('a table of a chart has the last point', () => {
  assert.deepEqual(tableRows(5, 20), [4, 3, 2, 1, 0]);
  assert.equal(tableRows(1800, 20).length, 20);
  assert.equal(tableRows(1800, 20)[0], 1799);
});

test('addresses carry any name, also an empty one', () => {
  const name = 'a/b?c#d&e=f \u202e%2e%2e';
  assert.equal(new URLSearchParams(queryString({ s: name })).get('s'), name);
  assert.equal(queryString({ s: '', x: undefined, y: null, z: false, on: true }), '?s=&on=1');
  assert.equal(queryString({}), '');
  assert.deepEqual(changed(new URLSearchParams('s=&q=2'), { q: '', t: '1h' }), { s: '', q: null, t: '1h' });
});

test('the base is found in the address of a module', () => {
  assert.equal(baseOf('http://h/a/HASH/app/router.js'), '');
  assert.equal(baseOf('http://h/tools/dash/a/HASH/app/router.js'), '/tools/dash');
  assert.equal(pageOf('/tools/dash/group/reset', '/tools/dash'), 'group/reset');
  assert.equal(pageOf('/', ''), '');
});

test('a dump shows offset, bytes and characters', () => {
  const bytes = fromHex('ff00414243202e7f0a61626364656667');
  assert.equal(lineCount(bytes), 1);
  assert.deepEqual(dumpLine(bytes, 0), { offset: '00000000', hex: 'ff 00 41 42 43 20 2e 7f  0a 61 62 63 64 65 66 67', ascii: '..ABC ...abcdefg' });
  assert.equal(dumpLine(fromHex('4142'), 0).ascii, 'AB');
});

test('counters grow per second, and a new or restarted one has no rate', () => {
  const rates = perSecond(new Map([['xadd', 10], ['ping', 50]]), new Map([['xadd', 30], ['ping', 5], ['info', 1]]), 5000);
  assert.deepEqual([...rates], [['xadd', 4], ['ping', null], ['info', null]]);
});

// The layout of JSON texts: exact, bounded by no nesting, in steps.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CLOSE, JsonLayout, OPEN, maybeJson } from '../assets/app/json-view.js';

function layOut(text, tokens = 1e9) {
  const layout = new JsonLayout(text);
  while (!layout.step(tokens));
  return layout;
}

test('values stay as they were written', () => {
  const layout = layOut('{"id": 1234567890123456789, "big":1e999, "id":-0.0, "s":"\\u0041\\n", "e":[], "o":{}, "n":null}');
  assert.equal(layout.error, null);
  const lines = Array.from({ length: layout.length }, (_, at) => layout.line(at));
  assert.deepEqual(lines.map(({ key, text }) => [key, text]), [
    [null, '{'], ['"id"', '1234567890123456789'], ['"big"', '1e999'], ['"id"', '-0.0'], ['"s"', '"\\u0041\\n"'], ['"e"', '[]'], ['"o"', '{}'], ['"n"', 'null'], [null, '}'],
  ]);
  assert.deepEqual(lines.map(({ comma }) => comma), [false, true, true, true, true, true, true, false, false]);
});

test('what JSON.parse accepts is laid out, and what it refuses is not', () => {
  const texts = ['{}', '[]', '[1,2]', '{"a":{"b":[1,{"c":null}]}}', ' [ true , false ] ', '[1,]', '[,1]', '{"a"}', '{"a":}', '{a:1}', '[1 2]', '{"a":1,}', '[01]', '[+1]', '["\n"]', '["\\x"]', '[}', '{]', '[', ']', '', '[1]x', '[1][2]', '"text"', '[.5]', '[1.]', '[nul]', '{"a":1 "b":2}'];
  for (const text of texts) {
    let valid = true;
    try { JSON.parse(text); } catch { valid = false; }
    assert.equal(layOut(text).error === null, valid, text);
  }
});

test('steps of any size give the same lines', () => {
  const text = JSON.stringify({ a: [1, 2, { b: 'x' }], c: { d: [] } });
  assert.deepEqual(layOut(text, 1).starts, layOut(text).starts);
});

test('nesting of 10,000 levels is laid out and folds', () => {
  const layout = layOut(`${'['.repeat(10_000)}1${']'.repeat(10_000)}`);
  assert.equal(layout.error, null);
  assert.equal(layout.length, 20_001);
  assert.equal(layout.kinds[0], OPEN);
  assert.equal(layout.kinds[20_000], CLOSE);
  assert.deepEqual(layout.visible(new Set([0])), [0]);
  assert.deepEqual(layout.visible(new Set([1])), [0, 1, 20_000]);
  assert.equal(layOut('['.repeat(10_000)).error?.startsWith('the document ends too early'), true);
});

test('a folded bracket hides its members, and large documents start folded', () => {
  const layout = layOut('{"a":[1,2],"b":3}');
  assert.deepEqual(layout.visible(new Set([1])), [0, 1, 5, 6]);
  assert.deepEqual([...layout.foldedAtFirst(1, 3)], [1]);
  assert.deepEqual([...layout.foldedAtFirst(1, 100)], []);
});

test('tables have a column for each key, or a row for each member', () => {
  assert.deepEqual(layOut('[{"a":1,"b":"x"},{"a":2,"c":[1]}]').table(10), { columns: ['a', 'b', 'c'], rows: [['1', 'x', ''], ['2', '', '[1]']], more: 0 });
  assert.deepEqual(layOut('{"a":12345678901234567890,"b":{"c":1}}').table(1), { columns: ['', 'value'], rows: [['a', '12345678901234567890']], more: 1 });
  assert.equal(layOut('[').table(1), null);
});

test('only objects and arrays are taken for JSON', () => {
  for (const [text, expected] of [['{"a":1}', true], [' [1]\n', true], ['12', false], ['{a', false], ['[x}', false], ['', false]]) assert.equal(maybeJson(text), expected, text);
});

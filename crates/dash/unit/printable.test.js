// Misleading characters become visible.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clip, parts, printable } from '../assets/app/printable.js';

test('control, bidirectional and invisible characters have labels', () => {
  for (const [character, label] of [['\u202e', '202E'], ['\u2028', '2028'], ['\u200b', '200B'], ['\u001b', '001B'], ['\0', '0000'], ['\ufeff', 'FEFF'], ['\u2066', '2066'], ['\ud800', 'D800'], ['\u{e0041}', 'E0041'], ['\r', '000D'], ['\u0085', '0085']]) {
    assert.equal(printable(`a${character}b`), `a⟨U+${label}⟩b`);
  }
});

test('joiners stay inside of scripts and emoji that need them', () => {
  assert.equal(printable('👩‍👩‍👧'), '👩‍👩‍👧');
  assert.equal(printable('a\u200db'), 'a⟨U+200D⟩b');
});

test('texts keep lines where the caller lays them out', () => {
  assert.deepEqual(parts('a\n\tb\u0007', { keepLines: true }), [{ text: 'a\n\tb', label: false }, { text: '⟨U+0007⟩', label: true }]);
  assert.equal(parts('a\nb').length, 3);
});

test('clipping never cuts a pair', () => {
  assert.equal(clip('abc', 3), 'abc');
  assert.equal(clip('abcd', 3), 'ab…');
  assert.equal(clip('a😀bc', 3), 'a…');
});

// The vendored libraries are those of the table in vendor/README.md, and all imports are relative.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { test } from 'node:test';

const assets = new URL('../assets/', import.meta.url);
const vendor = new URL('vendor/', assets);

test('the vendored files have the hashes of the table', () => {
  const table = readFileSync(new URL('README.md', vendor), 'utf8');
  const rows = [...table.matchAll(/^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$/gm)];
  const files = readdirSync(vendor).filter((name) => name !== 'README.md' && !name.startsWith('LICENSE') && !name.endsWith('.d.ts'));
  assert.deepEqual(rows.map(([, name]) => name).sort(), files.sort());
  for (const [, name, hash] of rows) {
    const bytes = readFileSync(new URL(name, vendor));
    assert.equal(createHash('sha256').update(bytes).digest('hex'), hash, `${name}: run scripts/vendor-assets if the change is intended`);
  }
});

/** Returns all files of a folder. */
function filesOf(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? filesOf(new URL(`${entry.name}/`, folder)) : [new URL(entry.name, folder)]);
}

test('every import is relative and exists', () => {
  for (const file of filesOf(assets).filter(({ pathname }) => pathname.endsWith('.js'))) {
    const text = readFileSync(file, 'utf8');
    for (const [, name] of text.matchAll(/(?:^import |^\} from |^import[^'"\n]* from |^export[^'"\n]* from |^import\{[^}]*\}from)\s*["']([^"'\n]+)["']/gm)) {
      assert.match(name, /^\.{1,2}\//, `${file.pathname} imports ${name}`);
      assert.doesNotThrow(() => readFileSync(new URL(name, file)), `${file.pathname} imports ${name}`);
    }
  }
});

test('the pages never turn text into markup', () => {
  for (const file of filesOf(new URL('app/', assets))) {
    assert.doesNotMatch(readFileSync(file, 'utf8'), /innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySetInnerHTML|\beval\(|new Function/, file.pathname);
  }
});

test('all files together have at most 200 kB compressed', () => {
  const size = filesOf(assets).filter(({ pathname }) => !pathname.endsWith('.md') && !pathname.endsWith('.d.ts')).reduce((sum, file) => sum + gzipSync(readFileSync(file), { level: 9 }).length, 0);
  console.log(`${size} bytes`);
  assert.ok(size <= 200_000, `${size} bytes`);
});

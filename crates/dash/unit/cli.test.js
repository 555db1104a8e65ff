// Command lines: quoted for a shell, and with the options that the program has.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { commands, line, quote } from '../assets/app/cli.js';

const HOSTILE = ['orders', '', "it's", '$(rm -rf /)', '`id`', '"><img src=x>', 'a b', '\u202e', 'new\nline', 'esc\u001b[2J', '-n', '--help', '\\', "'\\''", '*', '~', 'a=b', '%2e%2e', '!!', '#x', '\t\'\\\u0001'];

test('a shell gives every argument back', () => {
  for (const text of HOSTILE) {
    const shown = execFileSync('bash', ['-c', `printf '%s' ${quote(text)}`], { encoding: 'utf8' });
    assert.equal(shown, text);
  }
  assert.equal(quote('a\0b'), null);
});

test('names that look like options come after --', () => {
  assert.equal(line('stream info', ['-n']), 'millstream stream info -- -n');
  assert.equal(line('consumer rm', ['s', 'g', 'c'], [['--heir', '-x']]), 'millstream consumer rm s g c --heir=-x');
  assert.equal(line('lag', [], [], 'redis://10.0.0.1:6379'), 'millstream lag --url redis://10.0.0.1:6379');
  assert.equal(line('lag', [], [], 'redis://127.0.0.1:6379'), 'millstream lag');
});

/** One line of each command, with all options that the pages can set. */
function all() {
  const make = commands('redis://127.0.0.1:1');
  const filter = { reason: 'timeout', error: 'e', group: 'g', ids: ['1-1'], older_ms: 60_000, newer_ms: 120_000, dlq: 'd' };
  return [
    make.overview(), make.streamInfo('s'), make.groupDescribe('s', 'g'), make.entries('s', { count: 50 }), make.entries('s', { from: '1-1', count: 5 }), make.tail('s', 'g'),
    make.add('s', [['a', 'b']], { producer: 'p', iid: '1', delay_ms: 1000, at_ms: 1.7e12 }), make.groupCreate('s', 'g', 'latest'), make.groupRemove('s', 'g', true),
    ...[{ earliest: true }, { latest: true }, { id: '1-1' }, { time_ms: 1.7e12 }, { ago_ms: 7_200_000 }, { shift: -2 }, { group: 'h' }].map((to) => make.groupReset('s', 'g', to, true)),
    make.consumerRemove('s', 'g', 'c', 'h'), make.pendingList('s', 'g', { consumer: 'c', idle_ms_min: 300_000, stuck: true, count: 10 }), make.pendingClaim('s', 'g', 'c', 300_000, 5), make.pendingClaimIds('s', 'g', 'c', ['1-1']),
    make.pending('ack', 's', 'g', ['1-1']), make.pending('nack', 's', 'g', ['1-1']), make.pending('extend', 's', 'g', ['1-1']),
    make.dlqList('s', { ...filter, count: 50 }), make.dlqStreams(), make.dlqShow('s', '1-1', 'd'), make.redrive('s', { ...filter, rate: 50, limit: 5, all_groups: true }), make.purge('s', filter),
    make.delayedList('s', 100), make.delayed('rm', 's', ['1']), make.delayed('now', 's', ['1']), make.doctor(), make.doctor('lag', 50, 50), make.streamPolicy('s'), make.groupPolicy('s', 'g'),
  ];
}

test('a client of the store acts on the server', () => {
  assert.equal(commands('redis://10.0.0.1:1').server(['config', 'set', 'appendfsync', 'always']), 'redis-cli -u redis://10.0.0.1:1 config set appendfsync always');
  assert.equal(commands('redis://127.0.0.1:6379').server(['bgsave']), 'redis-cli bgsave');
  assert.equal(commands('redis+cluster://a,b').server(['bgsave']), null);
});

test('no line is missing, and a redrive carries its filter', () => {
  assert.ok(all().every((each) => typeof each === 'string'));
  assert.match(all().find((each) => each?.includes('redrive')) ?? '', /--reason timeout --error e --group g --id 1-1 --older-than 1m --newer-than 2m --rate 50 --count 5 --all-groups/);
});

const program = process.env.MILLSTREAM_BIN ?? fileURLToPath(new URL('../../../target/debug/millstream', import.meta.url));

test('every option is one that the program has', { skip: !existsSync(program) && `build the program first: ${program}` }, () => {
  for (const each of all()) {
    const words = /** @type {string} */ (each).split(' ').slice(1);
    const end = words.findIndex((word, at) => at > 0 && (at > 1 || !/^[a-z]+$/.test(word)));
    const command = words.slice(0, ['lag', 'doctor', 'tail', 'add'].includes(words[0]) ? 1 : end < 0 ? words.length : end);
    const help = execFileSync(program, [...command, '--help'], { encoding: 'utf8' });
    for (const option of words.filter((word) => word.startsWith('--'))) assert.match(help, new RegExp(`(^|\\s|,)${option.split('=')[0]}(\\s|$|=)`, 'm'), `${command.join(' ')} ${option}`);
  }
});

/** The data that the tests show: groups well and unwell, dead letters, large and binary payloads, hostile texts. The same at each run, but for the clock. */

export const MINUTE = 60_000;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** Texts that must never become markup, scripts, headers or events. */
export const HOSTILE = [
  '<script>window.pwned=1</script>', '"><img src=x onerror=window.pwned=1>', '</title><svg onload=window.pwned=1>', 'javascript:window.pwned=1', '${window.pwned=1}',
  "{{constructor.constructor('window.pwned=1')()}}", '__proto__', 'constructor', '..', '%2e%2e', 'a/b?c#d&e=f', '\r\nSet-Cookie: x=1', '\n\nevent: job\ndata: {}', '=HYPERLINK("http://x")',
  'rtl \u202e override', 'line \u2028 end', 'zero\u200bwidth', 'esc \u001b[2J', 'nul \0 byte', '',
];

/** Long ones: 64 KiB, JSON nested 10,000 deep, a number that no double holds. */
export const HOSTILE_VALUES = [...HOSTILE, 'x'.repeat(65_536), '['.repeat(10_000) + ']'.repeat(10_000), '{"n":1e999}', '{"id":1234567890123456789}'];

const ROW = 'x'.repeat(16);
/** The number in the large document, which a double would round. */
export const LONG_NUMBER = '9007199254740993123';

/** Returns a JSON document of about a megabyte. */
export function largeDocument() {
  const rows = Array.from({ length: 16_000 }, (_, at) => `{"row":${at},"sku":"sku-${at % 97}","note":"${ROW}"}`);
  return `{"number":${LONG_NUMBER},"rows":[${rows.join(',')}]}`;
}

/** Sends many commands at a time, and fails if one fails. @param {import('ioredis').Redis} client @param {any[][]} commands */
async function send(client, commands) {
  for (let at = 0; at < commands.length; at += 2000) {
    const pipeline = client.pipeline();
    for (const [name, ...args] of commands.slice(at, at + 2000)) pipeline.call(name, ...args);
    for (const [error] of (await pipeline.exec()) ?? []) if (error) throw error;
  }
}

/** Fields of a dead letter by the convention of the worker. @param {any} letter */
const letterFields = ({ stream, group, id, reason, error, type = 'Error', deliveries = 5, died, fields = ['item', 'book', 'sku', '9'] }) => [
  ...fields, 'dlq.stream', stream, 'dlq.id', id, 'dlq.group', group, 'dlq.consumer', 'worker-2', 'dlq.deliveries', deliveries, 'dlq.reason', reason, 'dlq.error', error,
  'dlq.error_type', type, 'dlq.first_seen', died - MINUTE, 'dlq.dead_at', died, 'dlq.redrives', 0,
];

/** Three entries of the dead consumer are stuck: idle for long, and delivered often. @param {number} now */
const stuck = (now) => [12, 13, 14].map((at) => ['XCLAIM', 'orders', 'billing', 'worker-2', 0, `${now - 3 * HOUR + at * 5000}-0`, 'IDLE', 12 * MINUTE + at * 1000, 'RETRYCOUNT', 6]);

/** `orders` with the groups `billing` (unwell) and `audit` (well). @param {number} now */
function orders(now) {
  const id = (/** @type {number} */ at) => `${now - 3 * HOUR + at * 5000}-0`;
  const commands = Array.from({ length: 2000 }, (_, at) => ['XADD', 'orders', id(at), 'item', at % 3 === 0 ? 'pen' : 'book', 'sku', at % 50, 'amount', (at * 7) % 100, 'data', `{"sku":${at % 50},"qty":${1 + (at % 4)}}`]);
  commands.push(['XGROUP', 'CREATE', 'orders', 'billing', '0'], ['XGROUP', 'CREATE', 'orders', 'audit', '0']);
  commands.push(['XREADGROUP', 'GROUP', 'billing', 'worker-1', 'COUNT', 12, 'STREAMS', 'orders', '>'], ['XREADGROUP', 'GROUP', 'billing', 'worker-2', 'COUNT', 8, 'STREAMS', 'orders', '>']);
  commands.push(...stuck(now));
  commands.push(['XREADGROUP', 'GROUP', 'audit', 'auditor', 'COUNT', 1988, 'NOACK', 'STREAMS', 'orders', '>']);
  return commands;
}

/** Dead letters of `orders`: 40 older than a month, 5 rejected, 200 that timed out. @param {number} now */
function letters(now) {
  const commands = [];
  const add = (/** @type {number} */ died, /** @type {any} */ letter) => commands.push(['XADD', '{orders}:dlq', `${died}-0`, ...letterFields({ stream: 'orders', group: 'billing', id: `${now - 3 * HOUR + 5000 * (letter.at ?? 0)}-0`, died, ...letter })]);
  for (let at = 0; at < 40; at += 1) add(now - 40 * DAY + at * MINUTE, { reason: 'rejected', error: `no price for sku ${at}`, type: 'PriceError', at });
  for (let at = 0; at < 5; at += 1) add(now - 2 * HOUR + at * MINUTE, { reason: 'failed', error: 'card expired', type: 'CardError', at: 100 + at });
  for (let at = 0; at < 200; at += 1) add(now - HOUR + at * 1000, { reason: 'timeout', error: `no answer from bank ${at % 7} in 5000 ms`, type: 'TimeoutError', at: 200 + at, fields: ['item', 'book', 'sku', String(at % 50), 'note', `payload of letter ${at}`] });
  return commands;
}

/** `mails` has a live worker, `idle` entries that an otherwise healthy group forgot. @param {number} now */
function others(now) {
  const commands = [['XGROUP', 'CREATE', 'mails', 'send', '$', 'MKSTREAM'], ['XGROUP', 'CREATE', 'forgotten', 'reader', '0', 'MKSTREAM']];
  for (let at = 0; at < 6; at += 1) commands.push(['XADD', 'forgotten', `${now - HOUR + at}-0`, 'task', at]);
  commands.push(['XREADGROUP', 'GROUP', 'reader', 'one', 'COUNT', 6, 'STREAMS', 'forgotten', '>']);
  for (let at = 0; at < 6; at += 1) commands.push(['XCLAIM', 'forgotten', 'reader', 'one', 0, `${now - HOUR + at}-0`, 'IDLE', 20 * MINUTE, 'RETRYCOUNT', 1]);
  commands.push(['XADD', 'payloads', `${now - 2000}-0`, 'document', largeDocument()], ['XADD', 'payloads', `${now - 1000}-0`, 'blob', Buffer.from(Array.from({ length: 70_000 }, (_, at) => (at * 7 + 255) % 256))]);
  commands.push(['XADD', 'cards', `${now - 1000}-0`, 'card', '4111-1111-1111-1111', 'api_token', 'token-of-nobody', 'data', '{"user":{"email":"a@example.org","name":"Ann"}}', 'item', 'book']);
  for (let stream = 0; stream < 50; stream += 1) {
    const name = `tenant-${String(stream).padStart(3, '0')}`;
    commands.push(['XADD', name, `${now - 10_000 - stream}-0`, 'k', 'v']);
    for (let group = 0; group < 4; group += 1) commands.push(['XGROUP', 'CREATE', name, `g${group}`, '$']);
  }
  return commands;
}

/** `later` has messages that wait, on a store that can delay them. @param {import('./store.js').Store} store */
export const delay = (store) => send(store.client, [1, 2, 3].map((at) => ['XADD', 'later', `*@${Date.now() + at * HOUR}`, 'n', at]));

/** `visits` has two partitions, which the group `count` has read. @param {number} now */
function partitioned(now) {
  const names = ['visits:{21}.1', 'visits:{17}.1'];
  const commands = [['HSET', '{visits}:partitions', '1', JSON.stringify(names), 'hash', 'crc32-65521', 'key', 'user', 'generation', '1']];
  for (const [at, name] of names.entries()) commands.push(['XADD', name, `${now - 9000}-0`, 'user', `ann-${at}`], ['XGROUP', 'CREATE', name, 'count', '$']);
  return commands;
}

/** Streams, groups, consumers, fields, values and errors with hostile names. @param {number} now */
function hostile(now) {
  const commands = [];
  HOSTILE.forEach((text, at) => {
    const id = `${now - 30 * MINUTE + at}-0`;
    commands.push(['XADD', text, id, text || 'empty', text], ['XGROUP', 'CREATE', text, text, '0'], ['XREADGROUP', 'GROUP', text, text || 'c', 'COUNT', 1, 'STREAMS', text, '>']);
    commands.push(['XADD', `{${text}}:dlq`, `${now - 20 * MINUTE + at}-0`, ...letterFields({ stream: text, group: text, id, reason: at % 2 === 0 ? text || 'failed' : 'failed', error: text, type: text, died: now - 20 * MINUTE, fields: [text || 'f', text] })]);
  });
  HOSTILE_VALUES.forEach((text, at) => commands.push(['XADD', 'hostile', `${now - 30 * MINUTE + at}-0`, `field ${at}`, text, text.slice(0, 200), 'value']));
  commands.push(['XGROUP', 'CREATE', 'hostile', 'group', '0'], ['XREADGROUP', 'GROUP', 'group', HOSTILE[1], 'COUNT', 10, 'STREAMS', 'hostile', '>']);
  for (const text of HOSTILE.filter(Boolean).slice(0, 6)) commands.push(['XGROUP', 'CREATECONSUMER', 'hostile', 'group', text]);
  commands.push(['XADD', Buffer.from([0xff, 0xfe, 0x41]), `${now - 1000}-0`, Buffer.from([0xff, 0xfe]), Buffer.from([0xff, 0xfe, 0])]);
  return commands;
}

/** Fills a store with everything but the hostile texts. Returns the moment that the data refers to. @param {import('./store.js').Store} store */
export async function fill(store) {
  const now = Date.now();
  await send(store.client, [...orders(now), ...letters(now), ...others(now), ...partitioned(now)]);
  return now;
}

/** Lets the dead consumer hold the three stuck entries again. @param {import('./store.js').Store} store @param {number} now what `fill` returned */
export const stickAgain = (store, now) => send(store.client, stuck(now));

/** @param {import('./store.js').Store} store */
export async function fillHostile(store) {
  await send(store.client, hostile(Date.now()));
}

/** Adds a stream `events` of many short entries. Only the third one has `sku=9`. @param {import('./store.js').Store} store @param {number} count */
export async function fillEvents(store, count) {
  const now = Date.now() - DAY;
  for (let from = 0; from < count; from += 20_000) {
    await send(store.client, Array.from({ length: Math.min(20_000, count - from) }, (_, at) => ['XADD', 'events', `${now + from + at}-0`, 'sku', from + at === 2 ? 9 : 8]));
  }
}

/** Adds groups to streams of ten, the last of them named `billing`. @param {import('./store.js').Store} store @param {number} count */
export async function fillGroups(store, count) {
  const now = Date.now();
  const commands = [];
  for (let stream = 0; stream < count / 10; stream += 1) {
    const name = `stream-${String(stream).padStart(4, '0')}`;
    commands.push(['XADD', name, `${now - 10_000}-0`, 'k', 'v']);
    for (let group = 0; group < 10; group += 1) commands.push(['XGROUP', 'CREATE', name, stream === count / 10 - 1 && group === 9 ? 'billing' : `group-${group}`, group % 2 === 0 ? '0' : '$']);
  }
  await send(store.client, commands);
}

/**
 * Takes the pictures of the README and of docs/dashboard.md, from a server at work: producers, consumers, workers, and a group in trouble.
 * It takes six minutes, because the charts show the last five:
 *
 *   cargo build --release -p millstream && scripts/clients-setup
 *   MILLSTREAM_BIN=$PWD/target/release/millstream MILLSTREAM_SHOTS=docs node --preserve-symlinks --preserve-symlinks-main target/clients/browser/tests/pictures.js
 */

import { HOUR, MINUTE } from './data.js';
import { connect, newFolder, startMillstream, startWorker, stopAll } from './store.js';
import { Visitor, eventually, startBrowser } from './visitor.js';

const RUN_MS = Number(process.env.MILLSTREAM_PICTURES_MS ?? 5.5 * MINUTE);
const ITEMS = ['book', 'pen', 'lamp', 'desk'];

/** Streams with the entries that a producer adds per second, and the consumers of each group with the entries that they finish per second. */
const WORK = [
  { stream: 'orders', rate: 24, groups: { billing: [['billing-1', 9], ['billing-2', 9]], audit: [['audit-1', 30]], search: [['indexer-1', 20], ['indexer-2', 15]] } },
  { stream: 'mails', rate: 8, groups: { send: [] } },
  { stream: 'payments', rate: 11, groups: { capture: [['capture-1', 14]], ledger: [['ledger-1', 12]] } },
  { stream: 'images', rate: 5, groups: { resize: [['resize-1', 3], ['resize-2', 3]], publish: [['cdn-1', 8]] } },
  { stream: 'signups', rate: 2, groups: { welcome: [['welcome-1', 4]], crm: [['crm-1', 3]] } },
];

const store = await startMillstream(['--appendonly', 'yes', '--dir', newFolder()]);
const { client } = store;
const call = (/** @type {any[]} */ ...command) => client.call(.../** @type {[string, ...any[]]} */ (command));

/** Calls `run` with the number of actions that are due, five times per second, so that their rate is `rate` per second. @param {number} rate @param {(count: number) => Promise<any>} run */
function regularly(rate, run) {
  let due = 0;
  let busy = false;
  return setInterval(async () => {
    // No two seconds are alike.
    due += (rate / 5) * (0.6 + 0.8 * Math.random());
    const count = Math.floor(due);
    if (count === 0 || busy) return;
    busy = true;
    due -= count;
    await run(count).catch(() => {});
    busy = false;
  }, 200);
}

const fields = (/** @type {number} */ n) => ['item', ITEMS[n % 4], 'sku', String(n % 50), 'amount', String((n * 7) % 100), 'data', `{"sku":${n % 50},"qty":${1 + (n % 4)}}`];
const timers = [];
let added = 0;
const produce = (/** @type {string} */ stream) => (/** @type {number} */ count) => Promise.all(Array.from({ length: count }, () => call('XADD', stream, '*', ...fields(added++))));

/** @param {string} stream @param {string} group @param {string} name */
function consume(stream, group, name) {
  const own = connect(store.port);
  return async (/** @type {number} */ count) => {
    const read = /** @type {any} */ (await own.call('XREADGROUP', 'GROUP', group, name, 'COUNT', String(count), 'STREAMS', stream, '>'));
    const ids = read?.[1]?.map(([id]) => id) ?? [];
    if (ids.length > 0) await own.call('XACK', stream, group, ...ids);
  };
}

/** `orders / billing` has a consumer that died with entries, and dead letters. */
async function trouble() {
  const now = Date.now();
  for (let at = 0; at < 8000; at += 1) await call('XADD', 'orders', `${now - 40 * MINUTE + at * 300}-0`, ...fields(at));
  await call('XGROUP', 'CREATE', 'orders', 'billing', '0');
  await call('XREADGROUP', 'GROUP', 'billing', 'billing-3', 'COUNT', '7', 'STREAMS', 'orders', '>');
  for (let at = 0; at < 7; at += 1) await call('XCLAIM', 'orders', 'billing', 'billing-3', '0', `${now - 40 * MINUTE + at * 300}-0`, 'IDLE', String(12 * MINUTE + at * 700), 'RETRYCOUNT', String(3 + at));
  const errors = [['timeout', 'no answer from bank 3 in 5000 ms', 'TimeoutError', 23], ['failed', 'card expired', 'CardError', 9], ['rejected', 'no price for sku 41', 'PriceError', 4]];
  for (const [reason, error, type, count] of errors) {
    for (let at = 0; at < Number(count); at += 1) {
      const died = now - HOUR + at * 30_000;
      await call('XADD', '{orders}:dlq', '*', ...fields(at), 'dlq.stream', 'orders', 'dlq.id', `${died - 5000}-0`, 'dlq.group', 'billing', 'dlq.consumer', 'billing-3', 'dlq.deliveries', '5',
        'dlq.reason', reason, 'dlq.error', error, 'dlq.error_type', type, 'dlq.first_seen', String(died - 5000), 'dlq.dead_at', String(died), 'dlq.redrives', '0');
    }
  }
}

await trouble();
for (const { stream, rate, groups } of WORK) {
  for (const [group, consumers] of Object.entries(groups)) {
    if (group !== 'billing') await call('XGROUP', 'CREATE', stream, group, '$', 'MKSTREAM');
    for (const [name, speed] of consumers) timers.push(regularly(Number(speed), consume(stream, group, String(name))));
  }
  timers.push(regularly(rate, produce(stream)));
}
for (const name of ['mailer-1', 'mailer-2']) startWorker(store, 'mails', 'send', name);

const browser = await startBrowser();
try {
  const visitor = await Visitor.open(browser, store.base, { viewport: { width: 1280, height: 740 } });
  await new Promise((resolve) => setTimeout(resolve, RUN_MS));
  await visitor.goto('?sort=health&desc=1');
  await eventually(async () => { if (await visitor.find('tbody tr').count() < 9) throw new Error('the rows are missing'); });
  await visitor.page.waitForTimeout(5000);
  await visitor.shot('dashboard-overview');
  await visitor.goto('group?s=orders&g=billing&t=5m');
  await visitor.page.waitForTimeout(5000);
  await visitor.page.setViewportSize({ width: 1280, height: 880 });
  await visitor.page.waitForTimeout(1000);
  await visitor.shot('dashboard-group');
  const dark = await Visitor.open(browser, store.base, { viewport: { width: 1280, height: 880 }, dark: true, path: 'group?s=orders&g=billing&t=5m' });
  await dark.page.waitForTimeout(5000);
  await dark.shot('dashboard-group-dark');
} finally {
  timers.forEach(clearInterval);
  await browser.close();
  await stopAll();
}

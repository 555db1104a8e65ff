// Every page with hostile texts: nothing runs, nothing leaves, everybody can read it. Keeps a picture of each page.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { HOSTILE, fill, fillHostile } from './data.js';
import { startMillstream, startWorker, stopAll } from './store.js';
import { DESKTOP, PHONE, Visitor, eventually, startBrowser } from './visitor.js';

const LONG = process.env.MILLSTREAM_BROWSER_LONG === '1';

/** @type {import('playwright-core').Browser} */
let browser;
/** @type {import('./store.js').Store} */
let store;
before(async () => {
  store = await startMillstream();
  browser = await startBrowser();
  await fill(store);
  await fillHostile(store);
  startWorker(store, 'mails', 'send', 'mailer-1');
  await eventually(async () => assert.ok((await (await fetch(`${store.base}api/v1/overview`)).json()).matched > 200));
});
after(async () => {
  await Promise.all([browser?.close(), stopAll()]);
});

const query = (values) => new URLSearchParams(values).toString();

/** The pages with ordinary and with hostile texts: name, address, and what to open on the page. */
async function pages() {
  const entry = async (stream) => /** @type {any} */ ((await store.client.call('XRANGE', stream, '-', '+', 'COUNT', '1')))[0][0];
  const plain = { s: 'orders', g: 'billing' };
  const hostile = { s: HOSTILE[1], g: HOSTILE[1] };
  return [
    ['overview', ''], ['overview-hostile', '?sort=name&q=window.pwned'],
    ['stream', `stream?${query({ s: 'orders' })}`], ['stream-hostile', `stream?${query({ s: 'hostile' })}`],
    ['group', `group?${query(plain)}`], ['group-hostile', `group?${query(hostile)}`], ['reset', `group/reset?${query(plain)}`],
    ['pending', `pending?${query(plain)}`], ['pending-hostile', `pending?${query(hostile)}`],
    ['partitions', `stream?${query({ s: 'visits' })}`], ['partitions-group', `group?${query({ s: 'visits', g: 'count' })}`], ['partition', `stream?${query({ s: 'visits:{17}.1' })}`],
    ['dlq', 'dlq'], ['dlq-partitions', `dlq?${query({ of: 'visits' })}`], ['letters', `dlq?${query({ s: 'orders' })}`], ['letters-hostile', `dlq?${query({ s: HOSTILE[1] })}`],
    ['entry', `entry?${query({ s: 'orders', id: await entry('orders') })}`], ['entry-hostile', `entry?${query({ s: HOSTILE[0], id: await entry(HOSTILE[0]) })}`],
    ['delayed', `stream?${query({ s: 'orders', tab: 'delayed' })}`],
    ['claim', `pending?${query({ ...plain, stuck: 1 })}`, async (visitor) => {
      await visitor.press(visitor.page.getByLabel(/All that match/));
      await visitor.pressNamed('button', /^Claim/);
      await visitor.sees(/will move to this consumer/, 'dialog');
    }],
    ['redrive', `dlq?${query({ s: 'orders', reason: 'timeout' })}`, async (visitor) => {
      await visitor.pressNamed('button', /^Redrive 200/);
      await visitor.pressNamed('button', 'Preview');
      await visitor.sees(/200 dead letters will go back/, 'dialog');
    }],
    ['palette', '', async (visitor) => {
      await visitor.keys('Control+k');
      await visitor.page.keyboard.type('bill');
      await visitor.sees(/billing/, 'dialog');
    }],
    ['tail', `tail?${query({ s: 'orders' })}`], ['workers', 'workers'], ['doctor', 'doctor'], ['server', 'server'], ['audit', 'audit'], ['help', 'help'],
  ];
}

/** Opens all pages in one window, and fails with all offences together. */
const look = (name, options, each) => test(name, async () => {
  const visitor = await Visitor.open(browser, store.base, options);
  const failures = [];
  for (const [page, path, open] of /** @type {[string, string, ((visitor: Visitor) => Promise<void>)?][]} */ (await pages())) {
    try {
      await visitor.goto(path);
      await open?.(visitor);
      await each(visitor, page);
      await visitor.behaves();
    } catch (error) {
      const picture = await visitor.shot(`failed-${page}-${name.replaceAll(' ', '-')}`, true).catch(() => 'none');
      failures.push(`${page}: ${error.message}\npicture: ${picture}`);
      visitor.offences = [];
    }
  }
  await visitor.close();
  assert.deepEqual(failures, [], failures.join('\n\n'));
});

for (const [theme, dark] of [['light', false], ['dark', true]]) {
  for (const [size, viewport] of [['1280', DESKTOP], ['360', PHONE]]) {
    // The short run takes each theme and each width once.
    if (!LONG && dark !== (viewport === PHONE)) continue;
    look(`pages are safe and accessible, ${theme} ${size}`, { viewport, dark }, async (visitor, page) => {
      await visitor.isAccessible();
      assert.deepEqual(await visitor.tooWide(), [], 'wider than its window');
      await visitor.shot(`${page}-${theme}-${size}`);
      if (viewport !== DESKTOP) return;
      await visitor.page.setViewportSize({ width: 1024, height: 768 });
      assert.deepEqual(await visitor.tooWide(), [], 'wider than a window of 1024 px');
      assert.deepEqual(await visitor.cutOff('.fact dt, .page-head button'), [], 'cut off in a window of 1024 px');
      await visitor.page.setViewportSize(viewport);
    });
  }
}

test('names of streams and fields are shown, not obeyed', async () => {
  const visitor = await Visitor.open(browser, store.base);
  for (const text of LONG ? HOSTILE : HOSTILE.slice(0, 8)) {
    for (const path of [`stream?${query({ s: text })}`, `group?${query({ s: text, g: text })}`, `dlq?${query({ s: text })}`]) {
      await visitor.goto(path);
      await visitor.behaves();
    }
  }
  await visitor.close();
});

/** The tasks of an operator, each with the presses that it may take, counted from an open overview. */

import assert from 'node:assert/strict';
import { LONG_NUMBER } from './data.js';
import { runLine } from './store.js';
import { eventually } from './visitor.js';

/** @typedef {import('./visitor.js').Visitor} Visitor */
/** @typedef {import('./store.js').Store} Store */

/** Selector of a row of the overview. @param {string} stream @param {string | null} group */
export const row = (stream, group) => `tr[data-key='${JSON.stringify([stream, group])}']`;
const cell = (stream, group, label) => `${row(stream, group)} td[data-label="${label}"]`;

/** Filters the overview until one stream is left. @param {Visitor} visitor @param {string} text */
async function filter(visitor, text) {
  await visitor.type('.filter-bar input[type=search]', text);
}

/** 1: is anything wrong right now, and why? */
export async function anythingWrong(visitor) {
  await visitor.sees(/critical/, '.answer .verdict');
  await visitor.sees(/orders \/ billing.*stuck|stuck.*orders \/ billing/s, '.answer .reasons');
  visitor.took(0);
}

/** 2, with keys: find a group among thousands, and see its lag over the last hour. */
export async function findGroup(visitor) {
  await visitor.sees(/[\d,]{5,} rows/, '.filter-bar');
  assert.ok(await visitor.find('tbody tr').count() <= 200, 'only some rows are in the page');
  await visitor.page.reload();
  await visitor.sees(/[\d,]{5,} rows/, '.filter-bar');
  const figures = await visitor.page.evaluate(() => `${document.querySelector('.filter-bar .matched')?.textContent}: drawn ${Math.round(performance.now())} ms after the request, longest task ${Math.max(0, ...window.longTasks)} ms`);
  console.log(figures);
  await visitor.keys('/');
  await visitor.page.keyboard.type('billing');
  await visitor.keys('Enter');
  await visitor.sees(/billing/, 'h1');
  await visitor.sees(/Lag, last 1h: [\d,]+ at first, [\d,]+ now/, '.chart');
  visitor.took(1);
}

/** 3: when will the group have caught up? */
export async function whenCaughtUp(visitor) {
  await visitor.press(visitor.find(row('orders', 'billing')).getByRole('link', { name: 'billing' }));
  await visitor.sees(/does not catch up|rates are not known yet|will have read everything/, '.answer .verdict');
  visitor.took(1);
}

/** 19: how is one of the partitions of a group? */
export async function whichPartition(visitor) {
  await filter(visitor, 'visits');
  await visitor.press(visitor.find(row('visits', 'count')).getByRole('link', { name: 'count' }));
  await visitor.sees(/2 partitions/, '.panel');
  await visitor.press(visitor.find("tr[data-key='visits:{17}.1']").getByRole('link', { name: '1', exact: true }));
  await visitor.sees(/This is partition 1 of visits/, 'main');
  visitor.took(2);
}

/** 4, with keys: which consumer holds the entry that has waited longest, and what does it say? */
export async function whoHoldsIt(visitor) {
  await visitor.keys('/');
  await visitor.page.keyboard.type('billing');
  await visitor.keys('Enter');
  const pending = visitor.find('.fact', { hasText: 'Pending' }).getByRole('link');
  await visitor.tabTo(pending);
  await visitor.keys('Enter');
  await visitor.sees(/worker-1|worker-2/, 'tbody tr >> nth=0');
  await visitor.sees(/item=pen/, 'tbody tr >> nth=0');
  visitor.took(2);
}

/** 5: release all entries that have been idle for over five minutes, so that any consumer can claim them. */
export async function release(visitor, /** @type {Store} */ store) {
  await visitor.press(visitor.find(cell('orders', 'billing', 'Stuck')).getByRole('link'));
  await visitor.sees(/3 match/, '.filter-bar');
  await visitor.press(visitor.page.getByLabel(/All that match/));
  await visitor.pressNamed('button', /^Release…/);
  await visitor.pressNamed('button', 'Release 3 entries');
  await visitor.sees(/Released: 3/, '.toasts');
  await eventually(async () => {
    const held = /** @type {any[]} */ (await store.client.call('XPENDING', 'orders', 'billing', '-', '+', '100', 'worker-2'));
    assert.equal(held.length, 5, 'the dead consumer holds only what is not stuck');
  });
  visitor.took(4);
}

/** 6: give everything of a dead consumer to a live one, and remove it. */
export async function removeConsumer(visitor, /** @type {Store} */ store) {
  await visitor.press(visitor.find(row('orders', 'billing')).getByRole('link', { name: 'billing' }));
  await visitor.press(visitor.find('tr', { hasText: 'worker-2' }).getByRole('button', { name: /^Remove/ }));
  await visitor.pressNamed('button', 'Preview');
  await visitor.sees(/5 entries move to worker-1/, 'dialog');
  await visitor.pressNamed('button', 'Remove worker-2');
  await visitor.sees(/Removed the consumer worker-2/, '.toasts');
  const consumers = JSON.stringify(await store.client.call('XINFO', 'CONSUMERS', 'orders', 'billing'));
  assert.ok(!consumers.includes('worker-2'), consumers);
  visitor.took(4);
}

/** 7, with keys: why did messages die; the top error, and one payload. */
export async function whyDead(visitor) {
  await visitor.keys('g', 'd');
  await visitor.sees(/\{orders\}:dlq/, 'tbody');
  await visitor.keys('j', 'Enter');
  const top = visitor.find('.panel', { hasText: 'By error' }).getByRole('link').first();
  await visitor.tabTo(top);
  assert.match(await top.innerText(), /no answer from bank.*200/s);
  await visitor.keys('Enter');
  await visitor.sees(/200 match/, '.filter-bar');
  await visitor.keys('j', 'Enter');
  await visitor.sees(/payload of letter/, '.fields-view');
  await visitor.sees(/TimeoutError/, '.properties');
  visitor.took(3);
}

/** 8: redrive only what timed out, 50 a second; stop half-way. */
export async function redriveAndStop(visitor, /** @type {Store} */ store) {
  await visitor.press(visitor.find(cell('orders', 'billing', 'Dead')).getByRole('link'));
  await visitor.press(visitor.find('.panel', { hasText: 'By reason' }).getByRole('link', { name: /timeout/ }));
  await visitor.pressNamed('button', /^Redrive 200/);
  await visitor.type(visitor.page.getByLabel('Per second'), '50');
  await visitor.pressNamed('button', 'Preview');
  await visitor.sees(/200 dead letters will go back.*takes 4s/s, 'dialog');
  await visitor.type(visitor.page.getByLabel(/Type the number/), '200');
  assert.match(await visitor.cliLine(), /^millstream dlq redrive orders .*--reason timeout.*--rate 50/);
  await visitor.pressNamed('button', 'Redrive 200 dead letters');
  visitor.took(5);
  await visitor.sees(/[1-9]\d* \/ 200/, '.job-count');
  await visitor.press(visitor.find('.job').getByRole('button', { name: 'Stop' }));
  await visitor.sees(/stopped/, '.job');
  const left = Number(await store.client.xlen('{orders}:dlq'));
  assert.ok(left > 45 && left < 245, `${left} dead letters are left`);
  visitor.took(6);
}

/** 9: delete dead letters older than thirty days, and know the number before. */
export async function purgeOld(visitor, /** @type {Store} */ store) {
  await visitor.press(visitor.find(cell('orders', 'billing', 'Dead')).getByRole('link'));
  await visitor.type(visitor.page.getByLabel('Older than'), '30d');
  await visitor.keys('Enter');
  await visitor.sees(/40 match/, '.filter-bar');
  await visitor.pressNamed('button', /^Delete 40/);
  await visitor.sees(/40 dead letters will be deleted/, 'dialog');
  const before = Number(await store.client.xlen('{orders}:dlq'));
  await visitor.pressNamed('button', /^Delete 40 dead letters of orders/);
  await eventually(async () => assert.equal(Number(await store.client.xlen('{orders}:dlq')), before - 40));
  visitor.took(4);
}

/** 10: replay the last two hours; the preview names the consumer at work and refuses. Then the command line that is shown does it. */
export async function replay(visitor, /** @type {Store} */ store) {
  await store.client.call('XREADGROUP', 'GROUP', 'billing', 'worker-1', 'COUNT', '1', 'STREAMS', 'orders', '>');
  await visitor.press(visitor.find(row('orders', 'billing')).getByRole('link', { name: 'billing' }));
  await visitor.pressNamed('link', /^Reset/);
  await visitor.sees(/Consumers are at work: .*worker-1/, '.wizard');
  assert.equal(await visitor.page.getByRole('button', { name: 'Reset billing' }).isDisabled(), true);
  visitor.took(4);
  await visitor.press(visitor.page.getByLabel(/although they are at work/));
  await visitor.type(visitor.page.getByLabel('Number of entries').or(visitor.page.getByLabel('Duration')), '2h');
  const before = await lastDelivered(store, 'billing');
  await runLine(await visitor.cliLine('.wizard'));
  await eventually(async () => assert.notEqual(await lastDelivered(store, 'billing'), before, 'the command line resets the group'));
}

/** @param {Store} store @param {string} group */
async function lastDelivered(store, group) {
  const groups = /** @type {any[][]} */ (await store.client.call('XINFO', 'GROUPS', 'orders'));
  const found = groups.find((each) => each[each.indexOf('name') + 1] === group) ?? [];
  return found[found.indexOf('last-delivered-id') + 1];
}

/** 11, with keys: find an entry among many; the search is bounded and goes on. */
export async function search(visitor) {
  await visitor.keys('/');
  await visitor.page.keyboard.type('events');
  await visitor.keys('Enter');
  await visitor.sees(/Entries/, '.panel');
  await visitor.keys('/');
  await visitor.page.keyboard.type('sku=9');
  await visitor.keys('Enter');
  const onward = visitor.page.getByRole('button', { name: 'Go on' });
  const found = visitor.find('.search-state', { hasText: '1 found' });
  let times = 0;
  for (;;) {
    await onward.or(found).first().waitFor();
    if (await found.count() > 0) break;
    const state = await visitor.text('.search-state');
    // On a busy machine, a search can end after 30 seconds, before it has examined as many entries as it may.
    assert.match(state, /Looked at [\d,]*00,000 entries, 0 found|has run as long as it may/);
    await visitor.tabTo(onward);
    await visitor.keys('Enter');
    await eventually(async () => assert.notEqual(await visitor.text('.search-state'), state));
    times += 1;
  }
  await visitor.sees(/sku=9/, 'tbody');
  assert.ok(times > 0, 'the search is bounded');
  visitor.took(2 + times);
}

/** 12: read a JSON document of a megabyte with a number of 19 digits, and a binary value. */
export async function payloads(visitor) {
  await filter(visitor, 'payloads');
  await visitor.press(visitor.find(row('payloads', null)).getByRole('link', { name: 'payloads' }));
  await visitor.press(visitor.find('tr', { hasText: 'document=' }).getByRole('link'));
  await visitor.sees(LONG_NUMBER, '.lines.json');
  visitor.took(2);
  assert.ok((await visitor.find('.line').count()) < 200, 'only lines in view are drawn');
  await visitor.page.getByRole('button', { name: 'Unfold all' }).click();
  await visitor.find('.lines.json').evaluate((element) => element.scrollTo(0, element.scrollHeight));
  assert.ok((await visitor.find('.line').count()) < 200, 'only lines in view are drawn');
  await visitor.page.goBack();
  await visitor.press(visitor.find('tr', { hasText: 'blob=' }).getByRole('link'));
  await visitor.sees(/00000000/, '.lines.hex');
  assert.ok((await visitor.find('.line').count()) < 200, 'only lines in view are drawn');
  const longest = Math.max(0, ...(await visitor.page.evaluate(() => window.longTasks)));
  assert.ok(longest < 3000, `the page froze for ${longest} ms`);
}

/** 13: watch only messages with a word come in, pause, copy an id. */
export async function tail(visitor, /** @type {Store} */ store) {
  await visitor.press(visitor.find(row('orders', 'billing')).getByRole('link', { name: 'orders' }));
  await visitor.pressNamed('link', 'Live tail');
  await visitor.type(visitor.page.getByRole('searchbox', { name: 'Find' }), 'needle');
  await visitor.page.waitForURL(/q=needle/);
  await eventually(async () => {
    await store.client.call('XADD', 'orders', '*', 'item', 'hay');
    await store.client.call('XADD', 'orders', '*', 'item', 'a needle');
    assert.ok((await visitor.find('.tail-line').count()) > 0);
  });
  assert.ok(!(await visitor.text('.tail')).includes('hay'));
  await visitor.pressNamed('button', /^Pause/);
  const shown = await visitor.find('.tail-line').count();
  const line = visitor.find('.tail-line').first();
  await line.hover();
  await visitor.press(line.getByRole('button', { name: 'Copy' }));
  assert.equal(await visitor.page.evaluate(() => navigator.clipboard.readText()), await line.getByRole('link').innerText());
  assert.equal(await visitor.find('.tail-line').count(), shown, 'nothing comes while it is paused');
  visitor.took(4);
}

/** 14: add a test message, and see the group take it to done. */
export async function addMessage(visitor) {
  await filter(visitor, 'mails');
  await visitor.press(visitor.find(row('mails', 'send')).getByRole('link', { name: 'mails' }));
  await visitor.pressNamed('button', 'Add a message');
  await visitor.type(visitor.page.getByLabel('Field'), 'to');
  await visitor.type(visitor.page.getByLabel('Value'), 'ann');
  const line = await visitor.cliLine();
  await visitor.pressNamed('button', 'Add the message');
  await visitor.sees(/send\s*done/, '.life');
  visitor.took(4);
  // The command line adds another one with the same fields.
  const id = (await runLine(line)).trim().split(/\s+/)[0];
  assert.match(id, /^\d+-\d+$/);
  await visitor.goto(`entry?s=mails&id=${id}`);
  await visitor.sees(/send\s*done/, '.life');
  await visitor.sees(/ann/, '.fields-view');
}

/** 15: the address is a link that opens the same filter and sort, and Back and reload restore the page. */
export async function address(visitor) {
  await filter(visitor, 'tenant-04');
  await visitor.find('th').getByRole('button', { name: 'Lag' }).click();
  await visitor.sees(/40 rows|40 of/, '.filter-bar');
  const shown = await visitor.find('tbody tr').first().getAttribute('data-key');
  const url = visitor.page.url();
  assert.match(url, /q=tenant-04/);
  assert.match(url, /sort=lag/);
  await visitor.find('tbody tr').first().getByRole('link', { name: /g\d/ }).click();
  await visitor.sees(/tenant-04/, 'h1');
  await visitor.page.goBack();
  await visitor.sees(/40 rows|40 of/, '.filter-bar');
  await visitor.page.reload();
  await visitor.sees(/40 rows|40 of/, '.filter-bar');
  assert.equal(await visitor.find('tbody tr').first().getAttribute('data-key'), shown);
  assert.equal(await visitor.find('.filter-bar input[type=search]').inputValue(), 'tenant-04');
  const colleague = await visitor.page.context().newPage();
  await colleague.goto(url);
  await colleague.locator('.filter-bar', { hasText: /40 rows|40 of/ }).waitFor();
  assert.equal(await colleague.locator('th[aria-sort]').innerText(), await visitor.find('th[aria-sort]').innerText());
  await colleague.close();
}

/** 16: follow a finding of the doctor to where it can be mended, mend it, and see it go. */
export async function mend(visitor) {
  await visitor.pressNamed('link', 'Doctor');
  const finding = visitor.find('.finding', { hasText: /forgotten \/ reader/ }).filter({ hasText: /pending_idle|stuck|idle/ });
  await visitor.press(finding.first().getByRole('link'));
  await visitor.sees(/6 match/, '.filter-bar');
  await visitor.press(visitor.page.getByLabel(/All that match/));
  await visitor.pressNamed('button', /^Release…/);
  await visitor.pressNamed('button', 'Release 6 entries');
  await visitor.sees(/Released: 6/, '.toasts');
  visitor.took(5);
  await visitor.goto('doctor');
  await eventually(async () => assert.equal(await visitor.find('.finding', { hasText: /forgotten \/ reader.*(idle|stuck)/s }).count(), 0, 'the finding is still there'));
}

/** 18: on a phone, from the link of an alert: what is wrong, since when, claim what is stuck. */
export async function onThePhone(visitor, /** @type {Store} */ store) {
  await visitor.sees(/stuck/, '.answer .reasons');
  assert.ok(await visitor.page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'the page is wider than the phone');
  await visitor.press(visitor.find('.answer .reasons').getByRole('link', { name: 'Pending entries' }));
  await visitor.sees(/3 match/, '.filter-bar');
  await visitor.press(visitor.page.getByLabel(/All that match/));
  await visitor.pressNamed('button', /^Claim/);
  await visitor.type(visitor.page.getByLabel(/entries go to the consumer/), 'worker-1');
  await visitor.pressNamed('button', 'Claim 3 entries for worker-1');
  await visitor.sees(/Claimed: 3/, '.toasts');
  const held = /** @type {any[]} */ (await store.client.call('XPENDING', 'orders', 'billing', '-', '+', '100', 'worker-1'));
  assert.equal(held.length, 15);
  visitor.took(4);
}

/** 17: since when are fsyncs slow, and which command was slow? */
export async function slowServer(visitor, /** @type {Store} */ store) {
  await store.client.config('SET', 'slowlog-log-slower-than', '0');
  await store.client.call('XRANGE', 'orders', '-', '+', 'COUNT', '7');
  await store.client.config('SET', 'slowlog-log-slower-than', '10000');
  await visitor.pressNamed('link', 'Server');
  await visitor.sees(/XRANGE orders - \+ COUNT 7/, '#slow');
  await visitor.sees(/Fsync, last .*: .* at first, .* now/, '.chart');
  visitor.took(1);
}

/** Pages that show data, with the texts that each must show. */
const SHOWING = [
  ['', /orders/], ['stream?s=cards', /api_token/], ['group?s=orders&g=billing', /worker-1/], ['pending?s=orders&g=billing', /worker-1/], ['dlq?s=orders', /no answer from bank/],
  ['workers', /worker-2/], ['server', /Slow log/], ['stream?s=cards&find=4111', /Looked at 1 entry, 0 found|1 .*0 found/],
];

/** 19: no page of a read-only dashboard has an action, and none shows a hidden value. */
export async function readOnly(visitor) {
  const secrets = /4111-1111|token-of-nobody|a@example\.org/;
  for (const [path, shown] of SHOWING) {
    await visitor.goto(path);
    await visitor.sees(shown, 'main');
    const actions = await visitor.page.getByRole('button', { name: /^(Add|Create|Trim|Reset|Remove|Claim|Release|Extend|Acknowledge|Redrive|Delete|Snapshot|Change|Empty)\b/ }).allInnerTexts();
    assert.deepEqual(actions, [], `actions on /${path}`);
    assert.doesNotMatch(await visitor.text('body'), secrets, `/${path}`);
  }
  await visitor.goto('stream?s=cards');
  await visitor.press(visitor.find('tbody tr').getByRole('link'));
  await visitor.sees(/hidden/, '.fields-view');
  await visitor.sees(/Ann/, '.fields-view');
  const id = new URL(visitor.page.url()).searchParams.get('id');
  const answers = await visitor.page.evaluate(async (paths) => {
    const found = [];
    for (const path of paths) found.push(await (await fetch(path)).text());
    return found.join('\n');
  }, ['stream=cards', `stream=cards&id=${id}`].flatMap((query) => ['entries', 'entry', ...['card', 'api_token', 'data'].map((field) => `entry/raw?field=${field}&`)].map((path) => `api/v1/${path.includes('?') ? path : `${path}?`}${query}`)));
  assert.match(answers, /Ann/);
  assert.doesNotMatch(answers, secrets);
  visitor.expected.push(/status of 40/);
  visitor.offences = visitor.offences.filter((text) => !/status of 40/.test(text));
}

/** 20: the page says since when nothing answers, keeps its picture, and is live again by itself. @param {Visitor} visitor @param {'dashboard' | 'store'} what @param {() => Promise<any>} stop @param {() => Promise<any>} start */
export async function plugPulled(visitor, what, stop, start) {
  visitor.expected.push(/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET|status of 503/);
  await visitor.sees(/1,9\d\d|2,\d\d\d/, row('orders', 'billing'));
  await stop();
  await visitor.sees(new RegExp(`No answer from the ${what} for \\d+`), '.banner');
  await visitor.find('main.stale').waitFor();
  await visitor.sees(/1,9\d\d|2,\d\d\d/, row('orders', 'billing'));
  await start();
  await visitor.find('main:not(.stale)').waitFor();
  await visitor.find('.banner').waitFor({ state: 'detached' });
  await visitor.find('button.live.live').waitFor();
  visitor.took(0);
}

/** A dialog takes the focus, keeps it, and gives it back to the control that opened it. */
export async function focus(visitor) {
  await visitor.goto('group?s=orders&g=billing');
  const opener = visitor.find('.page-head').getByRole('button', { name: /^Remove/ });
  await visitor.tabTo(opener);
  await visitor.keys('Enter');
  await visitor.find('dialog[open]').waitFor();
  const isInside = () => visitor.page.evaluate(() => document.activeElement?.closest('dialog') !== null);
  for (let at = 0; at < 12; at += 1) {
    // The browser itself has one place in the round.
    assert.ok(await isInside() || await visitor.page.evaluate(() => document.activeElement === document.body), 'the focus left the dialog');
    await visitor.keys('Tab');
  }
  await visitor.keys('Escape');
  await visitor.find('dialog[open]').waitFor({ state: 'detached' });
  await eventually(async () => assert.ok(await opener.evaluate((element) => element === document.activeElement), 'the focus is not back'));
}

/** Each command under a list prints the same rows as the list, with its filter and its limit; where no command does, there is none. */
export async function sameRows(visitor, /** @type {Store} */ store) {
  for (const [path, key] of [
    ['stream?s=orders', 'id'], ['stream?s=orders&order=asc', 'id'], ['stream?s=orders&order=asc&from=30m', 'id'],
    ['dlq?s=orders', 'id'], ['dlq?s=orders&reason=rejected', 'id'], ['dlq?s=orders&error=bank&newer=2h', 'id'], ['dlq?s=orders&older=30d&group=billing', 'id'],
    ['pending?s=orders&g=billing', 'id'], ['pending?s=orders&g=billing&stuck=1', 'id'], ['pending?s=orders&g=billing&c=worker-1', 'id'], ['pending?s=orders&g=billing&idle=5m', 'id'],
    ['stream?s=later&tab=delayed', 'ticket'],
  ]) {
    await visitor.goto(path);
    const rows = await visitor.find(".table-panel tr[data-key] td[data-label='Id'], .table-panel tr[data-key] td[data-label='Ticket']").allInnerTexts();
    assert.ok(rows.length > 0, path);
    const line = await visitor.cliLine('.table-panel');
    const printed = (await runLine(`${line} --json`)).trim();
    const found = printed.startsWith('[') ? JSON.parse(printed) : printed.split('\n').map((each) => JSON.parse(each));
    assert.deepEqual(found.map((/** @type {any} */ each) => each[key]).sort(), rows.map((text) => text.trim()).sort(), `${path}: ${line}`);
  }
  for (const path of ['stream?s=orders&find=book', 'stream?s=orders&from=30m', 'pending?s=orders&g=billing&deliveries=2', 'dlq?s=orders&after=9999999999999-0', '?q=orders', '?health=ok', 'tail?s=orders&q=x', 'doctor?q=lag']) {
    await visitor.goto(path);
    assert.equal(await visitor.find('.table-panel .cli, main > .cli:has-text("millstream lag"), main > .cli:has-text("millstream tail"), main > .cli:has-text("millstream doctor")').count(), 0, path);
  }
}

/** A reset that skips or repeats many entries asks for their number. */
export async function resetAsks(visitor, /** @type {Store} */ store) {
  await visitor.goto('group/reset?s=orders&g=audit&to=earliest');
  const number = visitor.page.getByLabel(/Type the number/);
  await number.waitFor();
  const button = visitor.page.getByRole('button', { name: 'Reset audit' });
  const force = visitor.page.getByLabel(/although they are at work/);
  if (await force.count() > 0) await force.check();
  assert.equal(await button.isDisabled(), true);
  await number.fill('7');
  assert.equal(await button.isDisabled(), true);
  await number.fill(((await visitor.text('.wizard')).match(/Type the number ([\d,]+)/) ?? [])[1]);
  await button.click();
  await visitor.sees(/Reset the group audit/, '.toasts');
  assert.equal(await lastDelivered(store, 'audit'), '0-0');
}

/** The doctor groups its findings, counts them, and shows a page of each kind. */
export async function doctorOfMany(visitor) {
  await visitor.goto('doctor');
  // The dashboard learns the details of 200 groups with each look.
  const kind = visitor.find('.kind', { hasText: 'no_reader' });
  await kind.getByRole('button', { name: /Show all: \d{3} more/ }).waitFor();
  assert.ok(await visitor.find('.finding').count() < 100, 'some findings of each kind');
  await visitor.press(kind.getByRole('button', { name: /Show all/ }));
  await visitor.sees(/1–50 of [\d,]+/, '.pager');
  await visitor.pressNamed('button', 'Next');
  await visitor.sees(/51–100 of [\d,]+/, '.pager');
  assert.equal(await visitor.find('.finding').count(), 50);
  await visitor.type('.filter-bar input[type=search]', 'billing');
  await visitor.sees(/No finding matches|1 finding/, 'main');
}

/** The tail keeps 1,000 lines, and nothing of those that have gone; it says how many entries it left out. */
export async function tailStaysSmall(visitor, /** @type {Store} */ store) {
  const devtools = await visitor.page.context().newCDPSession(visitor.page);
  await devtools.send('Performance.enable');
  const nodes = async () => {
    await devtools.send('HeapProfiler.collectGarbage');
    const { metrics } = await devtools.send('Performance.getMetrics');
    return metrics.find((/** @type {any} */ { name }) => name === 'Nodes')?.value ?? 0;
  };
  await store.client.call('XGROUP', 'CREATE', 'busy', 'g', '0', 'MKSTREAM');
  await visitor.goto('tail?s=busy&g=g');
  await visitor.sees(/Waiting for the group/, '.tail');
  /** Lets the group read 900 entries, and acknowledge them once the page has seen them: a line for each step. */
  const round = async () => {
    const pipeline = store.client.pipeline();
    for (let at = 0; at < 900; at += 1) pipeline.call('XADD', 'busy', '*', 'n', at);
    const ids = ((await pipeline.exec()) ?? []).map(([, id]) => String(id));
    await store.client.call('XREADGROUP', 'GROUP', 'g', 'c', 'COUNT', 1000, 'STREAMS', 'busy', '>');
    await visitor.find('.tail-line', { hasText: ids[899] }).filter({ hasText: 'pending' }).first().waitFor();
    await store.client.call('XACK', 'busy', 'g', ...ids);
    await visitor.find('.tail-line', { hasText: ids[899] }).filter({ hasText: 'done' }).first().waitFor();
  };
  for (let at = 0; at < 6; at += 1) await round();
  await eventually(async () => assert.equal(await visitor.find('.tail-line').count(), 1000));
  // A line has nine. The page may still hold the lines before the last ones.
  assert.ok(await nodes() < 40_000, `${await nodes()} nodes after 10,800 lines`);
  await visitor.goto('tail?s=busy');
  await visitor.sees(/Waiting for the next entry/, '.tail');
  await eventually(async () => {
    const pipeline = store.client.pipeline();
    for (let at = 0; at < 200; at += 1) pipeline.call('XADD', 'busy', '*', 'n', at);
    await pipeline.exec();
    assert.ok(await visitor.find('.left-out').count() > 0, 'the page does not say that it left out entries');
  });
  await visitor.sees(/entries were left out: the page shows at most 20 per second/, '.left-out');
}

/** A key acts from the moment at which its table or dialog is in the page. A task of the browser between the two would swallow it. */
export async function keysAtOnce(visitor) {
  /** Presses a key when an element appears, in the same task, and returns whether the focus is then in what `within` selects. */
  const pressWhen = (/** @type {string} */ shown, /** @type {string} */ key, /** @type {string} */ within) => visitor.page.evaluate(([shown, key, within]) => {
    window.pressed = new Promise((resolve) => {
      const observer = new MutationObserver(() => {
        if (!document.querySelector(shown)) return;
        observer.disconnect();
        document.activeElement?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
        resolve(document.activeElement?.closest(within) !== null);
      });
      observer.observe(document.body, { childList: true, subtree: true });
    });
  }, [shown, key, within]);
  const acted = () => visitor.page.evaluate(() => window.pressed);
  await pressWhen("tbody a[href*='dlq=']", 'j', 'tbody');
  await visitor.keys('g', 'd');
  assert.ok(await acted(), 'j does not move the focus into the table');
  await pressWhen('dialog', 'p', 'dialog');
  await visitor.keys('Control+k');
  assert.ok(await acted(), 'a letter after Control+k does not belong to the palette');
  await visitor.find('button.live:not(.paused)').waitFor();
}

/** While a button of the pointer is down, a live update moves nothing: it would swallow the click. */
export async function pressIsKept(visitor) {
  const states = await visitor.page.evaluate(async () => {
    const state = () => document.querySelector('button.live')?.getAttribute('aria-pressed');
    const seen = [state()];
    const press = (/** @type {string} */ name) => document.body.dispatchEvent(new PointerEvent(name, { bubbles: true }));
    press('pointerdown');
    document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'p', bubbles: true, cancelable: true }));
    for (let at = 0; at < 20; at += 1) await Promise.resolve();
    seen.push(state());
    press('pointerup');
    for (let at = 0; at < 3; at += 1) await new Promise((resolve) => setTimeout(resolve));
    return [...seen, state()];
  });
  assert.deepEqual(states, ['false', 'false', 'true']);
}

/** Enter opens the first row that the filter finds, even if the list comes late or a request fails; Enter in the palette means what was typed. */
export async function enterWaits(visitor) {
  visitor.expected.push(/status of 504/);
  await visitor.page.route(/api\/v1\/overview\?q=billing/, (route) => route.fulfill({ status: 504, contentType: 'application/problem+json', body: '{"title":"no answer"}' }));
  await visitor.keys('/');
  await visitor.page.keyboard.type('billing');
  await visitor.keys('Enter');
  await visitor.sees(/billing/, 'h1');
  await visitor.page.unrouteAll();
  await visitor.goto('');
  await visitor.keys('Control+k');
  await visitor.find('dialog li', { hasText: 'group-' }).first().waitFor();
  await visitor.page.keyboard.type('billing');
  await visitor.keys('Enter');
  await visitor.sees(/billing/, 'h1');
}

/** Browsers allow six connections to a host, and each visible tab has one for its events. So a hidden tab has none, and gets it back. */
export async function sevenTabs(visitor) {
  const live = (/** @type {import('playwright-core').Page} */ page) => page.locator('button.live.live').waitFor();
  // A browser without windows hides no tab.
  const show = (/** @type {import('playwright-core').Page} */ page, /** @type {string} */ state) => page.evaluate((value) => {
    Object.defineProperty(document, 'visibilityState', { value, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  }, state);
  let last = visitor.page;
  for (let tab = 2; tab <= 7; tab += 1) {
    await live(last);
    await show(last, 'hidden');
    last = await visitor.page.context().newPage();
    await last.goto(visitor.base);
  }
  await live(last);
  await show(last, 'hidden');
  const events = visitor.page.waitForRequest(/api\/v1\/events/);
  await show(visitor.page, 'visible');
  await events;
  await live(visitor.page);
}

/** A wrong password is refused with a reason; the right one shows the page that the address names. Without a name, the user is `default`. */
export async function login(visitor) {
  visitor.expected.push(/status of 401/);
  visitor.offences = visitor.offences.filter((text) => !/status of 401/.test(text));
  await visitor.page.goto(`${visitor.base}server`);
  await visitor.isAccessible();
  for (const [password, shown, within] of [['wrong', /wrong|invalid/i, '.login'], ['secret', /Slow log/, 'main']]) {
    await visitor.type(visitor.page.getByLabel('Password'), password);
    await visitor.keys('Enter');
    await visitor.sees(shown, within);
  }
  await visitor.find('.menu summary').click();
  await visitor.page.getByRole('button', { name: /^Log out/ }).click();
  await visitor.find('form.login').waitFor();
  assert.equal(await visitor.page.evaluate(async () => (await fetch('api/v1/overview')).status), 401, 'the session goes on');
}

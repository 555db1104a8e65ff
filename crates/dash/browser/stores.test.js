// Tasks on stores of their own: many groups, a server that writes to disk and goes away, a dashboard that only shows.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { fill, fillGroups } from './data.js';
import * as scenarios from './scenarios.js';
import { newFolder, restart, startDash, startMillstream, stopAll } from './store.js';
import { Visitor, startBrowser, visit } from './visitor.js';

const LONG = process.env.MILLSTREAM_BROWSER_LONG === '1';

/** @type {import('playwright-core').Browser} */
let browser;
/** On disk. @type {import('./store.js').Store} */
let durable;
/** @type {import('./store.js').Store} */
let many;
/** With a password. @type {import('./store.js').Store} */
let locked;
/** Address of a dashboard of `durable` that is read-only and hides fields. */
let readOnly = '';
/** @type {ReturnType<typeof setInterval>} */
let adding;
before(async () => {
  durable = await startMillstream(['--appendonly', 'yes', '--dir', newFolder()]);
  await fill(durable);
  // The page of the server shows the fsyncs of these.
  adding = setInterval(() => durable.client.call('XADD', 'orders', '*', 'item', 'late').catch(() => {}), 500);
  many = await startMillstream();
  await fillGroups(many, LONG ? 10_000 : 2_000);
  locked = await startMillstream(['--requirepass', 'secret']);
  readOnly = (await startDash(durable.port, ['--read-only', '--redact', 'card*', '--redact', 'data.user.email'])).base;
  browser = await startBrowser();
});
after(async () => {
  clearInterval(adding);
  await Promise.all([browser?.close(), stopAll()]);
});

const task = (name, base, run) => visit(name, () => Visitor.open(browser, base()), run);

task('2 find a group among thousands', () => many.base, scenarios.findGroup);
task('keys act at once', () => durable.base, scenarios.keysAtOnce);
task('a live update swallows no click', () => durable.base, scenarios.pressIsKept);
task('Enter waits for what was typed', () => many.base, scenarios.enterWaits);
task('the doctor of many groups', () => many.base, scenarios.doctorOfMany);
task('a tail stays small', () => durable.base, (visitor) => scenarios.tailStaysSmall(visitor, durable));
task('19 read-only, with hidden fields', () => readOnly, scenarios.readOnly);
task('log in and out', () => locked.base, scenarios.login);
task('a dialog keeps the focus, and gives it back', () => durable.base, scenarios.focus);
task('seven tabs are live', () => durable.base, scenarios.sevenTabs);
task('17 when did fsync become slow, and which command was slow', () => durable.base, (visitor) => scenarios.slowServer(visitor, durable));
task('20 the server goes away and comes back', () => durable.base, async (visitor) => {
  await scenarios.plugPulled(visitor, 'dashboard', () => durable.server.stop(), () => restart(durable));
  assert.ok(await visitor.find(scenarios.row('orders', 'billing')).count() > 0, 'the row is there again');
});

// Tasks of an operator on a Millstream server that serves its dashboard.
import { after, before } from 'node:test';
import { delay, fill, fillEvents, stickAgain } from './data.js';
import * as scenarios from './scenarios.js';
import { startMillstream, startWorker, stopAll } from './store.js';
import { PHONE, Visitor, startBrowser, visit } from './visitor.js';

const LONG = process.env.MILLSTREAM_BROWSER_LONG === '1';

/** @type {import('playwright-core').Browser} */
let browser;
/** @type {import('./store.js').Store} */
let store;
let now = 0;
before(async () => {
  store = await startMillstream();
  browser = await startBrowser();
  now = await fill(store);
  await delay(store);
  await fillEvents(store, LONG ? 2_000_000 : 110_000);
  startWorker(store, 'mails', 'send', 'mailer-1');
});
after(async () => {
  await Promise.all([browser?.close(), stopAll()]);
});

const task = (name, path, run, options) => visit(name, () => Visitor.open(browser, store.base, { path, ...options }), (visitor) => run(visitor, store));

task('1 is anything wrong right now', '', scenarios.anythingWrong);
task('3 when has the group caught up', '', scenarios.whenCaughtUp);
task('4 who holds the entry that has waited longest', '', scenarios.whoHoldsIt);
task('7 why messages died', '', scenarios.whyDead);
task('11 find an entry among many', '', scenarios.search);
task('12 read a large document and a binary value', '', scenarios.payloads);
task('13 watch messages with a word', '', scenarios.tail);
task('14 add a message and see it done', '', scenarios.addMessage);
task('15 the address restores the page', '', scenarios.address);
task('commands print the rows of the list', '', scenarios.sameRows);
task('a reset asks for the number', '', scenarios.resetAsks);
task('16 mend what the doctor found', '', scenarios.mend);
task('19 how is one of the partitions', '', scenarios.whichPartition);
task('18 claim what is stuck, on a phone', 'group?s=orders&g=billing', scenarios.onThePhone, { viewport: PHONE });
// A redrive leaves released entries in the group. They are not stuck.
task('9 delete old dead letters', '', scenarios.purgeOld);
task('8 redrive what timed out, and stop', '', scenarios.redriveAndStop);
task('5 release what is stuck', '', async (visitor) => {
  await stickAgain(store, now);
  await scenarios.release(visitor, store);
});
task('6 remove a dead consumer', '', scenarios.removeConsumer);
task('10 replay the last two hours', '', scenarios.replay);

// Five of the tasks on a Redis server, through `millstream dash`.
import { after, before } from 'node:test';
import { fill } from './data.js';
import * as scenarios from './scenarios.js';
import { restart, startRedis, stopAll } from './store.js';
import { Visitor, startBrowser, visit } from './visitor.js';

/** @type {import('playwright-core').Browser} */
let browser;
/** @type {import('./store.js').Store} */
let store;
before(async () => {
  store = await startRedis();
  browser = await startBrowser();
  await fill(store);
});
after(async () => {
  await Promise.all([browser?.close(), stopAll()]);
});

const task = (name, run) => visit(name, () => Visitor.open(browser, store.base), (visitor) => run(visitor, store));

task('1 is anything wrong right now', scenarios.anythingWrong);
task('4 who holds the entry that has waited longest', scenarios.whoHoldsIt);
task('7 why messages died', scenarios.whyDead);
task('5 release what is stuck', scenarios.release);
task('8 redrive what timed out, and stop', scenarios.redriveAndStop);
task('20 the store goes away and comes back', (visitor) => scenarios.plugPulled(visitor, 'store', () => store.server.stop(), () => restart(store)));

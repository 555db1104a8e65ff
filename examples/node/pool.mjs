// A pool of consumers that is scaled by the lag of its group.
//
// This is the pattern written by hand. The shorter way: run({ …, autoscale: "1..5" }) of the package in sdk/node
// (docs/from-your-consumer.md#autoscaler).

import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from './connection.mjs';

const STREAM = 'example:node-pool';
const GROUP = 'workers';
const SMALLEST = 1;
const LARGEST = 5;
const LAG_PER_WORKER = 20;

class Worker {
  #stopping = false;
  #running;

  constructor(name, handle) {
    this.name = name;
    this.#running = this.#run(handle);
  }

  /** Lets the worker finish the entries it has read. Resolves after its consumer is deleted. */
  stop() {
    this.#stopping = true;
    return this.#running;
  }

  async #run(handle) {
    const redis = await connect();
    while (!this.#stopping) {
      const reply = await redis.xReadGroup(GROUP, this.name, { key: STREAM, id: '>' }, { COUNT: 5, BLOCK: 100 });
      for (const { id, message } of reply?.[0].messages ?? []) {
        await handle(this.name, message);
        await redis.xAck(STREAM, GROUP, id);
      }
    }
    await redis.xGroupDelConsumer(STREAM, GROUP, this.name);
    await redis.close();
  }
}

class Pool {
  #workers = [];
  #started = 0;

  constructor(handle) {
    this.handle = handle;
  }

  get size() {
    return this.#workers.length;
  }

  async scale(size) {
    await Promise.all(this.#workers.splice(size).map((worker) => worker.stop()));
    while (this.#workers.length < size) {
      this.#started += 1;
      this.#workers.push(new Worker(`worker-${this.#started}`, this.handle));
    }
  }
}

/** Scales up immediately, and down one worker at a time. */
function wantedSize(lag, current) {
  const wanted = Math.min(LARGEST, Math.max(SMALLEST, Math.ceil(lag / LAG_PER_WORKER)));
  return wanted > current ? wanted : Math.max(wanted, current - 1);
}

async function main() {
  const redis = await connect();
  await redis.del(STREAM);
  await redis.xGroupCreate(STREAM, GROUP, '$', { MKSTREAM: true });
  const done = new Map();
  const pool = new Pool(async (worker) => {
    await sleep(4); // the work
    done.set(worker, (done.get(worker) ?? 0) + 1);
  });
  await pool.scale(SMALLEST);
  await Promise.all(Array.from({ length: 300 }, (_, job) => redis.xAdd(STREAM, '*', { job: `${job}` })));

  let most = pool.size;
  for (;;) {
    const [{ lag }] = await redis.xInfoGroups(STREAM);
    if (lag === 0 && pool.size === SMALLEST) break;
    const size = wantedSize(lag, pool.size);
    if (size !== pool.size) console.log(`lag ${lag}: ${pool.size} -> ${size} workers`);
    await pool.scale(size);
    most = Math.max(most, size);
    await sleep(50);
  }
  await pool.scale(0);

  const total = [...done.values()].reduce((sum, count) => sum + count, 0);
  console.log(`peak workers: ${most}; jobs done: ${total}`);
  const [group] = await redis.xInfoGroups(STREAM);
  console.log(`left behind: ${group.consumers} consumers, ${group.pending} pending`);
  await redis.close();
}

await main();

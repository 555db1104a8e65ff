// Recovery and dead letters with ioredis.
//
// Entries left by a dead consumer are claimed; one that was delivered too often goes to the dead letters instead,
// added there and acknowledged in one transaction.

import { Redis } from 'ioredis';
import { url } from './connection.mjs';

const STREAM = '{example:node-recovery}';
const DEAD = `${STREAM}:dead`;
const GROUP = 'crew';
const MAX_DELIVERIES = 3;

/** Entries idle for long enough, all of them: the cursor is followed to its end. */
async function* claimed(redis, consumer, idleMs) {
  let cursor = '0-0';
  do {
    const [next, entries] = await redis.xautoclaim(STREAM, GROUP, consumer, idleMs, cursor, 'COUNT', 10);
    yield* entries;
    cursor = next;
  } while (cursor !== '0-0');
}

async function deliveries(redis, id) {
  const [[, , , count]] = await redis.xpending(STREAM, GROUP, id, id, 1);
  return count;
}

async function bury(redis, id, fields, count) {
  await redis
    .multi()
    .xadd(DEAD, '*', ...fields, 'dlq.id', id, 'dlq.deliveries', count, 'dlq.reason', 'max_deliveries')
    .xack(STREAM, GROUP, id)
    .exec();
}

async function main() {
  const redis = new Redis(url);
  await redis.del(STREAM, DEAD);
  await redis.xgroup('CREATE', STREAM, GROUP, '$', 'MKSTREAM');
  const ids = [];
  for (let job = 0; job < 25; job++) ids.push(await redis.xadd(STREAM, '*', 'job', job));
  await redis.xreadgroup('GROUP', GROUP, 'doomed', 'STREAMS', STREAM, '>');
  // A minute passes, and job 7 has been tried three times already (so that you need not wait for it).
  await redis.xclaim(STREAM, GROUP, 'doomed', 0, ...ids, 'IDLE', 60_000, 'JUSTID');
  await redis.xclaim(STREAM, GROUP, 'doomed', 0, ids[7], 'IDLE', 60_000, 'RETRYCOUNT', MAX_DELIVERIES, 'JUSTID');

  let finished = 0;
  for await (const [id, fields] of claimed(redis, 'rescuer', 30_000)) {
    const count = await deliveries(redis, id);
    if (count > MAX_DELIVERIES) {
      await bury(redis, id, fields, count - 1);
      console.log(`buried job ${fields[1]} after ${count - 1} deliveries`);
    } else {
      await redis.xack(STREAM, GROUP, id);
      finished += 1;
    }
  }
  console.log(`recovered and finished: ${finished}`);
  console.log(`in the dead letters: ${await redis.xlen(DEAD)}, still pending: ${(await redis.xpending(STREAM, GROUP))[0]}`);
  await redis.quit();
}

await main();

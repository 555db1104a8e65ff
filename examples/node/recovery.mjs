// Recovery and dead letters with ioredis.
//
// Claims the entries of a dead consumer. One transaction moves an entry that was delivered too often to the dead letters:
// it adds the entry there and acknowledges it.
//
// This is the pattern written by hand. The shorter way: millstream work, which takes over and dead-letters by itself
// (docs/from-your-consumer.md#pending-messages).

import { Redis } from 'ioredis';
import { url } from './connection.mjs';

const STREAM = '{example:node-recovery}';
const DEAD = `${STREAM}:dead`;
const GROUP = 'crew';
const MAX_DELIVERIES = 3;

/** Claims and yields all entries that have been idle for `idleMs`. Follows the cursor to its end. */
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

async function deadLetter(redis, id, fields, count) {
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
  // Instead of waiting, set the idle time to a minute, and the delivery count of job 7 to three.
  await redis.xclaim(STREAM, GROUP, 'doomed', 0, ...ids, 'IDLE', 60_000, 'JUSTID');
  await redis.xclaim(STREAM, GROUP, 'doomed', 0, ids[7], 'IDLE', 60_000, 'RETRYCOUNT', MAX_DELIVERIES, 'JUSTID');

  let finished = 0;
  for await (const [id, fields] of claimed(redis, 'rescuer', 30_000)) {
    const count = await deliveries(redis, id);
    if (count > MAX_DELIVERIES) {
      await deadLetter(redis, id, fields, count - 1);
      console.log(`dead-lettered job ${fields[1]} after ${count - 1} deliveries`);
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

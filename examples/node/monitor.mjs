// Prints one line per group of every stream: consumers, lag, pending entries, and how long the oldest has been idle.
//
// This is the pattern written by hand. The shorter way: millstream top, millstream lag
// (docs/from-your-consumer.md#monitor).

import { connect } from './connection.mjs';

const PREFIX = 'example:node-monitor:';

/** Returns every stream whose key matches. SCAN does not block the server. */
async function streams(redis, pattern) {
  const found = [];
  for await (const keys of redis.scanIterator({ MATCH: pattern, TYPE: 'stream', COUNT: 1000 })) found.push(...keys);
  return found.sort();
}

async function groups(redis, stream) {
  const rows = [];
  for (const group of await redis.xInfoGroups(stream)) {
    const [oldest] = await redis.xPendingRange(stream, group.name, '-', '+', 1);
    rows.push({
      stream,
      group: group.name,
      consumers: group.consumers,
      lag: group.lag,
      pending: group.pending,
      'oldest idle, s': oldest ? Math.floor(oldest.millisecondsSinceLastDelivery / 1000) : null,
    });
  }
  return rows;
}

async function prepare(redis) {
  for (const name of ['orders', 'returns']) {
    const stream = PREFIX + name;
    await redis.del(stream);
    for (let number = 0; number < 10; number++) await redis.xAdd(stream, '*', { number: `${number}` });
    await redis.xGroupCreate(stream, 'billing', '0');
  }
  const orders = `${PREFIX}orders`;
  await redis.xGroupCreate(orders, 'audit', '$');
  const [{ messages }] = await redis.xReadGroup('billing', 'anna', { key: orders, id: '>' }, { COUNT: 4 });
  await redis.xAck(orders, 'billing', messages[1].id);
  await redis.xClaimJustId(orders, 'billing', 'anna', 0, messages[0].id, { IDLE: 90_500 });
}

async function main() {
  const redis = await connect();
  await prepare(redis);
  const rows = [];
  for (const stream of await streams(redis, `${PREFIX}*`)) rows.push(...(await groups(redis, stream)));
  console.table(rows);
  await redis.close();
}

await main();

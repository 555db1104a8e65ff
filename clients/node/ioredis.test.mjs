// Tests the whole life of a group with ioredis, in RESP2 and in RESP3.

import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { Redis } from 'ioredis';
import { blockedClients, eventually, fresh, host, port, since72, tls } from './target.mjs';

/** A reply of alternating names and values, as an object. */
const pairs = (flat) =>
  Object.fromEntries(Array.from({ length: flat.length / 2 }, (_, index) => [flat[2 * index], flat[2 * index + 1]]));

for (const protocol of [2, 3]) {
  describe(`ioredis, RESP${protocol}`, () => {
    const opened = [];
    let redis;
    let stream;

    const connect = async () => {
      const client = new Redis({ host, port, tls, protocol, lazyConnect: true, retryStrategy: null, maxRetriesPerRequest: 0 });
      client.on('error', () => {}); // the tests kill connections on purpose
      opened.push(client);
      await client.connect();
      return client;
    };
    const untilBlocked = (count) =>
      eventually(async () => blockedClients(await redis.info('clients')) >= count, `${count} blocked clients`);
    const filled = async (count) => {
      for (let number = 1; number <= count; number++) await redis.xadd(stream, `${number}-0`, 'job', number);
      await redis.xgroup('CREATE', stream, 'crew', '0');
    };
    const read = async (consumer, options = [], client = redis, id = '>') => {
      const reply = await client.xreadgroup('GROUP', 'crew', consumer, ...options, 'STREAMS', stream, id);
      return reply === null ? null : reply[0][1].map((entry) => entry[0]);
    };
    const rows = async () =>
      (await redis.xpending(stream, 'crew', '-', '+', 100)).map(([id, consumer, , deliveries]) => [id, consumer, deliveries]);

    before(async () => {
      redis = await connect();
    });
    beforeEach(() => {
      stream = fresh('jobs');
    });
    after(() => opened.forEach((client) => client.disconnect()));

    test('creates, produces, reads', async () => {
      await assert.rejects(redis.xgroup('CREATE', stream, 'crew', '0'), /requires the key to exist/);
      assert.equal(await redis.xgroup('CREATE', stream, 'crew', '$', 'MKSTREAM'), 'OK');
      await assert.rejects(redis.xgroup('CREATE', stream, 'crew', '$'), {
        message: 'BUSYGROUP Consumer Group name already exists',
      });
      const ids = [];
      for (let number = 1; number <= 3; number++) ids.push(await redis.xadd(stream, '*', 'job', number));
      assert.deepEqual(await read('anna', ['COUNT', 1]), ids.slice(0, 1));
      assert.deepEqual(await read('ben'), ids.slice(1));
      assert.equal(await read('ben'), null);
      assert.deepEqual(await read('anna', [], redis, '0'), ids.slice(0, 1));
      assert.deepEqual(await redis.xread('COUNT', 1, 'STREAMS', stream, '0'), [[stream, [[ids[0], ['job', '1']]]]]);
    });

    test('carries any bytes', async () => {
      const bytes = Buffer.from(Array.from({ length: 256 }, (_, index) => index));
      await redis.xadd(stream, '1-0', bytes, bytes);
      const [[, [name, value]]] = await redis.xrangeBuffer(stream, '-', '+');
      assert.ok(bytes.equals(name) && bytes.equals(value));
    });

    test('blocks until a timeout, and until an entry arrives', async () => {
      await redis.xgroup('CREATE', stream, 'crew', '$', 'MKSTREAM');
      const blocked = await connect();
      const began = performance.now();
      assert.equal(await read('anna', ['BLOCK', 120], blocked), null);
      assert.ok(performance.now() - began >= 60);
      const waiting = read('anna', ['COUNT', 1, 'BLOCK', 10_000], blocked);
      await untilBlocked(1);
      await redis.xadd(stream, '1-0', 'job', 1);
      assert.deepEqual(await waiting, ['1-0']);
    });

    test('is unblocked by another client', async () => {
      await redis.xgroup('CREATE', stream, 'crew', '$', 'MKSTREAM');
      const blocked = await connect();
      const id = await blocked.client('ID');
      const waiting = read('anna', ['BLOCK', 10_000], blocked);
      await untilBlocked(1);
      const ended = assert.rejects(waiting, /^ReplyError: UNBLOCKED/);
      assert.equal(await redis.client('UNBLOCK', id, 'ERROR'), 1);
      await ended;
    });

    test('recovers the work of a killed connection', async () => {
      await filled(4);
      const crashing = await connect();
      const id = await crashing.client('ID');
      assert.deepEqual(await read('anna', ['COUNT', 3], crashing), ['1-0', '2-0', '3-0']);
      assert.equal(await redis.client('KILL', 'ID', id), 1);
      await assert.rejects(crashing.xack(stream, 'crew', '1-0'));
      assert.equal(await redis.xack(stream, 'crew', '1-0'), 1);
      assert.deepEqual(await redis.xpending(stream, 'crew'), [2, '2-0', '3-0', [['anna', '2']]]);

      assert.deepEqual(await redis.xclaim(stream, 'crew', 'ben', 0, '2-0'), [['2-0', ['job', '2']]]);
      assert.deepEqual(await redis.xclaim(stream, 'crew', 'ben', 60_000, '3-0', 'JUSTID'), []);
      assert.deepEqual(await redis.xautoclaim(stream, 'crew', 'zoe', 0, '0', 'COUNT', 1), ['3-0', [['2-0', ['job', '2']]], []]);
      await redis.xdel(stream, '3-0');
      assert.deepEqual(await redis.xautoclaim(stream, 'crew', 'zoe', 0, '3-0', 'JUSTID'), ['0-0', [], ['3-0']]);
      assert.deepEqual(await rows(), [['2-0', 'zoe', 3]]);
    });

    test('inspects', async () => {
      await filled(3);
      await read('anna', ['COUNT', 2]);
      const info = pairs(await redis.xinfo('STREAM', stream));
      assert.deepEqual([info.length, info.groups, info['entries-added']], [3, 1, 3]);
      assert.deepEqual(info['last-entry'], ['3-0', ['job', '3']]);
      assert.deepEqual((await redis.xinfo('GROUPS', stream)).map(pairs), [
        { name: 'crew', consumers: 1, pending: 2, 'last-delivered-id': '2-0', 'entries-read': 2, lag: 1 },
      ]);
      const [consumer] = (await redis.xinfo('CONSUMERS', stream, 'crew')).map(pairs);
      assert.deepEqual([consumer.name, consumer.pending], ['anna', 2]);
      assert.equal('inactive' in consumer, since72(await redis.info('server')));
      const full = pairs(await redis.xinfo('STREAM', stream, 'FULL', 'COUNT', 1));
      const [group] = full.groups.map(pairs);
      assert.equal(full.entries.length, 1);
      assert.deepEqual([group.name, group['pel-count'], group.pending.length], ['crew', 2, 1]);
    });

    test('trims, deletes, moves, destroys', async () => {
      await filled(6);
      assert.equal(await redis.xtrim(stream, 'MAXLEN', '=', 5), 1);
      assert.equal(await redis.xtrim(stream, 'MINID', '4-0'), 2);
      assert.equal(await redis.xdel(stream, '4-0'), 1);
      assert.equal(await redis.xlen(stream), 2);
      assert.equal(await redis.xgroup('SETID', stream, 'crew', '5-0'), 'OK');
      assert.deepEqual(await read('anna'), ['6-0']);
      assert.equal(await redis.xgroup('DELCONSUMER', stream, 'crew', 'anna'), 1);
      assert.equal(await redis.xgroup('DESTROY', stream, 'crew'), 1);
      await assert.rejects(read('anna'), /NOGROUP/);
    });

    test('pipelines and runs transactions', async () => {
      const pipeline = redis.pipeline();
      for (let number = 1; number <= 500; number++) pipeline.xadd(stream, `${number}-0`, 'job', number);
      pipeline.xadd(stream, '1-0', 'job', 'late').xlen(stream);
      const replies = await pipeline.exec();
      assert.deepEqual(replies[499], [null, '500-0']);
      assert.match(replies[500][0].message, /equal or smaller/);
      assert.deepEqual(replies[501], [null, 500]);

      const done = await redis.multi().xtrim(stream, 'MAXLEN', 1).xlen(stream).exec();
      assert.deepEqual(done, [[null, 499], [null, 1]]);

      const watcher = await connect();
      await watcher.watch(stream);
      await redis.xadd(stream, '501-0', 'job', 501);
      assert.equal(await watcher.multi().xtrim(stream, 'MAXLEN', 0).exec(), null);
      assert.equal(await redis.xlen(stream), 2);
    });
  });
}

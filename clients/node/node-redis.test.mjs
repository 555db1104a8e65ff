// Tests the whole life of a group with node-redis, in RESP2 and in RESP3.

import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { createClient, WatchError } from 'redis';
import { blockedClients, eventually, fresh, host, pendingRows, port, since72, tls } from './target.mjs';

for (const RESP of [2, 3]) {
  describe(`node-redis, RESP${RESP}`, () => {
    const opened = [];
    let redis;
    let stream;

    const connect = async () => {
      const client = createClient({ socket: { host, port, reconnectStrategy: false, ...(tls && { tls: true, ...tls }) }, RESP });
      client.on('error', () => {}); // the tests kill connections on purpose
      opened.push(client);
      return client.connect();
    };
    const closeAll = () => opened.forEach((client) => client.isOpen && client.destroy());
    const untilBlocked = (count) =>
      eventually(async () => blockedClients(await redis.info('clients')) >= count, `${count} blocked clients`);
    const filled = async (count) => {
      for (let number = 1; number <= count; number++) await redis.xAdd(stream, `${number}-0`, { job: `${number}` });
      await redis.xGroupCreate(stream, 'crew', '0');
    };
    const read = async (consumer, options = {}, client = redis, id = '>') => {
      const reply = await client.xReadGroup('crew', consumer, { key: stream, id }, options);
      return reply === null ? null : reply[0].messages.map((message) => message.id);
    };
    const rows = () => pendingRows(redis, stream, 'crew');

    before(async () => {
      redis = await connect();
    });
    beforeEach(() => {
      stream = fresh('jobs');
    });
    after(closeAll);

    test('creates and produces', async () => {
      await assert.rejects(redis.xGroupCreate(stream, 'crew', '0'), /requires the key to exist/);
      assert.equal(await redis.xGroupCreate(stream, 'crew', '$', { MKSTREAM: true }), 'OK');
      await assert.rejects(redis.xGroupCreate(stream, 'crew', '$'), {
        message: 'BUSYGROUP Consumer Group name already exists',
      });
      assert.equal(await redis.xGroupCreateConsumer(stream, 'crew', 'anna'), 1);
      assert.equal(await redis.xGroupCreateConsumer(stream, 'crew', 'anna'), 0);
      assert.match(await redis.xAdd(stream, '*', { job: '1', kind: 'größe ∞' }), /^\d{13}-\d+$/);
      assert.equal(await redis.xAddNoMkStream(fresh('none'), '*', { job: '1' }), null);
      assert.equal(await redis.xLen(stream), 1);
      const [entry] = await redis.xRange(stream, '-', '+');
      assert.deepEqual({ ...entry.message }, { job: '1', kind: 'größe ∞' });
    });

    test('reads new entries once and history again', async () => {
      await filled(4);
      assert.deepEqual(await read('anna', { COUNT: 1 }), ['1-0']);
      assert.deepEqual(await read('ben', { COUNT: 2 }), ['2-0', '3-0']);
      assert.deepEqual(await read('anna'), ['4-0']);
      assert.equal(await read('anna'), null);
      assert.deepEqual(await read('anna', {}, redis, '0'), ['1-0', '4-0']);
      assert.deepEqual(await read('zoe', {}, redis, '0'), []);
      const reply = await redis.xRead({ key: stream, id: '3-0' });
      assert.deepEqual(JSON.parse(JSON.stringify(reply)), [{ name: stream, messages: [{ id: '4-0', message: { job: '4' } }] }]);
    });

    test('times out a blocked read', async () => {
      await redis.xGroupCreate(stream, 'crew', '$', { MKSTREAM: true });
      const began = performance.now();
      assert.equal(await read('anna', { BLOCK: 120 }, await connect()), null);
      assert.ok(performance.now() - began >= 60);
    });

    test('wakes blocked readers in the order in which they blocked', async () => {
      await redis.xGroupCreate(stream, 'crew', '$', { MKSTREAM: true });
      const first = read('first', { BLOCK: 10_000, COUNT: 1 }, await connect());
      await untilBlocked(1);
      const second = read('second', { BLOCK: 10_000, COUNT: 1 }, await connect());
      await untilBlocked(2);
      await redis.xAdd(stream, '1-0', { job: '1' });
      await redis.xAdd(stream, '2-0', { job: '2' });
      assert.deepEqual(await Promise.all([first, second]), [['1-0'], ['2-0']]);
    });

    test('ends a blocked read when the group is destroyed', async () => {
      await redis.xGroupCreate(stream, 'crew', '$', { MKSTREAM: true });
      const waiting = read('anna', { BLOCK: 10_000 }, await connect());
      await untilBlocked(1);
      const ended = assert.rejects(waiting, /NOGROUP/);
      await redis.xGroupDestroy(stream, 'crew');
      await ended;
    });

    test('acknowledges, and shows pending entries', async () => {
      await filled(3);
      await read('anna', { COUNT: 2 });
      await read('ben');
      assert.equal(await redis.xAck(stream, 'crew', ['1-0', '9-9']), 1);
      assert.equal(await redis.xAck(stream, 'crew', '1-0'), 0);
      const summary = await redis.xPending(stream, 'crew');
      assert.deepEqual([summary.pending, summary.firstId, summary.lastId], [2, '2-0', '3-0']);
      assert.deepEqual(
        summary.consumers.map((row) => [row.name, row.deliveriesCounter]),
        [['anna', 1], ['ben', 1]],
      );
      assert.deepEqual(await rows(), [['2-0', 'anna', 1], ['3-0', 'ben', 1]]);
      const idle = await redis.xPendingRange(stream, 'crew', '-', '+', 10, { IDLE: 60_000 });
      assert.deepEqual(idle, []);
    });

    test('recovers the work of a killed connection', async () => {
      await filled(3);
      const crashing = await connect();
      const id = await crashing.clientId();
      assert.deepEqual(await read('anna', { COUNT: 2 }, crashing), ['1-0', '2-0']);
      assert.equal(await redis.clientKill({ filter: 'ID', id }), 1);
      await assert.rejects(async () => crashing.xAck(stream, 'crew', '1-0'));
      assert.deepEqual(await rows(), [['1-0', 'anna', 1], ['2-0', 'anna', 1]]);

      const claimed = await redis.xClaim(stream, 'crew', 'ben', 0, ['1-0', '9-9']);
      assert.deepEqual(JSON.parse(JSON.stringify(claimed)), [{ id: '1-0', message: { job: '1' } }]);
      assert.deepEqual(await redis.xClaim(stream, 'crew', 'ben', 60_000, '2-0'), []);
      assert.deepEqual(await redis.xClaimJustId(stream, 'crew', 'ben', 0, '2-0'), ['2-0']);
      assert.deepEqual(await rows(), [['1-0', 'ben', 2], ['2-0', 'ben', 1]]);
    });

    test('claims automatically, and reports deleted entries', async () => {
      await filled(4);
      await read('anna');
      await redis.xDel(stream, '2-0');
      const page = await redis.xAutoClaim(stream, 'crew', 'ben', 0, '0', { COUNT: 3 });
      assert.equal(page.nextId, '4-0');
      assert.deepEqual(page.messages.map((message) => message.id), ['1-0', '3-0']);
      assert.deepEqual(page.deletedMessages, ['2-0']);
      const rest = await redis.xAutoClaimJustId(stream, 'crew', 'ben', 0, page.nextId);
      assert.deepEqual([rest.nextId, rest.messages], ['0-0', ['4-0']]);
    });

    test('inspects', async () => {
      await filled(3);
      await read('anna', { COUNT: 2 });
      const info = await redis.xInfoStream(stream);
      assert.equal(info.length, 3);
      assert.equal(info['last-generated-id'], '3-0');
      assert.equal(info['entries-added'], 3);
      assert.equal(info['recorded-first-entry-id'], '1-0');
      assert.equal(info.groups, 1);
      assert.equal(info['first-entry'].id, '1-0');
      const [group] = await redis.xInfoGroups(stream);
      assert.deepEqual(
        { ...group },
        { name: 'crew', consumers: 1, pending: 2, 'last-delivered-id': '2-0', 'entries-read': 2, lag: 1 },
      );
      const [consumer] = await redis.xInfoConsumers(stream, 'crew');
      assert.deepEqual([consumer.name, consumer.pending], ['anna', 2]);
      assert.ok(consumer.idle < 10_000);
      assert.equal(typeof consumer.inactive, since72(await redis.info('server')) ? 'number' : 'undefined');
      const full = await redis.sendCommand(['XINFO', 'STREAM', stream, 'FULL', 'COUNT', '1']);
      const entries = Array.isArray(full) ? full[full.indexOf('entries') + 1] : full.entries;
      assert.deepEqual(JSON.parse(JSON.stringify(entries)), [['1-0', ['job', '1']]]);
    });

    test('trims and deletes', async () => {
      await filled(10);
      assert.equal(await redis.xTrim(stream, 'MAXLEN', 7), 3);
      assert.equal(await redis.xTrim(stream, 'MINID', 6), 2);
      assert.equal(await redis.xTrim(stream, 'MAXLEN', 2, { strategyModifier: '~' }), 0);
      assert.equal(await redis.xDel(stream, ['6-0', '6-0', '1-0']), 1);
      const trimmed = { TRIM: { strategy: 'MAXLEN', strategyModifier: '=', threshold: 2 } };
      await redis.xAdd(stream, '11-0', { job: '11' }, trimmed);
      const newest = await redis.xRevRange(stream, '+', '-', { COUNT: 5 });
      assert.deepEqual(newest.map((entry) => entry.id), ['11-0', '10-0']);
    });

    test('pipelines the commands of one tick', async () => {
      const ids = Array.from({ length: 500 }, (_, index) => `${index + 1}-0`);
      assert.deepEqual(await Promise.all(ids.map((id) => redis.xAdd(stream, id, { id }))), ids);
      const [length, entries] = await redis.multi().xLen(stream).xRange(stream, '-', '+').execAsPipeline();
      assert.equal(length, 500);
      assert.deepEqual(entries.map((entry) => entry.message.id), ids);
    });

    test('runs transactions', async () => {
      await filled(1);
      await read('anna');
      const dead = fresh('dead');
      const replies = await redis.multi().xAdd(dead, '1-0', { from: '1-0' }).xAck(stream, 'crew', '1-0').exec();
      assert.deepEqual(replies, ['1-0', 1]);

      const watcher = await connect();
      await watcher.watch(stream);
      await redis.xAdd(stream, '2-0', { job: '2' });
      await assert.rejects(watcher.multi().xTrim(stream, 'MAXLEN', 0).exec(), WatchError);
      assert.equal(await redis.xLen(stream), 2);
      await watcher.watch(stream);
      assert.deepEqual(await watcher.multi().xTrim(stream, 'MAXLEN', 0).exec(), [2]);
    });

    test('moves, deletes consumers, destroys', async () => {
      await filled(3);
      await read('anna');
      assert.equal(await redis.xGroupSetId(stream, 'crew', '2-0'), 'OK');
      assert.deepEqual(await read('ben'), ['3-0']);
      assert.equal(await redis.xGroupDelConsumer(stream, 'crew', 'anna'), 2);
      assert.equal(await redis.xGroupDestroy(stream, 'crew'), 1);
      assert.equal(await redis.xGroupDestroy(stream, 'crew'), 0);
      assert.deepEqual(await redis.xInfoGroups(stream), []);
      assert.equal(await redis.del(stream), 1);
      await assert.rejects(redis.xInfoStream(stream), { message: 'ERR no such key' });
    });
  });
}

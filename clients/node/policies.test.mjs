// Tests node-redis and ioredis in a group with a policy, in RESP2 and in RESP3. Only Millstream has policies.
//
// Consumers use only XREADGROUP and XACK. An operator sets the policy, with a command that the clients do not know.

import assert from 'node:assert/strict';
import { afterEach, describe, test } from 'node:test';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { eventually, fresh, host, port } from './target.mjs';

const LEASE_MS = 150;
const TICKET = /^\d{13}-\d+$/;

/** Alternating names and values as an object. */
const pairs = (flat) =>
  Array.isArray(flat)
    ? Object.fromEntries(Array.from({ length: flat.length / 2 }, (_, index) => [flat[2 * index], flat[2 * index + 1]]))
    : flat;

/** The few calls of each client that the tests use. Entries are [id, fields]. */
const clients = {
  'node-redis': async (RESP) => {
    const redis = await createClient({ socket: { host, port, reconnectStrategy: false }, RESP }).on('error', () => {}).connect();
    const entries = (messages) => messages.map(({ id, message }) => [id, { ...message }]);
    return {
      raw: (...command) => redis.sendCommand(command.map(String)),
      create: (stream) => redis.xGroupCreate(stream, 'crew', '0', { MKSTREAM: true }),
      add: (stream, id, fields) => redis.xAdd(stream, id, fields),
      read: async (stream, consumer, BLOCK) => {
        const reply = await redis.xReadGroup('crew', consumer, { key: stream, id: '>' }, { COUNT: 10, BLOCK });
        return entries(reply?.[0].messages ?? []);
      },
      ack: (stream, id) => redis.xAck(stream, 'crew', id),
      range: async (stream) => entries(await redis.xRange(stream, '-', '+')),
      length: (stream) => redis.xLen(stream),
      pending: async (stream) => (await redis.xPending(stream, 'crew')).pending,
      info: async (stream) => ({
        stream: await redis.xInfoStream(stream),
        groups: await redis.xInfoGroups(stream),
        consumers: (await redis.xInfoConsumers(stream, 'crew')).map(Object.keys),
      }),
      die: () => redis.isOpen && redis.destroy(),
    };
  },
  ioredis: async (protocol) => {
    const redis = new Redis({ host, port, protocol, lazyConnect: true, retryStrategy: null, maxRetriesPerRequest: 0 });
    redis.on('error', () => {});
    await redis.connect();
    const entries = (rows) => rows.map(([id, fields]) => [id, pairs(fields)]);
    return {
      raw: (...command) => redis.call(...command),
      create: (stream) => redis.xgroup('CREATE', stream, 'crew', '0', 'MKSTREAM'),
      add: (stream, id, fields) => redis.xadd(stream, id, ...Object.entries(fields).flat()),
      read: async (stream, consumer, block) => {
        const reply = await redis.xreadgroup('GROUP', 'crew', consumer, 'COUNT', 10, 'BLOCK', block, 'STREAMS', stream, '>');
        return entries(reply?.[0][1] ?? []);
      },
      ack: (stream, id) => redis.xack(stream, 'crew', id),
      range: async (stream) => entries(await redis.xrange(stream, '-', '+')),
      length: (stream) => redis.xlen(stream),
      pending: async (stream) => (await redis.xpending(stream, 'crew'))[0],
      info: async (stream) => ({
        stream: pairs(await redis.xinfo('STREAM', stream)),
        groups: (await redis.xinfo('GROUPS', stream)).map(pairs),
        consumers: (await redis.xinfo('CONSUMERS', stream, 'crew')).map((consumer) => Object.keys(pairs(consumer))),
      }),
      die: () => redis.disconnect(),
    };
  },
};

for (const [name, openClient] of Object.entries(clients)) {
  for (const protocol of [2, 3]) {
    describe(`${name} in a group with a policy, RESP${protocol}`, () => {
      const opened = [];
      const open = async (version) => {
        const client = await openClient(version);
        opened.push(client);
        return client;
      };
      // An open connection would keep the process running after a failure.
      afterEach(() => opened.splice(0).forEach((client) => client.die()));

      const setPolicy = (redis, stream) =>
        redis.raw('XPOLICY', 'SET', stream, 'GROUP', 'crew', 'LEASE', LEASE_MS, 'MAXDELIVER', 3, 'DLQ', `${stream}:dead`);

      test('reads, fails, dies and reads again', async () => {
        const [redis, anna, ben] = [await open(protocol), await open(protocol), await open(protocol)];
        const stream = fresh('jobs');
        await redis.create(stream);
        assert.equal(await setPolicy(redis, stream), 'OK');
        const good = await redis.add(stream, '*', { job: 'good' });
        const bad = await redis.add(stream, '*', { job: 'bad' });
        const both = [[good, { job: 'good' }], [bad, { job: 'bad' }]];
        assert.deepEqual(await anna.read(stream, 'anna', 20000), both);
        anna.die(); // with both in hand

        // A blocked reader gets both when the lease is over, as ordinary entries.
        const received = [];
        while (received.length < 2) received.push(...(await ben.read(stream, 'ben', 20000)));
        assert.deepEqual(received, both);
        assert.equal(await ben.ack(stream, good), 1);

        // Ben fails the other one: it comes a third time, and never again.
        assert.deepEqual(await ben.read(stream, 'ben', 20000), [both[1]]);
        assert.deepEqual(await ben.read(stream, 'ben', 3 * LEASE_MS), []);
        await eventually(async () => (await redis.length(`${stream}:dead`)) === 1, 'a dead letter');
        const [[, letter]] = await redis.range(`${stream}:dead`);
        assert.equal(letter.job, 'bad');
        const told = ['stream', 'id', 'group', 'consumer', 'deliveries', 'reason'].map((field) => letter[`dlq.${field}`]);
        assert.deepEqual(told, [stream, bad, 'crew', 'ben', '3', 'max_deliveries']);
        assert.equal(await redis.pending(stream), 0);
      });

      test('delays messages', async () => {
        const redis = await open(protocol);
        const stream = fresh('jobs');
        await redis.create(stream);
        const ticket = await redis.add(stream, '*+300', { job: 'later' });
        assert.match(ticket, TICKET);
        assert.equal(await redis.length(stream), 0);
        const [[id, fields]] = await redis.read(stream, 'anna', 20000);
        assert.deepEqual(fields, { job: 'later' });
        assert.ok(Number(id.split('-')[0]) >= Number(ticket.split('-')[0]));
        assert.equal(await redis.ack(stream, id), 1);
        // A time in the past: the entry is added at once.
        const now = await redis.add(stream, '*@1000000000000', { job: 'now' });
        assert.deepEqual((await redis.range(stream)).at(-1), [now, { job: 'now' }]);
      });

      test('gets the same replies from XINFO', async () => {
        const redis = await open(protocol);
        const stream = fresh('jobs');
        await redis.create(stream);
        await redis.add(stream, '*', { job: '1' });
        await redis.read(stream, 'anna', 20000);
        const before = await redis.info(stream);
        await setPolicy(redis, stream);
        await redis.raw('XPOLICY', 'SET', stream, 'MAXAGE', 86400000, 'ACKEDAGE', 3600000);
        await redis.add(stream, '*+3600000', { job: 'later' });
        assert.deepEqual(await redis.info(stream), before);
      });
    });
  }
}

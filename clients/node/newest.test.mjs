// Tests node-redis' methods for the stream features of Redis 8.2 to 8.10, in RESP2 and in RESP3. Skipped on a server that
// follows an older Redis.

import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { createClient, RESP_TYPES } from 'redis';
import { blockedClients, eventually, follows, fresh, host, pendingRows, port } from './target.mjs';

const DELETED = 1;
const NOT_FOUND = -1;
const REFERENCED = 2;

const open = async (RESP) => {
  const client = createClient({ socket: { host, port, reconnectStrategy: false }, RESP });
  client.on('error', () => {});
  return client.connect();
};

const probe = await open(3);
const skip = follows(await probe.info('server'), 8, 10) ? false : 'the server follows an older Redis';
probe.destroy();

for (const RESP of [2, 3]) {
  describe(`node-redis and the newest commands, RESP${RESP}`, { skip }, () => {
    const opened = [];
    let redis;
    let stream;

    const connect = async () => {
      const client = await open(RESP);
      opened.push(client);
      return client;
    };
    const untilBlocked = () =>
      eventually(async () => blockedClients(await redis.info('clients')) >= 1, 'a blocked client');
    const filled = async (count, ...groups) => {
      for (let number = 1; number <= count; number++) await redis.xAdd(stream, `${number}-0`, { job: `${number}` });
      for (const group of groups) await redis.xGroupCreate(stream, group, '0');
    };
    const read = (consumer, options = {}, group = 'crew') =>
      redis.xReadGroup(group, consumer, { key: stream, id: '>' }, options);
    // Returns the reply of XREADGROUP CLAIM as [id, job, idle, deliveries].
    const claim = async (consumer, CLAIM, options = {}, client = redis) => {
      const reply = await client.xReadGroup('crew', consumer, { key: stream, id: '>' }, { ...options, CLAIM });
      return (reply?.[0].messages ?? []).map((entry) => [
        entry.id,
        entry.message.job,
        entry.millisElapsedFromDelivery,
        entry.deliveriesCounter,
      ]);
    };
    const age = (IDLE, ids) => redis.xClaimJustId(stream, 'crew', 'anna', 0, ids, { IDLE });
    const ids = async () => (await redis.xRange(stream, '-', '+')).map((entry) => entry.id);
    const rows = (group = 'crew') => pendingRows(redis, stream, group);

    before(async () => {
      redis = await connect();
    });
    beforeEach(() => {
      stream = fresh('jobs');
    });
    after(() => opened.forEach((client) => client.isOpen && client.destroy()));

    test('deletes with KEEPREF, DELREF and ACKED', async () => {
      await filled(4, 'crew', 'audit');
      await read('anna');
      await read('zoe', {}, 'audit');
      assert.deepEqual(await redis.xDelEx(stream, ['1-0', '9-9']), [DELETED, NOT_FOUND]);
      assert.equal((await rows()).length, 4);
      assert.deepEqual(await redis.xDelEx(stream, '2-0', 'DELREF'), [DELETED]);
      assert.deepEqual(await rows('audit'), [['1-0', 'zoe', 1], ['3-0', 'zoe', 1], ['4-0', 'zoe', 1]]);
      await redis.xAck(stream, 'crew', '3-0');
      assert.deepEqual(await redis.xDelEx(stream, '3-0', 'ACKED'), [REFERENCED]);
      await redis.xAck(stream, 'audit', '3-0');
      assert.deepEqual(await redis.xDelEx(stream, ['3-0', '4-0'], 'ACKED'), [DELETED, REFERENCED]);
      assert.deepEqual(await redis.xDelEx(stream, '4-0', 'KEEPREF'), [DELETED]);
      assert.deepEqual(await redis.xDelEx(fresh('none'), ['1-0', '2-0']), [NOT_FOUND, NOT_FOUND]);
    });

    test('acknowledges and deletes in one command', async () => {
      await filled(4, 'crew', 'audit');
      await read('anna');
      await read('zoe', {}, 'audit');
      assert.deepEqual(await redis.xAckDel(stream, 'crew', ['1-0', '9-9']), [DELETED, NOT_FOUND]);
      assert.deepEqual(await redis.xAckDel(stream, 'crew', '2-0', 'DELREF'), [DELETED]);
      assert.deepEqual(await redis.xAckDel(stream, 'crew', '3-0', 'ACKED'), [REFERENCED]);
      assert.deepEqual(await redis.xAckDel(stream, 'crew', '4-0', 'KEEPREF'), [DELETED]);
      assert.deepEqual(await rows(), []);
      assert.deepEqual(await rows('audit'), [['1-0', 'zoe', 1], ['3-0', 'zoe', 1], ['4-0', 'zoe', 1]]);
      assert.deepEqual(await ids(), ['3-0']);
    });

    test('trims with KEEPREF, DELREF and ACKED', async () => {
      await filled(5, 'crew');
      await read('anna');
      assert.equal(await redis.xTrim(stream, 'MAXLEN', 4, { policy: 'KEEPREF' }), 1);
      assert.equal((await rows()).length, 5);
      assert.equal(await redis.xTrim(stream, 'MINID', 3, { policy: 'DELREF' }), 1);
      assert.deepEqual((await rows()).map(([id]) => id), ['1-0', '3-0', '4-0', '5-0']);
      await redis.xAck(stream, 'crew', '4-0');
      assert.equal(await redis.xTrim(stream, 'MAXLEN', 0, { strategyModifier: '~', LIMIT: 9, policy: 'ACKED' }), 1);
      assert.deepEqual(await ids(), ['3-0', '5-0']);
      const TRIM = { strategy: 'MAXLEN', strategyModifier: '=', threshold: 2 };
      await redis.xAdd(stream, '6-0', { job: '6' }, { TRIM: { ...TRIM, policy: 'DELREF' } });
      assert.deepEqual((await rows()).map(([id]) => id), ['1-0', '5-0']);
      await redis.xAdd(stream, '7-0', { job: '7' }, { TRIM, policy: 'ACKED' });
      assert.deepEqual(await ids(), ['5-0', '6-0', '7-0']);
    });

    test('reads idle entries and new ones in one call', async () => {
      await filled(4, 'crew');
      await read('anna', { COUNT: 3 });
      await age(60_000, '1-0');
      await age(90_000, '2-0');
      const [longest, long, latest] = await claim('ben', 30_000);
      assert.deepEqual([longest[0], longest[1], longest[3]], ['2-0', '2', 1]);
      assert.ok(longest[2] >= 90_000, `${longest}`);
      assert.deepEqual([long[0], long[3]], ['1-0', 1]);
      assert.deepEqual(latest, ['4-0', '4', 0, 0]);
      assert.deepEqual(await rows(), [['1-0', 'ben', 2], ['2-0', 'ben', 2], ['3-0', 'anna', 1], ['4-0', 'ben', 1]]);
      assert.deepEqual(await claim('ben', 30_000), []);
      const counted = await claim('zoe', 0, { COUNT: 2, NOACK: true });
      assert.equal(counted.length, 2);
    });

    test('blocks until an entry reaches min-idle or is released', async () => {
      await filled(1, 'crew');
      await read('anna');
      const [idled] = await claim('ben', 200, { BLOCK: 15_000 }, await connect());
      assert.deepEqual([idled[0], idled[3]], ['1-0', 1]);
      assert.ok(idled[2] >= 200, `${idled}`);
      const waiting = claim('zoe', 600_000, { BLOCK: 15_000 }, await connect());
      await untilBlocked();
      assert.equal(await redis.xNack(stream, 'crew', 'FAIL', '1-0'), 1);
      const [released] = await waiting;
      assert.deepEqual([released[0], released[1], released[3]], ['1-0', '1', 2]);
    });

    test('releases', async () => {
      await filled(5, 'crew');
      await read('anna', { COUNT: 4 });
      assert.equal(await redis.xNack(stream, 'crew', 'SILENT', '1-0'), 1);
      assert.equal(await redis.xNack(stream, 'crew', 'FAIL', ['2-0', '9-9']), 1);
      assert.equal(await redis.xNack(stream, 'crew', 'FAIL', '3-0', { RETRYCOUNT: 7 }), 1);
      assert.equal(await redis.xNack(stream, 'crew', 'FAIL', '5-0'), 0);
      assert.equal(await redis.xNack(stream, 'crew', 'FAIL', '5-0', { FORCE: true }), 1);
      assert.deepEqual(
        await rows(),
        [['1-0', '', 0], ['2-0', '', 1], ['3-0', '', 7], ['4-0', 'anna', 1], ['5-0', '', 0]],
      );
      const [first] = await redis.xPendingRange(stream, 'crew', '-', '+', 1);
      assert.equal(first.millisecondsSinceLastDelivery, -1);
      const summary = await redis.xPending(stream, 'crew');
      assert.equal(summary.pending, 5);
      assert.deepEqual(summary.consumers.map((row) => [row.name, row.deliveriesCounter]), [['anna', 1]]);
      // JavaScript numbers cannot represent the largest count exactly.
      assert.equal(await redis.xNack(stream, 'crew', 'FATAL', '4-0'), 1);
      const exact = redis.withTypeMapping({ [RESP_TYPES.NUMBER]: String });
      const [fatal] = await exact.xPendingRange(stream, 'crew', '4-0', '4-0', 1);
      assert.equal(fatal.deliveriesCounter, '9223372036854775807');
      const full = await redis.sendCommand(['XINFO', 'STREAM', stream, 'FULL']);
      const groups = Array.isArray(full) ? full[full.indexOf('groups') + 1] : full.groups;
      const [group] = groups;
      assert.equal(Array.isArray(group) ? group[group.indexOf('nacked-count') + 1] : group['nacked-count'], 5);
      await assert.rejects(redis.xNack(stream, 'none', 'FAIL', '1-0'), /NOGROUP/);
    });

    test('adds an entry once with IDMP', async () => {
      const named = { IDMP: { pid: 'till', iid: 'a' } };
      const first = await redis.xAdd(stream, '*', { job: '1' }, named);
      assert.equal(await redis.xAdd(stream, '*', { job: 'other' }, named), first);
      assert.notEqual(await redis.xAdd(stream, '*', { job: '1' }, { IDMP: { pid: 'till', iid: 'b' } }), first);
      const auto = { IDMPAUTO: { pid: 'web' } };
      const second = await redis.xAdd(stream, '*', { job: '1', kind: 'a' }, auto);
      assert.equal(await redis.xAdd(stream, '*', { kind: 'a', job: '1' }, auto), second);
      assert.notEqual(await redis.xAdd(stream, '*', { job: '2', kind: 'a' }, auto), second);
      const fieldsOf = async (...names) => {
        const info = await redis.xInfoStream(stream);
        return names.map((name) => info[name]);
      };
      const tracked = ['pids-tracked', 'iids-tracked', 'iids-added', 'iids-duplicates'];
      assert.deepEqual(await fieldsOf('length', ...tracked), [4, 2, 4, 4, 2]);
      assert.equal((await redis.xInfoStream(stream))['first-entry'].id, first);

      assert.equal(await redis.xCfgSet(stream, { IDMP_DURATION: 86_400, IDMP_MAXSIZE: 1 }), 'OK');
      assert.deepEqual(await fieldsOf('idmp-duration', 'idmp-maxsize', 'iids-tracked'), [86_400, 1, 0]);
      assert.notEqual(await redis.xAdd(stream, '*', { job: '1' }, named), first);
      await assert.rejects(redis.xCfgSet(stream, { IDMP_MAXSIZE: 0 }), /between 1 and 10000 entries/);
      await assert.rejects(redis.xCfgSet(fresh('none'), { IDMP_MAXSIZE: 1 }), { message: 'ERR no such key' });
      assert.equal(await redis.xAddNoMkStream(fresh('none'), '*', { job: '1' }, named), null);
      // The client has no method for this command, which servers send to each other.
      const third = await redis.xAdd(stream, '*', { job: '3' });
      assert.equal(await redis.sendCommand(['XIDMPRECORD', stream, 'phone', 'c', third]), 'OK');
      assert.equal(await redis.xAdd(stream, '*', { job: '3' }, { IDMP: { pid: 'phone', iid: 'c' } }), third);
    });

    test('limits a reply over all streams, by entries and by bytes', async () => {
      const second = fresh('returns');
      await filled(3, 'crew');
      for (const id of ['1-0', '2-0', '3-0']) await redis.xAdd(second, id, { job: 'x'.repeat(1000) });
      await redis.xGroupCreate(second, 'crew', '0');
      const lengths = (reply) => reply.map((entry) => [entry.name, entry.messages.length]);
      const from = (id) => [{ key: stream, id }, { key: second, id }];
      assert.deepEqual(lengths(await redis.xRead(from('0'), { MAXCOUNT: 4 })), [[stream, 3], [second, 1]]);
      assert.deepEqual(lengths(await redis.xRead(from('0'), { COUNT: 2, MAXCOUNT: 3 })), [[stream, 2], [second, 1]]);
      assert.deepEqual(lengths(await redis.xRead({ key: second, id: '0' }, { MAXSIZE: 1500 })), [[second, 2]]);
      assert.deepEqual(lengths(await redis.xRead(from('0'), { MAXSIZE: 1 })), [[stream, 1]]);
      const group = async (options) => lengths(await redis.xReadGroup('crew', 'anna', from('>'), options));
      assert.deepEqual(await group({ MAXCOUNT: 2 }), [[stream, 2]]);
      assert.deepEqual(await rows(), [['1-0', 'anna', 1], ['2-0', 'anna', 1]]);
      assert.deepEqual(await group({ MAXSIZE: 1 }), [[stream, 1]]);
      assert.deepEqual(await group({ COUNT: 2, MAXCOUNT: 3, CLAIM: 0 }), [[stream, 2], [second, 1]]);
      await assert.rejects(redis.xRead(from('0'), { MAXCOUNT: 0 }), /MAXCOUNT must be a positive integer/);
    });

    test('runs the new commands in a transaction', async () => {
      await filled(2, 'crew');
      await read('anna');
      const [released, deleted, claimed] = await redis
        .multi()
        .xNack(stream, 'crew', 'FAIL', '1-0')
        .xAckDel(stream, 'crew', '2-0', 'ACKED')
        .xReadGroup('crew', 'ben', { key: stream, id: '>' }, { CLAIM: 600_000 })
        .exec();
      assert.deepEqual([released, deleted], [1, [DELETED]]);
      assert.deepEqual(claimed[0].messages.map((entry) => [entry.id, entry.deliveriesCounter]), [['1-0', 1]]);
    });
  });
}

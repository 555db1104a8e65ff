// A producer and a worker that stops cleanly.
//
// The worker begins with its own pending entries, which it read before its last stop, and then reads new ones. When it is
// asked to stop, it finishes the current entry. Entries that it has not handled stay pending under its name.
//
// This is the pattern written by hand. The shorter way: handler() and run() of the package in sdk/node
// (docs/from-your-consumer.md#consumer).

import { connect } from './connection.mjs';

const STREAM = 'example:worker';
const GROUP = 'mailers';
const NAME = 'mailer-1';

/** Yields entries until `signal` is aborted: first the consumer's own pending entries, then new ones. */
async function* entries(redis, signal) {
  let id = '0';
  while (!signal.aborted) {
    const reply = await redis.xReadGroup(GROUP, NAME, { key: STREAM, id }, { COUNT: 10, BLOCK: 100 });
    const messages = reply?.[0].messages ?? [];
    yield* messages;
    if (id !== '>') id = messages.at(-1)?.id ?? '>';
  }
}

async function work(handle, signal) {
  // A blocking read occupies its connection, so acknowledgements need another one.
  const reader = await connect();
  const writer = await connect();
  for await (const { id, message } of entries(reader, signal)) {
    await handle(message);
    await writer.xAck(STREAM, GROUP, id);
    if (signal.aborted) break;
  }
  await Promise.all([reader.close(), writer.close()]);
}

async function main() {
  const redis = await connect();
  await redis.del(STREAM);
  await redis.xGroupCreate(STREAM, GROUP, '$', { MKSTREAM: true });

  // node-redis sends calls of the same tick as one pipeline.
  const ids = await Promise.all(
    Array.from({ length: 30 }, (_, number) => redis.xAdd(STREAM, '*', { to: `user-${number}@example.org` })),
  );
  console.log(`produced ${ids.length} mails`);

  // An earlier run read three mails and stopped before it sent them.
  await redis.xReadGroup(GROUP, NAME, { key: STREAM, id: '>' }, { COUNT: 3 });

  const stop = new AbortController();
  const sent = [];
  await work(async (mail) => {
    sent.push(mail.to);
    if (sent.length === 20) stop.abort();
  }, stop.signal);
  console.log(`sent ${sent.length}, the first to ${sent[0]}, then stopped`);

  const left = await redis.xPending(STREAM, GROUP);
  console.log(`read but not sent: ${left.pending}`);
  const again = new AbortController();
  await work(async (mail) => {
    sent.push(mail.to);
    if (sent.length === 30) again.abort();
  }, again.signal);
  console.log(`after a restart: sent ${sent.length}, each exactly once: ${new Set(sent).size === 30}`);
  await redis.close();
}

await main();

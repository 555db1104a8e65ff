// The address of the server under test, and functions that the Node.js suites share.
//
// MILLSTREAM_TEST_PORT is the port, and MILLSTREAM_TEST_HOST the host (default 127.0.0.1). If MILLSTREAM_TEST_CA names an
// authority's certificate, the suites use TLS, with a client certificate if MILLSTREAM_TEST_CERT and MILLSTREAM_TEST_KEY
// name one.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

export const host = process.env.MILLSTREAM_TEST_HOST ?? '127.0.0.1';
export const port = Number(process.env.MILLSTREAM_TEST_PORT);
if (!port) throw new Error('set MILLSTREAM_TEST_PORT to the port of the server under test');

const { MILLSTREAM_TEST_CA: ca, MILLSTREAM_TEST_CERT: cert, MILLSTREAM_TEST_KEY: key } = process.env;
/** The options for TLS, or undefined. */
export const tls = ca && { ca: readFileSync(ca), ...(cert && { cert: readFileSync(cert), key: readFileSync(key) }) };

/** Returns a key that no other test and no earlier run has used. */
export const fresh = (name) => `${name}:${randomUUID().slice(0, 10)}`;

/** Waits until `condition()` is true, for a minute at most. */
export async function eventually(condition, what) {
  const deadline = Date.now() + 60000;
  while (Date.now() < deadline) {
    if (await condition()) return;
    await sleep(10);
  }
  throw new Error(`not within a minute: ${what}`);
}

/** Returns the number of blocked clients in the text of INFO. */
export const blockedClients = (info) => Number(/blocked_clients:(\d+)/.exec(info)[1]);

/** Whether the server follows this version of Redis or a later one, from the text of INFO. */
export function follows(info, major, minor) {
  const [, itsMajor, itsMinor] = /redis_version:(\d+)\.(\d+)/.exec(info).map(Number);
  return itsMajor > major || (itsMajor === major && itsMinor >= minor);
}

/** Whether the server follows Redis 7.2 or later, from the text of INFO. */
export const since72 = (info) => follows(info, 7, 2);

/** Returns the pending entries of a group as [id, consumer, deliveries]. Uses node-redis. */
export const pendingRows = async (redis, stream, group) =>
  (await redis.xPendingRange(stream, group, '-', '+', 100)).map((row) => [row.id, row.consumer, row.deliveriesCounter]);

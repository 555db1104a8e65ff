// Connects to the server at REDIS_URL, or to port 6379 on this machine.

import { createClient } from 'redis';

export const url = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379';

/** Returns a connected node-redis client that uses RESP3. */
export function connect() {
  return createClient({ url, RESP: 3 }).connect();
}

// Where the server is: REDIS_URL, or the usual port on this machine.

import { createClient } from 'redis';

export const url = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379';

/** A connected node-redis client that speaks RESP3. */
export function connect() {
  return createClient({ url, RESP: 3 }).connect();
}

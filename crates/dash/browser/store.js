/** Starts servers, dashboards and workers as processes, and stops them at the end. Knows no page. */

import { execFile, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';

/** The binary under test. */
export const BINARY = process.env.MILLSTREAM_BIN ?? 'millstream';
const REDIS = process.env.MILLSTREAM_REDIS_SERVER ?? 'redis-server';
/** How long a process may take to start. */
const START_MS = 60_000;

/** @type {Set<Process>} */
const running = new Set();
/** @type {Set<Redis>} */
const clients = new Set();
/** @type {string[]} */
const folders = [];
process.on('exit', () => {
  for (const { child } of running) child.kill('SIGKILL');
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** Returns a new folder, which is removed at the end. */
export function newFolder() {
  const folder = mkdtempSync(join(tmpdir(), 'millstream-browser-'));
  folders.push(folder);
  return folder;
}

/** The environment without settings for the program. A server refuses those that it does not know. */
const ENVIRONMENT = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('MILLSTREAM_')));

/** A process that runs until it is stopped. */
export class Process {
  /** @param {string} program @param {string[]} args @param {object} [options] */
  constructor(program, args, options = {}) {
    this.output = '';
    this.hasEnded = false;
    this.child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], cwd: newFolder(), env: ENVIRONMENT, ...options });
    running.add(this);
    /** Resolves when the process has ended, even if a process that it started still has its pipes. */
    this.ended = new Promise((resolve) => {
      const end = () => {
        running.delete(this);
        this.hasEnded = true;
        resolve(undefined);
      };
      this.child.once('exit', end);
      this.child.once('error', (error) => {
        this.output += String(error);
        end();
      });
    });
    for (const stream of [this.child.stdout, this.child.stderr]) stream.on('data', (bytes) => { this.output = (this.output + bytes).slice(-20_000); });
  }

  /** Waits until the output matches. @param {RegExp} pattern @returns {Promise<RegExpMatchArray>} */
  async says(pattern) {
    const deadline = Date.now() + START_MS;
    for (;;) {
      const found = this.output.match(pattern);
      if (found) return found;
      if (this.hasEnded || Date.now() > deadline) throw new Error(`${this.child.spawnargs.join(' ')} did not say ${pattern}:\n${this.output}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Ends the process. @param {NodeJS.Signals} [signal] */
  async stop(signal = 'SIGKILL') {
    if (!this.hasEnded) this.child.kill(signal);
    await this.ended;
    this.child.stdout.destroy();
    this.child.stderr.destroy();
  }
}

/** Returns a port that is free now. @returns {Promise<number>} */
export async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/**
 * A store with a dashboard, and a client.
 * @typedef {object} Store
 * @property {string} kind `millstream` or `redis`
 * @property {number} port
 * @property {string} base address of the dashboard, with a slash at its end
 * @property {Redis} client
 * @property {Process} server
 * @property {Process | null} dash null if the server itself serves the dashboard
 */

/** Starts `millstream serve --http`. @param {string[]} [args] @returns {Promise<Store>} */
export async function startMillstream(args = []) {
  const memory = args.includes('--appendonly') ? [] : ['--appendonly', 'no'];
  const server = new Process(BINARY, ['serve', '--port', '0', '--http', '127.0.0.1:0', ...memory, ...args]);
  const [, listening] = await server.says(/listening\s+127\.0\.0\.1:(\d+)/);
  const [, base] = await server.says(/dashboard\s+(http:\S+\/)/);
  return { kind: 'millstream', port: Number(listening), base, client: connect(Number(listening)), server, dash: null };
}

/** Starts `redis-server`, and `millstream dash` for it. @param {string[]} [args] of the dashboard @returns {Promise<Store>} */
export async function startRedis(args = []) {
  const { port, server } = await redisServer();
  const { dash, base } = await startDash(port, args);
  return { kind: 'redis', port, base, client: connect(port), server, dash };
}

/** Starts the server of a store again, on the same ports and with the same data. @param {Store} store */
export async function restart(store) {
  const [program, ...args] = store.server.child.spawnargs;
  const value = (/** @type {string} */ option, /** @type {string} */ to) => { args[args.indexOf(option) + 1] = to; };
  value('--port', String(store.port));
  if (store.dash === null) value('--http', new URL(store.base).host);
  store.server = new Process(program, args);
  await store.server.says(/Ready to accept connections|dashboard\s+http:/);
}

/** Starts `redis-server` on a free port. Another process can take the port first. Then it tries another one. */
async function redisServer() {
  for (;;) {
    const port = await freePort();
    const server = new Process(REDIS, ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no']);
    const [text] = await server.says(/Ready to accept connections|Address already in use/);
    if (text.startsWith('Ready')) return { port, server };
    await server.stop();
  }
}

/** Starts `millstream dash`. @param {number} port of the store @param {string[]} [args] */
export async function startDash(port, args = []) {
  const dash = new Process(BINARY, ['dash', '--url', `redis://127.0.0.1:${port}`, '--listen', '127.0.0.1:0', ...args]);
  const [, base] = await dash.says(/at (http:\S+\/)/);
  return { dash, base };
}

/** @param {number} port */
export function connect(port) {
  const client = new Redis({ port, host: '127.0.0.1', enableAutoPipelining: true, maxRetriesPerRequest: null });
  client.on('error', () => {});
  clients.add(client);
  return client;
}

/** Starts a worker of the runtime that handles messages with `true`. @param {Store} store @param {string} stream @param {string} group @param {string} consumer */
export function startWorker(store, stream, group, consumer) {
  return new Process(BINARY, ['work', '--url', `redis://127.0.0.1:${store.port}`, '--stream', stream, '--group', group, '--consumer', consumer, '--exec', 'true']);
}

/** Stops everything that was started, so that Node.js can end. */
export async function stopAll() {
  for (const client of clients) client.disconnect();
  await Promise.all([...running].map((each) => each.stop()));
}

/** Runs a command line that a page shows, as a shell would. @param {string} line @returns {Promise<string>} */
export async function runLine(line) {
  const shown = line.replace(/^millstream /, `${BINARY} `);
  const { stdout } = await promisify(execFile)('bash', ['-c', shown], { timeout: START_MS, env: ENVIRONMENT });
  return stdout;
}

/**
 * Handlers for Millstream workers.
 *
 *     import { Reject, handler, run } from "millstream";
 *
 *     handler("orders", async (message) => {
 *       if (!message.has("amount")) throw new Reject("the order has no amount");
 *       console.log("charging", message.text("amount"));
 *     });
 *
 *     run({ group: "billing" });
 *
 * `node worker.js` starts `millstream work`, which starts this program again, once or several times, and sends it
 * messages over the protocol of docs/workers/child-protocol.md. The first process passes signals and the exit code on.
 */
"use strict";

const { AsyncLocalStorage } = require("node:async_hooks");
const { spawn } = require("node:child_process");
const fs = require("node:fs");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");
const { inspect } = require("node:util");

const VERSION = "0.1.0";
const PROTOCOL = "1";
const PROTOCOL_VARIABLE = "MILLSTREAM_CHILD_PROTOCOL";
const PIPELINE_VARIABLE = "MILLSTREAM_PIPELINE";
// Set by run() for the programs that it lets the worker start: the descriptors of the protocol.
const CHANNEL_VARIABLE = "MILLSTREAM_CHANNEL";
const BINARY_VARIABLE = "MILLSTREAM_BIN";
const URL_VARIABLE = "MILLSTREAM_URL";

// Messages that one process has at a time, unless an option says otherwise.
const PIPELINE = 64;
// The worker refuses answers of more than 1 MiB.
const ERROR_CHARACTERS_MAX = 10_000;
// A program that gets SIGTERM is killed a second later.
const STOP_MS = 700;

// --- Messages and outcomes ---

/** A message of a stream. */
class Message {
  #controller = new AbortController();

  constructor(fields, { id = "0-1", stream = "", group = "", attempt = 1, key, partition, fence, traceparent, tracestate } = {}) {
    this.id = id;
    this.stream = stream;
    this.group = group;
    this.attempt = attempt;
    this.key = key;
    this.partition = partition;
    this.fence = fence;
    this.fields = fields;
    this.traceparent = traceparent;
    this.tracestate = tracestate;
  }

  get signal() {
    return this.#controller.signal;
  }

  has(name) {
    return Object.hasOwn(this.fields, name);
  }

  all(name) {
    return this.has(name) ? [this.fields[name]].flat() : [];
  }

  text(name) {
    const [value] = this.all(name);
    if (Buffer.isBuffer(value)) {
      throw new TypeError(`the field '${name}' is not UTF-8 text; message.bytes('${name}') returns its bytes`);
    }
    return value;
  }

  bytes(name) {
    const [value] = this.all(name);
    return typeof value === "string" ? Buffer.from(value) : value;
  }

  /** Tells the handler that the worker no longer needs the outcome. Not for handlers. */
  _cancel() {
    this.#controller.abort();
  }
}

/** What happens to a message. A handler returns it or throws it; returning nothing means Ack. */
class Outcome extends Error {
  constructor(outcome, error) {
    const cause = error instanceof Error ? error : undefined;
    super(cause ? describe(cause) : error, { cause });
    this.name = new.target.name;
    this._outcome = outcome;
  }

  _answer() {
    const answer = { outcome: this._outcome };
    if (this.message) answer.error = clip(this.message);
    if (answer.error || this._outcome === "reject") answer.error_type = this.cause?.name ?? this.name;
    return answer;
  }
}

class Ack extends Outcome {
  constructor() {
    super("ack");
  }
}

class Skip extends Outcome {
  constructor() {
    super("skip");
  }
}

class Reject extends Outcome {
  constructor(error) {
    super("reject", error);
  }
}

class Retry extends Outcome {
  constructor(error, { afterMs } = {}) {
    super("retry", error);
    if (afterMs !== undefined && !(Number.isFinite(afterMs) && afterMs >= 0)) {
      throw new RangeError(`afterMs: ${afterMs}: expected a number that is not negative`);
    }
    this.afterMs = afterMs;
  }

  _answer() {
    const answer = super._answer();
    return this.afterMs === undefined ? answer : { ...answer, after_ms: Math.round(this.afterMs) };
  }
}

function clip(text) {
  return text.slice(0, ERROR_CHARACTERS_MAX);
}

function describe(error) {
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}

// --- Handlers ---

// Handlers by stream. The handler for all other streams has the key null.
const handlers = new Map();
const startHooks = [];
const stopHooks = [];
const current = new AsyncLocalStorage();

/** Registers a handler: `handler(call)`, `handler("orders", call)` or `handler(["orders", "refunds"], call)`. */
function handler(...args) {
  const call = args.pop();
  const streams = args.length === 0 ? [null] : args.flat();
  if (typeof call !== "function") throw new TypeError("handler(): expected a function as the last argument");
  for (const stream of streams) {
    if (stream !== null && typeof stream !== "string") throw new TypeError("handler(): expected names of streams");
    if (handlers.has(stream)) {
      throw new Error(`two handlers for ${stream === null ? "all streams" : `the stream '${stream}'`}`);
    }
    handlers.set(stream, call);
  }
  return call;
}

/** Registers a function that each process runs before its first message. */
function onStart(call) {
  startHooks.push(call);
}

/** Registers a function that each process runs when it ends. */
function onStop(call) {
  stopHooks.push(call);
}

/** Returns the message that the calling code handles, for example for logging. */
function currentMessage() {
  return current.getStore();
}

async function answerTo(message, log) {
  try {
    const call = handlers.get(message.stream) ?? handlers.get(null);
    if (!call) throw new Error(`no handler for the stream '${message.stream}'`);
    const result = await current.run(message, call, message);
    if (result === undefined || result === null) return { outcome: "ack" };
    if (result instanceof Outcome) return result._answer();
    if (result?.prototype instanceof Outcome) return new result()._answer();
    throw new TypeError(`the handler returned ${typeof result}: expected nothing, Ack, Retry, Reject or Skip`);
  } catch (error) {
    if (error instanceof Outcome) return error._answer();
    if (!message.signal.aborted) {
      log("the handler failed", error, message);
    }
    const type = error instanceof Error ? error.name : typeof error;
    return { outcome: "retry", error: clip(describe(error)), error_type: type };
  }
}

// --- Starting the worker ---

/**
 * Handles messages with the registered handlers until the worker ends, and ends the process.
 *
 * The options are those of `millstream work`: `run({ stream: "orders", group: "billing", timeout: "30s" })`. An array
 * repeats an option, and true is an option without a value. Options of the command line (`argv`, by default
 * `process.argv.slice(2)`) replace them. `millstream` is the path of the program. Otherwise the environment variable
 * MILLSTREAM_BIN names it, or it is found on the PATH.
 */
function run({ millstream, argv = process.argv.slice(2), ...options } = {}) {
  if (handlers.size === 0) throw new Error("run() without a handler: call handler() first");
  if (PROTOCOL_VARIABLE in process.env || CHANNEL_VARIABLE in process.env) {
    serve();
  } else {
    if (options.url && !named(argv).has("url")) {
      // Other users of the machine can see a command line, and a URL can have a password.
      process.env[URL_VARIABLE] = options.url;
      delete options.url;
    }
    startWorker(findBinary(millstream), ["work", "--until-stdin-ends", ...flags(options, argv), ...argv, `--child=${childCommand()}`]);
  }
}

function exit(code, error) {
  fs.writeSync(2, `millstream: ${error}\n`);
  process.exit(code);
}

function findBinary(name) {
  for (const [given, source] of [[name, "run({ millstream })"], [process.env[BINARY_VARIABLE], BINARY_VARIABLE]]) {
    if (given) return which(given) ?? exit(127, `cannot find the program '${given}', which ${source} names`);
  }
  return which("millstream") ?? exit(127,
    "cannot find the program 'millstream' on the PATH: install it with " +
    "'cargo install --locked --path crates/millstream' in a " +
    `clone of its repository, or set ${BINARY_VARIABLE}, or pass run({ millstream })`);
}

function which(name) {
  const folders = name.includes("/") ? [""] : (process.env.PATH ?? "").split(path.delimiter);
  return folders.map((folder) => path.join(folder, name)).find((file) => {
    try {
      fs.accessSync(file, fs.constants.X_OK);
      return fs.statSync(file).isFile();
    } catch {
      return false;
    }
  });
}

const SHORT_OPTIONS = { s: "stream", g: "group", c: "concurrency", u: "url", q: "quiet" };
// Options that exclude each other.
const ALTERNATIVES = [["concurrency", "autoscale"], ["stream", "streams-matching"]];

/** Returns the options that a command line has, with those that they exclude. */
function named(argv) {
  const names = new Set();
  for (const argument of argv) {
    if (argument.startsWith("--")) names.add(argument.slice(2).split("=")[0]);
    else if (argument.startsWith("-") && argument[1] in SHORT_OPTIONS) names.add(SHORT_OPTIONS[argument[1]]);
  }
  for (const alternatives of ALTERNATIVES) {
    if (alternatives.some((name) => names.has(name))) alternatives.forEach((name) => names.add(name));
  }
  return names;
}

/** Returns the options of run() that the command line does not have, and defaults. */
function flags(options, argv) {
  const kebab = (name) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  const given = Object.entries(options).map(([name, value]) => [kebab(name), value]);
  const onCommandLine = named(argv);
  const anywhere = named([...argv, ...given.map(([name]) => `--${name}`)]);
  const defaults = {
    stream: [...handlers.keys()].filter((stream) => stream !== null),
    pipeline: PIPELINE,
    concurrency: PIPELINE,
  };
  return [
    ...given.filter(([name]) => !onCommandLine.has(name)),
    ...Object.entries(defaults).filter(([name]) => !anywhere.has(name)),
  ].flatMap(([name, value]) => flag(name, value));
}

function flag(name, value) {
  if (value === undefined || value === null || value === false) return [];
  if (value === true) return [`--${name}`];
  return Array.isArray(value) ? value.flatMap((each) => flag(name, each)) : [`--${name}=${value}`];
}

/**
 * Returns the command that starts this program again. The shell moves the protocol away from standard input and output,
 * so that console.log() and the programs that a handler starts cannot disturb it.
 */
function childCommand() {
  if (!process.argv[1]) exit(2, "run() must be called from a file, because the worker starts the program again");
  const program = [process.execPath, ...process.execArgv, ...process.argv.slice(1)].map(quote).join(" ");
  return `export ${CHANNEL_VARIABLE}=3,4; exec ${program} 3<&0 4>&1 </dev/null >&2`;
}

function quote(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

/** Runs the worker. Passes signals on to it, and ends as it ends. */
function startWorker(binary, args) {
  // In a process group of its own, so that Ctrl-C reaches it once: through this process.
  // If this process ends, its end of the pipe is closed, and the worker drains.
  const worker = spawn(binary, args, { stdio: ["pipe", "inherit", "inherit"], detached: true });
  worker.on("error", (error) => exit(126, `cannot run ${binary}: ${error.message}`));
  if (worker.pid === undefined) return;
  worker.stdin.on("error", () => {});
  for (const signal of ["SIGHUP", "SIGINT", "SIGTERM"]) process.on(signal, () => worker.kill(signal));
  worker.on("exit", (code, signal) => {
    process.exit(signal ? 128 + os.constants.signals[signal] : code);
  });
}

// --- Handling messages ---

/** Handles the messages of the worker that started this program, and ends the process. */
async function serve() {
  const version = process.env[PROTOCOL_VARIABLE] ?? PROTOCOL;
  if (version !== PROTOCOL) {
    const knows = `this package (version ${VERSION}) knows version ${PROTOCOL} of the child protocol`;
    exit(2, `${knows}, not '${version}': upgrade it`);
  }
  const { openInput, output } = openChannel();
  delete process.env[PROTOCOL_VARIABLE];
  delete process.env[PIPELINE_VARIABLE];
  // The worker is gone.
  output.on("error", () => process.exit(1));
  const child = new Child(output);
  process.on("SIGTERM", () => child.stop(128 + os.constants.signals.SIGTERM));
  // Also errors of promises that nothing awaits. A program that handles such errors itself goes on.
  process.on("uncaughtException", (error) => {
    if (process.listenerCount("uncaughtException") === 1) child.fail("an error that nothing caught", error);
  });
  try {
    for (const hook of startHooks) await hook();
  } catch (error) {
    return child.fail("a function of onStart() failed", error);
  }
  // Not before: messages that this process has not read cost no attempt if it ends.
  const input = openInput();
  input.on("data", (data) => child.receive(data));
  input.on("end", () => child.finish());
}

/** Returns the streams of the protocol, which nothing else uses. */
function openChannel() {
  const moved = process.env[CHANNEL_VARIABLE];
  delete process.env[CHANNEL_VARIABLE];
  if (moved) {
    const [read, write] = moved.split(",").map(Number);
    return {
      openInput: () => new net.Socket({ fd: read, readable: true, writable: false }),
      output: new net.Socket({ fd: write, readable: false, writable: true }),
    };
  }
  // Somebody else has started this program with --child. Node cannot move descriptors, so what this process prints goes
  // to standard error.
  const output = process.stdout;
  const write = output.write.bind(output);
  output.write = (...args) => process.stderr.write(...args);
  return { openInput: () => process.stdin, output: { write, on: output.on.bind(output) } };
}

class Child {
  #output;
  #inFlight = new Map();
  #rest = [];
  #answers = [];
  /** No more messages follow. */
  #finishing = false;
  #ended = false;

  constructor(output) {
    this.#output = output;
  }

  receive(data) {
    let start = 0;
    for (let end = data.indexOf(10); end !== -1; end = data.indexOf(10, start)) {
      const part = data.subarray(start, end);
      this.#receiveLine(this.#rest.length === 0 ? part : Buffer.concat([...this.#rest, part]));
      this.#rest = [];
      start = end + 1;
    }
    if (start < data.length) this.#rest.push(data.subarray(start));
  }

  #receiveLine(line) {
    const text = line.toString();
    if (text.trim() === "") return;
    const data = JSON.parse(text);
    if (data.fields === undefined) {
      this.#inFlight.get(data.cancel)?._cancel();
      return;
    }
    for (const name of Object.keys(data.fields)) data.fields[name] = parseValue(data.fields[name]);
    if (data.key !== undefined) data.key = parseValue(data.key);
    const message = new Message(data.fields, data);
    this.#inFlight.set(message.id, message);
    answerTo(message, (...args) => this.#log(...args)).then((answer) => this.#answer(message, answer));
  }

  #answer(message, answer) {
    this.#inFlight.delete(message.id);
    // One write for all messages that end in this turn of the event loop.
    if (this.#answers.length === 0) setImmediate(() => this.#flush());
    this.#answers.push(JSON.stringify({ id: message.id, ...answer }));
    if (this.#finishing && this.#inFlight.size === 0) this.#end(0);
  }

  #flush(then) {
    const lines = this.#answers.map((answer) => `${answer}\n`).join("");
    this.#answers = [];
    if (lines || then) this.#output.write(lines, then);
  }

  /** Sends an error to the log of the worker, with its stack. */
  #log(text, error, message, others, then) {
    const trace = message?.traceparent ? ` trace_id=${message.traceparent.split("-")[1]}` : "";
    const where = message ? ` stream=${message.stream} attempt=${message.attempt}${trace}` : "";
    const log = clip(`millstream: ${text}${where}\n${inspect(error)}`);
    const line = { log, level: "error", id: message?.id, ...others };
    this.#output.write(`${JSON.stringify(line)}\n`, then);
  }

  /** Ends the process because of an error, which becomes the error of its messages. */
  fail(text, error) {
    const [only] = this.#inFlight.size === 1 ? this.#inFlight.values() : [];
    this.#log(text, error, currentMessage() ?? only, { error: clip(describe(error)) }, () => process.exit(1));
  }

  /** Ends the process when all messages are answered. */
  finish() {
    this.#finishing = true;
    if (this.#inFlight.size === 0) this.#end(0);
  }

  /** Cancels all messages and ends the process soon. */
  stop(code) {
    for (const message of this.#inFlight.values()) message._cancel();
    this.#end(code);
    setTimeout(() => process.exit(code), STOP_MS);
  }

  #end(code) {
    if (this.#ended) return;
    this.#ended = true;
    this.#flush(async () => {
      try {
        for (const hook of stopHooks) await hook();
      } catch (error) {
        return this.fail("a function of onStop() failed", error);
      }
      process.exit(code);
    });
  }
}

function parseValue(value) {
  if (typeof value === "string") return value;
  return Array.isArray(value) ? value.map(parseValue) : Buffer.from(value.hex, "hex");
}

module.exports = { Ack, Message, Outcome, Reject, Retry, Skip, currentMessage, handler, onStart, onStop, run };

// Tests of the package. They run programs with it as a worker does: over pipes, with signals.
//
//   node --test sdk/node/test.js
"use strict";

const assert = require("node:assert/strict");
const { spawn, spawnSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const readline = require("node:readline");
const { test } = require("node:test");

const { Ack, Message, Reject, Retry, Skip } = require("./index.js");

function message(id, fields = {}, others = {}) {
  return { id, stream: "orders", group: "billing", attempt: 1, fields, ...others };
}

/** Writes a program that uses the package into a new folder. */
function script(code) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "millstream-sdk-"));
  process.on("exit", () => fs.rmSync(folder, { recursive: true, force: true }));
  const names = "Ack, Message, Reject, Retry, Skip, currentMessage, handler, onStart, onStop, run";
  fs.writeFileSync(path.join(folder, "worker.js"), `const { ${names} } = require(${JSON.stringify(__dirname)});\n${code}`);
  return { folder, file: path.join(folder, "worker.js") };
}

/** A program that uses the package, started as a worker starts it. */
class Child {
  constructor(code, environment = {}) {
    const { folder, file } = script(`${code}\nrun();\n`);
    const env = { ...process.env, MILLSTREAM_CHILD_PROTOCOL: "1", MILLSTREAM_PIPELINE: "8", ...environment };
    this.process = spawn(process.execPath, [file], { cwd: folder, env });
    this.exited = new Promise((resolve) => this.process.on("close", (code) => resolve(code)));
    this.lines = readline.createInterface({ input: this.process.stdout })[Symbol.asyncIterator]();
    this.err = "";
    this.logs = [];
    this.process.stderr.on("data", (data) => (this.err += data));
  }

  send(...lines) {
    for (const line of lines) this.process.stdin.write(`${typeof line === "string" ? line : JSON.stringify(line)}\n`);
  }

  /** Returns the next answer. Keeps the lines for the log of the worker. */
  async answer() {
    for (;;) {
      const line = JSON.parse((await this.lines.next()).value ?? "null");
      if (line?.log === undefined) return line;
      this.logs.push(line);
    }
  }

  async answers(count) {
    const found = {};
    for (let n = 0; n < count; n++) {
      const { id, ...answer } = await this.answer();
      found[id] = answer;
    }
    return found;
  }

  async printed(text) {
    while (!this.err.includes(text)) await new Promise((resolve) => this.process.stderr.once("data", resolve));
  }

  /** Closes standard input. Returns the exit code. */
  async close() {
    this.process.stdin.end();
    return await this.exited;
  }
}

test("fields are text or bytes", () => {
  const found = new Message({ item: "book", raw: Buffer.from([255]), tags: ["a", Buffer.from([254])] });
  assert.deepEqual([found.text("item"), found.bytes("item")], ["book", Buffer.from("book")]);
  assert.deepEqual([found.bytes("raw"), found.text("tags"), found.all("tags").length], [Buffer.from([255]), "a", 2]);
  assert.deepEqual([found.text("none"), found.bytes("none"), found.all("none")], [undefined, undefined, []]);
  assert.deepEqual([found.has("item"), found.has("none"), found.has("toString")], [true, false, false]);
  assert.throws(() => found.text("raw"), /message.bytes\('raw'\)/);
});

test("a handler gets the trace of its message", async () => {
  const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const child = new Child(`handler((message) => {
    throw new RangeError(String(message.traceparent) + " " + String(message.tracestate));
  });`);
  child.send(message("1-1", {}, { traceparent, tracestate: "foo=1" }), message("1-2"));
  const { "1-1": traced, "1-2": untraced } = await child.answers(2);
  assert.deepEqual([traced.error, untraced.error], [`RangeError: ${traceparent} foo=1`, "RangeError: undefined undefined"]);
  assert.equal(await child.close(), 0);
  const logs = Object.fromEntries(child.logs.map(({ id, log }) => [id, log]));
  assert.match(logs["1-1"], /attempt=1 trace_id=4bf92f3577b34da6a3ce929d0e0e4736\nRangeError/);
  assert.match(logs["1-2"], /attempt=1\nRangeError/);
  assert.equal(new Message({}, { traceparent }).traceparent, traceparent);
});

test("a message has the key by which the worker orders", async () => {
  const child = new Child("handler((message) => { throw new Reject(require('node:util').inspect(message.key)); });");
  child.send(message("1", {}, { key: "17" }), message("2", {}, { key: { hex: "ff" } }), message("3"));
  const errors = Object.values(await child.answers(3)).map((answer) => answer.error);
  assert.deepEqual(errors.sort(), ["'17'", "<Buffer ff>", "undefined"]);
  await child.close();
});

test("a message has its partition and the fence of the worker", async () => {
  const child = new Child("handler((message) => { throw new Reject(`${message.partition} ${message.fence}`); });");
  child.send(message("1", {}, { partition: 3, fence: 1760000000000 }), message("2"));
  const errors = Object.values(await child.answers(2)).map((answer) => answer.error);
  assert.deepEqual(errors.sort(), ["3 1760000000000", "undefined undefined"]);
  await child.close();
});

test("outcomes become answers", () => {
  for (const [outcome, answer] of [
    [new Ack(), { outcome: "ack" }],
    [new Skip(), { outcome: "skip" }],
    [new Reject("no amount"), { outcome: "reject", error: "no amount", error_type: "Reject" }],
    [new Reject(), { outcome: "reject", error_type: "Reject" }],
    [new Retry(), { outcome: "retry" }],
    [new Retry("closed", { afterMs: 250 }), { outcome: "retry", error: "closed", error_type: "Retry", after_ms: 250 }],
    [new Reject(new TypeError("x")), { outcome: "reject", error: "TypeError: x", error_type: "TypeError" }],
    [new Reject("x".repeat(20_000)), { outcome: "reject", error: "x".repeat(10_000), error_type: "Reject" }],
  ]) {
    assert.deepEqual(outcome._answer(), answer);
  }
  assert.throws(() => new Retry("", { afterMs: -1 }), RangeError);
});

test("results and errors decide", async () => {
  const child = new Child(`
    handler(async (message) => {
      const call = {
        ack: () => new Ack(),
        skip: () => Skip,
        reject: () => { throw new Reject("no amount"); },
        retry: () => new Retry("closed", { afterMs: 1500 }),
        fail: () => { throw new RangeError("too much"); },
        text: () => { throw "a text"; },
        seven: () => 7,
      }[message.text("do")];
      if (call) return call();
      console.log("printed by a handler", currentMessage().id);
      require("node:child_process").execSync("echo printed by a program >&2", { stdio: "inherit" });
    });`);
  const expected = {
    none: { outcome: "ack" },
    ack: { outcome: "ack" },
    skip: { outcome: "skip" },
    reject: { outcome: "reject", error: "no amount", error_type: "Reject" },
    retry: { outcome: "retry", error: "closed", error_type: "Retry", after_ms: 1500 },
    fail: { outcome: "retry", error: "RangeError: too much", error_type: "RangeError" },
    text: { outcome: "retry", error: "a text", error_type: "string" },
    seven: {
      outcome: "retry",
      error: "TypeError: the handler returned number: expected nothing, Ack, Retry, Reject or Skip",
      error_type: "TypeError",
    },
  };
  for (const name of Object.keys(expected)) child.send(message(name, { do: name }));
  assert.deepEqual(await child.answers(Object.keys(expected).length), expected);
  assert.equal(await child.close(), 0);
  for (const text of ["printed by a handler none\n", "printed by a program\n"]) {
    assert.ok(child.err.includes(text), child.err);
  }
  const failed = child.logs.find((line) => line.id === "fail");
  assert.equal(failed.level, "error");
  assert.match(failed.log, /^millstream: the handler failed stream=orders attempt=1\nRangeError: too much\n +at /);
});

test("handlers are chosen by stream, several messages run at a time, and values are parsed", async () => {
  const child = new Child(`
    let waiting = [];
    handler(["orders", "refunds"], async (message) => {
      await new Promise((resolve) => waiting.push(resolve) === 2 && waiting.forEach((each) => each()));
      throw new Reject(message.stream + " " + JSON.stringify(message.fields) + message.bytes("data")?.length);
    });`);
  const data = "x".repeat(3_000_000);
  child.send("", { unknown: 1 }, message("1", { raw: { hex: "00ff" } }), message("3", {}, { stream: "others" }));
  child.send(message("2", { data, tags: ["x", { hex: "fe" }] }, { stream: "refunds" }));
  const answers = await child.answers(3);
  assert.equal(answers["3"].error, "Error: no handler for the stream 'others'");
  assert.equal(answers["1"].error, 'orders {"raw":{"type":"Buffer","data":[0,255]}}undefined');
  assert.ok(answers["2"].error.startsWith('refunds {"data":"xxx'), answers["2"].error.slice(0, 80));
  assert.equal(await child.close(), 0);
});

test("cancelled messages are aborted", async () => {
  const child = new Child(`
    handler((message) => new Promise((resolve, reject) => {
      console.log("begun", message.id);
      message.signal.addEventListener("abort", () => reject(new Error("aborted")));
    }));`);
  child.send(message("1"), message("2"));
  await child.printed("begun 2");
  child.send({ cancel: "1" }, { cancel: "unknown" });
  assert.deepEqual(await child.answer(), { id: "1", outcome: "retry", error: "Error: aborted", error_type: "Error" });
  child.send({ cancel: "2" });
  assert.equal((await child.answer()).id, "2");
  assert.equal(await child.close(), 0);
});

test("an error that nothing caught is logged with its message, and ends the process", async () => {
  for (const [fails, error] of [
    ["setTimeout(() => { throw new RangeError('stray'); }, 10)", "RangeError: stray"],
    ["Promise.reject(new TypeError('nobody waits'))", "TypeError: nobody waits"],
    ["setTimeout(() => { throw 'a text'; }, 10)", "a text"],
  ]) {
    const child = new Child(`handler(async (message) => {
      if (message.has("bad")) ${fails};
      await new Promise((resolve) => setTimeout(resolve, 60_000));
    });`);
    child.send(message("1"), message("2", { bad: "1" }), message("3"));
    assert.equal(await child.answer(), null);
    assert.equal(await child.exited, 1);
    assert.equal(child.logs.length, 1, child.err);
    const [{ log, ...others }] = child.logs;
    assert.deepEqual(others, { level: "error", id: "2", error });
    assert.ok(log.includes(error), log);
  }
});

test("a program that is not ready reads no message", async () => {
  const child = new Child("onStart(async () => { throw new Error('no database'); }); handler(() => {});");
  child.send(message("1"));
  assert.equal(await child.answer(), null);
  assert.equal(await child.exited, 1);
  assert.equal(child.logs[0].error, "Error: no database");
});

const LIFE = `
  onStart(async () => console.log("start"));
  onStop(async () => console.log("stop"));
  setInterval(() => {}, 1000);
  handler(async (message) => {
    console.log("begin", Object.keys(process.env).filter((name) => name.startsWith("MILLSTREAM_")).join());
    await new Promise((resolve) => setTimeout(resolve, Number(message.text("ms"))));
    console.log("end");
  });`;

test("the end of input finishes messages", async () => {
  const child = new Child(LIFE);
  child.send(message("1", { ms: "100" }));
  assert.equal(await child.close(), 0);
  assert.equal(child.err, "start\nbegin \nend\nstop\n");
  assert.equal((await child.answer()).outcome, "ack");
});

test("SIGTERM stops", async () => {
  const child = new Child(LIFE);
  child.send(message("1", { ms: "60000" }));
  await child.printed("begin");
  child.process.kill("SIGTERM");
  assert.equal(await child.close(), 143);
  assert.equal(child.err, "start\nbegin \nstop\n");
});

test("an unknown version is refused", async () => {
  const child = new Child("handler(() => {});", { MILLSTREAM_CHILD_PROTOCOL: "2" });
  assert.equal(await child.close(), 2);
  assert.ok(child.err.includes("knows version 1 of the child protocol, not '2'"), child.err);
});

/** Runs a program that starts the worker: here a program that prints its arguments. */
function start(code, args = [], environment = {}) {
  const { folder, file } = script(code);
  const binary = path.join(folder, "millstream");
  fs.writeFileSync(binary, "#!/bin/sh\nprintf '%s\\n' \"$@\"\necho \"URL $MILLSTREAM_URL\" >&2\nexit 7\n", { mode: 0o755 });
  const env = { ...process.env, PATH: `${folder}:/usr/bin:/bin`, MILLSTREAM_BIN: "", ...environment };
  const done = spawnSync(process.execPath, ["--no-deprecation", file, ...args], { env, encoding: "utf8" });
  return { code: done.status, lines: done.stdout.trimEnd().split("\n"), err: done.stderr };
}

test("options become arguments", () => {
  const code = `handler(["orders", "it's"], () => {});
    run({ group: "billing", maxAttempts: 3, untilEmpty: true, quiet: false, dlq: null, header: ["a", "b"] });`;
  const { code: exit, lines, err } = start(code, ["-c4", "--max-attempts", "5", "it's"]);
  assert.equal(exit, 7, err);
  const child = lines.pop();
  const given = ["--group=billing", "--until-empty", "--header=a", "--header=b"];
  const defaults = ["--stream=orders", "--stream=it's", "--pipeline=64"];
  assert.deepEqual(lines, ["work", "--until-stdin-ends", ...given, ...defaults, "-c4", "--max-attempts", "5", "it's"]);
  assert.match(child, /^--child=export MILLSTREAM_CHANNEL=3,4; exec \S+ --no-deprecation \S+worker.js -c4 /);
  assert.ok(child.endsWith(`'it'"'"'s' 3<&0 4>&1 </dev/null >&2`), child);
});

test("a URL is not on the command line", () => {
  const code = "handler('orders', () => {}); run({ url: 'redis://:secret@host', pipeline: 1, concurrency: 1 });";
  const { lines, err } = start(code);
  assert.equal(err, "URL redis://:secret@host\n");
  assert.deepEqual(lines.slice(1, -1), ["--until-stdin-ends", "--pipeline=1", "--concurrency=1", "--stream=orders"]);
  assert.deepEqual(start(code, ["--url", "redis://other"]).lines.slice(5, -1), ["--url", "redis://other"]);
});

test("the program is found, or the error says how", () => {
  const code = "handler(() => {}); run();";
  const missing = start(code, [], { PATH: "/none" });
  assert.equal(missing.code, 127);
  assert.match(missing.err, /^millstream: cannot find the program 'millstream' on the PATH: .* MILLSTREAM_BIN/);
  const wrong = start(code, [], { MILLSTREAM_BIN: "/none/millstream" });
  assert.equal(wrong.code, 127);
  assert.equal(wrong.err, "millstream: cannot find the program '/none/millstream', which MILLSTREAM_BIN names\n");
  assert.equal(start("handler(() => {}); run({ millstream: '/bin/echo' });").code, 0);
});

test("mistakes are reported", () => {
  for (const [code, error] of [
    ["run()", "run() without a handler"],
    ["handler(() => {}); handler(() => {});", "two handlers for all streams"],
    ["handler('x', () => {}); handler('x', () => {});", "two handlers for the stream 'x'"],
    ["handler(7, () => {})", "expected names of streams"],
    ["handler('x')", "expected a function"],
  ]) {
    const { code: exit, err } = start(code);
    assert.ok(exit === 1 && err.includes(error), err);
  }
});

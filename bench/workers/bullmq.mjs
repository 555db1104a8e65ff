// Measures a BullMQ worker whose processor does nothing: jobs per second and CPU time per job.
//
//   node bullmq.mjs PORT JOBS CONCURRENCY
import { Queue, Worker } from "bullmq";

const [port, jobs, concurrency] = process.argv.slice(2).map(Number);
const connection = { host: "127.0.0.1", port, maxRetriesPerRequest: null };
const name = "bench";

const queue = new Queue(name, { connection });
await queue.obliterate({ force: true });
for (let added = 0; added < jobs; added += 1000) {
  const count = Math.min(1000, jobs - added);
  const job = { name: "order", data: { order: "12345678" }, opts: { removeOnComplete: true } };
  await queue.addBulk(Array.from({ length: count }, () => job));
}

const worker = new Worker(name, async () => {}, { connection, concurrency, autorun: false });
await worker.waitUntilReady();
let done = 0;
const finished = new Promise((resolve, reject) => {
  worker.on("completed", () => ++done === jobs && resolve());
  worker.on("error", reject);
});
const [began, processor] = [process.hrtime.bigint(), process.cpuUsage()];
worker.run();
await finished;
const seconds = Number(process.hrtime.bigint() - began) / 1e9;
const spent = process.cpuUsage(processor);
const each = (spent.user + spent.system) / jobs;
console.log(`${jobs} messages: ${Math.round(jobs / seconds)} messages/s, ${each.toFixed(2)} us of processor time each`);
await worker.close();
await queue.close();

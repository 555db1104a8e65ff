// Measures a plain ioredis consumer whose handler does nothing: messages per second and CPU time per message. It is the
// loop of bench/workers/tutorial_consumer.py: read a batch, handle, acknowledge one by one.
//
//   node tutorial_consumer.mjs PORT MESSAGES BATCH
import Redis from "ioredis";

const [port, messages, batch] = process.argv.slice(2).map(Number);
const [stream, group] = ["bench:tutorial", "bench"];
const client = new Redis(port);

await client.del(stream);
await client.xgroup("CREATE", stream, group, "0", "MKSTREAM");
for (let added = 0; added < messages; added += 1000) {
  const pipeline = client.pipeline();
  for (let n = added; n < Math.min(added + 1000, messages); n++) pipeline.xadd(stream, "*", "order", "12345678");
  await pipeline.exec();
}

let done = 0;
async function handle(message) {
  done += 1;
  return message.order;
}

const [began, processor] = [process.hrtime.bigint(), process.cpuUsage()];
while (done < messages) {
  const args = ["GROUP", group, "consumer-1", "COUNT", batch, "BLOCK", 1000, "STREAMS", stream, ">"];
  for (const [, entries] of (await client.xreadgroup(...args)) ?? []) {
    for (const [id, fields] of entries) {
      const message = {};
      for (let at = 0; at < fields.length; at += 2) message[fields[at]] = fields[at + 1];
      await handle(message);
      await client.xack(stream, group, id);
    }
  }
}
const seconds = Number(process.hrtime.bigint() - began) / 1e9;
const spent = process.cpuUsage(processor);
const each = (spent.user + spent.system) / messages;
console.log(`${messages} messages: ${Math.round(messages / seconds)} messages/s, ${each.toFixed(2)} us of processor time each`);
await client.del(stream);
client.disconnect();

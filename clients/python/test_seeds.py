"""Runs the programs of public tutorials unchanged, and checks the effect of each on the server.

Each program is written to a file and started. Port 6379 is redirected to the server under test
(redirect/sitecustomize.py). A program that runs without end is stopped when its effect is visible. XCLAIM IDLE sets the
idle time of entries, so that no test waits for a minute.

test_transcripts.py runs the transcripts of the tutorials. This suite deletes the keys that the tutorials use.
"""

import asyncio
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import redis
import redis.asyncio

import seeds
import target

HERE = pathlib.Path(__file__).resolve().parent
KEYS = ["tasks", "tasks:dlq", "jobs", "orders", "events:orders", "events:orders:dlq", "messageStream"]

# Each program, identified by a text that only this program contains.
CHECK_PENDING = "def check_pending("
CONSUMER = "def consume_messages("
PRODUCER = "def publish_task("
LOAD_BALANCER = "def consumer_worker("
RECOVERY = "def recover_pending_messages("
DEAD_LETTERS = "def move_to_dlq("
CONSUMER_NAME = "consumer_name = f\"{socket.gethostname()}-{os.getpid()}\""
GRACEFUL_SHUTDOWN = "def graceful_shutdown("
MONITOR_PENDING = "def monitor_pending("
IDEMPOTENT = "def process_message_idempotent("
BATCH = "count=10  # Process in batches of 10"
BACKLOG_CONNECTION = "# Connect to a local redis instance"
BACKLOG_CONSUMER = "check_backlog = True"
BACKLOG_CLAIMER = "claim = redis.xclaim("
ORDER_WORKER = "def process_orders("
GROUP_MANAGER = "class ConsumerGroupManager:"
POOL = "class ScalableConsumerPool:"
PENDING_HANDLER = "class PendingMessageHandler:"
AUTOSCALER = "class AutoScalingConsumerPool:"
MONITOR = "class ConsumerGroupMonitor:"
PROGRAMS = [value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str)]

# Shell lines of the tutorials that start programs. The tests start the same programs with the same arguments.
STARTED = ["python producer.py", "python consumer.py tasks workers consumer", "python worker.py --name worker-1"]

# The Go program needs go-redis, which only Go's module proxy has. Another client sends the same commands instead.
GO = ["type Database struct", "go Producer(ctx, client, i)", "func Producer("]


@unittest.skipUnless(seeds.present(), f"no tutorials in {seeds.FOLDER}")
class Tutorial(unittest.TestCase):
    def setUp(self):
        self.redis = redis.Redis(host=target.HOST, port=target.port(), decode_responses=True)
        self.addCleanup(self.redis.close)
        self.redis.delete(*KEYS)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, name, text, *arguments):
        (self.folder / name).write_text(text, encoding="utf-8")
        return self.again(name, *arguments)

    def again(self, name, *arguments):
        program = Program(self.folder, name, arguments)
        self.addCleanup(program.end)
        return program

    def entries(self, stream, count):
        return [self.redis.xadd(stream, {"task": f"number {number}"}) for number in range(count)]

    def old(self, stream, group, ids, consumer="crashed", deliveries=1, idle_ms=120_000):
        """Sets a long idle time for `ids`."""
        self.redis.xclaim(
            stream, group, consumer, 0, ids, idle=idle_ms, retrycount=deliveries, force=True, justid=True
        )

    def pending(self, stream, group):
        return self.redis.xpending(stream, group)["pending"]


class Program:
    """A running program of a tutorial."""

    def __init__(self, folder, name, arguments):
        environment = dict(os.environ, PYTHONPATH=str(HERE / "redirect"), PYTHONUNBUFFERED="1", PYTHONIOENCODING="utf-8")
        self._output = tempfile.TemporaryFile("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, name, *arguments],
            cwd=folder,
            env=environment,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def output(self):
        self._output.flush()
        with open(self._output.fileno(), encoding="utf-8", closefd=False) as file:
            file.seek(0)
            return file.read()

    def finished(self, seconds=60):
        """Waits until the program ends by itself, and returns its output."""
        code = self._process.wait(seconds)
        if code != 0:
            raise AssertionError(f"the program ended with {code}:\n{self.output()}")
        return self.output()

    def stopped(self):
        """Ends the program like Ctrl-C, and returns its output."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self.finished()

    def end(self):
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended already
        self._process.wait(10)
        self._output.close()


class Coverage(Tutorial):
    def test_every_block_is_run_or_listed_as_skipped(self):
        known = [*PROGRAMS, *STARTED, *GO]
        left = [
            str(block)
            for block in seeds.blocks()
            if not seeds.is_picture(block)
            and not seeds.is_transcript(block)
            and not any(marker in block.text for marker in known)
        ]
        self.assertEqual(left, [])
        for marker in [*PROGRAMS, *GO]:
            seeds.find(marker)


class FirstTutorial(Tutorial):
    """Producers, consumers, monitoring, recovery and dead letters as separate scripts."""

    def test_producer_and_three_consumers_share_the_tasks(self):
        consumers = [self.start("consumer.py", seeds.find(CONSUMER).text, "tasks", "workers", "consumer1")]
        consumers += [self.again("consumer.py", "tasks", "workers", f"consumer{number}") for number in (2, 3)]
        target.eventually(lambda: self.redis.exists("tasks"), "the consumers have created the group", 60)
        printed = self.start("producer.py", seeds.find(PRODUCER).text).finished()
        self.assertIn("Stream length: 8", printed)

        target.eventually(
            lambda: self.redis.xinfo_groups("tasks")[0]["entries-read"] == 8 and self.pending("tasks", "workers") == 0,
            "all tasks processed and acknowledged",
            60,
        )
        printed = [consumer.stopped() for consumer in consumers]
        self.assertEqual(sum(text.count("✓ Acknowledged") for text in printed), 8)
        self.assertEqual(sum("Created consumer group" in text for text in printed), 1)
        self.assertGreater(sum("✓ Acknowledged" in text for text in printed), 1, "more than one consumer worked")
        for text in printed:
            self.assertNotIn("error", text.lower())

    def test_check_pending(self):
        self.entries("tasks", 3)
        self.redis.xgroup_create("tasks", "workers", id="0")
        self.redis.xreadgroup("workers", "worker1", {"tasks": ">"}, count=2)
        self.redis.xreadgroup("workers", "worker2", {"tasks": ">"}, count=1)
        printed = self.start("check_pending.py", seeds.find(CHECK_PENDING).text).finished()
        self.assertIn("Total: 3", printed)
        self.assertIn("worker1: 2 messages", printed)
        self.assertIn("worker2: 1 messages", printed)
        self.assertEqual(printed.count("Deliveries: 1"), 3)

    def test_load_balancer(self):
        balancer = self.start("load_balancer.py", seeds.find(LOAD_BALANCER).text)
        target.eventually(lambda: "Started 4 consumers" in balancer.output(), "four consumers", 60)
        self.entries("jobs", 8)
        target.eventually(
            lambda: self.redis.xinfo_groups("jobs")[0]["entries-read"] == 8 and self.pending("jobs", "processors") == 0,
            "all jobs done",
            60,
        )
        target.eventually(lambda: balancer.output().count("✓ Done") == 8, "every job reported as done", 60)
        printed = balancer.output()
        worked = [number for number in (1, 2, 3, 4) if f"[worker-{number}] ✓ Done" in printed]
        self.assertGreater(len(worked), 1, "the jobs were shared")
        balancer.end()

    def test_recovery(self):
        ids = self.entries("tasks", 4)
        self.redis.xgroup_create("tasks", "workers", id="0")
        self.redis.xreadgroup("workers", "alive", {"tasks": ">"})
        self.old("tasks", "workers", ids[:3])
        recovery = self.start("recovery.py", seeds.find(RECOVERY).text)
        target.eventually(lambda: "Recovered 3 messages" in recovery.output(), "three messages recovered", 60)
        rows = self.redis.xpending_range("tasks", "workers", "-", "+", 10)
        self.assertEqual([(row["message_id"], row["consumer"]) for row in rows], [(ids[3], "alive")])

    def test_dead_letters(self):
        ids = self.entries("tasks", 3)
        self.redis.xgroup_create("tasks", "workers", id="0")
        self.redis.xreadgroup("workers", "worker1", {"tasks": ">"})
        self.old("tasks", "workers", ids[1:2], deliveries=3)
        printed = self.start("dlq_handler.py", seeds.find(DEAD_LETTERS).text).finished()
        self.assertIn("Moved 1 messages to DLQ", printed)
        ((_, dead),) = self.redis.xrange("tasks:dlq")
        self.assertEqual((dead["original_id"], dead["task"], dead["delivery_count"]), (ids[1], "number 1", "3"))
        self.assertEqual(self.pending("tasks", "workers"), 2)

    def test_the_best_practices(self):
        names = {}
        exec(seeds.find(CONSUMER_NAME).text, names)
        self.assertTrue(names["consumer_name"].endswith(f"-{os.getpid()}"))

        self.entries("tasks", 12)
        self.redis.xgroup_create("tasks", "workers", id="0")
        names = {"r": self.redis}
        exec(seeds.find(BATCH).text, names)
        self.assertEqual(len(names["message_ids"]), 10)
        self.assertEqual(self.pending("tasks", "workers"), 0)

        work = []
        names = {"do_work": lambda fields: work.append(fields) or True}
        exec(seeds.find(IDEMPOTENT).text, names)
        id = target.fresh("1-0")
        self.assertTrue(names["process_message_idempotent"](self.redis, id, {"n": "1"}))
        self.assertTrue(names["process_message_idempotent"](self.redis, id, {"n": "1"}))
        self.assertEqual(work, [{"n": "1"}])
        self.assertTrue(86_000 < self.redis.ttl(f"processed:{id}") <= 86_400)

    def test_monitoring_and_shutting_down(self):
        self.entries("tasks", 3)
        self.redis.xgroup_create("tasks", "workers", id="0")
        self.redis.xreadgroup("workers", "worker1", {"tasks": ">"})
        text = (
            "import redis, signal\nrunning = True\n"
            + seeds.find(MONITOR_PENDING).text
            + seeds.find(GRACEFUL_SHUTDOWN).text
            + "monitor_pending(redis.Redis(), 'tasks', 'workers', threshold=2)\n"
            + "signal.raise_signal(signal.SIGTERM)\nprint('running:', running)\n"
        )
        printed = self.start("monitor.py", text).finished()
        self.assertIn("WARNING: 3 pending messages (threshold: 2)", printed)
        self.assertIn("Finishing current message before shutdown...\nrunning: False", printed)


class SecondTutorial(Tutorial):
    """A Go producer, a Python consumer that begins with its pending entries, and a claimer."""

    NAMES = (
        "streamName, groupName, consumerName = 'messageStream', 'mygroup', 'consumer'\n"
        "def process_message(id):\n    print('processed', id)\n"
    )

    def test_producer_consumer_and_claimer(self):
        self.redis.xgroup_create("messageStream", "mygroup", id="0", mkstream=True)
        asyncio.run(self.produce(producers=1000, rounds=2))
        self.assertEqual(self.redis.xlen("messageStream"), 2000)

        # Entries that the consumer read before it crashed are still pending.
        self.redis.xreadgroup("mygroup", "consumer", {"messageStream": ">"}, count=5)
        connection = seeds.find(BACKLOG_CONNECTION).text
        consumer = self.start("consumer.py", self.NAMES + connection + seeds.find(BACKLOG_CONSUMER).text)
        target.eventually(
            lambda: self.redis.xinfo_groups("messageStream")[0]["entries-read"] == 2000
            and self.pending("messageStream", "mygroup") == 0,
            "everything consumed, the backlog included",
            30,
        )
        self.assertEqual(consumer.output().count("processed"), 2000)
        consumer.end()

        self.redis.xadd("messageStream", {"producer": 1, "serial": 3})
        ((_, ((id, _),)),) = self.redis.xreadgroup("mygroup", "crashed", {"messageStream": ">"})
        self.old("messageStream", "mygroup", [id])
        claimer = self.NAMES.replace("'consumer'", "'claimer'") + connection + seeds.find(BACKLOG_CLAIMER).text
        self.start("claimer.py", claimer)
        target.eventually(lambda: self.pending("messageStream", "mygroup") == 0, "the message claimed and done", 60)

    async def produce(self, producers, rounds):
        """Does the same as the Go program: a thousand producers share a pool of connections."""
        pool = redis.asyncio.BlockingConnectionPool(host=target.HOST, port=target.port(), max_connections=20, timeout=30)
        client = redis.asyncio.Redis(connection_pool=pool)

        async def producer(number):
            for serial in range(1, rounds + 1):
                await client.xadd("messageStream", {"producer": number, "serial": serial}, id="*")

        await asyncio.gather(*(producer(number) for number in range(1, producers + 1)))
        await client.aclose()
        await pool.disconnect()


class FourthTutorial(Tutorial):
    """A worker that is started three times under different names."""

    MAIN = (
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--name')\n"
        "process_orders(parser.parse_args().name)\n"
    )

    def test_three_workers(self):
        self.redis.xgroup_create("orders", "orderprocessors", id="$", mkstream=True)
        text = seeds.find(ORDER_WORKER).text + self.MAIN
        workers = [self.start("worker.py", text, "--name", "worker-1")]
        workers += [self.again("worker.py", "--name", f"worker-{number}") for number in (2, 3)]
        for number in range(30):
            self.redis.xadd("orders", {"customer": f"c{number}", "total": number})
        broken = self.redis.xadd("orders", {"customer": "without a total"})
        target.eventually(
            lambda: sum(worker.output().count("Processed:") for worker in workers) == 30, "thirty orders processed", 60
        )
        target.eventually(
            lambda: any(f"Failed to process {broken}" in worker.output() for worker in workers), "one failure", 60
        )
        rows = self.redis.xpending_range("orders", "orderprocessors", "-", "+", 10)
        self.assertEqual([row["message_id"] for row in rows], [broken])


class FifthTutorial(Tutorial):
    """Classes that build on each other: manager, consumer, pool, recovery, autoscaler, monitor.

    The blocks share one namespace, as they do on the page. The first one ends in a loop and runs in a thread.
    """

    STREAM, GROUP = "events:orders", "order-processors"

    @classmethod
    def setUpClass(cls):
        if not seeds.present():
            return
        runpy.run_path(str(HERE / "redirect" / "sitecustomize.py"))
        cls.names = {"__name__": "tutorial", "print": lambda *_: None}

    def run_block(self, marker):
        exec(compile(seeds.find(marker).text, marker, "exec"), self.names)

    def done(self):
        (group,) = self.redis.xinfo_groups(self.STREAM)
        return group["last-delivered-id"] == self.redis.xinfo_stream(self.STREAM)["last-generated-id"] and not group["pending"]

    def test_the_whole_page(self):
        names = self.names
        self.entries(self.STREAM, 25)
        threading.Thread(target=self.run_block, args=(GROUP_MANAGER,), daemon=True).start()
        target.eventually(lambda: "consumer" in names and self.redis.exists(self.STREAM), "the consumer runs")
        target.eventually(self.done, "all 25 consumed", 60)
        manager = names["manager"]
        self.assertEqual(manager.get_group_info()["pending"], 0)
        self.assertEqual([row["name"] for row in manager.get_consumers()], [names["consumer"].consumer_name])
        names["consumer"].stop()

        self.pool()
        self.pending_messages()
        self.autoscaler()
        self.monitor()

        manager.remove_consumer("worker-0")
        self.assertNotIn("worker-0", [row["name"] for row in manager.get_consumers()])
        manager.delete_group()
        self.assertEqual(self.redis.xinfo_groups(self.STREAM), [])

    def pool(self):
        self.run_block(POOL)
        pool = self.names["pool"]
        self.assertEqual([consumer.consumer_name for consumer in pool._consumers], ["worker-0", "worker-1"])
        self.entries(self.STREAM, 40)
        target.eventually(self.done, "the pool has consumed everything", 60)
        workers = {row["name"] for row in self.redis.xinfo_consumers(self.STREAM, self.GROUP)}
        self.assertTrue({f"worker-{number}" for number in range(8)} <= workers, workers)
        for consumer in pool._consumers:
            consumer.stop()

    def pending_messages(self):
        self.run_block(PENDING_HANDLER)
        ids = self.entries(self.STREAM, 3)
        self.old(self.STREAM, self.GROUP, ids[:1])
        self.old(self.STREAM, self.GROUP, ids[1:2], deliveries=4)
        handled = []
        handler = self.names["PendingMessageHandler"](redis.Redis(port=target.port()), self.STREAM, self.GROUP, "rescuer")
        self.assertEqual([row["message_id"] for row in handler.get_pending_messages()], ids[:2])
        handler.process_pending(lambda id, fields: handled.append((id, fields)))
        self.assertEqual(handled, [(ids[0], {"task": "number 0"})])
        self.assertEqual([fields for _, fields in self.redis.xrange(f"{self.STREAM}:dlq")], [{"task": "number 1"}])

        self.old(self.STREAM, self.GROUP, ids[2:])
        resilient = self.names["ResilientGroupConsumer"](redis.Redis(port=target.port()), self.STREAM, self.GROUP, "resilient")
        threading.Thread(target=resilient.consume, args=(lambda id, fields: handled.append((id, fields)),), daemon=True).start()
        target.eventually(lambda: (ids[2], {"task": "number 2"}) in handled, "recovered by the resilient consumer")
        resilient.stop()

    def autoscaler(self):
        with self.redis.pipeline(transaction=False) as pipe:
            for number in range(1200):
                pipe.xadd(self.STREAM, {"task": number})
            pipe.execute()
        self.run_block(AUTOSCALER)
        scaler = self.names["auto_pool"]
        scaler.check_interval = 0.2
        target.eventually(lambda: len(scaler.pool._consumers) > 2, "scaled up on lag")
        self.redis.xtrim(self.STREAM, maxlen=0, approximate=False)
        target.eventually(lambda: len(scaler.pool._consumers) == 2, "scaled down without lag", 60)
        scaler._running = False
        for consumer in scaler.pool._consumers:
            consumer.stop()

    def monitor(self):
        printed = []
        self.names["print"] = lambda *words: printed.append(" ".join(map(str, words)))
        self.run_block(MONITOR)
        # Consumers that are stopping may still print the entries that they finish.
        text = "\n".join(line for line in printed if not line.startswith("Processed:"))
        self.assertRegex(text, r"(?m)^Pending: \d+, Lag: -?\d+$")
        self.assertIn(f'redis_stream_length{{stream="{self.STREAM}"}} 0', text)
        self.assertIn(f'redis_consumer_pending{{group="{self.GROUP}",consumer="worker-0"}}', text)
        self.assertIsInstance(self.names["health"]["healthy"], bool)


if __name__ == "__main__":
    unittest.main()

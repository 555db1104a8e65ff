"""Tests of the package. They run programs with it as a worker does: over pipes, with signals.

python3 -m unittest discover sdk/python
"""

import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

import millstream
from millstream import Ack, Message, Reject, Retry, Skip

HERE = pathlib.Path(__file__).resolve().parent


def message(id, fields=None, **others):
    return {"id": id, "stream": "orders", "group": "billing", "attempt": 1, "fields": fields or {}, **others}


class Child:
    """A program that uses the package, started as a worker starts it."""

    def __init__(self, code, pipeline=1, **environment):
        self.folder = tempfile.TemporaryDirectory()
        script = pathlib.Path(self.folder.name, "worker.py")
        script.write_text("from millstream import *\n" + textwrap.dedent(code) + "\nrun()\n")
        variables = {
            **os.environ,
            "PYTHONPATH": str(HERE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MILLSTREAM_CHILD_PROTOCOL": "1",
            "MILLSTREAM_PIPELINE": str(pipeline),
            **environment,
        }
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            cwd=self.folder.name,
        )
        self.logs = []

    def send(self, *lines):
        text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def answer(self):
        """Returns the next answer, or None. Keeps the lines for the log of the worker."""
        while True:
            line = json.loads(self.process.stdout.readline() or b"null")
            if line is None or "log" not in line:
                return line
            self.logs.append(line)

    def answers(self, count):
        return {answer.pop("id"): answer for answer in (self.answer() for _ in range(count))}

    def close(self):
        """Closes standard input, waits for the end, and returns the exit code, the rest of the output and the errors."""
        out, err = self.process.communicate(timeout=60)
        self.folder.cleanup()
        return self.process.returncode, out.decode(), err.decode()


class Messages(unittest.TestCase):
    def test_fields_are_text_or_bytes(self):
        found = Message({"item": "book", "raw": b"\xff", "tags": ["a", b"\xfe"]})
        self.assertEqual((found["item"], found.bytes("item"), found.get("item")), ("book", b"book", "book"))
        self.assertEqual((found.bytes("raw"), found["tags"], found.all("tags")), (b"\xff", "a", ["a", b"\xfe"]))
        self.assertEqual((found.get("none"), found.all("none"), "none" in found), (None, [], False))
        with self.assertRaisesRegex(ValueError, r"message.bytes\('raw'\)"):
            found["raw"]
        with self.assertRaises(KeyError):
            found["none"]

    def test_a_handler_gets_the_trace_of_its_message(self):
        traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        child = Child("""
            @handler
            def handle(message):
                import logging
                logging.warning("noted")
                raise Reject(f"{message.traceparent} {message.tracestate}")
        """)
        for id, trace, found in [
            ("1-1", {"traceparent": traceparent, "tracestate": "foo=1"}, f"{traceparent} foo=1"),
            ("1-2", {}, "None None"),
        ]:
            child.send(message(id, **trace))
            self.assertEqual(child.answer(), {"id": id, "outcome": "reject", "error": found, "error_type": "Reject"})
        child.close()
        where, trace = "root: noted stream=orders attempt=1", " trace_id=4bf92f3577b34da6a3ce929d0e0e4736"
        warnings = [{"log": where + trace, "level": "warning", "id": "1-1"}, {"log": where, "level": "warning", "id": "1-2"}]
        self.assertEqual(child.logs, warnings)
        self.assertEqual(Message({}, traceparent=traceparent).traceparent, traceparent)

    def test_a_message_has_the_key_by_which_the_worker_orders(self):
        channel = millstream._Channel(0, 1)
        for sent, key in [({"key": "17"}, "17"), ({"key": {"hex": "ff"}}, b"\xff"), ({"key": ""}, ""), ({}, None)]:
            self.assertEqual(channel.parse(json.dumps(message("1-1", **sent)).encode()).key, key)

    def test_a_message_has_its_partition_and_the_fence_of_the_worker(self):
        channel = millstream._Channel(0, 1)
        parsed = channel.parse(json.dumps(message("1-1", partition=3, fence=1760000000000)).encode())
        self.assertEqual((parsed.partition, parsed.fence), (3, 1760000000000))
        self.assertEqual((Message({}).partition, Message({}).fence), (None, None))

    def test_outcomes_become_answers(self):
        after = datetime.timedelta(seconds=2)
        for outcome, answer in [
            (Ack(), {"outcome": "ack"}),
            (Skip(), {"outcome": "skip"}),
            (Reject("no amount"), {"outcome": "reject", "error": "no amount", "error_type": "Reject"}),
            (Reject(), {"outcome": "reject", "error_type": "Reject"}),
            (Retry(), {"outcome": "retry"}),
            (Retry("closed", after=0.25), {"outcome": "retry", "error": "closed", "error_type": "Retry", "after_ms": 250}),
            (Retry(after=after), {"outcome": "retry", "after_ms": 2000}),
            (Reject(KeyError("x")), {"outcome": "reject", "error": "KeyError: 'x'", "error_type": "KeyError"}),
            (Reject("x" * 20_000), {"outcome": "reject", "error": "x" * 10_000, "error_type": "Reject"}),
        ]:
            self.assertEqual(outcome._answer(), answer)
        with self.assertRaises(ValueError):
            Retry(after=-1)

    def test_the_metadata_of_the_package_agrees(self):
        sys.path.insert(0, str(HERE))
        import build_package

        project = (HERE / "pyproject.toml").read_text()
        declared = dict(re.findall(r'^([a-z-]+) = "(.*)"$', project, re.MULTILINE))
        built = dict(line.split(": ", 1) for line in build_package.metadata_lines())
        self.assertEqual(built["Name"], declared["name"])
        self.assertEqual(built["Version"], declared["version"])
        self.assertEqual(built["Summary"], declared["description"])
        self.assertEqual(built["License"], declared["license"])
        self.assertEqual(built["Requires-Python"], declared["requires-python"])
        self.assertEqual(millstream.__version__, declared["version"])


class Handlers(unittest.TestCase):
    CODE = """
        import asyncio

        @handler
        {define} handle(message):
            do = message.get("do")
            if do == "ack": return Ack()
            if do == "skip": return Skip
            if do == "reject": raise Reject("no amount")
            if do == "retry": return Retry("closed", after=1.5)
            if do == "fail": raise ConnectionError("the bank is closed")
            if do == "exit": raise SystemExit(3)
            if do == "seven": return 7
            print("printed by a handler")
            __import__("os").system("echo printed by a program")
    """
    ANSWERS = {
        "none": {"outcome": "ack"},
        "ack": {"outcome": "ack"},
        "skip": {"outcome": "skip"},
        "reject": {"outcome": "reject", "error": "no amount", "error_type": "Reject"},
        "retry": {"outcome": "retry", "error": "closed", "error_type": "Retry", "after_ms": 1500},
        "fail": {
            "outcome": "retry",
            "error": "ConnectionError: the bank is closed",
            "error_type": "ConnectionError",
        },
        "exit": {"outcome": "retry", "error": "SystemExit: 3", "error_type": "SystemExit"},
        "seven": {
            "outcome": "retry",
            "error": "TypeError: the handler returned int: expected None, Ack, Retry, Reject or Skip",
            "error_type": "TypeError",
        },
    }

    def test_results_and_exceptions_decide(self):
        for define, pipeline in [("def", 1), ("def", 4), ("async def", 8)]:
            child = Child(self.CODE.format(define=define), pipeline)
            answers = {}
            for do in self.ANSWERS:
                child.send(message(do, {"do": do}))
                answers.update(child.answers(1))
            self.assertEqual(answers, self.ANSWERS)
            code, out, err = child.close()
            self.assertEqual((code, out), (0, ""), err)
            for text in ["printed by a handler\n", "printed by a program\n"]:
                self.assertIn(text, err)
            self.assertEqual([log["id"] for log in child.logs], ["fail", "exit", "seven"])
            self.assertEqual(child.logs[0]["level"], "error")
            first, *_, last = child.logs[0]["log"].splitlines()
            self.assertEqual(first, "millstream: the handler failed stream=orders attempt=1")
            self.assertEqual(last, "ConnectionError: the bank is closed")

    def test_a_program_with_its_own_log_has_tracebacks_in_one_piece(self):
        child = Child("""
            import logging
            logging.basicConfig()
            @handler
            def handle(message): {}["none"]
        """)
        child.send(message("1-1"))
        self.assertEqual(child.answer()["error_type"], "KeyError")
        self.assertEqual(child.close(), (0, "", ""))
        self.assertIn("KeyError", child.logs[0]["log"])

    def test_a_program_that_is_not_ready_reads_no_message_and_says_why(self):
        for define, pipeline in [("def", 1), ("def", 4), ("async def", 8)]:
            child = Child(f"""
                @on_start
                {define} start(): raise ConnectionError("no database")
                @handler
                {define} handle(message): pass
            """, pipeline)
            child.send(message("1-1"))
            self.assertIsNone(child.answer())
            self.assertEqual(child.close(), (1, "", ""))
            [log] = child.logs
            self.assertEqual((log["level"], log["error"]), ("error", "ConnectionError: no database"))
            self.assertIn("Traceback (most recent call last):\n", log["log"])

    def test_a_program_that_fails_before_run_says_why_in_one_piece(self):
        child = Child("import no_such_module")
        child.send(message("1-1"))
        self.assertIsNone(child.answer())
        self.assertEqual(child.close(), (1, "", ""))
        [log] = child.logs
        self.assertEqual(log["error"], "ModuleNotFoundError: No module named 'no_such_module'")
        self.assertIn("Traceback (most recent call last):\n", log["log"])

    def test_several_messages_are_in_a_process_at_a_time(self):
        wait = """
            import asyncio, threading
            barrier = threading.Barrier(3)

            @handler("threads")
            def wait(message):
                barrier.wait(timeout=60)
        """
        together = """
            seen = []

            @handler("tasks")
            async def wait(message):
                seen.append(message.id)
                while len(seen) < 3: await asyncio.sleep(0.01)
        """
        for code, stream in [(wait, "threads"), (textwrap.dedent(wait) + textwrap.dedent(together), "tasks")]:
            child = Child(code, pipeline=3)
            child.send(*(message(str(n), stream=stream) for n in range(3)))
            self.assertEqual(child.answers(3), {str(n): {"outcome": "ack"} for n in range(3)})
            self.assertEqual(child.close()[0], 0)

    def test_handlers_are_chosen_by_stream(self):
        child = Child(
            """
            @handler("orders", "refunds")
            def known(message): raise Reject("known")
            """
        )
        child.send("", '{"unknown": 1}', message("1"), message("2", stream="refunds"), message("3", stream="others"))
        found = [child.answer().get("error") for _ in range(3)]
        self.assertEqual(found, ["known", "known", "LookupError: no handler for the stream 'others'"])
        child.close()

    def test_binary_and_repeated_values(self):
        child = Child("@handler\ndef show(message): raise Reject(repr(message.fields))")
        child.send(message("1", {"a": {"hex": "00ff"}, "b": ["x", {"hex": "fe"}], "c": "é"}))
        self.assertEqual(child.answer()["error"], repr({"a": b"\x00\xff", "b": ["x", b"\xfe"], "c": "é"}))
        child.close()

    def test_long_lines_arrive_whole(self):
        for define in ["def", "async def"]:
            child = Child(f"@handler\n{define} size(message): raise Reject(str(len(message['data'])))")
            child.send(message("1", {"data": "x" * 3_000_000}))
            self.assertEqual(child.answer()["error"], "3000000")
            child.close()

    def test_cancelled_messages(self):
        code = """
            import asyncio, time

            @handler
            {define} forever(message):
                print(f"begun {{message.id}}\\n", end="")
                while not message.cancelled: {wait}
                raise Retry("noticed")
        """
        for define, wait, error in [
            ("async def", "await asyncio.sleep(60)", "asyncio.exceptions.CancelledError"),
            ("def", "time.sleep(0.01)", "noticed"),
        ]:
            child = Child(code.format(define=define, wait=wait), pipeline=2)
            child.send(message("1"), message("2"))
            while child.process.stderr.readline().strip() != b"begun 2":
                pass
            child.send({"cancel": "1"}, {"cancel": "unknown"})
            answer = child.answer()
            self.assertEqual((answer["id"], answer["error"]), ("1", error))
            child.send({"cancel": "2"})
            self.assertEqual(child.answer()["id"], "2")
            self.assertEqual(child.close()[0], 0)


class LifeCycle(unittest.TestCase):
    CODE = """
        import asyncio, time

        @on_start
        {define} start(): print("start")

        @on_stop
        {define} stop(): print("stop")

        @handler
        {define} handle(message):
            try:
                print("begin")
                {wait}
            finally:
                print("finally")
    """

    def test_the_end_of_input_finishes_messages(self):
        for define, wait in [("def", "time.sleep(0.2)"), ("async def", "await asyncio.sleep(0.2)")]:
            child = Child(self.CODE.format(define=define, wait=wait), pipeline=2)
            child.send(message("1"), message("2"))
            code, out, err = child.close()
            self.assertEqual((code, out.count("ack")), (0, 2), err)
            # The lines of two threads can be mixed.
            lines = re.findall("start|begin|finally|stop", err)
            self.assertEqual(sorted(lines[1:-1]), ["begin", "begin", "finally", "finally"], err)
            self.assertEqual(lines[:: len(lines) - 1], ["start", "stop"], err)

    def test_sigterm_unwinds_and_stops(self):
        # close() also ends the input, as a worker does that stops a program.
        for define, wait in [("def", "time.sleep(60)"), ("async def", "await asyncio.sleep(60)")]:
            child = Child(self.CODE.format(define=define, wait=wait))
            child.send(message("1"))
            lines = [child.process.stderr.readline() for _ in range(2)]
            self.assertEqual(lines, [b"start\n", b"begin\n"])
            child.process.send_signal(signal.SIGTERM)
            code, _, err = child.close()
            self.assertEqual((code, err.split()), (143, ["finally", "stop"]))

    def test_sigterm_does_not_wait_for_threads(self):
        child = Child(self.CODE.format(define="def", wait="time.sleep(60)"), pipeline=2)
        child.send(message("1"))
        [child.process.stderr.readline() for _ in range(2)]
        child.process.send_signal(signal.SIGTERM)
        self.assertEqual(child.close()[::2], (143, "stop\n"))

    def test_the_variables_are_not_inherited(self):
        child = Child("@handler\ndef show(message): raise Reject(' '.join(__import__('os').environ))")
        child.send(message("1"))
        self.assertNotIn("MILLSTREAM_", child.answer()["error"])
        child.close()

    def test_an_unknown_version_is_refused(self):
        child = Child("@handler\ndef nothing(message): pass", MILLSTREAM_CHILD_PROTOCOL="2")
        code, _, err = child.close()
        self.assertEqual((code, "knows version 1 of the child protocol, not '2'" in err), (2, True))


class Start(unittest.TestCase):
    """How run() starts the worker: here a program that prints its arguments."""

    def run_script(self, code, *arguments, **environment):
        with tempfile.TemporaryDirectory() as folder:
            binary = pathlib.Path(folder, "millstream")
            binary.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\necho \"URL $MILLSTREAM_URL\" >&2\nexit 7\n")
            binary.chmod(0o755)
            script = pathlib.Path(folder, "worker.py")
            script.write_text("from millstream import *\n" + textwrap.dedent(code))
            variables = {**os.environ, "PYTHONPATH": str(HERE), "PATH": f"{folder}:/usr/bin:/bin", **environment}
            if "MILLSTREAM_BIN" not in environment:
                variables.pop("MILLSTREAM_BIN", None)
            command = [sys.executable, "-W", "error", str(script), *arguments]
            done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=folder)
            return done.returncode, done.stdout.splitlines(), done.stderr

    def test_options_become_arguments(self):
        code, arguments, err = self.run_script(
            """
            @handler("orders", "refunds")
            def handle(message): pass
            run(group="billing", max_attempts=3, until_empty=True, quiet=False, from_="latest", concurrency=2, dlq=None)
            """,
            "-c4",
            "--max-attempts",
            "5",
        )
        self.assertEqual(code, 7, err)
        *first, child = arguments
        streams = ["--stream=orders", "--stream=refunds"]
        options = ["--group=billing", "--until-empty", "--from=latest", *streams]
        self.assertEqual(first, ["work", *options, "-c4", "--max-attempts", "5"])
        self.assertTrue(child.startswith("--child=export MILLSTREAM_CHANNEL=3,4; exec "), child)
        self.assertRegex(child, r" -Werror \S+/worker.py -c4 --max-attempts 5 3<&0 4>&1 </dev/null >&2$")

    def test_async_handlers_get_several_messages(self):
        define = "@handler\nasync def handle(message): pass\nrun(stream=['a', 'b'])\n"
        for given, expected in [
            ((), ["--pipeline=64", "--concurrency=64"]),
            (("--autoscale=1..8",), ["--pipeline=64"]),
            (("--pipeline", "3", "--concurrency", "9"), []),
        ]:
            _, arguments, err = self.run_script(define, *given)
            self.assertEqual(arguments[1:-1], ["--stream=a", "--stream=b", *expected, *given], err)

    def test_the_program_is_found_or_the_error_says_how(self):
        define = "@handler\ndef handle(message): pass\n"
        code, _, err = self.run_script(define + "run()", PATH="/none")
        self.assertEqual(code, 127)
        self.assertRegex(err, r"^millstream: cannot find the program 'millstream' on the PATH: .* MILLSTREAM_BIN")
        code, _, err = self.run_script(define + "run()", MILLSTREAM_BIN="/none/millstream")
        self.assertEqual(code, 127)
        self.assertEqual(err, "millstream: cannot find the program '/none/millstream', which MILLSTREAM_BIN names\n")
        code, arguments, _ = self.run_script(define + "run(millstream='/bin/echo')", MILLSTREAM_BIN="/none")
        self.assertEqual((code, arguments[0].split()[0]), (0, "work"))

    def test_a_url_is_not_on_the_command_line(self):
        define = "@handler\ndef handle(message): pass\nrun(url='redis://:secret@host')"
        _, arguments, err = self.run_script(define)
        self.assertEqual((arguments[1:-1], err), ([], "URL redis://:secret@host\n"))
        _, arguments, _ = self.run_script(define, "--url", "redis://other")
        self.assertEqual(arguments[1:-1], ["--url", "redis://other"])

    def test_mistakes_are_reported(self):
        for code, error in [
            ("run()", "run() without a handler"),
            ("@handler\ndef a(m): pass\n@handler\ndef b(m): pass", "two handlers for all streams"),
            ("@handler('x')\ndef a(m): pass\n@handler('x')\ndef b(m): pass", "two handlers for the stream 'x'"),
            ("handler(7)", "handler(7): expected names of streams"),
        ]:
            code, _, err = self.run_script(code)
            self.assertEqual((code, error in err), (1, True), err)


if __name__ == "__main__":
    unittest.main()

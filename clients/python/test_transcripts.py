"""Runs redis-cli sessions on the server under test and on a real redis-server. Both must print the same text.

The reference server listens on MILLSTREAM_REFERENCE_PORT. Our own sessions are in clients/transcripts, one command per
line, with explicit ids. Other sessions come from the code blocks of the tutorials. The outputs are compared in several
formats of redis-cli.
"""

import os
import pathlib
import re
import subprocess
import unittest

import redis

import cli
import seeds
import target

TRANSCRIPTS = pathlib.Path(__file__).resolve().parents[1] / "transcripts"


def reference_port():
    value = os.environ.get("MILLSTREAM_REFERENCE_PORT")
    if not value:
        raise unittest.SkipTest("MILLSTREAM_REFERENCE_PORT is not set: no server to compare with")
    return int(value)


def lines_of(path):
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def units(lines):
    """Yields single lines, and a transaction as one unit, because its commands only return QUEUED."""
    unit = []
    for line in lines:
        unit.append(line)
        if unit[0] != "MULTI" or line in ("EXEC", "DISCARD"):
            yield "\n".join(unit)
            unit = []


class Comparison(unittest.TestCase):
    def setUp(self):
        self.reference = reference_port()
        for port in (self.reference, target.port()):
            with redis.Redis(host=target.HOST, port=port) as connection:
                connection.flushall()

    def compare(self, lines, mode):
        """Runs the lines on both servers and fails at the first difference."""
        options = cli.MODES[mode]
        with cli.Session(self.reference, options) as expected, cli.Session(target.port(), options) as found:
            normal = cli.Normal(), cli.Normal()
            last_id = ["0-0", "0-0"]
            for line in units(lines):
                printed = []
                for place, session in enumerate((expected, found)):
                    text = session.run(line.replace(seeds.MESSAGE_ID, last_id[place]))
                    last_id[place] = (re.findall(r"\d{13}-\d+", text) or [last_id[place]])[-1]
                    printed.append(cli.modernised(line, normal[place].text(line, text)))
                self.assertEqual(printed[0], printed[1], f"\n{mode}: {line}")


class Ours(Comparison):
    def test_every_session_in_every_format(self):
        paths = sorted(TRANSCRIPTS.glob("*.txt"))
        self.assertTrue(paths)
        for path in paths:
            for mode in cli.MODES:
                with self.subTest(session=path.name, mode=mode):
                    self.setUp()
                    self.compare(lines_of(path), mode)


class Tools(Comparison):
    """The special modes of redis-cli: --pipe, --scan, --bigkeys, -r, -x."""

    def both(self, *arguments, typed=None):
        """Returns the output of redis-cli with `arguments` on the reference server and on the server under test."""
        return [
            subprocess.run(
                ["redis-cli", "-h", target.HOST, "-p", str(port), *arguments],
                input=typed,
                capture_output=True,
                check=True,
                timeout=30,
            ).stdout.decode("latin-1")
            for port in (self.reference, target.port())
        ]

    def fill(self):
        for port in (self.reference, target.port()):
            with redis.Redis(host=target.HOST, port=port) as connection:
                for number in range(1, 31):
                    connection.xadd(f"stream:{number % 3}", {"n": number}, id=f"{number}-0")
                connection.set("text", "hello")
                connection.hset("hash", "field", "value")

    def test_mass_insertion(self):
        commands = b"".join(
            b"*5\r\n$4\r\nXADD\r\n$4\r\nbulk\r\n$%d\r\n%s\r\n$1\r\nn\r\n$1\r\nx\r\n" % (len(id), id)
            for id in (b"%d-0" % number for number in range(1, 10_001))
        )
        expected, found = self.both("--pipe", typed=commands)
        self.assertIn("errors: 0, replies: 10000", expected)
        self.assertEqual(expected, found)
        self.assertEqual(self.both("XLEN", "bulk"), ["10000\n", "10000\n"])

    def test_scanning(self):
        self.fill()
        for options in ((), ("--pattern", "stream:*")):
            expected, found = self.both("--scan", *options)
            self.assertEqual(sorted(expected.split()), sorted(found.split()), options)

    def test_big_keys(self):
        self.fill()
        # If several keys have the same size, the biggest depends on the order of SCAN. The totals do not.
        expected, found = (
            [line for line in text.splitlines() if re.match(r"\d+ \w+ with", line)] for text in self.both("--bigkeys")
        )
        self.assertIn("3 streams with 30 entries (60.00% of keys, avg size 10.00)", expected)
        self.assertEqual(expected, found)

    def test_repeating_and_choosing_a_database(self):
        self.assertEqual(*self.both("-r", "3", "-i", "0.01", "INCR", "counter"))
        self.assertEqual(*self.both("-n", "1", "DBSIZE"))
        self.assertEqual(*self.both("-x", "XADD", "from-stdin", "1-0", "body", typed=b"line one\nline two\n"))
        self.assertEqual(*self.both("XRANGE", "from-stdin", "-", "+"))


class Tutorials(Comparison):
    def test_every_transcript_of_the_tutorials(self):
        if not seeds.present():
            self.skipTest(f"no tutorials in {seeds.FOLDER}")
        transcripts = [block for block in seeds.blocks() if seeds.is_transcript(block)]
        self.assertGreater(len(transcripts), 30)
        for file in sorted({block.file for block in transcripts}):
            lines = [line for block in transcripts if block.file == file for line in seeds.commands(block)]
            for mode in ("piped", "terminal"):
                with self.subTest(file=file, mode=mode):
                    self.setUp()
                    self.compare(lines, mode)


if __name__ == "__main__":
    unittest.main()

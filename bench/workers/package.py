#!/usr/bin/env python3
"""Measures a worker with one of the packages in sdk/ whose handler does nothing: messages per second and CPU time per
message.

    package.py PORT MESSAGES BINARY KIND

KIND is python (plain function), python-threads, python-async or node. The time is that from the first delivery to the
last acknowledgement, so it includes the start of the process that runs the handler. The CPU time is that of the worker
and of this process together.
"""

import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

import redis

STREAM, GROUP = "bench:package", "bench"
SDK = pathlib.Path(__file__).resolve().parents[2] / "sdk"

PYTHON = """
from millstream import handler, run

@handler
{define} handle(message):
    message["order"]

run()
"""
NODE = f"""
const {{ handler, run }} = require({str(SDK / "node")!r});
handler(async (message) => {{
  message.text("order");
}});
run();
"""
# The program, and the options of the worker: each kind has one process.
KINDS = {
    "python": (PYTHON.format(define="def"), ["-c", "1"]),
    "python-threads": (PYTHON.format(define="def"), ["-c", "8", "--pipeline", "8"]),
    "python-async": (PYTHON.format(define="async def"), []),
    "node": (NODE, []),
}


def main():
    port, messages, binary, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    client = redis.Redis(port=int(port), protocol=2)
    client.delete(STREAM)
    for start in range(0, messages, 1000):
        pipeline = client.pipeline(transaction=False)
        for _ in range(start, min(start + 1000, messages)):
            pipeline.xadd(STREAM, {"order": "12345678"})
        pipeline.execute()
    client.xgroup_create(STREAM, GROUP, id="0")

    text, options = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "worker.py"] if kind.startswith("python") else ["node", "worker.js"]
        pathlib.Path(folder, program[1]).write_text(text)
        url = f"redis://127.0.0.1:{port}"
        command = [*program, "--stream", STREAM, "--group", GROUP, "--url", url, "--quiet", *options]
        environment = {**os.environ, "MILLSTREAM_BIN": binary, "PYTHONPATH": str(SDK / "python")}
        worker = subprocess.Popen(command, cwd=folder, env=environment)
        wait(client, lambda group: group["last-delivered-id"] != b"0-0")
        began = time.perf_counter()
        last = client.xrevrange(STREAM, count=1)[0][0]
        wait(client, lambda group: group["last-delivered-id"] == last and group["pending"] == 0)
        rate = messages / (time.perf_counter() - began)
        worker.send_signal(signal.SIGTERM)
        if worker.wait() != 0:
            sys.exit(f"the worker ended with {worker.returncode}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    each = (used.ru_utime + used.ru_stime) * 1e6 / messages
    print(f"{messages} messages: {rate:.0f} messages/s, {each:.2f} us of processor time each")
    client.delete(STREAM)


def wait(client, is_reached):
    while not is_reached(client.xinfo_groups(STREAM)[0]):
        time.sleep(0.005)


if __name__ == "__main__":
    main()

"""The address of the server under test, and functions that the suites share.

MILLSTREAM_TEST_PORT is the port, and MILLSTREAM_TEST_HOST the host (default 127.0.0.1). If MILLSTREAM_TEST_CA names an
authority's certificate, the suites use TLS, with a client certificate if MILLSTREAM_TEST_CERT and MILLSTREAM_TEST_KEY
name one. Every test uses its own keys, so suites can share a server, and the server need not be empty.
"""

import os
import re
import sys
import threading
import time
import uuid

import redis

HOST = os.environ.get("MILLSTREAM_TEST_HOST", "127.0.0.1")
PROTOCOLS = (2, 3)
# Default timeout in seconds; generous, for busy machines.
PATIENCE = 60


def port():
    value = os.environ.get("MILLSTREAM_TEST_PORT")
    if not value:
        sys.exit("set MILLSTREAM_TEST_PORT to the port of the server under test")
    return int(value)


def tls():
    """Returns the options for TLS."""
    authority = os.environ.get("MILLSTREAM_TEST_CA")
    if not authority:
        return {}
    certificate, key = os.environ.get("MILLSTREAM_TEST_CERT"), os.environ.get("MILLSTREAM_TEST_KEY")
    return dict(ssl=True, ssl_ca_certs=authority, ssl_certfile=certificate, ssl_keyfile=key)


def options(protocol, **more):
    """Returns connection options. Replies have the same shape in both protocols."""
    return dict(
        host=HOST,
        port=port(),
        protocol=protocol,
        decode_responses=True,
        legacy_responses=False,
        socket_timeout=20,
        **tls(),
        **more,
    )


def client(protocol=3, **more):
    return redis.Redis(**options(protocol, **more))


def fresh(name):
    """Returns a key that no other test and no earlier run has used."""
    return f"{name}:{uuid.uuid4().hex[:10]}"


def version():
    """Returns the Redis version that the server reports, as (major, minor)."""
    with client() as connection:
        text = connection.info("server")["redis_version"]
    return tuple(int(part) for part in re.match(r"(\d+)\.(\d+)", text).groups())


def eventually(condition, what, seconds=PATIENCE):
    """Waits until `condition()` is true and returns its value."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {what}")


def blocked_clients(connection):
    return connection.info("clients")["blocked_clients"]


class Background:
    """Runs a call in a thread. `result()` returns its value or raises its exception."""

    def __init__(self, call):
        self._outcome = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call):
        try:
            self._outcome = ("value", call())
        except Exception as error:  # raised again by result()
            self._outcome = ("error", error)

    def result(self, seconds=PATIENCE):
        self._thread.join(seconds)
        if self._outcome is None:
            raise AssertionError(f"the call has not returned within {seconds} s")
        kind, value = self._outcome
        if kind == "error":
            raise value
        return value

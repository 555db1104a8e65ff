"""A plain RESP connection without the conversions of a client library.

For tests that check the order of fields, the kind of a null, or commands that no client library sends.
"""

import socket

import target


class ErrorReply(Exception):
    """An error reply of the server; its text is the whole line."""


class Pairs(list):
    """A RESP3 map, in the order of the reply."""


class Wire:
    def __init__(self, port=None):
        self._socket = socket.create_connection((target.HOST, port or target.port()), timeout=20)
        self._file = self._socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._file.close()
        self._socket.close()

    def call(self, *arguments):
        self.send(*arguments)
        return self.reply()

    def send(self, *arguments):
        parts = [str(part).encode() if not isinstance(part, bytes) else part for part in arguments]
        frame = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        self._socket.sendall(frame)

    def reply(self):
        value = self._read()
        if isinstance(value, ErrorReply):
            raise value
        return value

    def _read(self):
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, text = line[:1], line[1:-2].decode()
        if kind == b"+":
            return text
        if kind == b"-":
            return ErrorReply(text)
        if kind == b":":
            return int(text)
        if kind == b"_":
            return None
        if kind == b"#":
            return text == "t"
        if kind == b",":
            return float(text)
        if kind in (b"$", b"="):
            return self._bulk(int(text), verbatim=kind == b"=")
        if kind in (b"*", b"~", b">"):
            return None if text == "-1" else [self._read() for _ in range(int(text))]
        if kind == b"%":
            return Pairs((self._read(), self._read()) for _ in range(int(text)))
        raise ValueError(f"not a reply: {line!r}")

    def _bulk(self, length, verbatim):
        if length < 0:
            return None
        payload = self._file.read(length + 2)[:-2].decode(errors="replace")
        return payload[4:] if verbatim else payload

"""Handlers for Millstream workers.

    from millstream import Message, Reject, handler, run

    @handler
    def charge(message: Message) -> None:
        if "amount" not in message:
            raise Reject("the order has no amount")
        print("charging", message["amount"])

    if __name__ == "__main__":
        run(stream="orders", group="billing")

``python worker.py`` replaces itself with ``millstream work``, which starts this program again, once or several times,
and sends it messages over the protocol of docs/workers/child-protocol.md. So a signal to the process reaches the worker,
and its exit code is the worker's.
"""

from __future__ import annotations

import asyncio
import contextvars
import datetime
import inspect
import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import (
    Any,
    Awaitable,
    BinaryIO,
    Callable,
    Dict,
    Iterable,
    List,
    NoReturn,
    Optional,
    Sequence,
    Set,
    Tuple,
    Type,
    TypeVar,
    Union,
    overload,
)

__version__ = "0.1.0"
__all__ = [
    "Ack",
    "Message",
    "Outcome",
    "Reject",
    "Retry",
    "Skip",
    "current_message",
    "handler",
    "on_start",
    "on_stop",
    "run",
]

#: A value of a field: text, or bytes if it is not UTF-8.
Value = Union[str, bytes]

_PROTOCOL = "1"
_PROTOCOL_VARIABLE = "MILLSTREAM_CHILD_PROTOCOL"
_PIPELINE_VARIABLE = "MILLSTREAM_PIPELINE"
# Set by run() for the programs that it lets the worker start: the descriptors of the protocol.
_CHANNEL_VARIABLE = "MILLSTREAM_CHANNEL"
_BINARY_VARIABLE = "MILLSTREAM_BIN"
_URL_VARIABLE = "MILLSTREAM_URL"

# Messages that one process with async handlers has at a time, unless an option says otherwise.
_ASYNC_PIPELINE = 64
# The worker refuses answers of more than 1 MiB.
_ERROR_CHARACTERS_MAX = 10_000
_LOG_CHARACTERS_MAX = 50_000
# A program that gets SIGTERM is killed a second later.
_STOP_SECONDS = 0.7

_log = logging.getLogger("millstream")


# --- Messages and outcomes ---


class Message:
    """A message of a stream.

    ``message["name"]`` is the text of a field. A test can make a message: ``Message({"amount": "17"})``.
    """

    __slots__ = ("id", "stream", "group", "attempt", "key", "partition", "fence", "fields", "traceparent", "tracestate", "_cancelled")

    def __init__(
        self,
        fields: Dict[str, Union[Value, List[Value]]],
        *,
        id: str = "0-1",
        stream: str = "",
        group: str = "",
        attempt: int = 1,
        key: Optional[Value] = None,
        partition: Optional[int] = None,
        fence: Optional[int] = None,
        traceparent: Optional[str] = None,
        tracestate: Optional[str] = None,
    ) -> None:
        #: The id of the entry.
        self.id = id
        #: The stream and the group from which it was read.
        self.stream = stream
        self.group = group
        #: 1 for the first attempt.
        self.attempt = attempt
        #: The key by which a worker with ``--order-by`` orders messages. None if the message has none.
        self.key = key
        #: The number of the partition from which it was read. None if the stream has no partitions.
        self.partition = partition
        #: The number of the worker as the owner of the stream, greater than that of every earlier owner. None if no worker owns it.
        self.fence = fence
        #: All fields. The value of a name that occurs more than once is a list.
        self.fields = fields
        #: The trace of the message and the span of this attempt, to pass on to what the handler calls (W3C Trace
        #: Context). None if the message belongs to no trace.
        self.traceparent = traceparent
        self.tracestate = tracestate
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether the worker no longer needs the outcome: the message exceeded ``--timeout``, or the worker lost it.

        A long handler that is not async should check this from time to time. The task of an async handler is cancelled.
        """
        return self._cancelled

    def all(self, name: str) -> List[Value]:
        """Returns all values of a field. Empty if the message does not have it."""
        value = self.fields.get(name, [])
        return value if isinstance(value, list) else [value]

    def bytes(self, name: str) -> bytes:
        """Returns the first value of a field as bytes. KeyError if the message does not have it."""
        value = self._first(name)
        return value.encode() if isinstance(value, str) else value

    def get(self, name: str, default: Optional[str] = None) -> Optional[str]:
        """Returns the text of a field, or the default if the message does not have it."""
        return self[name] if name in self.fields else default

    def __getitem__(self, name: str) -> str:
        value = self._first(name)
        if not isinstance(value, str):
            raise ValueError(f"the field {name!r} is not UTF-8 text; message.bytes({name!r}) returns its bytes")
        return value

    def __contains__(self, name: object) -> bool:
        return name in self.fields

    def _first(self, name: str) -> Value:
        value = self.fields[name]
        return value[0] if isinstance(value, list) else value

    def __repr__(self) -> str:
        return f"Message({self.fields!r}, id={self.id!r}, stream={self.stream!r}, attempt={self.attempt})"


class Outcome(Exception):
    """What happens to a message. A handler returns it or raises it; returning nothing means Ack()."""

    _name = ""

    def _answer(self) -> Dict[str, Any]:
        answer: Dict[str, Any] = {"outcome": self._name}
        if self.args and str(self.args[0]):
            answer["error"] = _error_text(self.args[0])
        cause = self.args[0] if self.args and isinstance(self.args[0], BaseException) else self.__cause__
        if cause is not None or "error" in answer or self._name == "reject":
            answer["error_type"] = type(cause or self).__name__
        return answer


class Ack(Outcome):
    """The message is done."""

    _name = "ack"

    def __init__(self) -> None:
        super().__init__()


class Skip(Outcome):
    """The message is not for this handler. The worker acknowledges it and counts it as skipped."""

    _name = "skip"

    def __init__(self) -> None:
        super().__init__()


class Reject(Outcome):
    """The message can never succeed. The worker moves it to the dead letters."""

    _name = "reject"

    def __init__(self, error: object = "") -> None:
        super().__init__(error)


class Retry(Outcome):
    """The worker should deliver the message again.

    ``after`` is the time until then, in seconds or as a timedelta. By default the back-off of the worker applies.
    """

    _name = "retry"

    def __init__(self, error: object = "", after: Union[None, float, datetime.timedelta] = None) -> None:
        super().__init__(error)
        if isinstance(after, datetime.timedelta):
            after = after.total_seconds()
        if after is not None and after < 0:
            raise ValueError(f"after={after}: expected a time that is not negative")
        self.after = after

    def _answer(self) -> Dict[str, Any]:
        answer = super()._answer()
        if self.after is not None:
            answer["after_ms"] = round(self.after * 1000)
        return answer


def _error_text(error: object) -> str:
    if isinstance(error, BaseException):
        error = "".join(traceback.format_exception_only(type(error), error)).strip()
    return str(error)[:_ERROR_CHARACTERS_MAX]


# --- Handlers ---

_Result = Union[None, Outcome, Type[Outcome]]
Handler = Callable[[Message], Union[_Result, Awaitable[_Result]]]
Hook = Callable[[], Union[None, Awaitable[None]]]
_H = TypeVar("_H", bound=Handler)
_K = TypeVar("_K", bound=Hook)

# Handlers by stream, and whether they are async. The handler for all other streams has the key None.
_handlers: Dict[Optional[str], Tuple[Handler, bool]] = {}
_start_hooks: List[Hook] = []
_stop_hooks: List[Hook] = []
_current: contextvars.ContextVar[Optional[Message]] = contextvars.ContextVar("message", default=None)


@overload
def handler(function: _H, /) -> _H: ...


@overload
def handler(*streams: str) -> Callable[[_H], _H]: ...


def handler(*streams: Any) -> Any:
    """Registers a function as the handler of these streams, or of all streams: ``@handler``, ``@handler("orders")``.

    The function takes a :class:`Message`. It can be ``async``. An exception means a retry.
    """
    if len(streams) == 1 and callable(streams[0]):
        return _register(streams[0], [None])
    wrong = [stream for stream in streams if not isinstance(stream, str)]
    if wrong:
        raise TypeError(f"handler({wrong[0]!r}): expected names of streams")
    return lambda function: _register(function, list(streams) or [None])


def _register(function: _H, streams: Iterable[Optional[str]]) -> _H:
    for stream in streams:
        if stream in _handlers:
            raise ValueError(f"two handlers for {'all streams' if stream is None else f'the stream {stream!r}'}")
        _handlers[stream] = (function, _is_async(function))
    return function


def on_start(function: _K) -> _K:
    """Registers a function, which can be ``async``, that each process runs before its first message."""
    _start_hooks.append(function)
    return function


def on_stop(function: _K) -> _K:
    """Registers a function, which can be ``async``, that each process runs when it ends."""
    _stop_hooks.append(function)
    return function


def current_message() -> Optional[Message]:
    """Returns the message that the calling code handles, for example for logging."""
    return _current.get()


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))


def _handler_of(message: Message) -> Tuple[Handler, bool]:
    found = _handlers.get(message.stream) or _handlers.get(None)
    if found is None:
        raise LookupError(f"no handler for the stream {message.stream!r}")
    return found


def _outcome_of(result: object) -> Outcome:
    if result is None:
        return Ack()
    if isinstance(result, type) and issubclass(result, Outcome):
        return result()
    if isinstance(result, Outcome):
        return result
    if inspect.isawaitable(result):
        getattr(result, "close", lambda: None)()
        raise TypeError("the handler returned an awaitable: declare it with 'async def'")
    raise TypeError(f"the handler returned {type(result).__name__}: expected None, Ack, Retry, Reject or Skip")


def _failure(message: Message, error: BaseException) -> Dict[str, Any]:
    """Returns the answer for an exception that the handler raised."""
    if isinstance(error, Outcome):
        return error._answer()
    if not message.cancelled:
        _log.error("the handler failed", exc_info=error)
    return {"outcome": "retry", "error": _error_text(error), "error_type": type(error).__name__}


# --- Starting the worker ---


def run(*, millstream: Optional[str] = None, argv: Optional[Sequence[str]] = None, **options: Any) -> NoReturn:
    """Handles messages with the registered handlers until the worker ends. Does not return.

    The options are those of ``millstream work``: ``run(stream="orders", group="billing", timeout="30s")``. A list
    repeats an option, True is an option without a value, and ``from_`` stands for ``--from``. Options of the command
    line (``argv``, by default ``sys.argv[1:]``) replace them.

    ``millstream`` is the path of the program. Otherwise the environment variable MILLSTREAM_BIN names it, or it is
    found on the PATH.
    """
    if not _handlers:
        raise RuntimeError("run() without a handler: mark a function with @handler")
    if _PROTOCOL_VARIABLE in os.environ or _CHANNEL_VARIABLE in os.environ:
        _serve()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if "url" in options and "url" not in _named(arguments):
        # Other users of the machine can see a command line, and a URL can have a password.
        os.environ[_URL_VARIABLE] = options.pop("url")
    binary = _find_binary(millstream)
    command = [binary, "work", *_flags(options, arguments), *arguments, f"--child={_child_command()}"]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(binary, command)
    except OSError as error:
        _exit(126, f"cannot run {binary}: {error.strerror}")


def _exit(code: int, error: str) -> NoReturn:
    print(f"millstream: {error}", file=sys.stderr, flush=True)
    sys.exit(code)


def _find_binary(path: Optional[str]) -> str:
    for name, source in ((path, "run(millstream=…)"), (os.environ.get(_BINARY_VARIABLE), _BINARY_VARIABLE)):
        if name:
            found = shutil.which(name)
            return found or _exit(127, f"cannot find the program {name!r}, which {source} names")
    found = shutil.which("millstream")
    return found or _exit(
        127,
        "cannot find the program 'millstream' on the PATH: install it with "
        "'cargo install --locked --path crates/millstream' "
        f"in a clone of its repository, or set {_BINARY_VARIABLE}, or pass run(millstream=…)",
    )


_SHORT_OPTIONS = {"s": "stream", "g": "group", "c": "concurrency", "u": "url", "q": "quiet"}
# Options that exclude each other.
_ALTERNATIVES = ({"concurrency", "autoscale"}, {"stream", "streams-matching"})


def _named(arguments: Sequence[str]) -> Set[str]:
    """Returns the options that a command line has, with those that they exclude."""
    names = {argument[2:].split("=")[0] for argument in arguments if argument.startswith("--")}
    short = (argument[1:2] for argument in arguments if argument.startswith("-"))
    names |= {_SHORT_OPTIONS[letter] for letter in short if letter in _SHORT_OPTIONS}
    for alternatives in _ALTERNATIVES:
        if names & alternatives:
            names |= alternatives
    return names


def _flags(options: Dict[str, Any], arguments: Sequence[str]) -> List[str]:
    """Returns the options of run() that the command line does not have, and defaults."""
    given = {name.rstrip("_").replace("_", "-"): value for name, value in options.items()}
    named = _named(arguments)
    flags = [flag for name, value in given.items() if name not in named for flag in _flag(name, value)]
    named |= _named([f"--{name}" for name in given])
    streams = [stream for stream in _handlers if stream is not None]
    if "stream" not in named:
        flags += _flag("stream", streams)
    if any(is_async for _, is_async in _handlers.values()):
        flags += [] if "pipeline" in named else _flag("pipeline", _ASYNC_PIPELINE)
        flags += [] if "concurrency" in named else _flag("concurrency", _ASYNC_PIPELINE)
    return flags


def _flag(name: str, value: Any) -> List[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{name}"]
    if isinstance(value, (list, tuple)):
        return [flag for each in value for flag in _flag(name, each)]
    if isinstance(value, datetime.timedelta):
        value = f"{round(value.total_seconds() * 1000)}ms"
    return [f"--{name}={value}"]


def _child_command() -> str:
    """Returns the command that starts this program again.

    The shell moves the protocol away from standard input and output, so that print(), input() and the programs that a
    handler starts cannot disturb it.
    """
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        target = ["-m", spec.name[: -len(".__main__")] if spec.name.endswith(".__main__") else spec.name]
    elif getattr(main, "__file__", None):
        target = [os.path.abspath(main.__file__ or "")]
    else:
        _exit(2, "run() must be called from a file or a module, because the worker starts the program again")
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    program = shlex.join([sys.executable, *flags, *target, *sys.argv[1:]])
    return f"export {_CHANNEL_VARIABLE}=3,4; exec {program} 3<&0 4>&1 </dev/null >&2"


# --- Handling messages ---


class _Stopped(SystemExit):
    """Raised in the main thread by SIGTERM."""


def _serve() -> NoReturn:
    """Handles the messages of the worker that started this program, and ends the process."""
    version = os.environ.pop(_PROTOCOL_VARIABLE, _PROTOCOL)
    if version != _PROTOCOL:
        knows = f"this package (version {__version__}) knows version {_PROTOCOL} of the child protocol"
        _exit(2, f"{knows}, not {version!r}: upgrade it")
    pipeline = int(os.environ.pop(_PIPELINE_VARIABLE, "1"))
    channel = _Channel(*_descriptors())
    _configure_output(channel)
    is_async = any(is_async for _, is_async in _handlers.values()) or any(map(_is_async, _start_hooks + _stop_hooks))
    serve = _serve_async if is_async else _serve_threads
    serve(channel, pipeline)
    sys.exit(0)


def _descriptors() -> Tuple[int, int]:
    """Returns the descriptors of the protocol, which nothing else uses."""
    moved = os.environ.pop(_CHANNEL_VARIABLE, None)
    if moved:
        read, write = (int(number) for number in moved.split(","))
    else:
        # Somebody else has started this program with --child.
        read, write = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
    os.set_inheritable(read, False)
    os.set_inheritable(write, False)
    return read, write


def _configure_output(channel: "_Channel") -> None:
    # Output that is still in a buffer would be lost if the process is killed.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)
    output = _WorkerLog(channel)
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(output)
        logging.getLogger().setLevel(logging.INFO)
    else:
        # The program has its own log, which may write a traceback as many lines without the message.
        _log.addHandler(output)
        _log.propagate = False
    sys.excepthook = lambda kind, error, _: output.uncaught("the process failed", error, error=_error_text(error))
    threading.excepthook = lambda failed: output.uncaught("a thread failed", failed.exc_value)


class _WorkerLog(logging.Handler):
    """Sends the log to the worker, each record with the message that is handled."""

    def __init__(self, channel: "_Channel") -> None:
        super().__init__()
        self._channel = channel
        self.setFormatter(_Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self._send({"log": self.format(record), "level": record.levelname.lower()})

    def uncaught(self, text: str, exception: Optional[BaseException], **others: str) -> None:
        """Logs an exception. If the process ends because of it, ``error`` becomes the error of its messages."""
        if exception is not None:
            trace = "".join(traceback.format_exception(type(exception), exception, exception.__traceback__))
            self._send({"log": f"millstream: {text}\n{trace.rstrip()}", "level": "error", **others})

    def _send(self, line: Dict[str, Any]) -> None:
        # The worker refuses lines of more than 1 MiB.
        line["log"] = line["log"][-_LOG_CHARACTERS_MAX:]
        message = _current.get()
        if message is not None:
            line["id"] = message.id
        self._channel.send(json.dumps(line).encode() + b"\n")


class _Formatter(logging.Formatter):
    """Adds where the message that is handled comes from."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        line, message = super().formatMessage(record), _current.get()
        if message is None:
            return line
        trace = f" trace_id={message.traceparent.split('-')[1]}" if message.traceparent else ""
        return f"{line} stream={message.stream} attempt={message.attempt}{trace}"


class _Channel:
    """The lines that the worker sends, and the answers."""

    def __init__(self, read: int, write: int) -> None:
        self.read = read
        self._write = write
        self._lock = threading.Lock()
        # By id.
        self.in_flight: Dict[str, Message] = {}

    def parse(self, line: bytes) -> Union[None, Message, str]:
        """Returns a message, the id of a message that is cancelled, or None for other lines."""
        if not line.strip():
            return None
        data = json.loads(line)
        if "fields" not in data:
            return self._cancel(data.get("cancel"))
        fields = {name: _value(value) for name, value in data["fields"].items()}
        others = ("id", "stream", "group", "attempt", "partition", "fence", "traceparent", "tracestate")
        key = _value(data["key"]) if "key" in data else None
        message = Message(fields, key=key, **{name: data[name] for name in others if name in data})
        self.in_flight[message.id] = message
        return message

    def _cancel(self, id: Optional[str]) -> Optional[str]:
        message = self.in_flight.get(id or "")
        if message is None:
            return None
        message._cancelled = True
        return id

    def cancel_all(self) -> None:
        for message in list(self.in_flight.values()):
            message._cancelled = True

    def line(self, message: Message, answer: Dict[str, Any]) -> bytes:
        """Returns the line that answers a message, which is no longer in flight."""
        self.in_flight.pop(message.id, None)
        return json.dumps({"id": message.id, **answer}).encode() + b"\n"

    def send(self, lines: bytes) -> None:
        try:
            with self._lock:
                while lines:
                    lines = lines[os.write(self._write, lines) :]
        except BrokenPipeError:
            # The worker is gone.
            os._exit(1)


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return value
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else [_value(each) for each in value]


# --- Plain functions: one message at a time, or threads ---


def _serve_threads(channel: _Channel, pipeline: int) -> None:
    def stop(signum: int, frame: object) -> NoReturn:
        raise _Stopped(128 + signum)

    signal.signal(signal.SIGTERM, stop)
    lines, reading = os.fdopen(channel.read, "rb"), threading.Lock()
    try:
        for hook in _start_hooks:
            hook()
        if pipeline == 1:
            _handle_lines(channel, lines, reading)
        else:
            # One more than messages: a thread is always free to read which messages are cancelled.
            threads = [
                threading.Thread(target=_handle_lines, args=(channel, lines, reading), daemon=True)
                for _ in range(pipeline + 1)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    except _Stopped as stopped:
        channel.cancel_all()
        _run_hooks_and_exit(stopped)
    for hook in _stop_hooks:
        hook()


def _run_hooks_and_exit(stopped: _Stopped) -> NoReturn:
    # A hook that hangs, or a thread, must not keep the process. The worker kills it otherwise.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _STOP_SECONDS)
    for hook in _stop_hooks:
        hook()
    logging.shutdown()
    os._exit(stopped.code if isinstance(stopped.code, int) else 1)


def _handle_lines(channel: _Channel, lines: BinaryIO, reading: threading.Lock) -> None:
    """Handles messages until there are no more lines."""
    while True:
        with reading:
            line = lines.readline()
            message = channel.parse(line) if line else None
        if not line:
            return
        if isinstance(message, Message):
            channel.send(channel.line(message, _handle(message)))


def _handle(message: Message) -> Dict[str, Any]:
    token = _current.set(message)
    try:
        function, _ = _handler_of(message)
        return _outcome_of(function(message))._answer()
    except (_Stopped, KeyboardInterrupt):
        raise
    except BaseException as error:
        return _failure(message, error)
    finally:
        _current.reset(token)


# --- Async functions ---


def _serve_async(channel: _Channel, pipeline: int) -> None:
    async def serve() -> int:
        return await _AsyncChild(channel, pipeline).serve()

    code = asyncio.run(serve())
    if code:
        logging.shutdown()
        # Threads of handlers that are not async may still run.
        os._exit(code)


class _AsyncChild(asyncio.Protocol):
    """Runs each message in a task of its own."""

    def __init__(self, channel: _Channel, pipeline: int) -> None:
        self.channel = channel
        self.tasks: Dict[str, "asyncio.Task[None]"] = {}
        self.answers: List[bytes] = []
        self.rest: List[bytes] = []
        self.threads = ThreadPoolExecutor(pipeline)
        self.ended = asyncio.Event()
        self.code = 0

    async def serve(self) -> int:
        self.loop = asyncio.get_running_loop()
        self.loop.add_signal_handler(signal.SIGTERM, self.stop, 128 + signal.SIGTERM)
        for hook in _start_hooks:
            await _call(hook)
        await self.loop.connect_read_pipe(lambda: self, os.fdopen(self.channel.read, "rb", 0))
        await self.ended.wait()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        self.flush()
        for hook in _stop_hooks:
            await _call(hook)
        return self.code

    def stop(self, code: int) -> None:
        """Cancels all messages and ends the process soon. The input may have ended before."""
        self.code = code
        self.channel.cancel_all()
        for task in self.tasks.values():
            task.cancel()
        self.loop.call_later(_STOP_SECONDS, os._exit, code)
        self.ended.set()

    def connection_lost(self, error: Optional[Exception]) -> None:
        self.ended.set()

    def data_received(self, data: bytes) -> None:
        first, *others = data.split(b"\n")
        self.rest.append(first)
        for line in others:
            self.receive(b"".join(self.rest))
            self.rest = [line]

    def receive(self, line: bytes) -> None:
        message = self.channel.parse(line)
        if isinstance(message, Message):
            self.tasks[message.id] = self.loop.create_task(self.handle(message))
        elif message in self.tasks:
            self.tasks[message].cancel()

    async def handle(self, message: Message) -> None:
        _current.set(message)
        try:
            function, is_async = _handler_of(message)
            if is_async:
                result = await function(message)  # type: ignore[misc]
            else:
                context = contextvars.copy_context()
                result = await self.loop.run_in_executor(self.threads, context.run, function, message)
            answer = _outcome_of(result)._answer()
        except BaseException as error:
            answer = _failure(message, error)
        del self.tasks[message.id]
        if not self.answers:
            # One write for all messages that end in this turn of the loop.
            self.loop.call_soon(self.flush)
        self.answers.append(self.channel.line(message, answer))

    def flush(self) -> None:
        answers, self.answers = self.answers, []
        self.channel.send(b"".join(answers))


async def _call(hook: Hook) -> None:
    result = hook()
    if inspect.isawaitable(result):
        await result


def _failed_before_run(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
    """Reports an exception that ends this program before it calls run(), such as an import that fails."""
    _configure_output(_Channel(*_descriptors()))
    sys.excepthook(kind, error, trace)


if _PROTOCOL_VARIABLE in os.environ:
    sys.excepthook = _failed_before_run

"""A small blocking client for Kafka's protocol: one connection to one node, requests in, responses out.

The messages are kafka-python's, whose compiled codecs take some 20 µs a request. Every exchange has a time limit.
After a time-out or a broken connection the next exchange connects again: a late response is never taken for that of
another request.
"""

from __future__ import annotations

import contextlib
import io
import socket
import struct
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeAlias

from ackproof.base.errors import AckproofError
from ackproof.network.addresses import Address

CLIENT_ID: Final = "ackproof"
LARGEST_RESPONSE: Final = 64 << 20
_LENGTH: Final = struct.Struct(">i")


Opener: TypeAlias = Callable[[Address, float], socket.socket]
"""`opener(address, seconds)`: a blocking socket for the protocol. Raises OSError."""


def plain(address: Address, timeout_s: float) -> socket.socket:
    """Open a TCP connection without encryption or credentials, within `timeout_s` seconds. Raises OSError if that
    fails."""
    line = socket.create_connection(address, timeout=timeout_s)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return line


@dataclass(frozen=True)
class Access:
    """Parameters for connecting to a cluster. `opener(address, seconds)` returns a connected, blocking socket, or
    raises OSError.

    `connect_s`: longest wait in seconds for a new connection of the watcher (`observe.watcher`).
    `describes_partitions`: True if brokers support DescribeTopicPartitions; otherwise Metadata requests are sent, whose
    responses lack eligible leader replicas (ELR).
    """

    opener: Opener = plain
    describes_partitions: bool = True
    connect_s: float = 0.02


KRAFT: Final = Access()
"""Access to a KRaft cluster on this machine. Its listeners accept at once, even if the node's process is paused."""
ZOOKEEPER: Final = Access(describes_partitions=False)
"""Access to a cluster in ZooKeeper mode on this machine. Its brokers do not support DescribeTopicPartitions."""


class WireError(AckproofError):
    """A node gave no usable answer: none at all, or an error."""


class Unreachable(WireError):
    """The node could not be connected to, broke the connection, or did not answer in time."""


class Refused(WireError):
    """The node answered with an error. `code`: Kafka's error code. `reason`: name of the error, with the node's
    `message` if any. `asked`: the request, in words."""

    def __init__(self, asked: str, code: int, message: str | None = None) -> None:
        self.code = code
        self.reason = error_name(code) + (f": {message}" if message else "")
        super().__init__(f"{asked}: {self.reason}")


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, such as NOT_LEADER_OR_FOLLOWER; `error N` for a code N that is not
    known."""
    name = str(getattr(kafka_python("errors").for_code(code), "message", "") or "UNKNOWN")
    return f"error {code}" if name == "UNKNOWN" and code != -1 else name


def check(asked: str, code: int, message: str | None = None) -> None:
    """Raise `Refused` if `code` is an error code, not 0 (NONE).

    `asked`: the request, in words. `message`: the node's own message, if any. Both go into the exception's text.
    """
    if code:
        raise Refused(asked, code, message)


class Question:
    """Request in a fixed version: its name in Kafka's protocol ("DescribeQuorum"), and its fields by kafka-python's
    names.

    A row of an array is a tuple in the order of Kafka's schema; a row with a single field is the value itself.
    """

    def __init__(self, name: str, version: int, **fields: object) -> None:
        self.name = name
        self.version = version
        self.fields = fields

    def encode(self, correlation: int) -> bytes:
        """Return the request with its length and header, ready to send. `correlation`: its correlation id."""
        request = message(f"{self.name}Request")(version=self.version, **self.fields)
        request.with_header(correlation_id=correlation, client_id=CLIENT_ID)
        return bytes(request.encode(header=True, framed=True))

    def decode(self, frame: bytes, correlation: int) -> Any:  # noqa: ANN401 — kafka-python's messages are untyped
        """Return the response in a frame (without its length) as kafka-python's message, whose attributes are its
        fields.

        `correlation`: correlation id of the request. Raises `Unreachable` if the frame answers another request or
        cannot be read.
        """
        response, body = message(f"{self.name}Response"), io.BytesIO(frame)
        try:
            header = response.parse_header(body, version=self.version)
            if header.correlation_id != correlation:
                raise Unreachable("the answer belongs to another question")
            return response.decode(memoryview(frame)[body.tell() :], version=self.version)
        except (ValueError, IndexError, struct.error, TypeError, UnicodeDecodeError) as error:
            raise Unreachable(f"the answer cannot be read: {error}") from error


class Connection(AbstractContextManager["Connection"]):
    """Connection to one node. It stays open, and is opened again when it breaks. Thread-safe."""

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float = 2.0,
        access: Access = KRAFT,
        connect_s: float = float("inf"),
    ) -> None:
        """`timeout_s`: limit of a whole exchange in seconds. `connect_s`: limit of the part in which a connection is
        opened."""
        self.address = address
        self.connect_s = connect_s
        self.access = access
        self.timeout_s = timeout_s
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._correlation = 0

    def ask(self, question: Question, *, timeout_s: float | None = None) -> Any:  # noqa: ANN401
        """Send a request, and return the response as `Question.decode` does. Error codes in the response raise nothing.

        Raises `Unreachable` without a readable response within `timeout_s` seconds (default: the connection's time
        limit).
        """
        return self.ask_all([question], timeout_s=timeout_s)[0]

    def ask_all(self, questions: Sequence[Question], *, timeout_s: float | None = None) -> list[Any]:
        """Send all requests at once, and return the responses in order. Raises `Unreachable` if a response cannot be
        read, or if the last has not come within `timeout_s` seconds (default: the connection's time limit)."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        with self._lock:
            try:
                return self._exchange(questions, deadline)
            except TimeoutError as error:
                self._drop()
                raise Unreachable(f"{self.address}: no answer in time") from error
            except (OSError, WireError) as error:
                self._drop()
                raise Unreachable(f"{self.address}: {getattr(error, 'strerror', None) or error}") from error

    def interrupt(self) -> None:
        """Break off an exchange that another thread waits for; that thread gets `Unreachable`."""
        if (line := self._socket) is not None:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next exchange opens another."""
        with self._lock:
            self._drop()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exchange(self, questions: Sequence[Question], deadline: float) -> list[Any]:
        numbers = [self._correlation + 1 + i for i in range(len(questions))]
        self._correlation = numbers[-1] % (1 << 30)
        data = b"".join(question.encode(number) for question, number in zip(questions, numbers, strict=True))
        if self._socket is None:
            self._socket = self.access.opener(self.address, min(_remaining_s(deadline), self.connect_s))
        line = self._socket
        line.settimeout(_remaining_s(deadline))
        line.sendall(data)
        return [
            question.decode(_frame(line, deadline), number)
            for question, number in zip(questions, numbers, strict=True)
        ]

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def ask_over(line: socket.socket, question: Question, deadline: float) -> Any:  # noqa: ANN401
    """Send a request over an open socket, and return the response as `Question.decode` does. `deadline`: time
    in seconds, as `time.monotonic` counts. Raises `Unreachable` if the node closes the connection or the
    response cannot be read, OSError if the connection breaks or the deadline passes."""
    line.settimeout(_remaining_s(deadline))
    line.sendall(question.encode(0))
    return question.decode(_frame(line, deadline), 0)


def _frame(line: socket.socket, deadline: float) -> bytes:
    (length,) = _LENGTH.unpack(_read(line, _LENGTH.size, deadline))
    if not 0 < length <= LARGEST_RESPONSE:
        raise Unreachable(f"a frame of {length} bytes is not Kafka's protocol")
    return _read(line, length, deadline)


def _read(line: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        line.settimeout(_remaining_s(deadline))
        part = line.recv(size - len(data))
        if not part:
            raise Unreachable("the node closed the connection")
        data += part
    return bytes(data)


def _remaining_s(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left


_GROUPS: Final = ("admin", "consumer", "metadata", "producer", "sasl")
_LOADING: Final = threading.RLock()
"""Lock that serializes imports, because filters of warnings belong to the whole process."""


@cache
def kafka_python(module: str) -> ModuleType:
    """Return the module `kafka.<module>` of kafka-python, imported without its deprecation warnings. The library is
    untyped."""
    with _LOADING, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return import_module(f"kafka.{module}")


@cache
def message(name: str) -> Any:  # noqa: ANN401 — kafka-python is untyped
    """Return kafka-python's class for a message of Kafka's protocol, such as `DescribeQuorumRequest`.

    A message that kafka-python lacks is made from ackproof's own schemas. Raises FileNotFoundError if these lack it
    too.
    """
    for group in _GROUPS:
        if (found := vars(kafka_python(f"protocol.{group}")).get(name)) is not None:
            return found
    base = kafka_python("protocol.api_message").ApiMessage
    with _LOADING, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return type(base)(name, (base,), {}, load_json="ackproof.network.schemas")

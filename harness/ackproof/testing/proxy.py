"""Base of the proxies by which audited clients of all libraries record what they do.

After its test an audited client drops the real client. Otherwise that client's threads would try to reach a cluster
that is gone, and log errors, as long as a failed test's traceback holds the proxy.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, ClassVar, Generic, NamedTuple, NoReturn, TypeVar, cast

from ackproof.rundir.parts import ClientLibrary
from ackproof.testing.book import Book, Received

Client = TypeVar("Client")


class CapturedPart(NamedTuple):
    """A key or value as received bytes (`raw`), and as the user's deserializer returned it (`value`)."""

    raw: bytes | None
    value: object

    @classmethod
    def split(cls, part: Any) -> CapturedPart:  # noqa: ANN401 — captured, or bytes
        """Return (received bytes, user's value) of a record's key or value `part`. If a deserializer captured it,
        `part` itself is returned. Otherwise `part` is the received bytes, which are then the value too."""
        return part if isinstance(part, cls) else cls(part, part)


def kafka_code(error: BaseException) -> int:
    """Return Kafka's error code of an exception of kafka-python or aiokafka; -1, UNKNOWN_SERVER_ERROR, if it
    has none."""
    return getattr(error, "errno", None) or -1


class _EndedClient:
    """Replacement for a client after its test, for threads that still use it. They get no records: `poll` without a
    time-out never returns. `produce` raises RuntimeError, and methods that are missing here raise AttributeError."""

    def poll(self, timeout: float = -1) -> None:
        threading.Event().wait(timeout if timeout >= 0 else None)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[object]:
        self.poll(timeout)
        return []

    def flush(self, timeout: float = -1) -> int:
        return 0

    def close(self) -> None:
        return

    def produce(self, topic: str, **options: object) -> NoReturn:
        raise RuntimeError("the test is over, and its cluster is gone")

    def __len__(self) -> int:
        return 0

    def __enter__(self) -> _EndedClient:
        return self

    def __exit__(self, *_: object) -> None:
        return


class AuditedClient(Generic[Client]):
    """Proxy of a client, which forwards each method that a subclass does not override. After `end`, which the end of
    the test calls, it forwards to an `_EndedClient` instead, unless a subclass ends its client differently."""

    _real: Client
    _kind: type

    def __init__(self, real: Client) -> None:
        self._real = real
        self._kind = type(real)

    @property  # type: ignore[misc]  # typeshed has a setter
    def __class__(self) -> type:
        """Class of the real client, so that `isinstance` holds."""
        return self._kind

    @property
    def audited(self) -> Client:
        return self._real

    def end(self) -> None:
        self._real = cast("Client", _EndedClient())

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 — whatever the client has
        return getattr(self._real, name)

    def __enter__(self) -> Any:  # noqa: ANN401 — what the client returns
        cast(Any, self._real).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:  # noqa: ANN401 — whatever the client says
        return cast(Any, self._real).__exit__(kind, error, trace)


class AuditedReader(AuditedClient[Client]):
    """Proxy of a consumer. Each call named in `SEEKS` begins a new assignment in the ledger, so that a lower offset is
    not reported as rewound."""

    SEEKS: ClassVar = frozenset({"seek", "seek_to_beginning", "seek_to_end", "seek_to_committed"})

    def __init__(self, real: Client, book: Book, library: ClientLibrary, group: str) -> None:
        super().__init__(real)
        self._book = book
        self._reads = book.new_reader(library, group)
        self._assignment = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 — whatever the client has
        call = super().__getattr__(name)
        if name not in self.SEEKS:
            return call

        def seek(*args: Any, **options: Any) -> Any:  # noqa: ANN401 — as the client takes it
            self._assignment += 1
            return call(*args, **options)

        return seek

    def _record(self, received: Received) -> None:
        self._reads.append(self._book.read(received, self._assignment))
        self._book.changes += 1

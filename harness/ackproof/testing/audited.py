"""What an audited producer and an audited consumer share: to the code under test each is the client itself.

After its test an audited client is nothing. The client itself is let go, or its threads would go on trying to reach a
cluster that is gone, and say so on standard error, for as long as a failed test's traceback holds the proxy.
"""

from __future__ import annotations

import inspect
import threading
from types import TracebackType
from typing import Any, Generic, NoReturn, TypeVar, cast

from confluent_kafka import Consumer, Producer

Client = TypeVar("Client", Producer, Consumer)


class EndedClient:
    """Takes the place of a client: threads that the code under test left running find nothing, and no error."""

    def poll(self, timeout: float = -1) -> None:
        """Nothing comes; it takes as long as it may."""
        threading.Event().wait(timeout if timeout >= 0 else None)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[object]:
        """Nothing comes."""
        self.poll(timeout)
        return []

    def flush(self, timeout: float = -1) -> int:
        """Nothing waits."""
        return 0

    def close(self) -> None:
        """It is closed."""

    def produce(self, topic: str, **options: object) -> NoReturn:
        """Raises RuntimeError."""
        raise RuntimeError("the test is over, and its cluster gone")

    def __len__(self) -> int:
        return 0

    def __enter__(self) -> EndedClient:
        return self

    def __exit__(self, *_: object) -> None:
        return


class Audited(Generic[Client]):
    """Everything but what a subclass defines goes to the client as it is."""

    _real: Client
    _kind: type

    def __init__(self, real: Client) -> None:
        self._real = real
        self._kind = type(real)

    @property  # type: ignore[misc]  # typeshed has a setter
    def __class__(self) -> type:
        """It passes for the client where somebody asks."""
        return self._kind

    @property
    def audited(self) -> Client:
        """The client itself."""
        return self._real

    def end(self) -> None:
        """The test is over: let the client go."""
        self._real = cast("Client", EndedClient())

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 — whatever the client has
        return getattr(self._real, name)

    def __enter__(self) -> Any:  # noqa: ANN401 — it passes for the client
        self._real.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:  # noqa: ANN401 — whatever the client says
        return self._real.__exit__(kind, error, trace)


def plain(given: object, kind: type[Client], coding: str, advice: str) -> Client:
    """Return what was handed over, if it is a plain client. Raises TypeError for any other: a `coding` client, one for
    asyncio."""
    __tracebackhide__ = True
    ancestors = type(given).__mro__
    if inspect.isawaitable(given) or any(one.__name__.startswith("AIO") for one in ancestors):
        raise TypeError(
            f"asyncio clients are not supported yet: hand over a plain confluent_kafka.{kind.__name__}, and let "
            f"coroutines call it in threads: await asyncio.to_thread(client.{'flush' if kind is Producer else 'poll'})"
        )
    if coding in {one.__name__ for one in ancestors}:
        raise TypeError(f"the ledger audits what is {advice}")
    if not isinstance(given, kind):
        raise TypeError(f"expected a confluent_kafka.{kind.__name__} or its configuration, not {given!r}")
    return given

"""The interface `Mesh`, by which a backend lets faults break links, and the effects that a link can get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from ackproof.base.errors import AckproofError
from ackproof.network.probe import ProbeAnswer, Traffic

CLIENTS: Final = 0
"""Source of links from clients, all of them together. Nodes count from 1."""


class LinkError(AckproofError):
    """A valid request to break, mend or observe a link could not be carried out."""


class Link(NamedTuple):
    """Every connection that `source` (a node, or CLIENTS) opens to the node `target`."""

    source: int
    target: int

    def __str__(self) -> str:
        return f"{'clients' if self.source == CLIENTS else self.source}→{self.target}"


@dataclass(frozen=True)
class Cut:
    """Effect: existing connections are closed (by packet rules: at their next packet), and new ones are refused."""

    def __str__(self) -> str:
        return "cut"


@dataclass(frozen=True)
class BlackHole:
    """Effect: no data arrives any more, in either direction, and no connection is closed."""

    def __str__(self) -> str:
        return "black hole"


@dataclass(frozen=True)
class Reset:
    """Effect: a connection is reset as soon as it carries data. A proxy closes the existing connections at once."""

    def __str__(self) -> str:
        return "reset"


@dataclass(frozen=True)
class Throttle:
    """Effect: each connection carries at most `rate` bytes per second in each direction. The rate is rounded down to a
    multiple of 1000, at least 1000."""

    rate: int

    def __str__(self) -> str:
        return f"{self.rate} B/s"


@dataclass(frozen=True)
class Delay:
    """Effect: all data arrives `latency` seconds later, plus or minus at most `jitter` seconds, in each direction. Both
    are rounded to whole ms."""

    latency: float
    jitter: float = 0.0

    def __str__(self) -> str:
        return f"{self.latency * 1000:g} ms ± {self.jitter * 1000:g} ms"


@dataclass(frozen=True)
class Loss:
    """Effect: the share `share` of the packets (0 … 1) is lost, at random, in each direction. It is rounded to a
    multiple of 0.001, at least 0.001."""

    share: float

    def __str__(self) -> str:
        return f"{self.share:.0%} loss"


@dataclass(frozen=True)
class DropLarge:
    """Effect: packets of more than `above` bytes are lost in silence, in each direction (an MTU black hole)."""

    above: int

    def __str__(self) -> str:
        return f"packets above {self.above} B dropped"


@dataclass(frozen=True)
class SlowClose:
    """Effect: the end of a connection (FIN) arrives `delay` seconds late."""

    delay: float

    def __str__(self) -> str:
        return f"closes {self.delay:g} s late"


Effect: TypeAlias = Cut | BlackHole | Reset | Throttle | Delay | Loss | DropLarge | SlowClose
OF_PACKETS: Final = (Loss, DropLarge)
"""Effects that act on packets, not on streams."""


class Imposed(NamedTuple):
    """An effect in force on a link. `owner`: name of the fault that put it there, as `Mesh.impose` takes it; '' if no
    fault did. `text`: the effect as read back from the proxy or the kernel, in words for a message."""

    owner: str
    text: str


class Mesh(Protocol):
    """Links of a running cluster. Thread-safe. `impose` and `lift` break and mend a link. The witnesses `probe`,
    `closing` and `traffic` do not depend on what `impose` did. They open connections of their own or ask the kernel, at
    the addresses in the nodes' own files."""

    def links(self) -> frozenset[Link]:
        """Return the links on which `impose` can put an effect."""

    def impose(self, owner: str, link: Link, effect: Effect) -> None:
        """Put an effect on a link. `owner`: name of the fault, by which `lift` finds the effect.

        Several owners may have effects on a link at the same time, but each only one. Raises `LinkError` if the link
        cannot be broken, if this owner has an effect on it already, or if the effect cannot be put there.
        """

    def lift(self, owner: str, link: Link) -> None:
        """Remove this owner's effect from a link, if there is one. Raises `LinkError` if that fails."""

    def imposed(self, link: Link) -> tuple[Imposed, ...]:
        """Return the effects in force on a link, as read back from proxies and kernel; empty if it has none.
        Raises `LinkError` if they do not answer.
        """

    def probe(self, link: Link, *, timeout_s: float = 1.0, size: int = 0, asks: int = 1) -> ProbeAnswer:
        """Connect to `target` as `source` would, and send `asks` requests of at least `size` bytes (at most some
        32,000), one by one.

        `timeout_s`: limit for the whole probe, in seconds. A failed connection is a result (`ProbeAnswer.how`). Raises
        `LinkError` if the source's files have no address of the target.
        """

    def closing(self, link: Link, *, timeout_s: float) -> float | None:
        """Send one request as `source` would. After the answer shut down the sending side, and return the seconds from
        then until `target` closes.

        None: no connection, no answer, or not closed within `timeout_s` seconds. Raises `LinkError` as `probe` does.
        """

    def traffic(self, link: Link) -> Traffic:
        """Return the kernel's counters of all connections that `source` now has to `target`. Raises OSError if the
        kernel does not give them, `LinkError` if the source's namespace cannot be entered."""

    def check(self) -> None:
        """Raise `LinkError` if the process that serves the links has ended by itself."""

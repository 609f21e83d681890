"""Under which circumstances the times of a run were measured: whose time-outs its brokers had, and how busy the machine
was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import BaseModel


class ChangedSetting(BaseModel, frozen=True):
    """A broker setting that is not at Kafka's default. `default` None: the release has no such setting. `brokers` ():
    all of them have this value."""

    name: str
    value: str
    default: str | None = None
    brokers: tuple[int, ...] = ()

    @property
    def usual(self) -> str:
        """Kafka's default in words."""
        return "not a setting of this release" if self.default is None else self.default or "no default"

    def __str__(self) -> str:
        where = f" on broker {', '.join(map(str, self.brokers))}" if self.brokers else ""
        return f"{self.name}={self.value}{where} ({self.usual})"


class Timing(BaseModel, frozen=True):
    """Whose time-outs were in force: `chaos`, `Kafka's own + server.properties + cluster.config`, …

    `ignored`: settings of the broker file that ackproof sets itself or does not keep, by the reason.
    """

    name: str
    changed: tuple[ChangedSetting, ...] = ()
    ignored: dict[str, tuple[str, ...]] = {}

    def lines(self) -> Iterator[str]:
        """All of it in sentences."""
        yield f"timing: {self.name}; every time is measured under it"
        if self.changed:
            yield f"not at Kafka's default (in brackets): {', '.join(map(str, self.changed))}"
        for why, names in self.ignored.items():
            yield f"ignored: {', '.join(names)}: {why}"


def shared(timings: Iterable[tuple[str, Timing]]) -> list[tuple[Timing, str]]:
    """Each timing, with the names of those that have it; '' where all have the same."""
    found: dict[str, tuple[Timing, list[str]]] = {}
    for name, timing in timings:
        found.setdefault(timing.model_dump_json(), (timing, []))[1].append(name)
    return [(timing, "; ".join(names) if len(found) > 1 else "") for timing, names in found.values()]


class Calm(BaseModel, frozen=True):
    """How a run went in the seconds of its load in which no fault was at work. Shares are 0 … 1; -1 is unknown."""

    seconds: float
    asked_rate: float | None
    """Records per second of all producers together; None: as fast as they can."""
    sent_rate: float
    median_ms: float
    """Of acknowledgement times."""
    late_ms: float
    """How late the harness itself was at most."""
    looks_per_s: float
    busy: float
    stolen: float
    cpu_pressure: float
    io_pressure: float
    memory_pressure: float
    starved: tuple[str, ...] = ()
    """What was beyond its bound, a sentence each: then nothing that takes time is told of Kafka by this run."""

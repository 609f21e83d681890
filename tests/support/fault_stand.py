"""A driver of faults on a fake cluster, and all objects that it uses."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.wait import wait_until
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.triggers import Condition, TimeTrigger
from ackproof.faults import context, injection
from ackproof.faults.context import FREE_WITHIN_S, FaultContext, Holds
from ackproof.faults.driver import FaultDriver
from ackproof.faults.injection import Aim, make_injection
from ackproof.faults.life import Stage
from ackproof.faults.planned import views
from ackproof.network.wire import kafka_python
from ackproof.run.phases import Gauges
from ackproof.rundir.observed import Sample
from ackproof.rundir.timeline import Event, EventKind, Timeline, read_timeline
from fake_nodes import FakeNode


@dataclass
class FakeGauges:
    """Fake gauges for triggers, with values that a test sets. `acks`: acknowledged records of every partition.
    `sample`: newest sample of every partition. `scraped`: metrics by name and node."""

    acks: int = 0
    sample: Sample | None = None
    scraped: dict[tuple[str, int | None], float | None] = field(default_factory=dict)

    def look(self, condition: Condition) -> float | None:
        clients = SimpleNamespace(acked=lambda *_: self.acks, read=lambda *_: 0)
        sampler = SimpleNamespace(fresh=lambda *_: self.sample)
        scraper = SimpleNamespace(fresh=lambda metric, node: self.scraped.get((metric.name, node)))
        return Gauges(cast(Any, clients), cast(Any, sampler), cast(Any, scraper)).look(condition)


def seen(**told: object) -> Sample:
    """Return a sample of a healthy partition with 9 records, 6 of them committed. `told`: fields with other values."""
    at: dict[str, object] = {"t_ns": 0, "topic": "orders", "partition": 0, "leader": 1, "leader_epoch": 4}
    at |= {"replicas": (1, 2), "isr": (1, 2), "high_watermark": 6, "last_stable": 6, "log_ends": {1: 9, 2: 9}}
    return Sample(**(at | told))


def make_batch(first: int, count: int = 5, records: bytes = b"r" * 40) -> bytes:
    """Return a record batch of `count` records as it is on disk. `records`: filler in place of the records, which
    cannot be decoded."""
    covered = struct.pack(">hiqqqhii", 0, count - 1, 0, 0, -1, -1, -1, count) + records
    body = struct.pack(">ibI", 0, 2, kafka_python("record.util").calc_crc32c(covered)) + covered
    return struct.pack(">qi", first, len(body)) + body


def wait_shortly(monkeypatch: pytest.MonkeyPatch, within_s: float) -> None:
    """Shorten all waits of faults to `within_s` seconds, except the wait for the healing of another fault."""

    def shortly(look: Any, **words: Any) -> Any:
        most = words["timeout_s"] if words["timeout_s"] == FREE_WITHIN_S else within_s
        return wait_until(look, **{**words, "timeout_s": most, "interval_s": 0.005})

    for module in (views, injection, context):
        monkeypatch.setattr(module, "wait_until", shortly)


def make(
    kind: type[FaultSpec], *nodes: object, cluster: object = None, holds: Holds | None = None, **fields: Any
) -> Any:
    """Return the injection of a fault of this kind. `nodes`: the nodes that its first target role resolves to.
    `fields`: fields of the fault, by default `number` 1 and a trigger at 0 s; `case` is the injection's case."""
    case = fields.pop("case", None)
    fault = kind(**{"number": 1, "trigger": TimeTrigger(0.0), **fields})
    aim = Aim({role: cast(Any, nodes) for role in fault.targets[:1]})
    return make_injection(
        fault, aim, FaultContext(cast(Any, cluster), threading.Event(), case, holds=holds or Holds())
    )


def expect(step: Callable[[], str], believed: object, words: str, why: str) -> None:
    """Call a step. If it must be confirmed (`believed`), assert that its text has these `words`; else that it raises
    `FaultNotConfirmed` with the reason `why`."""
    if believed:
        assert words in step()
        return
    with pytest.raises(FaultNotConfirmed, match=why):
        step()


@dataclass
class Stand:
    """A driver of faults with the fake nodes, gauges and files that it uses."""

    driver: FaultDriver
    nodes: dict[int, FakeNode]
    gauges: FakeGauges
    stop: threading.Event
    timeline: Timeline
    path: Path
    holds: Holds

    def events(self) -> list[Event]:
        return read_timeline(self.path)[0]

    def kinds(self, fault: int = 1) -> list[EventKind]:
        return [event.kind for event in self.events() if event.fault == fault]

    def until(self, stage: Stage, fault: int = 1) -> None:
        deadline = time.monotonic() + 5
        while self.driver.stages()[fault] is not stage:
            assert time.monotonic() < deadline, self.driver.stages()
            time.sleep(0.002)


MakeStand = Callable[..., Stand]

"""Makes a small run directory in which a topic is deleted and created again; tests plant lies in it.

Broker 1 leads the first orders/0 and acknowledges offsets 0 to 124; the last five after the deletion at 4.000 s, of
which it does not know yet. At 4.200 s the topic is created again. Broker 2 leads it and acknowledges 0 to 79 from 4.300
s on. Broker 1 still has its old log, which waits to be removed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ackproof.rundir.model import ClassExplained, ConformanceFile
from ackproof.rundir.replicas import EpochStart, Replica
from observed_run import WALL_MS, Ack, ObservedRun, beginning, event, partition, sample

FIRST, SECOND = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"
FAULTS = """\
faults:
  - recreate: {topic: orders}
    at: 3s
"""
OFFSETS = 125
"""Number of acknowledged offsets of the first incarnation."""


def topic(offset: int, ms: int, topic_id: str, kind: str = "topic") -> dict[str, Any]:
    """Return a metadata record by which a topic is created, or (`topic-removed`) deleted. `ms`: its time since the
    run's start."""
    return {
        "offset": offset,
        "epoch": 1,
        "timestamp_ms": WALL_MS + ms,
        "kind": kind,
        "topic": "orders",
        "topic_id": topic_id,
    }


def records() -> list[dict[str, Any]]:
    """Return all metadata records of the run."""
    *brokers, first = beginning()
    return [
        *brokers,
        topic(19, 1000, FIRST),
        first,
        topic(30, 4000, FIRST, "topic-removed"),
        topic(40, 4200, SECOND),
        partition(41, 4200, 2, (0, 0), [1, 2, 3], "created") | {"replicas": [2, 3, 1]},
    ]


def acks(acks_of_the_second: int = 80) -> list[Ack]:
    """Return the acknowledged records; those of the first incarnation are lost. `acks_of_the_second`: number of records
    of the second incarnation."""
    first = [Ack(seq, seq, 2000 + 16 * seq, lost=True) for seq in range(120)]
    late = [Ack(seq, seq, 4010 + seq, lost=True) for seq in range(120, OFFSETS)]
    then = [Ack(OFFSETS + n, n, 4300 + 10 * n) for n in range(acks_of_the_second)]
    return [*first, *late, *then]


def old_log(end: int = OFFSETS, newest_ms: int = 4135, topic_id: str = FIRST, node: int = 1) -> Replica:
    """Return the log of the deleted topic that broker `node` has not removed yet. `end`: its log end offset.
    `newest_ms`: timestamp of its newest record, in ms since the run's start."""
    return Replica(
        node=node,
        topic="orders",
        partition=0,
        folder="orders-0.0-delete",
        log_start=0,
        log_end=end,
        epochs=(EpochStart(epoch=0, start=0),),
        topic_id=topic_id,
        deleted=True,
        newest_ms=WALL_MS + newest_ms,
    )


def samples() -> list[Any]:
    """Return the samples of the run. Some show the deleted log; a sample does not say which incarnation it shows."""
    return [
        *(sample(2000 + 400 * n, 1, 0, 24 * n, n1=25 * n, n2=24 * n) for n in range(6)),
        sample(4100, 1, 0, 124, n1=125, n2=124),
        sample(4210, 2, 0, 124, n1=125, n2=124),
        sample(4250, 2, 0, 0, n1=0, n2=0, n3=0),
        *(sample(4400 + 200 * n, 2, 0, 15 * n, n1=15 * n, n2=15 * n + 5) for n in range(5)),
    ]


@dataclass
class RecreatedRun(ObservedRun):
    """Content of a run directory with a topic that was created again; see `ObservedRun`."""

    records: list[dict[str, Any]] = field(default_factory=records)
    acks: list[Ack] = field(default_factory=acks)
    samples: list[Any] = field(default_factory=samples)
    events: list[dict[str, Any]] = field(
        default_factory=lambda: [
            event("fault-asked", 3900, fault=1, detail={"kind": "recreate", "nodes": [1]}),
            event("fault-recovered", 4290, fault=1),
        ]
    )
    log: tuple[tuple[int, int, int], ...] = ((0, 79, 0),)
    faults: str = FAULTS
    topic_id: str = SECOND
    deleted: tuple[Replica, ...] = field(default_factory=lambda: (old_log(),))


def told(run: ObservedRun, folder: Path) -> tuple[ConformanceFile, ClassExplained]:
    """Write the run into `folder` and replay it. Return the result, and its row about lost records."""
    folder.mkdir(exist_ok=True)
    file = run.conformed(folder)
    (lost,) = [one for one in file.classes if one.anomaly == "lost"]
    return file, lost

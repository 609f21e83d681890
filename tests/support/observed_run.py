"""Makes a small run directory whose steps Kafka could have taken; tests plant lies in it.

Brokers 1, 2 and 3 have replicas of orders/0. Broker 1 leads epoch 0 and acknowledges offsets 0 to 119; it dies with the
last twenty of them. Broker 2 leads epoch 1 from offset 100 on and acknowledges 100 to 179; broker 1 comes back and
joins the ISR.

Parameters `ms` are milliseconds since the run's start."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ackproof.rundir.model import ConformanceFile
from ackproof.rundir.observed import Sample
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.replicas import EpochStart, Replica, ReplicasFile
from ackproof_model.replay.metadata import conform
from run_directory import case_file, read_case, write_run

EXPERIMENT = """\
name: observed
cluster: {{kafka: "{kafka}"}}
topics:
  orders: {{partitions: {partitions}, replication_factor: 3, config: {{min.insync.replicas: 1}}}}
workload:
  producers: {{acks: {acks}, idempotence: false}}
  consumers: {{live: 1}}
  duration: 1s
{faults}"""
WALL_MS = 1_700_000_000_000
MS = 1_000_000
LOST = range(100, 120)
"""Seqs of the records that only broker 1 had."""


@dataclass
class Ack:
    """One acknowledged record. `lost`: the audit found it lost."""

    seq: int
    offset: int
    sent_ms: int
    lost: bool = False
    taken_ms: int = 5
    """Milliseconds from the send to the acknowledgement."""


def acks() -> list[Ack]:
    """Return the acknowledged records of the run; those of `LOST` are lost."""
    first = [Ack(seq, seq, 2000 + 10 * seq, lost=seq in LOST) for seq in range(120)]
    return first + [Ack(seq, seq - 20, 6000 + 10 * (seq - 120)) for seq in range(120, 200)]


def broker(offset: int, ms: int, node: int, epoch: int, *, fenced: bool) -> dict[str, Any]:
    """Return a metadata record by which a broker is fenced or unfenced. `epoch`: its broker epoch."""
    return _record(offset, ms, "broker", node=node, broker_epoch=epoch, fenced=fenced)


def registered(offset: int, ms: int, node: int) -> dict[str, Any]:
    """Return the metadata record of a new incarnation of a broker."""
    return _record(
        offset, ms, "broker-registered", node=node, broker_epoch=offset, incarnation=f"i{offset}", fenced=True
    )


def partition(
    offset: int, ms: int, leader: int, epochs: tuple[int, int], isr: list[int], *changed: str
) -> dict[str, Any]:
    """Return a metadata record with a state of orders/0. `epochs`: leader epoch and partition epoch. `changed`: fields
    that changed, default `isr`."""
    return _record(
        offset,
        ms,
        "partition",
        topic="orders",
        partition=0,
        leader=leader,
        leader_epoch=epochs[0],
        partition_epoch=epochs[1],
        replicas=[1, 2, 3],
        isr=isr,
        changed=changed or ["isr"],
    )


def _record(offset: int, ms: int, kind: str, **what: Any) -> dict[str, Any]:
    return {"offset": offset, "epoch": 1, "timestamp_ms": WALL_MS + ms, "kind": kind, **what}


def beginning() -> list[dict[str, Any]]:
    """Return the first metadata records: registrations of three brokers, and the creation of the partition."""
    found = []
    for node in (1, 2, 3):
        found += [registered(node, 100 * node, node), broker(10 + node, 400 + node, node, node, fenced=False)]
    return [*found, partition(20, 1000, 1, (0, 0), [1, 2, 3], "created")]


def metadata() -> list[dict[str, Any]]:
    """Return all metadata records of the run."""
    return [
        *beginning(),
        partition(30, 5000, 2, (1, 1), [2, 3], "isr", "leader"),
        broker(31, 5000, 1, 1, fenced=True),
        registered(40, 7000, 1),
        broker(41, 7100, 1, 40, fenced=False),
        partition(42, 7500, 2, (1, 2), [1, 2, 3]),
    ]


def sample(ms: int, leader: int, epoch: int, high_watermark: int, **log_ends: int) -> Sample:
    """Return a sample of orders/0, with all three replicas in sync. `log_ends`: log end offsets by n1, n2, n3."""
    return Sample(
        t_ns=ms * MS,
        topic="orders",
        partition=0,
        leader=leader,
        leader_epoch=epoch,
        replicas=(1, 2, 3),
        isr=(1, 2, 3),
        high_watermark=high_watermark,
        log_ends={int(node[1:]): end for node, end in log_ends.items()},
    )


def samples() -> list[Sample]:
    """Return the samples of the run: five of each leader's time, and five after broker 1 has come back."""
    return [
        *(sample(2000 + 300 * n, 1, 0, 25 * n, n1=25 * n, n2=25 * n) for n in range(5)),
        *(sample(6000 + 300 * n, 2, 1, 100 + 10 * n, n2=110 + 10 * n, n3=100 + 10 * n) for n in range(5)),
        *(sample(7900 + 300 * n, 2, 1, 170 + n, n1=170 + n, n2=180, n3=175 + n) for n in range(5)),
    ]


@dataclass
class ObservedRun:
    """Content of a run directory; `conformed` writes and replays it."""

    acks_setting: str = "1"
    kafka: str = "4.4.0"
    records: list[dict[str, Any]] = field(default_factory=metadata)
    acks: list[Ack] = field(default_factory=acks)
    samples: list[Sample] = field(default_factory=samples)
    events: list[dict[str, Any]] = field(default_factory=lambda: [event("node-ended", 4500, node=1)])
    log: tuple[tuple[int, int, int], ...] = ((0, 99, 0), (100, 179, 1))
    """Batches of every replica: first and last offset, leader epoch."""
    faults: str = ""
    """Faults of the experiment, as YAML."""
    partitions: int = 1
    topic_id: str = ""
    deleted: tuple[Replica, ...] = ()
    """Logs of deleted replicas that brokers have not removed yet."""
    stamps: dict[int, int] = field(default_factory=dict)
    """By offset: the timestamp that the final read shows, in ms since the start."""

    def conformed(self, folder: Path) -> ConformanceFile:
        """Write the run directory into `folder`, replay it, and return the result."""
        case = read_case(
            EXPERIMENT.format(
                acks=self.acks_setting, kafka=self.kafka, faults=self.faults, partitions=self.partitions
            ),
            seed=1,
        )
        run = write_run(
            folder,
            case_json=case_file(case, wall_ns=WALL_MS * MS),
            metadata_log=self.records,
            samples=self.samples,
            timeline=self.events,
            replicas=self._replicas(),
            replica_batches=[
                {
                    "node": node,
                    "topic": "orders",
                    "first_offset": first,
                    "last_offset": last,
                    "leader_epoch": epoch,
                }
                for node in (1, 2, 3)
                for first, last, epoch in self.log
            ],
            produced={"p0": [_produced(row) for row in self.acks]},
            findings=[
                {"class": "lost", "topic": "orders", "offset": row.offset, "seq": row.seq}
                for row in self.acks
                if row.lost
            ],
            closed=True,
        )
        if self.stamps:
            write_run(folder, consumed={"f0": _final_read(self.stamps)})
        return conform(run, case)

    def _replicas(self) -> ReplicasFile:
        return ReplicasFile(
            replicas=tuple(
                Replica(
                    node=node,
                    topic="orders",
                    partition=0,
                    folder="",
                    log_start=0,
                    log_end=self.log[-1][1] + 1,
                    epochs=tuple(EpochStart(epoch=epoch, start=first) for first, _, epoch in self.log),
                    topic_id=self.topic_id,
                )
                for node in (1, 2, 3)
            ),
            deleted=self.deleted,
        )


def event(kind: str, ms: int, **what: Any) -> dict[str, Any]:
    """Return an event of the timeline as JSON. `what`: further fields."""
    return {"t_ns": ms * MS, "wall_ns": (WALL_MS + ms) * MS, "kind": kind, **what}


def _final_read(stamps: dict[int, int]) -> list[dict[str, Any]]:
    fixed = {"phase": int(ReadPhase.FINAL), "topic": "orders", "origin_topic": "orders"}
    return [
        {**fixed, "offset": offset, "timestamp_ms": WALL_MS + ms} for offset, ms in sorted(stamps.items())
    ]


def _produced(row: Ack) -> dict[str, Any]:
    sent_ns = row.sent_ms * MS
    return {
        "seq": row.seq, "topic": "orders", "offset": row.offset, "sent_ns": sent_ns,
        "done_ns": sent_ns + row.taken_ms * MS,
    }  # fmt: skip

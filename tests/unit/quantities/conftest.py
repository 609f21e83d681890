"""Run directories with known answers: what the tests plant, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from ackproof.quantities.evidence import Evidence
from ackproof.rundir.documents import Client
from ackproof.rundir.metadata import LogEnded, MetadataRecord, PartitionChanged
from ackproof.rundir.observed import Sample
from ackproof.rundir.replicas import ReplicasFile
from ackproof.rundir.timeline import Event, EventKind
from run_directory import case_file, write_run

SECOND = 1_000_000_000
WALL_NS = 1_700_000_000 * SECOND
Make = Callable[..., Evidence]


def attempt(
    sent_s: float,
    done_s: float = -1,
    *,
    outcome: int = 0,
    partition: int = 0,
    offset: int = 0,
    error: int = 0,
) -> dict[str, Any]:
    """A row of the produced ledger; `done_s` below 0: it was never told."""
    return {
        "topic": "orders",
        "partition": partition,
        "outcome": outcome,
        "error": error,
        "offset": offset if outcome == 0 else -1,
        "sent_ns": round(sent_s * SECOND),
        "done_ns": round(done_s * SECOND) if done_s >= 0 else -1,
    }


def read(at_s: float, offset: int, *, phase: int = 0) -> dict[str, Any]:
    """A row of the consumed ledger."""
    place = {"topic": "orders", "origin_topic": "orders"}
    return {**place, "phase": phase, "offset": offset, "read_ns": round(at_s * SECOND)}


def look(
    at_s: float,
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    leader: int = 1,
    epoch: int = 0,
    mark: int = -1,
    partition: int = 0,
    replicas: tuple[int, ...] = (1, 2, 3),
    log_ends: dict[int, int] | None = None,
) -> Sample:
    """A look at a partition of orders."""
    return Sample(
        t_ns=round(at_s * SECOND),
        topic="orders",
        partition=partition,
        leader=leader,
        leader_epoch=epoch,
        replicas=replicas,
        isr=isr,
        high_watermark=mark,
        log_ends=log_ends or {},
    )


def looks(begin_s: float, end_s: float, **state: Any) -> list[Sample]:
    """Ten a second."""
    return [look(begin_s + number / 10, **state) for number in range(round((end_s - begin_s) * 10))]


def decided(number: int, at_s: float = 0, *, epoch: int = 1, **state: Any) -> PartitionChanged:
    """The record at an offset; each takes the next partition epoch."""
    usual: dict[str, Any] = {"leader": 1, "leader_epoch": 0, "isr": (1, 2, 3)}
    return PartitionChanged(
        offset=number,
        epoch=epoch,
        timestamp_ms=(WALL_NS + round(at_s * SECOND)) // 1_000_000,
        topic="orders",
        partition=0,
        partition_epoch=number,
        replicas=(1, 2, 3),
        **(usual | state),
    )


def ended(records: list[MetadataRecord]) -> list[MetadataRecord]:
    """With the line that says how many there are."""
    end = LogEnded(offset=len(records), epoch=1, timestamp_ms=0, records=len(records))
    return [*records, end]


def life(
    asked_s: float, confirmed_s: float | None, healed_s: float | None = None, kind: str = "kill"
) -> list[Event]:
    """The events of fault 1, which hit node 1."""
    times = {
        EventKind.FAULT_ASKED: asked_s,
        EventKind.FAULT_CONFIRMED: confirmed_s,
        EventKind.FAULT_HEALED: healed_s,
        EventKind.FAULT_RECOVERED: healed_s,
    }
    detail: dict[str, Any] = {"kind": kind, "nodes": [1]}
    return [
        event(what, at, fault=1, detail=detail if what is EventKind.FAULT_ASKED else {})
        for what, at in times.items()
        if at is not None
    ]


def event(kind: EventKind, at_s: float, **fields: Any) -> Event:
    """A line of the timeline, its wall clock in step."""
    t_ns = round(at_s * SECOND)
    return Event(t_ns=t_ns, wall_ns=fields.pop("wall_ns", WALL_NS + t_ns), kind=kind, **fields)


def scrape(at_s: float, node: int, told: dict[str, float] | None) -> list[dict[str, Any]]:
    """The rows of one scrape, answered after 10 ms; None: it was not."""
    times = {"t_ns": round(at_s * SECOND), "done_ns": round((at_s + 0.01) * SECOND), "node": node}
    values = {"up": float(told is not None), **(told or {})}
    return [{**times, "metric": name, "value": value} for name, value in values.items()]


def scrapes(metric: str, told: dict[int, Iterable[float | None]], begin_s: float = 0) -> list[dict[str, Any]]:
    """A scrape a second of each node; None: it did not answer; below 0: it did, and has no such metric."""
    return [
        row
        for node, values in told.items()
        for number, value in enumerate(values)
        for row in scrape(
            begin_s + number, node, None if value is None else {} if value < 0 else {metric: value}
        )
    ]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a run directory whose load lasts from 0 s to `ends_s`, and reads it as evidence."""

    def made(
        *,
        produced: Iterable[dict[str, Any]] = (),
        consumed: Iterable[dict[str, Any]] = (),
        samples: Iterable[Sample] = (),
        metadata: Iterable[MetadataRecord] = (),
        events: Iterable[Event] = (),
        metrics: Iterable[dict[str, Any]] = (),
        logs: ReplicasFile | None = None,
        batches: Iterable[dict[str, Any]] = (),
        ends_s: float = 10,
        parts: int = 1,
        partitions: int = 0,
        backend: str = "process",
        mode: str = "kraft",
    ) -> Evidence:
        phases = [
            event(EventKind.PHASE, at, detail={"phase": name})
            for name, at in (("load", 0), ("drain", ends_s))
        ]
        resolved = {
            "experiment": {"topics": {"orders": {"partitions": partitions}}, "cluster": {"mode": mode}}
        }
        run = write_run(
            tmp_path / "run",
            case_json=case_file(
                backend=backend, resolved=resolved, wall_ns=WALL_NS,
                clients=(Client(id="p0", kind="producer", producer=0),),
            ),
            timeline=[*phases, *events],
            samples=samples,
            metadata_log=list(metadata) or None,
            metrics=list(metrics) or None,
            replicas=logs,
            replica_batches=None if logs is None else batches,
            produced={"x": produced},
            consumed={"x": consumed},
            parts=parts,
            options={"row_group_size": 3},
        )  # fmt: skip
        return Evidence.of_run(run)

    return made

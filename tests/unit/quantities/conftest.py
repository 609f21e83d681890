"""Helpers that write run directories with planted rows, events and samples only, so that each quantity is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from ackproof.quantities.evidence import Evidence
from ackproof.rundir.documents import Client
from ackproof.rundir.metadata import LogEnded, MetadataRecord, PartitionChanged
from ackproof.rundir.observed import Sample
from ackproof.rundir.parts import ClientLibrary
from ackproof.rundir.replicas import ReplicasFile
from ackproof.rundir.schema import PRODUCED
from ackproof.rundir.timeline import Event, EventKind
from run_directory import case_file, to_table, write_run

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
    """Return a row of the produced ledger. `done_s`: time of the delivery report, below 0: there was none. A row whose
    `outcome` is not 0 has no offset."""
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
    """Return a row of the consumed ledger: a record of orders/0 that reader 0 got at `at_s`."""
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
    """Return a sample of a partition of orders, taken at `at_s`. `mark`: high watermark, -1: unknown."""
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
    """Return ten samples per second of a partition with this `state`, from `begin_s` to before `end_s`."""
    return [look(begin_s + number / 10, **state) for number in range(round((end_s - begin_s) * 10))]


def decided(number: int, at_s: float = 0, *, epoch: int = 1, **state: Any) -> PartitionChanged:
    """Return a record of the metadata log about orders/0, with offset and partition epoch `number`. `epoch`: the
    controller's. `state`: its other fields, by default leader 1 of leader epoch 0 and a full ISR."""
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
    """Return the records, followed by the last line of a complete metadata log, which has their number."""
    end = LogEnded(offset=len(records), epoch=1, timestamp_ms=0, records=len(records))
    return [*records, end]


def life(
    asked_s: float, confirmed_s: float | None, healed_s: float | None = None, kind: str = "kill"
) -> list[Event]:
    """Return the timeline events of fault 1, which hit node 1. None: the event did not occur; `healed_s` is also the
    time at which the healing was confirmed."""
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
    """Return an event at `at_s`. Its wall-clock time fits unless `wall_ns` is given."""
    t_ns = round(at_s * SECOND)
    return Event(t_ns=t_ns, wall_ns=fields.pop("wall_ns", WALL_NS + t_ns), kind=kind, **fields)


def scrape(at_s: float, node: int, told: dict[str, float] | None) -> list[dict[str, Any]]:
    """Return the rows of one scrape of a node, answered after 10 ms. `told`: its metrics; None: no answer."""
    times = {"t_ns": round(at_s * SECOND), "done_ns": round((at_s + 0.01) * SECOND), "node": node}
    values = {"up": float(told is not None), **(told or {})}
    return [{**times, "metric": name, "value": value} for name, value in values.items()]


def scrapes(metric: str, told: dict[int, Iterable[float | None]], begin_s: float = 0) -> list[dict[str, Any]]:
    """Return the rows of one scrape per second and node, from `begin_s` on. `told`: values of the metric by node; None:
    the node did not answer; below 0: it answered without this metric."""
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
    """Return a function that writes a run directory with these rows, and returns its `Evidence`. The load lasts from 0
    s to `ends_s`. `parts`: number of parts of each ledger. `partitions`: planned partitions of orders."""

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
        library: str = "",
        partitions: int = 0,
        backend: str = "process",
        mode: str = "kraft",
    ) -> Evidence:
        phases = [
            event(EventKind.PHASE, at, detail={"phase": name})
            for name, at in (("load", 0), ("drain", ends_s))
        ]
        written_by = ClientLibrary(library, "1").metadata() if library else None
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
            produced={"x": to_table(produced, PRODUCED).replace_schema_metadata(written_by)},
            consumed={"x": consumed},
            parts=parts,
            options={"row_group_size": 3},
        )  # fmt: skip
        return Evidence.of_run(run)

    return made

"""The processes of the final read: one for each reader of the order, or several that share its partitions.

A process reads about a million records a second and no more, however many processors there are: it is one Python.
Where there is much to read, the partitions of a reader are dealt out to a process for each processor. They are one
reader all the same: its number, its ledger's folder, each partition in one process from start to end. Each has an
assignment of its own and numbers its reads in a range of its own; the ledger's END is written when the last of them has
ended well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final, TypeVar

from ackproof.base.errors import WaitTimeout
from ackproof.base.processes import RunTag
from ackproof.base.wait import wait_until
from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import Client
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.partition import TopicPartition
from ackproof.workload.config import reader_config
from ackproof.workload.handles import Handle, Launcher
from ackproof.workload.settings import EXIT_CLEAN, FinalEnds, ReaderSettings, Share

T = TypeVar("T")
_FLUSH_ROWS: Final = 1 << 17
_FLUSH_S: Final = 5.0
_MODULE: Final = "ackproof.workload.reader"
_WORTH_A_PROCESS: Final = 500_000
"""Records: below that a process takes longer to start than it would read."""


@dataclass(frozen=True)
class FinalReadOrder:
    """What to read and how long to try.

    `isr_sizes` maps a topic to the ISR size that is awaited. `settle_s` bounds the wait for rest, `idle_s` how
    long the reader goes on without getting any further, `read_s` the read as a whole.
    """

    places: tuple[TopicPartition, ...]
    isr_sizes: Mapping[str, int]
    reader: int
    bootstrap: str
    transactions: bool = False
    """A second reader, with the next number, reads the same at read_committed."""
    settle_s: float = 60.0
    idle_s: float = 20.0
    read_s: float = 1800.0
    config: Mapping[str, str] = field(default_factory=dict)
    hidden: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of librdkafka that let the reader in, and are written nowhere."""

    @property
    def clients(self) -> tuple[Client, ...]:
        """The readers, as `case.json` lists them: at read_uncommitted, then at read_committed."""
        topics = tuple(dict.fromkeys(place.topic for place in self.places))
        first = Client(id="f0", kind="final", reader=self.reader, topics=topics, isolation="read_uncommitted")
        if not self.transactions:
            return (first,)
        second = {"id": "f1", "reader": self.reader + 1, "isolation": "read_committed"}
        return (first, first.model_copy(update=second))


@dataclass(frozen=True)
class ReadOutcome:
    """How far a reader came. `positions` by place; `problems` by the place's name; `reasons` of the whole.

    `records` that it was handed, by place; empty where that is not known.
    """

    positions: tuple[int, ...]
    problems: Mapping[str, str]
    reasons: list[str]
    records: tuple[int, ...] = ()


def dealt(sizes: Sequence[int], processes: int) -> tuple[tuple[int, ...], ...]:
    """Indices of `sizes` in so many groups of about the same sum, each in order; no group is empty.

    The largest first, each to the group that has least so far (Graham's LPT rule: within a third of the best).
    """
    groups: list[list[int]] = [[] for _ in range(max(1, min(processes, len(sizes))))]
    sums = [0] * len(groups)
    for index in sorted(range(len(sizes)), key=lambda index: (-sizes[index], index)):
        # of groups that have as much the one with fewer places: partitions without records are dealt out too
        least = min(range(len(groups)), key=lambda group: (sums[group], len(groups[group])))
        groups[least].append(index)
        sums[least] += sizes[index]
    return tuple(tuple(sorted(group)) for group in groups)


def _processes(sizes: Sequence[int], readers: int) -> int:
    """How many processes are worth starting for each of so many readers that read side by side."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores // readers, sum(sizes) // _WORTH_A_PROCESS, sum(size > 0 for size in sizes)))


def read_by_processes(
    order: FinalReadOrder,
    starts: tuple[int, ...],
    goals: tuple[int, ...],
    run: CaseDir,
    clock: RunClock,
    tag: RunTag,
    stop: Event | None,
) -> list[ReadOutcome]:
    """Let the readers of the order read, side by side; what each came to."""
    clients = order.clients
    sizes = [goal - start for start, goal in zip(starts, goals, strict=True)]
    groups = dealt(sizes, _processes(sizes, len(clients)))
    launcher = Launcher(run, tag, order.hidden)
    handles: list[Handle] = []
    outcomes = []
    try:
        for client in clients:
            for number, group in enumerate(groups):
                ends = FinalEnds(_of(group, starts), _of(group, goals), order.idle_s)
                share = Share(number, len(groups))
                process = client.model_copy(update={"id": share.name(client.id)})
                places = _of(group, order.places)
                settings = _settings(order, client, share, places, ends, run, clock, tag)
                handles.append(launcher.start(process, _MODULE, places, settings))
        for at, client in enumerate(clients):
            own = handles[at * len(groups) :]
            parts = [
                _outcome(handle, _of(group, starts), order.read_s, stop)
                for handle, group in zip(own, groups, strict=False)
            ]
            outcomes.append(_together(parts, groups, len(order.places)))
            if len(groups) > 1 and not outcomes[-1].reasons:
                from ackproof.rundir.ledger import mark_end  # Arrow, which few runs need here

                mark_end(run.consumed / client_folder(client.id))
        return outcomes
    finally:
        for handle in handles:
            handle.child.kill()
            handle.release()


def _of(group: tuple[int, ...], values: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(values[index] for index in group)


def _together(parts: Sequence[ReadOutcome], groups: Sequence[tuple[int, ...]], places: int) -> ReadOutcome:
    """What processes that shared the places came to, as one."""
    positions, records = [0] * places, [0] * places
    for part, group in zip(parts, groups, strict=True):
        for index, position in zip(group, part.positions, strict=True):
            positions[index] = position
        for index, count in zip(group, part.records, strict=bool(part.records)):
            records[index] = count
    return ReadOutcome(
        tuple(positions),
        {place: problem for part in parts for place, problem in part.problems.items()},
        [reason for part in parts for reason in part.reasons],
        tuple(records) if all(part.records for part in parts) else (),
    )


def _settings(
    order: FinalReadOrder,
    client: Client,
    share: Share,
    places: tuple[TopicPartition, ...],
    ends: FinalEnds,
    run: CaseDir,
    clock: RunClock,
    tag: RunTag,
) -> Callable[[Path, int], None]:
    isolation = client.isolation or "read_uncommitted"

    def write(path: Path, control_fd: int) -> None:
        ReaderSettings(
            client=client.id,
            reader=order.reader if client.reader is None else client.reader,
            run_id=tag.run_id,
            case_dir=str(run.path.absolute()),
            places=places,
            origin_ns=clock.origin_ns,
            flush_rows=_FLUSH_ROWS,
            flush_s=_FLUSH_S,
            control_fd=control_fd,
            config=reader_config(order.config, isolation, order.bootstrap, share.name(client.id), final=True),
            final=ends,
            share=share,
            committed=isolation == "read_committed",
        ).write(path)

    return write


def _outcome(handle: Handle, starts: tuple[int, ...], within_s: float, stop: Event | None) -> ReadOutcome:
    try:
        status = wait_until(
            lambda: _ended(handle), what="the final read to end", timeout_s=within_s, stop=stop
        )
    except WaitTimeout as error:
        return ReadOutcome(starts, {}, [str(error)])
    if status.code != EXIT_CLEAN:
        return ReadOutcome(starts, {}, [f"the final reader ended with status {status.code}: {handle.tail()}"])
    result = json.loads((handle.folder / "result.json").read_text(encoding="utf-8"))
    return ReadOutcome(tuple(result["positions"]), result["problems"], [], tuple(result["records"]))


@dataclass(frozen=True)
class _Status:
    """An exit status; true, whatever its number."""

    code: int


def _ended(handle: Handle) -> _Status | None:
    code = handle.child.poll()
    return None if code is None else _Status(code)

"""The processes of the final read: one for each reader, or several that share its partitions.

A Python process reads about a million records a second, however many processors there are. If there is much to read,
the partitions of a reader are divided among several processes, at most one for each processor. They are one reader: one
number, one ledger folder, each partition in one process from start to end. Each process has its own assignment number
and range of read_seq. `_END` is written once all of them have ended cleanly.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Final, TypeVar

from ackproof.base.errors import WaitTimeout
from ackproof.base.processes import RunTag
from ackproof.base.wait import wait_until
from ackproof.clients.contract import EXIT_CLEAN, Isolation, ReaderSettings
from ackproof.clients.launch import Handle, start_client
from ackproof.clients.librdkafka import adapter
from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import Client
from ackproof.rundir.guarantees import LIBRDKAFKA
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.partition import TopicPartition

T = TypeVar("T")
_FLUSH_S: Final = 5.0
_WORTH_A_PROCESS: Final = 500_000
"""Number of records per process: with fewer, starting another process takes longer than it saves."""


@dataclass(frozen=True)
class FinalReadOrder:
    """Order for the final read: the partitions to read, the awaited ISR sizes, and time limits in seconds.

    `reader`: number of the first reader in the ledgers. `isr_sizes`: awaited ISR size by topic. `settle_s`: longest
    wait for rest. `idle_s`: longest time of a reader process without progress. `read_s`: longest wait for one to end.

    Four fields name exceptions. `short`: partition → size of its ISR, which will not grow any more; the read does not
    wait for a full ISR there. `leaderless`: partitions that get no leader any more; the read does not wait for one.
    `hanging`: partitions where a hanging transaction keeps the last stable offset behind the high watermark.
    `compacted`: topics whose logs may be compacted, so that readers find no record at some offsets.

    `second`: True for a reader that reads again what another one has read. Its ledger is in `second-read` of the run.
    """

    places: tuple[TopicPartition, ...]
    isr_sizes: Mapping[str, int]
    reader: int
    bootstrap: str
    transactions: bool = False
    """True if a second reader, with the next number, reads at read_committed."""
    settle_s: float = 60.0
    idle_s: float = 20.0
    read_s: float = 1800.0
    hidden: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Library settings with secrets, which no file may hold."""
    short: Mapping[TopicPartition, int] = field(default_factory=dict)
    leaderless: frozenset[TopicPartition] = frozenset()
    hanging: frozenset[TopicPartition] = frozenset()
    compacted: frozenset[str] = frozenset()
    second: bool = False

    def isr_size(self, place: TopicPartition) -> int:
        """Return the ISR size to wait for before this partition is read: its topic's, or less if its ISR is known to
        stay short."""
        return min(self.isr_sizes[place.topic], self.short.get(place, self.isr_sizes[place.topic]))

    @property
    def isolations(self) -> tuple[Isolation, ...]:
        """Isolation level of each reader, in the order of the readers."""
        return ("read_uncommitted", "read_committed") if self.transactions else ("read_uncommitted",)

    @property
    def clients(self) -> tuple[Client, ...]:
        """The readers, as `case.json` lists them."""
        topics = tuple(dict.fromkeys(place.topic for place in self.places))
        return tuple(
            Client(
                id=f"{'s' if self.second else 'f'}{number}",
                kind="final",
                reader=self.reader + number,
                topics=topics,
                isolation=isolation,
            )
            for number, isolation in enumerate(self.isolations)
        )


@dataclass(frozen=True)
class ReadOutcome:
    """Result of one final reader. Offsets and counts are in the order of its partitions.

    `positions`: offset reached in each partition; below its end if the read gave up. `problems`: partition (as text) →
    why it could not be read. `reasons`: why processes of the reader failed; `positions` then has the start offsets of
    their partitions. `records`: records read from each partition; empty if unknown.
    """

    positions: tuple[int, ...]
    problems: Mapping[str, str]
    reasons: list[str]
    records: tuple[int, ...] = ()


def deal(sizes: Sequence[int], processes: int) -> tuple[tuple[int, ...], ...]:
    """Divide the indices of `sizes` into at most `processes` groups with about equal sums of sizes. No group is empty;
    without sizes, the result is one empty group.

    Graham's LPT rule: largest size first, each to the group with the smallest sum so far. The largest sum is at most a
    third above the best possible.
    """
    groups: list[list[int]] = [[] for _ in range(max(1, min(processes, len(sizes))))]
    sums = [0] * len(groups)
    for index in sorted(range(len(sizes)), key=lambda index: (-sizes[index], index)):
        # of groups with equal sums take the one with fewer partitions, so that empty partitions are spread too
        least = min(range(len(groups)), key=lambda group: (sums[group], len(groups[group])))
        groups[least].append(index)
        sums[least] += sizes[index]
    return tuple(tuple(sorted(group)) for group in groups)


def _processes(sizes: Sequence[int], readers: int) -> int:
    """Return the number of processes for each of `readers` concurrent readers: at least 1. `sizes`: number of records
    of each partition.

    The number is at most the reader's share of the processors, and at most the number of partitions with records.
    Several processes get at least `_WORTH_A_PROCESS` records each on average.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores // readers, sum(sizes) // _WORTH_A_PROCESS, sum(size > 0 for size in sizes)))


def read_by_processes(
    order: FinalReadOrder,
    starts: tuple[int, ...],
    goals: Sequence[tuple[int, ...]],
    clock: RunClock,
    tag: RunTag,
    stop: Event | None,
) -> list[ReadOutcome]:
    """Run the readers of the order concurrently and return the result of each. If a reader fails or takes too long, its
    result has the reasons, and nothing is raised. No process still runs when the function returns or raises.

    `starts`: first offset of each partition. `goals`: for each reader, the offset before which each partition ends.
    `starts` and `goals` are in the order of `order.places`. Raises `Interrupted` when `stop` is set, `BadInput` if a
    process cannot be started.
    """
    clients = order.clients
    sizes = [goal - start for start, goal in zip(starts, goals[0], strict=True)]
    groups = deal(sizes, _processes(sizes, len(clients)))
    folder = CaseDir(tag.case_dir).second_read if order.second else tag.case_dir
    handles: list[Handle] = []
    outcomes = []
    try:
        for number, client in enumerate(clients):
            for share, group in enumerate(groups):
                process = client.id if len(groups) == 1 else f"{client.id}.{share}"
                settings = ReaderSettings(
                    client=client.id,
                    reader=order.reader + number,
                    isolation=order.isolations[number],
                    run_id=tag.run_id,
                    case_dir=str(folder.absolute()),
                    places=_pick(group, order.places),
                    origin_ns=clock.origin_ns,
                    flush_s=_FLUSH_S,
                    config=adapter.reader_config(
                        {}, order.isolations[number], order.bootstrap, process, final=True
                    ),
                    library=LIBRDKAFKA,
                    library_version=adapter.installed_library().version,
                    committed=number > 0,
                    starts=_pick(group, starts),
                    ends=_pick(group, goals[number]),
                    idle_s=order.idle_s,
                    share=share,
                    shares=len(groups),
                    process=process,
                )
                handles.append(start_client(settings, tag, order.hidden))
        for number, client in enumerate(clients):
            own = handles[number * len(groups) :][: len(groups)]
            parts = [_outcome(handle, order.read_s, stop) for handle in own]
            outcomes.append(_combine(parts, groups, len(order.places)))
            if len(groups) > 1 and not outcomes[-1].reasons:
                from ackproof.rundir.parts import mark_end  # Arrow, which few runs need here

                mark_end(CaseDir(folder).consumed / client_folder(client.id))
        return outcomes
    finally:
        for handle in handles:
            handle.child.kill()
            handle.release()


def _pick(group: tuple[int, ...], values: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(values[index] for index in group)


def _combine(parts: Sequence[ReadOutcome], groups: Sequence[tuple[int, ...]], places: int) -> ReadOutcome:
    """Return one result for the results of the processes of one reader, without `records` if one of them has none.
    `groups`: indices of each process's partitions. `places`: number of partitions of the reader."""
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


def _outcome(handle: Handle, within_s: float, stop: Event | None) -> ReadOutcome:
    starts = tuple(handle.settings.starts) if isinstance(handle.settings, ReaderSettings) else ()
    try:
        wait_until(
            lambda: handle.child.poll() is not None,
            what="the final read to end",
            timeout_s=within_s,
            stop=stop,
        )
    except WaitTimeout as error:
        return ReadOutcome(starts, {}, [str(error)])
    if (status := handle.child.poll()) != EXIT_CLEAN:
        return ReadOutcome(starts, {}, [f"the final reader ended with status {status}: {handle.tail()}"])
    result = json.loads((handle.folder / "result.json").read_text(encoding="utf-8"))
    return ReadOutcome(tuple(result["positions"]), result["problems"], [], tuple(result["records"]))

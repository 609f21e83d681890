"""The final read (DESIGN §1): every partition, from its log start to its log end, once the cluster is at rest.

After every producer is closed: wait until each partition has an ISR of the declared size and its high watermark,
last stable offset and leader's log end are one and the same, at two looks a second apart in one leader epoch. Write
down start, end and epoch; let a process of its own read from start until its *position* reaches the end, and where
there are transactions a second one at read_committed; ask again. It is complete if every partition settled, was read
to its end by each, and stands as it stood.

What did not settle is read all the same, as far as it can be: what is present there is evidence even so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final, Protocol

from ackproof.errors import WaitTimeout
from ackproof.processes import RunTag
from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import Client, FinalReadFile, PartitionRead
from ackproof.rundir.layout import CaseDir
from ackproof.wait import wait_until
from ackproof.workload.config import reader_config
from ackproof.workload.handles import Handle, Launcher
from ackproof.workload.settings import EXIT_CLEAN, FinalEnds, Place, ReaderSettings

REST_S: Final = 1.0
"""Two looks that agree are at least so far apart."""
_LOOK_EVERY_S: Final = 0.1
_AFTER_S: Final = 15.0
"""So long leaders are asked how the logs stand after the read: one that is busy is no reason for doubt."""
_FLUSH_ROWS: Final = 1 << 17
_FLUSH_S: Final = 5.0
_MODULE: Final = "ackproof.workload.reader"


@dataclass(frozen=True)
class End:
    """What the leader of one partition says. Offsets; `log_end` asked as a debugging replica, -1 unknown."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    start: int
    high_watermark: int
    last_stable: int
    log_end: int

    @property
    def known(self) -> bool:
        """Whether there is a leader and it answered every question."""
        numbers = (self.leader, self.epoch, self.start, self.high_watermark, self.last_stable, self.log_end)
        return min(numbers) >= 0

    def unrest(self, isr_size: int) -> str:
        """Why this is not the state that the final read waits for; '' if it is."""
        if not self.known:
            return "no answer from a leader"
        if len(self.isr) < isr_size:
            return f"ISR is {sorted(self.isr)}, {isr_size} replicas are awaited"
        if not self.high_watermark == self.last_stable == self.log_end:
            return (
                f"high watermark {self.high_watermark}, last stable offset {self.last_stable} and "
                f"log end {self.log_end} differ"
            )
        return ""


class Ends(Protocol):
    """Who can be asked about partitions."""

    def look(self, places: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], End]:
        """Ask now, in seconds at most; a partition about which nothing is to be had is missing. Raises nothing."""


@dataclass
class _Watch:
    """The looks at one partition."""

    end: End | None = None
    since_s: float = 0.0
    settled: bool = False
    unrest: str = "not looked at yet"

    def see(self, end: End | None, isr_size: int, now_s: float) -> None:
        """Take a look into account. `settled` once the same rest was seen twice, `REST_S` apart."""
        self.unrest = "no answer" if end is None else end.unrest(isr_size)
        before, self.end = self.end, end if end is not None else self.end
        if self.unrest or end is None:
            self.since_s, self.settled = 0.0, False
        elif before is None or self.since_s == 0.0 or _moved(before, end):
            self.since_s, self.settled = now_s, False
            self.unrest = "at rest for less than a second"
        else:
            self.settled = now_s - self.since_s >= REST_S
            self.unrest = "" if self.settled else "at rest for less than a second"


def _moved(before: End, after: End) -> bool:
    return (before.epoch, before.start, before.log_end) != (after.epoch, after.start, after.log_end)


@dataclass(frozen=True)
class FinalReadOrder:
    """What to read and how long to try.

    `isr_sizes` maps a topic to the ISR size that is awaited. `settle_s` bounds the wait for rest, `idle_s` how
    long the reader goes on without getting any further, `read_s` the read as a whole.
    """

    places: tuple[Place, ...]
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


Read = Callable[[tuple[int, ...], tuple[int, ...]], ReadOutcome]
"""Reads each place from its start to its end, in the order of the places, at read_uncommitted."""


def final_read(
    order: FinalReadOrder,
    ends: Ends,
    run: CaseDir,
    clock: RunClock,
    tag: RunTag,
    *,
    stop: Event | None = None,
    read: Read | None = None,
) -> FinalReadFile:
    """Do the final read, write `observed/final-read.json`, and return it.

    `read` reads instead of a process of our own: from offsets up to offsets, one of each per place.

    Never raises for what the cluster does: an incomplete read says its reasons. Raises `Interrupted` when `stop` is
    set; the reader is ended in every case.
    """
    watches = {place: _Watch() for place in order.places}
    reasons = _settle(order, ends, watches, stop)
    starts = tuple(_start(watches[place]) for place in order.places)
    goals = tuple(_goal(watches[place]) for place in order.places)
    outcomes = [read(starts, goals)] if read else _read(order, starts, goals, run, clock, tag, stop)
    after = _after(ends, [place for place, watch in watches.items() if watch.settled], stop)
    found: list[tuple[PartitionRead, ...]] = []
    for who, outcome in zip(("", "at read_committed "), outcomes, strict=False):
        reasons += [who + reason for reason in outcome.reasons]
        partitions = [
            _partition(
                place, watches[place], starts[number], goals[number], after.get(place), outcome, number
            )
            for number, place in enumerate(order.places)
        ]
        reasons += [f"{who}{one.topic}/{one.partition}: {one.reason}" for one in partitions if one.reason]
        found.append(tuple(partitions))
    file = FinalReadFile(
        complete=not reasons,
        reasons=tuple(reasons),
        partitions=found[0],
        committed=found[1] if len(found) > 1 else (),
    )
    file.save(run.final_read)
    return file


def _partition(
    place: Place, watch: _Watch, start: int, goal: int, then: End | None, outcome: ReadOutcome, number: int
) -> PartitionRead:
    reason = _flaw(watch, goal, outcome.positions[number], then, outcome.problems.get(str(place), ""))
    return PartitionRead(
        topic=place.topic,
        partition=place.partition,
        start=start,
        end=goal,
        epoch=-1 if watch.end is None else watch.end.epoch,
        epoch_after=-1 if then is None else then.epoch,
        position=outcome.positions[number],
        complete=not reason,
        reason=reason,
        records=outcome.records[number] if outcome.records else -1,
    )


def _settle(order: FinalReadOrder, ends: Ends, watches: dict[Place, _Watch], stop: Event | None) -> list[str]:
    """Look until all partitions are at rest. What is wrong with the whole, if they do not come to it."""

    def look() -> bool:
        now = time.monotonic()
        seen = ends.look(order.places)
        for place, watch in watches.items():
            watch.see(seen.get(place), order.isr_sizes[place.topic], now)
        return all(watch.settled for watch in watches.values())

    try:
        wait_until(
            look,
            what="the cluster to settle",
            timeout_s=order.settle_s,
            interval_s=_LOOK_EVERY_S,
            stop=stop,
        )
    except WaitTimeout:
        return [f"the cluster did not settle within {order.settle_s:g} s"]
    return []


def _after(ends: Ends, places: list[Place], stop: Event | None) -> dict[tuple[str, int], End]:
    """How the logs of these places stand now. One that no leader tells of in time is missing."""
    seen: dict[tuple[str, int], End] = {}

    def look() -> bool:
        seen.update({place: end for place, end in ends.look(places).items() if end.known})
        return len(seen) == len(places)

    with suppress(WaitTimeout):  # each place that is missing is a reason of its own
        wait_until(
            look,
            what="the leaders to say how the logs stand after the read",
            timeout_s=_AFTER_S,
            interval_s=_LOOK_EVERY_S,
            stop=stop,
        )
    return seen


def _start(watch: _Watch) -> int:
    return 0 if watch.end is None else max(0, watch.end.start)


def _goal(watch: _Watch) -> int:
    """The offset to read up to: the log end at rest, else the last stable offset that was seen."""
    if watch.end is None:
        return 0
    return max(0, watch.end.last_stable, watch.end.start)


def _flaw(watch: _Watch, goal: int, position: int, after: End | None, problem: str) -> str:
    """Why the read of a partition is not complete; '' if it is."""
    if not watch.settled or watch.end is None:
        return watch.unrest
    if position < goal:
        return f"the reader came to {position} of {goal}" + (f": {problem}" if problem else "")
    if problem:
        return problem
    if after is None:
        return f"no answer from a leader in {_AFTER_S:g} s after the read"
    if after.epoch != watch.end.epoch:
        return f"the leader epoch was {watch.end.epoch} before the read and {after.epoch} after it"
    if _moved(watch.end, after):
        return (
            f"the log was {watch.end.start}–{watch.end.log_end} before the read and "
            f"{after.start}–{after.log_end} after it"
        )
    return ""


def _read(
    order: FinalReadOrder,
    starts: tuple[int, ...],
    goals: tuple[int, ...],
    run: CaseDir,
    clock: RunClock,
    tag: RunTag,
    stop: Event | None,
) -> list[ReadOutcome]:
    """Let a process for each client of the order read, side by side; what each came to."""
    handles: list[Handle] = []
    try:
        for client in order.clients:
            settings = _settings(order, client, FinalEnds(starts, goals, order.idle_s), run, clock, tag)
            launcher = Launcher(run, tag, order.hidden)
            handles.append(launcher.start(client, _MODULE, order.places, settings))
        return [_outcome(handle, starts, order.read_s, stop) for handle in handles]
    finally:
        for handle in handles:
            handle.child.kill()
            handle.release()


def _settings(
    order: FinalReadOrder, client: Client, ends: FinalEnds, run: CaseDir, clock: RunClock, tag: RunTag
) -> Callable[[Path, int], None]:
    isolation = client.isolation or "read_uncommitted"

    def write(path: Path, control_fd: int) -> None:
        ReaderSettings(
            client=client.id,
            reader=order.reader if client.reader is None else client.reader,
            run_id=tag.run_id,
            case_dir=str(run.path.absolute()),
            places=order.places,
            origin_ns=clock.origin_ns,
            flush_rows=_FLUSH_ROWS,
            flush_s=_FLUSH_S,
            control_fd=control_fd,
            config=reader_config(order.config, isolation, order.bootstrap, client.id, final=True),
            final=ends,
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

"""The windows of a soak: closed one after the other while the load goes on, read back, audited and reported at once.

A window closes when its time is over and each partition has a full ISR again, or after half a window anyway. It ends at
the high watermark of each partition. A separate reader, the follower, reads from the end of the previous window up to
this offset. The soaker then waits, for at most half a window, until the clients' ledgers have everything that was sent
by then. It starts a process that audits the window (`window`).

A window that cannot be closed or audited is reported, and its range is included in the next. The last window closes
with the final read.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from ackproof.base.errors import AckproofError, WaitTimeout
from ackproof.base.processes import RunTag, spawn
from ackproof.base.wait import wait_until
from ackproof.clients.contract import CHUNK_ROWS, Rotation
from ackproof.clients.final_read import End, ends_of
from ackproof.clients.final_readers import FinalReadOrder, read_by_processes
from ackproof.clients.workload import Workload
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.ledgers.lookup import NumberRuns
from ackproof.observe.watcher import Watcher
from ackproof.rundir.documents import FinalReadFile
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.ledger import parts
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import part_number
from ackproof.rundir.timeline import Timeline, WindowAudited
from ackproof.rundir.windows import (
    FOLLOWER,
    WindowFile,
    WindowRead,
    WindowTask,
    window_dir,
    window_findings,
    window_json,
    window_state,
)
from ackproof_lab.soak.forgetting import Forgetting

_LEAST_CHUNK: Final = 16
_PARTS: Final = 4
"""Least number of ledger parts per window. The audit waits until the current part is written, so parts must
be short.
"""
_MOST_FLUSH_S: Final = 5.0
_BURST: Final = 2
"""Greatest buffer of a reader, in multiples of the rows of a flush interval. A backlog after a fault becomes
several parts, because the memory of a larger buffer would never be freed.
"""
_FLUSHED_S: Final = 1.0
"""Time in seconds, from the end of a reader's flush interval, within which the reader has written its part."""
_AUDIT_S: Final = 600.0
_LOOK_EVERY_S: Final = 0.2


def rotation_of(spec: ExperimentSpec) -> Rotation:
    """Return the sizes of the ledger parts that an experiment's clients write. In a soak they are so small that
    each window has several parts of each client. Return the defaults without a soak, and if producers have
    no rate limit, because the size of a window is then unknown."""
    rate = spec.workload.producers.rate
    if spec.soak is None or rate is None:
        return Rotation()
    wanted = int(rate / spec.workload.producers.count * spec.soak.window / _PARTS)
    rows = 1 << max(_LEAST_CHUNK, min(CHUNK_ROWS, wanted)).bit_length() - 1
    flush_s = min(_MOST_FLUSH_S, spec.soak.window / _PARTS)
    return Rotation(rows, flush_s, min(CHUNK_ROWS, int(_BURST * rate * flush_s) + 1))


class Soaker(Watcher):
    """Closes and audits one window of a soak after the other from `start` to `stop`. `finish` closes the last
    one, after the final read.
    """

    NAME = "soak"
    DOES = "the audit of windows"

    def __init__(
        self,
        spec: ExperimentSpec,
        workload: Workload,
        cluster: Cluster,
        timeline: Timeline,
        tag: RunTag,
        hidden: Mapping[str, str],
    ) -> None:
        super().__init__(timeline)
        soak = spec.soak
        assert soak is not None, "only a soak has windows"
        self.window_s, self._rotation = soak.window, rotation_of(spec)
        self.ends_s = spec.workload.duration
        """End of the load, in seconds after `start`."""
        self._workload, self._ends, self._tag = workload, ends_of(cluster), tag
        self._case = CaseDir(tag.case_dir)
        self._order = FinalReadOrder(
            places=workload.places,
            isr_sizes={
                name: spec.evidence.isr_size or topic.replication_factor
                for name, topic in spec.topics.items()
            },
            reader=0,
            bootstrap=workload.bootstrap,
            hidden=hidden,
        )
        self._read: dict[TopicPartition, int] = dict.fromkeys(workload.places, 0)
        """Offset up to which the follower has read each partition."""
        self._audited: dict[str, NumberRuns] = defaultdict(NumberRuns)
        """Numbers of the ledger parts that were audited, by client id for producers, by folder name (`client=r0`) for
        readers."""
        self._state: Path | None = None
        """State file of the last audited window; None before the first."""
        self._number = 0
        self._since_ns = 0
        self._forgetting = (
            None
            if soak.keep is None
            else Forgetting(soak.keep, self._case, self._ends, cluster.running_links, timeline)
        )

    # -- while the load goes on ---------------------------------------------------------------------------------

    def _watch(self) -> None:
        began = time.monotonic()
        self._since_ns = self._timeline.clock.now()
        while not self._stop.is_set():
            passed = time.monotonic() - began
            due = (passed // self.window_s + 1) * self.window_s
            if self._stop.wait(due - passed) or due >= self.ends_s:
                return  # the last window closes with the final read
            self._close_and_audit(self._close)

    def _close_and_audit(self, close: Callable[[CaseDir], WindowTask]) -> None:
        """Close a window and audit it. On failure note the reason in the timeline, and leave the window's offsets to
        the next one. `close`: closes the window, whose folder it gets, and returns the task of its audit."""
        folder = window_dir(self._case, self._number)
        folder.path.mkdir(parents=True, exist_ok=True)
        try:
            order = close(folder)
            file = self._audit(order, folder)
        except (AckproofError, OSError) as error:
            for path in (window_json, window_findings, window_state):  # what its audit wrote does not count
                path(self._case, self._number).unlink(missing_ok=True)
            self._timeline.add(WindowAudited(number=self._number, audited=False, reasons=(str(error),)))
        else:
            self._take(order, file)
            self._timeline.add(
                WindowAudited(
                    number=file.number,
                    acked=file.acked,
                    followed=file.followed,
                    counts=file.counts,
                    reasons=(*file.reasons, *file.left),
                )
            )
            if self._forgetting is not None and not order.last:
                self._forgetting.forget()
        self._number += 1

    def _take(self, order: WindowTask, file: WindowFile) -> None:
        """Record that a window was audited, so that the next window starts at its end."""
        self._read.update({one.place: one.end for one in file.read})
        for client, taken in order.produced.items():
            self._note_audited(client, taken)
        for part in order.consumed:
            self._note_audited(Path(part).parent.name, [part])
        self._since_ns = file.to_ns
        if self._state is not None:
            self._state.unlink(missing_ok=True)
        self._state = None if order.last else window_state(self._case, order.number)
        if self._forgetting is not None:
            self._forgetting.take(order, file)

    def _close(self, folder: CaseDir) -> WindowTask:
        ends = self._await_full_isrs()
        left: list[str] = []
        reasons: list[str] = []
        closed = time.monotonic()
        sent = {
            client.id: self._workload.counters(client.id).sent
            for client in self._workload.clients
            if client.kind == "producer"
        }
        goals = tuple(self._goal(place, ends.get(place), left, reasons) for place in self._order.places)
        starts = tuple(self._read[place] for place in self._order.places)
        (outcome,) = read_by_processes(
            self._order,
            starts,
            [goals],
            self._timeline.clock,
            replace(self._tag, case_dir=folder.path),
            self._stop,
        )
        left += outcome.reasons
        reached = [
            min(goal, max(start, at))
            for start, goal, at in zip(starts, goals, outcome.positions, strict=True)
        ]
        for place, goal, at in zip(self._order.places, goals, reached, strict=True):
            if at < goal:
                problem = outcome.problems.get(str(place), "")
                left.append(
                    f"{place}: the follower read up to {at} of {goal}" + (f": {problem}" if problem else "")
                )
        flushed = closed + self._rotation.flush_s + _FLUSHED_S
        try:
            self._await(
                lambda: time.monotonic() >= flushed and self._ledgers_have(sent), "the clients' ledgers"
            )
        except WaitTimeout:
            left.append("the clients' ledgers do not have all that was sent yet")
        return self._ordered(reached, sent, parts(folder.consumed / client_folder(FOLLOWER)), left, reasons)

    def _await_full_isrs(self) -> Mapping[TopicPartition, End]:
        """Wait until each partition has a full ISR, at most half a window. Return the last answer about each partition
        (ISR, high watermark); partitions without an answer are missing."""
        seen: dict[TopicPartition, End] = {}

        def look() -> bool:
            seen.update(self._ends(self._order.places))
            return all(
                (end := seen.get(place)) is not None
                and end.high_watermark >= 0
                and len(end.isr) >= min(self._order.isr_sizes[place.topic], len(end.replicas) or 1)
                for place in self._order.places
            )

        with suppress(WaitTimeout):
            self._await(look, "every partition to have its full ISR")
        return seen

    def _goal(self, place: TopicPartition, end: End | None, left: list[str], reasons: list[str]) -> int:
        start = self._read[place]
        if end is None or end.high_watermark < 0:
            left.append(f"{place}: no leader answered with its log end")
            return start
        if end.high_watermark < start:
            reasons.append(
                f"{place} ends at {end.high_watermark}, and was read up to {start} before: it was truncated"
            )
            return start
        return end.high_watermark

    def _ledgers_have(self, sent: Mapping[str, int]) -> bool:
        """Return True if the ledger of each running producer has as many attempts as `sent` counts. `sent`: number of
        attempts by client id."""
        running = self._workload.running()
        for client, count in sent.items():
            if count and client in running:
                paths = parts(self._case.produced / client_folder(client))
                there = np.array([part_number(path) for path in paths], np.int64)
                wanted = np.arange((count - 1) // self._rotation.chunk_rows + 1)
                if not self._audited[client].union(there).has(wanted).all():
                    return False
        return True

    def _await(self, done: Callable[[], bool], what: str) -> None:
        wait_until(done, what=what, timeout_s=self.window_s / 2, interval_s=_LOOK_EVERY_S, stop=self._stop)

    # -- the audit ----------------------------------------------------------------------------------------------

    def _note_audited(self, client: str, taken: Sequence[str]) -> None:
        numbers = np.array([part_number(part) for part in taken], np.int64)
        self._audited[client] = self._audited[client].union(numbers)

    def _ordered(
        self,
        reached: Sequence[int],
        sent: Mapping[str, int],
        followed: Sequence[Path],
        left: Sequence[str],
        reasons: Sequence[str],
        *,
        last: bool = False,
    ) -> WindowTask:
        producers = {
            client.id: client.producer for client in self._workload.clients if client.producer is not None
        }
        readers = {client.id: client.reader for client in self._workload.clients if client.reader is not None}
        running = self._workload.running()
        return WindowTask(
            number=self._number,
            last=last,
            from_ns=self._since_ns,
            to_ns=self._timeline.clock.now(),
            read=tuple(
                WindowRead(topic=place.topic, partition=place.partition, start=self._read[place], end=end)
                for place, end in zip(self._order.places, reached, strict=True)
            ),
            chunk_rows=self._rotation.chunk_rows,
            stride=len(self._workload.written),
            produced={
                client: self._new(client, self._case.produced / client_folder(client)) for client in producers
            },
            producers=producers,
            sent=dict(sent),
            readers=tuple(number for client, number in readers.items() if client in running),
            consumed=tuple(
                part
                for client in readers
                for folder in [self._case.consumed / client_folder(client)]
                for part in self._new(folder.name, folder)
            ),
            followed=tuple(map(str, followed)),
            state="" if self._state is None else str(self._state),
            left=tuple(left),
            reasons=tuple(reasons),
        )

    def _new(self, client: str, folder: Path) -> tuple[str, ...]:
        paths = parts(folder)
        known = self._audited[client].has(np.array([part_number(path) for path in paths], np.int64))
        return tuple(str(path) for path, is_known in zip(paths, known, strict=True) if not is_known)

    def _audit(self, order: WindowTask, folder: CaseDir) -> WindowFile:
        """Run a process that audits a window, and return its result. Raises `AckproofError` with the last line of the
        process' output if it fails, `WaitTimeout` if it takes longer than ten minutes."""
        named = folder.path / "order.json"
        order.save(named)
        output = folder.path / "audit.log"
        child = spawn(
            [sys.executable, "-P", "-m", "ackproof_lab.soak.window", str(named)],
            run=self._tag,
            role="window-audit",
            cwd=folder.path,
            stdout=output,
        )
        try:
            wait_until(
                lambda: child.poll() is not None,
                what="the audit of a window",
                timeout_s=_AUDIT_S,
                stop=self._stop,
            )
        finally:
            child.kill()
        if child.poll() != 0:
            said = output.read_text(errors="replace").strip().splitlines()
            raise AckproofError(said[-1] if said else f"the audit ended with status {child.poll()}")
        named.unlink()
        output.unlink(missing_ok=True)
        return WindowFile.load(window_json(self._case, order.number))

    # -- at the end ---------------------------------------------------------------------------------------------

    def finish(self, final: FinalReadFile) -> None:
        """Close the last window with the final read, and audit it. A failure is an event of the timeline and is not
        raised. Call it after `stop`, when all clients have closed."""
        self._stop.clear()  # `stop` has set it; the audit that starts here must run
        reached = {TopicPartition(one.topic, one.partition): one.position for one in final.partitions}
        ends = [max(self._read[place], reached.get(place, 0)) for place in self._order.places]
        followed = parts(self._case.consumed / client_folder("f0"))
        self._close_and_audit(lambda _: self._ordered(ends, {}, followed, (), final.reasons, last=True))
        if self._state is not None:
            self._state.unlink(missing_ok=True)

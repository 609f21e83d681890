"""Runs the cases of one call in order, then audits, judges and reports them.

Spark audits all cases at once, after the last has run: it must not take the cores from a cluster under test.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from ackproof.base.errors import BadInput
from ackproof.cluster.backends.choice import prepare
from ackproof.cluster.install import Installation, install, jars_by_label, with_features
from ackproof.experiment.case import Case
from ackproof.experiment.kafka import KafkaBuild
from ackproof.faults.code.fitting import require_points
from ackproof.faults.command import require
from ackproof.provision.progress import in_words
from ackproof.repeats.decide import looks
from ackproof.run.batch_state import Batch, PlannedCase, lay_out, upload
from ackproof.run.case import CaseRun
from ackproof.run.extensions import find_simulator, require_extensions
from ackproof.run.machine import fit_to_machine, mark_missed, require_room
from ackproof.run.options import BatchOptions, PlannedBatch, command_of
from ackproof.run.phases import BatchWatcher, CaseOptions, Watcher
from ackproof.rundir.batch import OverRepeats
from ackproof.rundir.timeline import Event


def run_batch(planned_batch: PlannedBatch, watcher: BatchWatcher) -> Batch:
    """Run the planned cases; audit, judge and report them. Return the batch; `watcher` receives its progress.

    A KeyboardInterrupt is recorded in `batch.json` and raised again. Before the batch has a folder, raises
    `BadInput` (a missing tool, an unknown version) or another `AckproofError` (a failed download). Later,
    raises `BadInput` if every case was refused for something that the user must fix, and `MissingTool` if the audit
    finds no Java. Raises `AckproofError` if the copy to an object store fails, OSError if `batch.json` or a report
    cannot be written.
    """
    options = planned_batch.options
    planned_batch = replace(planned_batch, cases=fit_to_machine(planned_batch.cases))
    planned = planned_batch.cases
    if options.attachment is None and any(case.experiment.ground.foreign for _, case in planned):
        raise BadInput("backend: attach needs the address of the cluster: --bootstrap host:port")
    require_extensions([case for _, case in planned], simulate=options.simulate)
    require_room(options.here, [case for _, case in planned])
    ready = _provision([case for _, case in planned], watcher)
    batch = lay_out(planned_batch)
    batch.save()
    try:
        queue = batch.queue(planned_batch.order())
        while queue:
            _run_all(batch, queue, options, ready, watcher)
            batch.conclude(queue, watcher.step, simulate=options.simulate)
            queue = _plan_further(batch, planned_batch, watcher)
        batch.publish(watcher.step)
    except KeyboardInterrupt as interrupt:
        batch.interrupted = True
        batch.save()
        interrupt.add_note(f"in {batch.directory.path}")
        raise
    finally:
        if options.here == options.out:
            batch.point_latest()
    if all(one.refused for one in batch.planned):
        raise BadInput("\n".join(dict.fromkeys(str(one.error) for one in batch.planned)))
    if options.here != options.out:
        watcher.step(f"copying the batch to {options.out}")
        batch.uploaded = upload(batch.directory, options.out)
    return batch


def _provision(planned: Sequence[Case], watcher: BatchWatcher) -> dict[KafkaBuild, Installation]:
    """Fetch or build all that any case needs, before the first one starts. Return the installations by build.

    Raises `BadInput` for something that the user must fix, `ProvisionFailed` for a failed download or build, and
    `EngineFailed` if the container engine fails. Faults that act at a point of Kafka's code need this point in the jars
    (`require_points`): raises `WaitTimeout`, OSError or `zipfile.BadZipFile` if the jars cannot be searched.
    """
    tell = in_words(watcher.step)
    planned = [case for case in planned if not case.experiment.ground.simulated]
    for case in planned:
        prepare(case.experiment.backend, case.needs, case.builds, tell)
        require(case.faults)
    ours = [case for case in planned if not case.experiment.ground.foreign]
    ready = {
        build: install(build, tell) for build in dict.fromkeys(one for case in ours for one in case.builds)
    }
    require_points(ours, ready)
    for spec in (case.experiment.cluster for case in ours):
        # Whether Kafka accepts these feature levels must be known before anything is started.
        with_features(ready[spec.kafka], spec.features, tell)
    return ready


def _plan_further(batch: Batch, planned: PlannedBatch, watcher: BatchWatcher) -> list[PlannedCase]:
    """Add further repeats to the batch for expectations over repeats that are still open. Return the new cases in run
    order.

    An open expectation is updated to the number of repeats of its next test (`looks`). Each case that it compares is
    repeated up to that number. Returns [] without --until-decided, and if no expectation is open or can get more
    repeats.
    """
    if batch.at_most is None:
        return []
    wanted: dict[tuple[Path, int, int], dict[str, None]] = {}
    updated: list[OverRepeats] = []
    for (file, first), expectation in zip(planned.over_repeats, batch.over_repeats, strict=True):
        later = [look for look in looks(first.repeats, batch.at_most) if look[0] > expectation.repeats]
        if expectation.open and later:
            until, confidence = later[0]
            cells = wanted.setdefault((file, expectation.repeats, until), {})
            cells.update(dict.fromkeys(expectation.cells))
            expectation = expectation.model_copy(
                update={"repeats": until, "confidence": confidence, "verdict": None}
            )
        updated.append(expectation)
    batch.over_repeats = tuple(updated)
    cases = [
        (file, mark_missed(case))
        for (file, after, until), cells in wanted.items()
        for _, case in planned.further(file, list(cells), after, until)
    ]
    if cases:
        watcher.step(f"not decided yet: running {len(cases)} further cases")
        watcher.add_cases(len(cases))
    batch.add(cases)
    return batch.queue(cases)


def _run_all(
    batch: Batch,
    queue: Sequence[PlannedCase],
    options: BatchOptions,
    ready: dict[KafkaBuild, Installation],
    watcher: BatchWatcher,
) -> None:
    """Run these cases in order. The cluster of a case starts as soon as the faults of the case before it have healed;
    simulated cases have none. A case that fails keeps its error, and the next one runs."""
    prepared: _PreparedCase | None = None

    def replay(one: PlannedCase) -> str:
        return command_of(options, batch.seed, only=one.case.id, file=one.file)

    def prepare_case(one: PlannedCase, number: int) -> _PreparedCase:
        events = EventBuffer(watcher)
        own = CaseOptions(
            batch=str(batch.directory.path),
            replay=replay(one),
            keep_data=options.keep_data,
            installed=ready.get(one.case.experiment.cluster.kafka),
            jars=jars_by_label(one.case.builds, ready),
            attachment=options.attachment,
            healed=lambda: prepare_next(number + 1),
        )
        return _PreparedCase(CaseRun(one.case, one.run, own, events), events)

    def prepare_next(number: int) -> None:
        nonlocal prepared
        if number < len(queue) and not queue[number].case.experiment.ground.simulated:
            prepared = prepare_case(queue[number], number)

    try:
        for number, one in enumerate(queue):
            watcher.case_begins(one.case.id, one.case.experiment.cluster.members.rack_text)
            if one.case.experiment.ground.simulated:
                simulate = partial(find_simulator().run_case, one.case, one.run, replay(one), watcher.event)
                one.attempt(simulate, actor="the model")
            else:
                present, prepared = prepared or prepare_case(one, number), None
                one.attempt(present.go)
            batch.save()
            watcher.case_ends(one.case.id, one.error)
    finally:
        if prepared is not None:
            prepared.drop()


class EventBuffer:
    """Watcher that keeps the events of a case until the case before it has ended; `release` then passes them on. Later
    events, and the numbers of `live`, are passed on at once."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._lock = threading.Lock()
        self._kept: list[Event] | None = []

    def event(self, event: Event) -> None:
        """Keep the event, or pass it on after `release`."""
        with self._lock:
            if self._kept is not None:
                self._kept.append(event)
                return
        self._watcher.event(event)

    def live(self, acked: int, read: int, isr: str) -> None:
        """Pass the numbers of records and the ISRs on at once: a case has no load before `release`."""
        self._watcher.live(acked, read, isr)

    def release(self) -> None:
        """Pass on all kept events. Later events are passed on at once."""
        with self._lock:
            kept, self._kept = self._kept or [], None
        for event in kept:
            self._watcher.event(event)


class _PreparedCase:
    """A case whose cluster starts in a separate thread, while the case before it ends if there is one. `go` runs the
    case; `drop` ends a case that is not to be run."""

    def __init__(self, run: CaseRun, events: EventBuffer) -> None:
        self.run = run
        self._events = events
        self._stack = ExitStack()
        self._error: BaseException | None = None
        self._stack.enter_context(run)
        self._thread = threading.Thread(target=self._prepare, name="prepare-case", daemon=True)
        self._thread.start()

    def _prepare(self) -> None:
        try:
            self.run.prepare()
        except BaseException as error:  # noqa: BLE001 — raised again by `go`, on the thread that asks for the case
            self._error = error

    def go(self) -> None:
        """Wait until the cluster of the case is up, run the case, end it. Raises `AckproofError` if the run cannot be
        completed."""
        self._events.release()
        try:
            with self._stack:
                try:
                    self._thread.join()
                finally:
                    # After an interrupt, wait for the thread: it may still be starting the cluster that is ended next.
                    self._thread.join()
                if self._error is not None:
                    raise self._error
                self.run.go()
        finally:
            self.drop()

    def drop(self) -> None:
        """Wait for the thread that starts the cluster, then end all that it started. May be called twice."""
        self._thread.join()
        self._stack.close()

"""The cases of one call: their folder, their order, how each is brought through, `batch.json`.

Spark audits all cases at once, after the last has healed: it must not take the cores from a cluster under test.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from ackproof.base.errors import AckproofError, BadInput
from ackproof.cluster.backends.choice import prepare
from ackproof.cluster.install import Installation, install, jars_by_label, with_features
from ackproof.experiment.case import Case
from ackproof.experiment.kafka import KafkaBuild
from ackproof.experiment.timing import timing_name
from ackproof.faults.command import require
from ackproof.judge import judge_over_repeats
from ackproof.provision.progress import in_words
from ackproof.repeats.decide import looks
from ackproof.run.case import CaseRun
from ackproof.run.conclude import CaseResult, Step, conclude, entry_with, merged, publish
from ackproof.run.extensions import find_simulator, require_extensions
from ackproof.run.machine import fit_to_machine, mark_missed
from ackproof.run.options import BatchOptions, PlannedBatch, command_of
from ackproof.run.phases import CaseOptions, Watcher
from ackproof.run.prepared import HeldBack, PreparedCase
from ackproof.run.space import require_room
from ackproof.run.upload import upload
from ackproof.rundir.batch import BatchCase, BatchFile, OverRepeats
from ackproof.rundir.layout import BatchDir, CaseDir, safe_name
from ackproof.rundir.outcome import ExitCode
from ackproof.rundir.timeline import Event


class BatchWatcher(Watcher, Protocol):
    """Who follows a batch (the console's view)."""

    def case_begins(self, case: str, racks: str = "") -> None:
        """A case starts. `racks`: which node is in which rack, in words."""

    def case_ends(self, case: str, error: str | None) -> None:
        """A case is through; `error` when it could not be brought through."""

    def step(self, text: str) -> None:
        """Something that takes long begins."""

    def further(self, cases: int) -> None:
        """So many cases more will run."""


class Silent:
    """Follows a batch without a word, but for what takes long, which `progress` is told."""

    def __init__(self, progress: Step | None = None) -> None:
        self._progress = progress

    def case_begins(self, case: str, racks: str = "") -> None:
        self.step(f"{case}  racks {racks}" if racks else case)

    def case_ends(self, case: str, error: str | None) -> None:
        if error is not None:
            self.step(f"{case}: {error}")

    def step(self, text: str) -> None:
        if self._progress is not None:
            self._progress(text)

    def further(self, cases: int) -> None:
        pass

    def event(self, event: Event) -> None:
        pass

    def live(self, acked: int, read: int, isr: str) -> None:
        pass


@dataclass
class PlannedCase:
    """A case on its way: where it goes, and what came of it so far."""

    case: Case
    file: Path
    run: CaseDir
    error: str | None = None
    """Why the harness could not bring it through."""
    refused: bool = False
    """Whether that is the user's to mend."""
    result: CaseResult | None = None
    order: int = 0
    """Position in run order, from 1."""

    def bring(self, through: Callable[[], object], who: str = "the harness") -> None:
        """Call `through`; what it raises is this case's error, so that no other case suffers."""
        try:
            through()
        except AckproofError as error:
            self.error, self.refused = str(error), isinstance(error, BadInput)
        except Exception as error:  # noqa: BLE001 — one case that crashes must not take the others' results along
            self.error = f"{who} failed: {type(error).__name__}: {error}"


@dataclass
class Batch:
    """A batch while it is being run. `directory` exists from the first moment on."""

    name: str
    seed: int
    directory: BatchDir
    command: str
    planned: list[PlannedCase] = field(default_factory=list)
    experiments: dict[Path, str] = field(default_factory=dict)
    """What the experiments of several files are called beside each other; empty for one file."""
    over_repeats: tuple[OverRepeats, ...] = ()
    """What is expected over repeats, and what came of it by now."""
    claimed: tuple[OverRepeats, ...] = ()
    """The same of what shows claims."""
    at_most: int | None = None
    interrupted: bool = False
    uploaded: BatchDir | None = None
    """Where it is in the end, if that is a store."""

    @property
    def kept(self) -> BatchDir:
        """Where it is."""
        return self.uploaded or self.directory

    def document(self) -> BatchFile:
        """What `batch.json` says now."""
        whole = BatchFile(
            verdict=None,
            exit_code=0,
            seed=self.seed,
            name=self.name,
            command=self.command,
            cases=tuple(self._entry(one) for one in self.planned),
            over_repeats=self.over_repeats,
            claimed=self.claimed,
            at_most=self.at_most,
        )
        if not self.interrupted:
            return merged(whole)
        return whole.model_copy(update={"interrupted": True, "exit_code": int(ExitCode.HARNESS_FAILED)})

    def _entry(self, one: PlannedCase) -> BatchCase:
        entry = BatchCase(
            case=one.case.id,
            experiment=self.experiments.get(one.file, ""),
            settings=one.case.settings,
            cell=one.case.cell,
            repeat=one.case.repeat,
            error=one.error,
            timing=timing_name(one.case.experiment),
            run=str(one.run.path.relative_to(self.directory.path)),
            order=one.order,
        )
        return entry if one.result is None else entry_with(entry, one.result)

    def add(self, cases: Sequence[tuple[Path, Case]]) -> None:
        """Plan these, too; each has a folder of its own."""
        several = len({file for file, _ in cases} | {one.file for one in self.planned}) > 1
        for number, (file, case) in enumerate(cases, start=len(self.planned) + 1):
            run = self.directory.case(case.id)
            if several:
                home = self.directory.path / safe_name(f"{number:02d}-{case.experiment.name}")
                run = CaseDir(home / run.path.name)
            self.planned.append(PlannedCase(case, file, run))

    def in_order(self, cases: Sequence[tuple[Path, Case]]) -> list[PlannedCase]:
        """Those of its cases, which are about to run in this order."""
        by_id = {(one.file, one.case.id): one for one in self.planned}
        queue = [by_id[file, case.id] for file, case in cases]
        done = sum(one.order > 0 for one in self.planned)
        for order, one in enumerate(queue, start=done + 1):
            one.order = order
        return queue

    def save(self) -> None:
        """Rewrite `batch.json`."""
        self.document().save(self.directory.batch_json)

    def conclude(self, planned: Sequence[PlannedCase], step: Step, *, simulate: bool = False) -> None:
        """Audit these cases as one job, judge each, and write down what came of it."""
        failed = {one.run for one in planned if one.error is not None}
        results = conclude([one.run for one in planned], step, failed=failed, simulate=simulate)
        for one, result in zip(planned, results, strict=True):
            one.result = result
        judged = judge_over_repeats(self.directory, self.document())
        self.over_repeats, self.claimed = judged.over_repeats, judged.claimed
        self.save()

    def publish(self, step: Step) -> None:
        """Write `batch.json` and the reports."""
        publish(self.directory, self.document(), step)

    def point_latest(self) -> None:
        """`latest` → this batch, in one step; a file that somebody put there is left alone."""
        out = self.directory.path.parent
        link = out / "latest"
        if link.exists() and not link.is_symlink():
            return
        temporary = out / f".latest.{os.getpid()}.{secrets.token_hex(4)}"
        temporary.symlink_to(self.directory.path.name)
        temporary.replace(link)


def run_batch(planned_batch: PlannedBatch, watcher: BatchWatcher) -> Batch:
    """Run, audit, judge and report. A KeyboardInterrupt is written into `batch.json` and raised again.

    Raises `BadInput` before anything is left on disk (a missing tool, an unknown version), and where every case was
    refused for what the user must mend.
    """
    options = planned_batch.options
    planned_batch = replace(planned_batch, cases=fit_to_machine(planned_batch.cases))
    planned = planned_batch.cases
    if options.attachment is None and any(case.experiment.ground.foreign for _, case in planned):
        raise BadInput("backend: attach needs to know where the cluster is: --bootstrap host:port")
    require_extensions([case for _, case in planned], simulate=options.simulate)
    require_room(options.here, [case for _, case in planned])
    ready = _provision([case for _, case in planned], watcher)
    batch = _lay_out(planned_batch)
    batch.save()
    try:
        queue = batch.in_order(planned_batch.order())
        while queue:
            _run_all(batch, queue, options, ready, watcher)
            batch.conclude(queue, watcher.step, simulate=options.simulate)
            queue = _further(batch, planned_batch, watcher)
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
    """All that any case needs, before the first one: nothing is fetched, and nothing lacks, while a cluster runs."""
    tell = in_words(watcher.step)
    planned = [case for case in planned if not case.experiment.ground.simulated]
    for case in planned:
        prepare(case.experiment.backend, case.needs, case.builds, tell)
        require(case.faults)
    ours = [case for case in planned if not case.experiment.ground.foreign]
    ready = {
        build: install(build, tell) for build in dict.fromkeys(one for case in ours for one in case.builds)
    }
    for spec in (case.experiment.cluster for case in ours):
        # What Kafka says to these levels must be known before anything is started.
        with_features(ready[spec.kafka], spec.features, tell)
    return ready


def told_apart(planned: Sequence[tuple[Path, Case]]) -> dict[Path, str]:
    """What the experiments of several files are called beside each other; nothing where there is one file."""
    names = {file: case.experiment.name for file, case in planned}
    if len(names) < 2:
        return {}
    count = Counter(names.values())
    # As far as their paths differ: by base names in one folder, by folders where two have one base name.
    shared = os.path.commonpath([file.absolute().parent for file in names])
    called = {file: os.path.relpath(file.absolute(), shared) for file in names}
    return {file: name if count[name] == 1 else f"{name} ({called[file]})" for file, name in names.items()}


def same_names(planned: Sequence[tuple[Path, Case]]) -> Iterator[str]:
    """Files whose experiments have one name, in a sentence each."""
    files: dict[str, dict[str, None]] = {}
    for file, case in planned:
        files.setdefault(case.experiment.name, {})[str(file)] = None
    for name, mine in files.items():
        if len(mine) > 1:
            yield f"{' and '.join(mine)} are both called {name}: the report tells them apart by their files"


def _lay_out(planned: PlannedBatch) -> Batch:
    options = planned.options
    name = "+".join(dict.fromkeys(case.experiment.name for _, case in planned.cases))
    seed = options.seed if options.seed is not None else planned.cases[0][1].experiment.seed
    batch = new_batch(options.here, name, seed, command_of(options, seed))
    batch.experiments = told_apart(planned.cases)
    batch.at_most = options.at_most
    batch.add(planned.cases)

    def begun(file: Path, one: OverRepeats) -> OverRepeats:
        _, sure = looks(one.repeats, (not one.claim and options.at_most) or one.repeats)[0]
        return one.model_copy(update={"experiment": batch.experiments.get(file, ""), "confidence": sure})

    batch.over_repeats = tuple(begun(*one) for one in planned.over_repeats)
    batch.claimed = tuple(begun(*one) for one in planned.claimed)
    return batch


def new_batch(out: Path, title: str, seed: int, command: str) -> Batch:
    """A batch without cases, in a folder that nobody else has, even if two of one name start in the same second."""
    name = safe_name(title)[:80]
    stamped = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{name}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        for suffix in ("", *(f"-{number}" for number in range(2, 100))):
            path = out / f"{stamped}{suffix}"
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return Batch(name, seed, BatchDir(path.resolve()), command)
    except OSError as error:
        raise BadInput(f"{out}: a batch cannot be kept there: {error.strerror}") from error
    raise BadInput(f"{out}: there are a hundred batches called {stamped}")


def _further(batch: Batch, planned: PlannedBatch, watcher: BatchWatcher) -> list[PlannedCase]:
    """Repeats for what is not decided yet, in the order in which they take place; none where nothing is to be had."""
    if batch.at_most is None:
        return []
    wanted: dict[tuple[Path, int, int], dict[str, None]] = {}
    told: list[OverRepeats] = []
    for (file, first), one in zip(planned.over_repeats, batch.over_repeats, strict=True):
        later = [look for look in looks(first.repeats, batch.at_most) if look[0] > one.repeats]
        if one.open and later:
            until, confidence = later[0]
            wanted.setdefault((file, one.repeats, until), {}).update(dict.fromkeys(one.cells))
            one = one.model_copy(update={"repeats": until, "confidence": confidence, "verdict": None})
        told.append(one)
    batch.over_repeats = tuple(told)
    cases = [
        (file, mark_missed(case))
        for (file, after, until), cells in wanted.items()
        for _, case in planned.further(file, list(cells), after, until)
    ]
    if cases:
        watcher.step(f"not decided yet: {len(cases)} further cases")
        watcher.further(len(cases))
    batch.add(cases)
    return batch.in_order(cases)


def _run_all(
    batch: Batch,
    queue: Sequence[PlannedCase],
    options: BatchOptions,
    ready: dict[KafkaBuild, Installation],
    watcher: BatchWatcher,
) -> None:
    """These cases in order. The cluster of each starts as soon as the case before it has healed."""
    prepared: PreparedCase | None = None

    def replay(one: PlannedCase) -> str:
        return command_of(options, batch.seed, only=one.case.id, file=one.file)

    def prepare_case(one: PlannedCase, number: int) -> PreparedCase:
        held = HeldBack(watcher)
        own = CaseOptions(
            batch=str(batch.directory.path),
            replay=replay(one),
            keep_data=options.keep_data,
            installed=ready.get(one.case.experiment.cluster.kafka),
            jars=jars_by_label(one.case.builds, ready),
            attachment=options.attachment,
            healed=lambda: prepare_next(number + 1),
        )
        return PreparedCase(CaseRun(one.case, one.run, own, held), held)

    def prepare_next(number: int) -> None:
        nonlocal prepared
        if number < len(queue) and not queue[number].case.experiment.ground.simulated:
            prepared = prepare_case(queue[number], number)

    try:
        for number, one in enumerate(queue):
            watcher.case_begins(one.case.id, one.case.experiment.cluster.members.rack_text)
            if one.case.experiment.ground.simulated:
                _through_the_model(one, replay(one), watcher)
            else:
                present, prepared = prepared or prepare_case(one, number), None
                one.bring(present.go)
            batch.save()
            watcher.case_ends(one.case.id, one.error)
    finally:
        if prepared is not None:
            prepared.drop()


def _through_the_model(one: PlannedCase, replay: str, watcher: BatchWatcher) -> None:
    simulator = find_simulator()
    one.bring(lambda: simulator.run_case(one.case, one.run, replay, watcher.event), who="the model")

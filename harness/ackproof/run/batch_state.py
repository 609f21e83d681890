"""A running batch: its folder, the results of its cases so far, and `batch.json`."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ackproof.base.errors import AckproofError, BadInput
from ackproof.experiment.case import Case
from ackproof.experiment.timing import timing_name
from ackproof.judge import judge_over_repeats
from ackproof.repeats.decide import looks
from ackproof.run.conclude import CaseResult, Step, add_result, combine_verdicts, conclude, publish
from ackproof.run.options import PlannedBatch, command_of
from ackproof.rundir.batch import BatchCase, BatchFile, OverRepeats
from ackproof.rundir.layout import BatchDir, CaseDir, safe_name
from ackproof.rundir.outcome import ExitCode
from ackproof.rundir.parts import digest


@dataclass
class PlannedCase:
    """A case of a running batch, with its run directory. `attempt` runs it and stores an `error`; `Batch.conclude` sets
    `result`, which is None before. `file`: its experiment file; for a stored case, the folder that has its run
    directory."""

    case: Case
    file: Path
    run: CaseDir
    error: str | None = None
    """Reason why the harness could not complete the case; None if it could, or has not tried yet."""
    refused: bool = False
    """True if the user must fix what `error` says."""
    result: CaseResult | None = None
    order: int = 0
    """Position in run order, from 1; 0 before `Batch.queue`."""

    def attempt(self, action: Callable[[], object], actor: str = "the harness") -> None:
        """Call `action`. Store an exception as this case's `error`, so that other cases continue. `actor`: who failed,
        for the message."""
        try:
            action()
        except AckproofError as error:
            self.error, self.refused = str(error), isinstance(error, BadInput)
        except Exception as error:  # noqa: BLE001 — one case that crashes must not take the others' results along
            self.error = f"{actor} failed: {type(error).__name__}: {error}"


@dataclass
class Batch:
    """A batch while it runs: its cases with their results so far, and the expectations over their repeats.

    Its directory exists from the start. `name`: made from the names of the experiments. `seed`: that of the options,
    else that of the first case's experiment. `command`: the command line that repeats the batch.
    """

    name: str
    seed: int
    directory: BatchDir
    command: str
    planned: list[PlannedCase] = field(default_factory=list)
    experiments: dict[Path, str] = field(default_factory=dict)
    """Name of each file's experiment in the report (`distinguish`); empty if the batch has one file."""
    over_repeats: tuple[OverRepeats, ...] = ()
    """Expectations over repeats, with their results so far."""
    claimed: tuple[OverRepeats, ...] = ()
    """Statistics over repeats that the files' claims (`claims:`) need, with their results so far."""
    at_most: int | None = None
    """Greatest number of repeats of a case under `--until-decided`; None: the number of repeats is fixed."""
    interrupted: bool = False
    """True once the user has stopped the batch."""
    uploaded: BatchDir | None = None
    """Location of the batch in an object store; None before it is copied there."""

    @property
    def location(self) -> BatchDir:
        """Location of the batch: in the object store if it was copied there, else on this machine."""
        return self.uploaded or self.directory

    def document(self) -> BatchFile:
        """Return the content of `batch.json`: the results so far."""
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
            return combine_verdicts(whole)
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
        return entry if one.result is None else add_result(entry, one.result)

    def add(self, cases: Sequence[tuple[Path, Case]]) -> None:
        """Add cases to the batch, and name a folder for each. The folders are not created."""
        several = len({file for file, _ in cases} | {one.file for one in self.planned}) > 1
        for number, (file, case) in enumerate(cases, start=len(self.planned) + 1):
            run = self.directory.case(case.id)
            if several:
                home = self.directory.path / safe_name(f"{number:02d}-{case.experiment.name}")
                run = CaseDir(home / run.path.name)
            self.planned.append(PlannedCase(case, file, run))

    def queue(self, cases: Sequence[tuple[Path, Case]]) -> list[PlannedCase]:
        """Number these cases (`order`) as the next to run, in this order, and return them."""
        by_id = {(one.file, one.case.id): one for one in self.planned}
        queue = [by_id[file, case.id] for file, case in cases]
        done = sum(one.order > 0 for one in self.planned)
        for order, one in enumerate(queue, start=done + 1):
            one.order = order
        return queue

    def save(self) -> None:
        """Rewrite `batch.json`. Raises OSError if it cannot be written."""
        self.document().save(self.directory.batch_json)

    def conclude(self, planned: Sequence[PlannedCase], step: Step, *, simulate: bool = False) -> None:
        """Audit these cases as one job, judge those without an `error` and all expectations over repeats, and write the
        results into `batch.json`.

        `step` is called with the name of each long step. `simulate`: also simulate the cases without an `error`, for
        the report. Raises as `run.conclude.conclude`, and OSError if `batch.json` cannot be written.
        """
        failed = {one.run for one in planned if one.error is not None}
        results = conclude([one.run for one in planned], step, failed=failed, simulate=simulate)
        for one, result in zip(planned, results, strict=True):
            one.result = result
        judged = judge_over_repeats(self.directory, self.document())
        self.over_repeats, self.claimed = judged.over_repeats, judged.claimed
        self.save()

    def publish(self, step: Step) -> None:
        """Write `batch.json` and the reports. `step` is called with the name of each long step. Raises OSError if a
        file cannot be written."""
        publish(self.directory, self.document(), step)

    def point_latest(self) -> None:
        """Point the symbolic link `latest` to this batch, atomically. A file or folder of this name is left alone."""
        out = self.directory.path.parent
        link = out / "latest"
        if link.exists() and not link.is_symlink():
            return
        temporary = out / f".latest.{os.getpid()}.{secrets.token_hex(4)}"
        temporary.symlink_to(self.directory.path.name)
        temporary.replace(link)


def distinguish(planned: Sequence[tuple[Path, Case]]) -> dict[Path, str]:
    """Return a unique name for the experiment of each file, with the path if several have the same; {} for a single
    file."""
    names = {file: case.experiment.name for file, case in planned}
    if len(names) < 2:
        return {}
    count = Counter(names.values())
    # Use the parts of the paths that differ: base names within one folder, folders where base names are equal.
    shared = os.path.commonpath([file.absolute().parent for file in names])
    called = {file: os.path.relpath(file.absolute(), shared) for file in names}
    return {file: name if count[name] == 1 else f"{name} ({called[file]})" for file, name in names.items()}


def warn_of_same_names(planned: Sequence[tuple[Path, Case]]) -> Iterator[str]:
    """Yield a warning for each name that the experiments of several files have."""
    files: dict[str, dict[str, None]] = {}
    for file, case in planned:
        files.setdefault(case.experiment.name, {})[str(file)] = None
    for name, mine in files.items():
        if len(mine) > 1:
            yield f"{' and '.join(mine)} have the same experiment name, {name}: the report adds the file names"


def lay_out(planned: PlannedBatch) -> Batch:
    """Create the folder of a planned batch, and return the batch; folders of cases are named, but not created. Raises
    `BadInput` if the folder cannot be created."""
    options = planned.options
    name = "+".join(dict.fromkeys(case.experiment.name for _, case in planned.cases))
    seed = options.seed if options.seed is not None else planned.cases[0][1].experiment.seed
    batch = new_batch(options.here, name, seed, command_of(options, seed))
    batch.experiments = distinguish(planned.cases)
    batch.at_most = options.at_most
    batch.add(planned.cases)

    def begin(file: Path, one: OverRepeats) -> OverRepeats:
        _, sure = looks(one.repeats, (not one.claim and options.at_most) or one.repeats)[0]
        return one.model_copy(update={"experiment": batch.experiments.get(file, ""), "confidence": sure})

    batch.over_repeats = tuple(begin(*one) for one in planned.over_repeats)
    batch.claimed = tuple(begin(*one) for one in planned.claimed)
    return batch


def new_batch(out: Path, title: str, seed: int, command: str) -> Batch:
    """Return an empty batch in a new folder of `out`, named by the time and `title`. If that name is taken, it gets a
    number. `command`: the command line that repeats the batch. Raises `BadInput` if the folder cannot be made."""
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
        raise BadInput(
            f"{out}: cannot make a folder for the batch: {error.strerror}. Name another place with --out"
        ) from error
    raise BadInput(f"{out}: 99 batches are called {stamped} already")


def upload(batch: BatchDir, out: Path) -> BatchDir:
    """Copy a finished batch to an object store, compare every file there, and remove the local batch. Return the batch
    at its new location. Raises `AckproofError` if the copy fails: then the local batch is still complete. `batch.json`
    is copied last."""
    there = BatchDir(out / batch.path.name)
    files = sorted(path for path in batch.path.rglob("*") if path.is_file() and path != batch.batch_json)
    try:
        for path in [*files, batch.batch_json]:
            copy = there.path / path.relative_to(batch.path).as_posix()
            with path.open("rb") as file, copy.open("wb") as into:
                shutil.copyfileobj(file, into, 1 << 22)
            if digest(copy) != digest(path):
                raise OSError(f"{copy}: the copy differs from what was written")
    except OSError as error:
        why = str(error).splitlines()[0]
        raise AckproofError(
            f"{out}: the batch could not be copied there ({why}). It is still in {batch.path}"
        ) from error
    shutil.rmtree(batch.path)
    return there

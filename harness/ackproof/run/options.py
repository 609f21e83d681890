"""What one call of `ackproof run` asks for: which cases of which files that means, and the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ackproof.base.errors import BadInput
from ackproof.experiment.case import Case, find_cases
from ackproof.plan.cases import case_from_json, cases, load
from ackproof.plan.matrix import Plan
from ackproof.plan.repeats import in_rounds
from ackproof.plan.schedule import describe_pairs
from ackproof.rundir.batch import BatchFile, OverRepeats
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.storage import is_stored

if TYPE_CHECKING:
    from ackproof.cluster.backends.attach.cluster import Attachment
    from ackproof.plan.soaking import Soak

RUNS = Path("runs")


@dataclass(frozen=True)
class BatchOptions:
    """What one call asks for. `backend`, `seed`, `repeat` override the files'."""

    files: tuple[Path, ...]
    backend: str | None = None
    seed: int | None = None
    repeat: int | None = None
    only: tuple[str, ...] = ()
    """The cases that are meant, with or without their repeat (`acks=1#2`, `acks=1`); all when empty."""
    settings: tuple[str, ...] = ()
    """`PATH=VALUE`, over what the files say."""
    attachment: Attachment | None = None
    """Where the cluster is that someone else runs, and what lets us in."""
    out: Path = RUNS
    keep_data: bool = False
    simulate: bool = False
    """Whether simulated runs are made beside each case, for the report."""
    stored: bool = False
    """Whether `files` are runs on disk, whose cases are repeated as they were drawn (`stored_cases`)."""
    soak: Soak | None = None
    """Let each case's load last so long, audited window by window."""
    at_most: int | None = None
    """Go on with further repeats until what is expected over them is decided, up to so many of each case."""
    shard: tuple[int, int] | None = None
    """Of the cases only each nth: `(1, 4)` has the first, the fifth, …"""

    @property
    def here(self) -> Path:
        """Where the batch is made: in `out`, or on this machine where that is a store."""
        return RUNS if is_stored(self.out) else self.out


@dataclass(frozen=True)
class PlannedBatch:
    """What a call comes to before anything is started. `cases`: each with its file, in the order of the matrix."""

    options: BatchOptions
    cases: Sequence[tuple[Path, Case]]
    plans: dict[Path, Plan] = field(default_factory=dict)

    @property
    def over_repeats(self) -> Iterator[tuple[Path, OverRepeats]]:
        """What is expected over repeats, with its file, as far as all of these are among the cases."""
        yield from self._whole(lambda plan: plan.over_repeats)

    @property
    def claimed(self) -> Iterator[tuple[Path, OverRepeats]]:
        """The same of what shows claims."""
        yield from self._whole(lambda plan: plan.claimed)

    def _whole(self, of: Callable[[Plan], Sequence[OverRepeats]]) -> Iterator[tuple[Path, OverRepeats]]:
        for file, plan in self.plans.items():
            yield from ((file, one) for one in of(plan) if not self._left_out(file, one))

    @property
    def not_asked(self) -> Iterator[str]:
        """What is expected over repeats, and not of these cases: some of its own are not among them."""
        for file, plan in self.plans.items():
            for one in plan.over_repeats:
                if left_out := self._left_out(file, one):
                    yield f"expected, and not looked at here: {one.title}: {left_out} is left out"

    def _left_out(self, file: Path, one: OverRepeats) -> str | None:
        there = {case.id for its, case in self.cases if its == file}
        wanted = (f"{cell}#{repeat}" for cell in one.cells for repeat in range(1, one.repeats + 1))
        return next((case for case in wanted if case not in there), None)

    def order(self) -> list[tuple[Path, Case]]:
        """In which order they take place: that of the matrix, or of a file that compares them in rounds."""
        spanning = {file for file, _ in (*self.over_repeats, *self.claimed)}
        told: list[tuple[Path, Case]] = []
        for file in dict.fromkeys(file for file, _ in self.cases):
            mine = [case for its, case in self.cases if its == file]
            told += [
                (file, case) for case in (in_rounds(mine, self._seed(file)) if file in spanning else mine)
            ]
        return told

    def further(self, file: Path, cells: Sequence[str], after: int, until: int) -> list[tuple[Path, Case]]:
        """Repeats of these cells behind `after`, up to `until`, in the order in which they take place."""
        every = cases(self.plans[file], seed=self.options.seed, repeat=until)
        wanted = [case for case in every if case.repeat > after and case.id.rpartition("#")[0] in cells]
        return [(file, case) for case in in_rounds(wanted, self._seed(file))]

    def describe(self) -> Iterator[str]:
        """What is expected over repeats, and the order of the runs where that is not the matrix' own: lines of text."""
        for plan in self.plans.values():
            yield from describe_pairs(plan, len(self.cases))
        asked = [one for _, one in (*self.over_repeats, *self.claimed)]
        for one in asked:
            yield f"{one.claim or 'expected'} over {one.repeats} repeats: {one.title}"
        if asked:
            yield "order of the runs, drawn from the seed round by round:"
            rounds: dict[int, list[str]] = {}
            for _, case in self.order():
                rounds.setdefault(case.repeat, []).append(case.id)
            yield from (f"  {'  '.join(ids)}" for ids in rounds.values())

    def _seed(self, file: Path) -> int:
        return self.plans[file].spec.seed if self.options.seed is None else self.options.seed


def plan_here(
    file: Path,
    settings: tuple[str, ...] = (),
    *,
    backend: str | None = None,
    repeat: int | None = None,
    soak: Soak | None = None,
) -> Plan:
    """A file as `load` reads it, with what `backend: auto` is on this machine now."""
    plan = load(file, settings, backend=backend, repeat=repeat, soak=soak)
    if plan.spec.backend != "auto":
        return plan
    # All that makes clusters takes as long to load as the rest of a plan.
    from ackproof.cluster.backends.choice import resolve

    return load(file, settings, backend=resolve(plan.spec.backend), repeat=repeat, soak=soak)


def plan_batch(options: BatchOptions, warn: Callable[[str], None] = lambda _: None) -> PlannedBatch:
    """All cases of all files. Raises `BadInput` before anything is started. `warn` is told of what is doubtful."""
    found: list[tuple[Path, Case]] = []
    plans: dict[Path, Plan] = {}
    if options.attachment is not None:
        options.attachment.check()
    for file in options.files:
        plan = plan_here(
            file, options.settings, backend=options.backend, repeat=options.repeat, soak=options.soak
        )
        for warning in plan.warnings:
            if options.at_most is None or warning not in plan.too_few_repeats:
                warn(str(warning))
        plans[file] = plan
        found += [(file, case) for case in cases(plan, seed=options.seed)]
    chosen = _only(found, options.only)
    if options.shard is not None:
        index, count = options.shard
        chosen = chosen[index - 1 :: count]
        if not chosen:
            raise BadInput(f"--shard {index}/{count}: there are only {len(found)} runs")
    planned = PlannedBatch(options, chosen, plans)
    for text in planned.not_asked:
        warn(text)
    if options.at_most is not None:
        _check_at_most(planned, options.at_most, warn)
    return planned


def _check_at_most(planned: PlannedBatch, at_most: int, warn: Callable[[str], None]) -> None:
    if not any(True for _ in planned.over_repeats):
        raise BadInput(
            "--until-decided: nothing is expected over repeats, so that there is nothing to decide"
        )
    for file, one in planned.over_repeats:
        if one.repeats > at_most:
            raise BadInput(f"--at-most {at_most}: {file} has {one.repeats} repeats to begin with")
        if one.needed > at_most:
            warn(f"--at-most {at_most}: {one.title} takes {one.needed} repeats or more")


def plan_cases(
    options: BatchOptions, warn: Callable[[str], None] = lambda _: None
) -> list[tuple[Path, Case]]:
    """The cases of `plan_batch`, in the order of the matrix."""
    return list(plan_batch(options, warn).cases)


def stored_cases(directories: Sequence[Path], only: Sequence[str] = ()) -> list[tuple[Path, Case]]:
    """The cases of runs on disk, of cases or of all cases of a batch, every choice as it was drawn then; each with the
    folder that its experiment's cases share.

    `only` chooses as `find_cases` does. Raises `BadInput` for what holds no case, for a name that chooses none, and for
    a run on a cluster that someone else runs: how to get in there is not kept.
    """
    found: list[tuple[Path, Case]] = []
    for directory in directories:
        runs = [CaseDir(directory)]
        if BatchDir(directory).batch_json.exists():
            runs = [
                CaseDir(directory / one.run) for one in BatchFile.load(BatchDir(directory).batch_json).cases
            ]
        for run in runs:
            if not run.case_json.exists():
                raise BadInput(f"{run.path}: neither a case nor a batch; give one such as runs/latest")
            stored = CaseFile.load(run.case_json)
            case = case_from_json(stored.resolved)
            if case.experiment.ground.foreign:
                raise BadInput(
                    f"{run.path}: it ran on a cluster that someone else runs; again: {stored.replay}"
                )
            found.append((run.path.parent, case))
    return _only(found, only)


def expected_then(directories: Sequence[Path]) -> Iterator[str]:
    """What these batches expected over repeats. Raises `BadInput` for one that cannot be read."""
    for directory in directories:
        if (there := BatchDir(directory).batch_json).exists():
            yield from (one.title for one in BatchFile.load(there).over_repeats)


def _only(found: list[tuple[Path, Case]], wanted: Sequence[str]) -> list[tuple[Path, Case]]:
    """The cases that these names choose (`find_cases`); all where none is named."""
    ids = [case.id for _, case in found]
    chosen = {case_id for name in wanted for case_id in find_cases(name, ids)}
    return [(file, case) for file, case in found if not wanted or case.id in chosen]


def command_of(options: BatchOptions, seed: int, only: str | None = None, file: Path | None = None) -> str:
    """The one command that repeats this batch, or one case of it."""
    files = [str(file)] if file is not None else [str(path) for path in options.files]
    words = ["ackproof", "run", *files, "--seed", str(seed)]
    if options.stored:
        words = ["ackproof", "replay", *map(str, options.files)]
    if options.repeat is not None:
        words += ["--repeat", str(options.repeat)]
    if options.soak is not None:
        words += ["--soak", options.soak.text]
        words += ["--keep", str(options.soak.keep)] if options.soak.keep is not None else []
    if options.at_most is not None and only is None:
        words += ["--until-decided", "--at-most", str(options.at_most)]
    if options.attachment is not None:
        # Settings that were given one by one may be secret.
        words += ["--bootstrap", options.attachment.bootstrap]
        if options.attachment.file is not None:
            words += ["--client-config", str(options.attachment.file)]
    elif options.backend is not None:
        words += ["--backend", options.backend]
    for setting in options.settings:
        words += ["--set", setting]
    for case in (only,) if only is not None else options.only:
        words += ["--case", case]
    if options.shard is not None and only is None:
        words += ["--shard", "{}/{}".format(*options.shard)]
    return shlex.join(words)

"""Options of one call of `ackproof run`, the cases that they select, and the command that repeats the call."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

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
Where = TypeVar("Where")


@dataclass(frozen=True)
class BatchOptions:
    """Options of one call of `ackproof run`. `files`: experiment files. `backend`, `seed` and `repeat` override the
    values in the files; None: no override. `out`: folder in which the folder of the batch is created."""

    files: tuple[Path, ...]
    backend: str | None = None
    seed: int | None = None
    repeat: int | None = None
    only: tuple[str, ...] = ()
    """Ids of the cases to take, with or without their repeat (`acks=1#2`, `acks=1`); empty: all."""
    settings: tuple[str, ...] = ()
    """Settings `PATH=VALUE`, which override those of the files."""
    attachment: Attachment | None = None
    """Address and credentials of a cluster that someone else runs; None: no such cluster is used."""
    out: Path = RUNS
    keep_data: bool = False
    """True: keep the brokers' data after each run, or the run's topics on an attached cluster."""
    simulate: bool = False
    """True: also simulate each case, for the report."""
    stored: bool = False
    """True: `files` are runs on disk. Their cases run again with the same random choices (`stored_cases`)."""
    soak: Soak | None = None
    """Duration of each case's load, which is audited window by window; None: the load is that of the file, and is
    audited as a whole."""
    at_most: int | None = None
    """Maximum number of repeats of each case (`--until-decided`): further repeats run until the expectations
    over repeats are decided. None: no further repeats."""
    shard: tuple[int, int] | None = None
    """(number, shards): run only this share of the cases. `(1, 4)` has the first, the fifth, …"""

    @property
    def here(self) -> Path:
        """Local folder in which the batch is created: `out`, or a folder on this machine if `out` is an object
        store."""
        return RUNS if is_stored(self.out) else self.out


@dataclass(frozen=True)
class PlannedBatch:
    """Cases of a call before anything is started, each with its file, file by file in the order of the matrix. `plans`:
    the plan of each file; empty for stored cases."""

    options: BatchOptions
    cases: Sequence[tuple[Path, Case]]
    plans: dict[Path, Plan] = field(default_factory=dict)

    @property
    def over_repeats(self) -> Iterator[tuple[Path, OverRepeats]]:
        """Yield (file, expectation) for each expectation over repeats, such as `p95 < 6s` over 20 repeats of a case. An
        expectation that needs a repeat which is not among the cases is left out (`unchecked`)."""
        yield from self._complete(lambda plan: plan.over_repeats)

    @property
    def claimed(self) -> Iterator[tuple[Path, OverRepeats]]:
        """Yield (file, measurement) for each measurement over repeats that a claim (`claims:`) asks for, if all its
        repeats are among the cases."""
        yield from self._complete(lambda plan: plan.claimed)

    def _complete(
        self, select: Callable[[Plan], Sequence[OverRepeats]]
    ) -> Iterator[tuple[Path, OverRepeats]]:
        for file, plan in self.plans.items():
            yield from ((file, one) for one in select(plan) if not self._missing_case(file, one))

    @property
    def unchecked(self) -> Iterator[str]:
        """Yield a warning for each expectation over repeats that cannot be checked because a case was not selected."""
        for file, plan in self.plans.items():
            for one in plan.over_repeats:
                if missing := self._missing_case(file, one):
                    yield f"not checked here: {one.title}: it needs the case {missing}, which is not selected"

    def _missing_case(self, file: Path, one: OverRepeats) -> str | None:
        there = {case.id for its, case in self.cases if its == file}
        wanted = (f"{cell}#{repeat}" for cell in one.cells for repeat in range(1, one.repeats + 1))
        return next((case for case in wanted if case not in there), None)

    def order(self) -> list[tuple[Path, Case]]:
        """Return the cases, each with its file, in run order: file by file, in the order of the matrix. A file with
        expectations or claims over repeats runs in rounds of one repeat each, in an order drawn from the seed."""
        spanning = {file for file, _ in (*self.over_repeats, *self.claimed)}
        ordered: list[tuple[Path, Case]] = []
        for file in dict.fromkeys(file for file, _ in self.cases):
            mine = [case for its, case in self.cases if its == file]
            ordered += [
                (file, case) for case in (in_rounds(mine, self._seed(file)) if file in spanning else mine)
            ]
        return ordered

    def further(self, file: Path, cells: Sequence[str], after: int, until: int) -> list[tuple[Path, Case]]:
        """Return the repeats `after` + 1 to `until` of some cells of a file, in run order. `cells`: ids of cases
        without their repeat, such as `acks=all`."""
        every = cases(self.plans[file], seed=self.options.seed, repeat=until)
        wanted = [case for case in every if case.repeat > after and case.id.rpartition("#")[0] in cells]
        return [(file, case) for case in in_rounds(wanted, self._seed(file))]

    def describe(self) -> Iterator[str]:
        """Yield lines of text about the batch: the pairs of fault kinds of its storms, its expectations and claims over
        repeats, and the run order if there are such expectations or claims."""
        for plan in self.plans.values():
            yield from describe_pairs(plan, len(self.cases))
        asked = [one for _, one in (*self.over_repeats, *self.claimed)]
        for one in asked:
            yield f"{one.claim or 'expected'} over {one.repeats} repeats: {one.title}"
        if asked:
            yield "run order, drawn from the seed for each round:"
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
    """Return the plan of an experiment file, checked, with `backend: auto` resolved on this machine. The other
    parameters override the file, as in `plan.cases.load`. Raises `InvalidExperiment` for a wrong file, `BadInput` if it
    cannot be read or one of `settings` is wrong."""
    plan = load(file, settings, backend=backend, repeat=repeat, soak=soak)
    if plan.spec.backend != "auto":
        return plan
    # Import here: the cluster modules take as long to load as the rest of a plan.
    from ackproof.cluster.backends.choice import resolve

    return load(file, settings, backend=resolve(plan.spec.backend), repeat=repeat, soak=soak)


def plan_batch(options: BatchOptions, warn: Callable[[str], None] = lambda _: None) -> PlannedBatch:
    """Read and check all files, and return the cases that the options select. Nothing is started. Raises `BadInput` for
    a wrong file or option.

    `warn` is called with each warning. With `options.at_most`, the run itself adds repeats, so warnings about too few
    repeats are left out.
    """
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
    for text in planned.unchecked:
        warn(text)
    if options.at_most is not None:
        _check_at_most(planned, options.at_most, warn)
    return planned


def _check_at_most(planned: PlannedBatch, at_most: int, warn: Callable[[str], None]) -> None:
    if not any(True for _ in planned.over_repeats):
        raise BadInput(
            "--until-decided: the files have no expectation over repeats, so there is nothing to decide"
        )
    for file, one in planned.over_repeats:
        if one.repeats > at_most:
            raise BadInput(
                f"--at-most {at_most}: {file} starts with {one.repeats} repeats; give at least that"
            )
        if one.needed > at_most:
            warn(f"--at-most {at_most}: {one.title} needs {one.needed} repeats or more")


def plan_cases(options: BatchOptions) -> list[tuple[Path, Case]]:
    """Return the cases of `plan_batch`, each with its file, in the order of the matrix. Raises `BadInput` if a file or
    an option is wrong."""
    return list(plan_batch(options, lambda _: None).cases)


def stored_cases(directories: Sequence[Path], only: Sequence[str] = ()) -> list[tuple[Path, Case]]:
    """Return the cases of runs on disk, which can run again, each with the folder that contains its run directory.

    `only` is as for `stored_runs`. Raises `BadInput` as `stored_runs` does, and for a run on an attached cluster, whose
    credentials are not kept.
    """
    found = stored_runs(directories, only)
    for run, case in found:
        if case.experiment.ground.foreign:
            command = CaseFile.load(run.case_json).replay
            raise BadInput(
                f"{run.path}: it ran on a cluster that someone else runs. Run it again with: {command}"
            )
    return [(run.path.parent, case) for run, case in found]


def stored_runs(directories: Sequence[Path], only: Sequence[str] = ()) -> list[tuple[CaseDir, Case]]:
    """Return runs on disk, each with its case and the random choices of that case.

    A directory is a case or a batch. `only`: ids of the cases to take, with or without their repeat; empty: all. Raises
    `BadInput` for a directory without a case, and for a name in `only` that selects none or is ambiguous.
    """
    found: list[tuple[CaseDir, Case]] = []
    for directory in directories:
        runs = [CaseDir(directory)]
        if BatchDir(directory).batch_json.exists():
            runs = [
                CaseDir(directory / one.run) for one in BatchFile.load(BatchDir(directory).batch_json).cases
            ]
        for run in runs:
            if not run.case_json.exists():
                raise BadInput(f"{run.path}: neither a case nor a batch; give one such as runs/latest")
            found.append((run, case_from_json(CaseFile.load(run.case_json).resolved)))
    return _only(found, only)


def expected_then(directories: Sequence[Path]) -> Iterator[str]:
    """Yield in words the expectations over repeats of stored batches. A folder that is no batch is skipped. Raises
    `BadInput` for a batch that cannot be read."""
    for directory in directories:
        if (there := BatchDir(directory).batch_json).exists():
            yield from (one.title for one in BatchFile.load(there).over_repeats)


def _only(found: list[tuple[Where, Case]], wanted: Sequence[str]) -> list[tuple[Where, Case]]:
    """Return the cases that these names select (`find_cases`); all if no name is given. Raises `BadInput` for a name
    that selects none or is ambiguous."""
    ids = [case.id for _, case in found]
    chosen = {case_id for name in wanted for case_id in find_cases(name, ids)}
    return [(where, case) for where, case in found if not wanted or case.id in chosen]


def command_of(options: BatchOptions, seed: int, only: str | None = None, file: Path | None = None) -> str:
    """Return the command line that repeats this batch with `seed`. `only`: repeat only the case with this id; None: the
    cases that the options select. `file`: repeat only this experiment file; None: all files of the options.

    For stored runs it is `ackproof replay` with all of them, without `seed` and `file`. Settings of an attached cluster
    that -X gave are left out, because they may be secret. Also left out are --out, --keep-data and --simulate; with
    `only`, --shard and --until-decided as well.
    """
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
        # Settings given by -X may be secret.
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

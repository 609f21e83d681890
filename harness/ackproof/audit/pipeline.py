"""One audit of any number of directories, from their footers to `audit.json`, usually in one round of Spark jobs.

`ackproof run` calls it at the end of a batch, and `ackproof audit` on its own. Steps of a round; `audit.stages` draws
them:

1. Read the footers of each directory and plan its units. A small directory is one unit (`Plan.whole`).
2. Split row groups that hold several partitions, so that each bucket has the rows of one partition.
3. Count each bucket as one unit. A *hot* bucket, one with too many rows for a task, is cut in three ways, because no
   cut suits all classes: walk units follow its readers (order), slice units then count ranges of identities (producer
   and seq), place units count ranges of offsets. `audit.slices` draws it.
4. Compare the order of records again where slices overlap (order units). Audit the consumer groups of large runs.
5. Publish the counts of each directory, or set broken files aside and repeat the round.

A directory with a file that cannot be decoded is audited again without this file, and one with wrong
statistics without these statistics. The other directories are not affected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from ackproof.audit import results, stages
from ackproof.audit.bucket import Totals
from ackproof.audit.group_planning import ExaminedGroup, examine_groups, plan_group
from ackproof.audit.group_units import GroupUnit, do_group
from ackproof.audit.outputs import SPARED, Outputs
from ackproof.audit.planning import Plan, bucket_units, plan_units
from ackproof.audit.results import (
    BAD_INPUT,
    COUNTED,
    INCOMPLETE,
    AuditResult,
    add_unrecovered,
    collect_deleted,
    copy_window_findings,
    find_unexplained_deletions,
    read_deleted_windows,
    sum_windows,
)
from ackproof.audit.slices import (
    OrderUnit,
    PlaceUnit,
    SliceResult,
    SliceUnit,
    WalkResult,
    cut_bucket,
    cut_walks,
    do_order,
    do_walk,
    split_reordered,
)
from ackproof.audit.units import (
    AuditTarget,
    BucketUnit,
    Limits,
    SplitResult,
    Tally,
    Trouble,
    do_whole,
    find_unreadable_parts,
)
from ackproof.base.errors import AuditFailed, BadInput
from ackproof.ledgers.directory import Ledger, Rejected, examine_directory
from ackproof.ledgers.load import UnreadablePart, UntrustedStatistics
from ackproof.ledgers.transactions import TransactionFiles, examine_transactions
from ackproof.rundir.removals import Removal, TimestampRule, read_by_partition
from ackproof.rundir.windows import WindowFile
from ackproof.spark.job import Edge, Key, Progress

Edges = Callable[[], Edge]
"""Function that starts Spark at its first call, and returns the `Edge` that runs jobs on it."""


@dataclass
class _DirectoryJob:
    """Progress of the audit of one directory. The job is done once it has a `result`. `number`: position among the
    audited directories. `existed`: True if the directory existed at the start. `set_aside`: path → reason, of ledger
    parts that could not be read, and that the next round leaves out. `doubted`: paths of parts whose statistics were
    wrong, and are not used again."""

    number: int
    directory: Path
    outputs: Outputs
    existed: bool
    set_aside: dict[str, str] = field(default_factory=dict)
    doubted: set[str] = field(default_factory=set)
    result: AuditResult | None = None
    withdraws: bool = False
    """True if the results of an older audit must be removed: readers could take them for results of this audit."""

    def fail(self, code: int, reason: str, *, withdraws: bool = True) -> None:
        """End the job without counts, for `reason`. `code`: exit code of the audit. `withdraws`: True if the results of
        an older audit are to be removed; none are removed if the directory did not exist at the start."""
        self.result = AuditResult(self.directory, None, code, (reason,))
        self.withdraws = withdraws and self.existed


@dataclass
class _PlannedDirectory:
    """A directory in one round of the audit: its ledger, planned units, and counts. If files turn out to be broken,
    another round audits the directory without them, so each round plans again. `troubles`: errors of its units."""

    job: _DirectoryJob
    ledger: Ledger
    target: AuditTarget
    plan: Plan
    counted: Tally
    windows: Sequence[WindowFile] = ()
    """All windows of a soak of which some were deleted; else empty."""
    groups: Sequence[ExaminedGroup] = ()
    group_units: Sequence[GroupUnit] = ()
    """Units of consumer groups that are not part of `plan.whole`."""
    troubles: list[Trouble] = field(default_factory=list)


def audit_all(
    directories: Sequence[Path], edges: Edges, progress: Progress, limits: Limits
) -> list[AuditResult]:
    """Audit the directories. Return one result per directory, in their order; a directory that is given twice is
    audited once. `edges` starts Spark when it is first called. Errors of one directory, and a Spark that dies, are in
    the results. Raises `MissingTool` if Spark needs Java and there is none."""
    jobs: dict[Path, _DirectoryJob] = {}
    for directory in directories:
        path = directory.absolute()
        jobs.setdefault(path, _DirectoryJob(len(jobs), path, Outputs.new(path), path.is_dir()))
    try:
        while pending := [job for job in jobs.values() if job.result is None]:
            _round(pending, edges, progress, limits)
    finally:
        for job in jobs.values():
            if job.result is None or job.result.file is None:
                job.outputs.leave()
    found: list[AuditResult] = []
    for directory in directories:
        result = jobs[directory.absolute()].result
        assert result is not None
        found.append(AuditResult(directory, result.file, result.code, result.reasons))
    return found


def _round(jobs: Sequence[_DirectoryJob], edges: Edges, progress: Progress, limits: Limits) -> None:
    """Run one round of the audit, and set the results of jobs, also if Spark dies. A job with newly found
    broken files gets no result; the next round leaves these files, or their statistics, out. Raises
    `MissingTool` if Spark needs Java and there is none."""
    progress(f"reading the footers of {_directory_count(len(jobs))}")
    ready = {job.number: planned for job in jobs if (planned := _examine(job, limits)) is not None}
    spark: list[_PlannedDirectory] = []
    for planned in ready.values():
        if planned.ledger.parts:
            spark.append(planned)
        else:  # nothing to read
            assert planned.plan.whole is not None
            _collect(ready, list(do_whole(planned.plan.whole)))
    if spark:
        rows = sum(planned.ledger.rows("produced") + planned.ledger.rows("consumed") for planned in spark)
        progress(f"auditing {rows:,} rows of {_directory_count(len(spark))}")
        try:
            _count(cache(lambda: stages.start_workers(edges(), rows, limits)), spark, ready, limits)
        except AuditFailed as error:
            for planned in spark:
                planned.job.fail(error.code, str(error), withdraws=False)  # which says nothing of its ledgers
    for planned in ready.values():
        if planned.job.result is None:
            _conclude(planned)
    for job in jobs:
        if job.withdraws and job.result is not None:
            try:
                results.withdraw(job.directory)
            except OSError as error:
                stays = f"{job.directory}: the results of an older audit cannot be removed ({error.strerror or error})"
                job.result = replace(job.result, reasons=(*job.result.reasons, stays))


def _directory_count(count: int) -> str:
    return f"{count} director{'y' if count == 1 else 'ies'}"


def _examine(job: _DirectoryJob, limits: Limits) -> _PlannedDirectory | None:
    try:
        ledger = examine_directory(job.directory, set_aside=job.set_aside)
        transactions = examine_transactions(ledger, job.set_aside)
        found = read_deleted_windows(job.outputs.case)
        ledger.reasons += find_unexplained_deletions(found, ledger)
        target = _target(job, ledger, transactions, found, limits)
        groups = examine_groups(job.outputs.case, ledger, target, job.set_aside, job.doubted)
        job.outputs.begin()
    except (Rejected, BadInput) as error:
        if job.existed and not job.directory.is_dir():
            job.fail(INCOMPLETE, f"{job.directory}: disappeared during the audit")
        else:
            job.fail(BAD_INPUT, str(error))
        return None
    except OSError as error:
        job.fail(INCOMPLETE, f"{job.directory}: cannot be read or written ({error.strerror or error})")
        return None
    planned = plan_units(ledger, target, limits, frozenset(job.doubted))
    units = tuple(unit for group in groups for unit in plan_group(group, limits))
    if planned.whole is not None and len(units) <= len(groups):
        planned, units = replace(planned, whole=replace(planned.whole, groups=units)), ()
    return _PlannedDirectory(job, ledger, target, planned, Tally(job.number), found, groups, units)


def _target(
    job: _DirectoryJob,
    ledger: Ledger,
    transactions: TransactionFiles,
    windows: Sequence[WindowFile],
    limits: Limits,
) -> AuditTarget:
    rows = ledger.rows("produced") + ledger.rows("consumed")
    return AuditTarget(
        number=job.number,
        outputs=job.outputs,
        open_producers=ledger.open_producers,
        shares=max(1, -(-rows // limits.share_rows)),
        transactions=transactions,
        deleted=collect_deleted(windows, ledger),
        keys=ledger.keys,
        removals=read_by_partition(job.outputs.case.removals_json, Removal),
        timestamps=read_by_partition(job.outputs.case.timestamps_json, TimestampRule) or {},
    )


def _count(
    edges: Edges, spark: Sequence[_PlannedDirectory], ready: Mapping[int, _PlannedDirectory], limits: Limits
) -> None:
    """Run the units of these directories in Spark. Split row groups of several partitions, and cut hot buckets
    (partitions with too many rows for one task) into ranges. Then count all units, and compare the order of records
    between ranges. Last, audit consumer groups that are units of their own.

    `edges` starts Spark at its first call. `spark`: directories with ledger rows. `ready`: all directories of the round
    by job number; they get the counts, and the errors of units (`Trouble`). Raises `AuditFailed` if Spark dies.
    """
    splits: dict[int, list[SplitResult]] = {planned.job.number: [] for planned in spark}
    for answer in _collect(
        ready,
        stages.split_row_groups(edges, [unit for planned in spark for unit in planned.plan.splits], limits),
    ):
        if isinstance(answer, SplitResult):
            splits[answer.target.number].append(answer)
    units: list[stages.Counting] = []
    hot: list[BucketUnit] = []
    for planned in spark:
        if planned.plan.whole is not None:
            units.append(planned.plan.whole)
        elif not planned.troubles:
            target = planned.target
            for bucket in bucket_units(planned.plan, target, splits[planned.job.number]):
                # Removed records can be decided only with all identities of a bucket.
                whole = bool(target.keys) or target.removal(bucket.place).removes
                (units if whole or bucket.rows <= limits.range_rows else hot).append(bucket)
    edge = edges()
    places: dict[Key, PlaceUnit] = {}
    units += _cut_hot_buckets(edge, hot, ready, places, limits)
    slices: dict[Key, list[SliceResult]] = defaultdict(list)
    for answer in _collect(ready, stages.count_units(edge, units, places, limits)):
        if isinstance(answer, SliceResult):
            slices[answer.number, answer.of.bucket].append(answer)
            ready[answer.number].counted.add(answer.counted)
    again: list[OrderUnit] = []
    for (number, _), of_bucket in slices.items():
        if not ready[number].troubles:
            orders, counted = split_reordered(of_bucket)
            again += orders
            _collect(ready, counted)
    _collect(ready, stages.run_units(edge, "comparing orders", again, limits, do_order))
    of_groups = [unit for planned in spark if not planned.troubles for unit in planned.group_units]
    if of_groups:
        _collect(ready, stages.run_units(edge, "auditing groups", of_groups, limits, do_group))


def _cut_hot_buckets(
    edge: Edge,
    hot: Sequence[BucketUnit],
    ready: Mapping[int, _PlannedDirectory],
    places: dict[Key, PlaceUnit],
    limits: Limits,
) -> list[SliceUnit]:
    """Cut hot buckets (partitions with too many rows for one task) into units. A Spark job over ranges of read_seq
    first compares each read with the previous read of its reader and assignment.

    Return slice units, which audit ranges of seqs and build the series of ranges of times. Add the place units, which
    audit ranges of offsets, to `places` by their key in the shuffle. The directories in `ready` get the counts of the
    cut, and the errors of units (`Trouble`). Buckets of a directory with errors are left out. Raises `AuditFailed` if
    Spark dies.
    """
    walked: dict[Key, list[WalkResult]] = defaultdict(list)
    walks = [unit for bucket in hot for unit in cut_walks(bucket, limits)]
    for answer in _collect(ready, stages.run_units(edge, "following readers", walks, limits, do_walk)):
        if isinstance(answer, WalkResult):
            walked[answer.number, answer.of.bucket].append(answer)
            ready[answer.number].counted.add(answer.counted)
    slices: list[SliceUnit] = []
    for bucket in hot:
        target = bucket.target
        if ready[target.number].troubles:
            continue
        first = target.shares + sum(number == target.number for number, _ in places)
        try:
            counted, of_bucket, ranges = cut_bucket(
                bucket, walked[target.number, bucket.number], limits, first
            )
        except OSError as error:
            ready[target.number].troubles.append(Trouble(target.number, error))
            continue
        ready[target.number].counted.add(counted)
        slices += of_bucket
        places.update({(target.number, first + unit.number): unit for unit in ranges})
    return slices


def _collect(
    ready: Mapping[int, _PlannedDirectory], answers: Sequence[stages.Message]
) -> Sequence[stages.Message]:
    """Add the counts and troubles among these answers to their directories in `ready`. Return all answers."""
    for answer in answers:
        if isinstance(answer, Tally):
            ready[answer.number].counted.add(answer)
        elif isinstance(answer, Trouble):
            ready[answer.number].troubles.append(answer)
    return answers


def _transaction_gaps(files: TransactionFiles, totals: Totals) -> Iterator[str]:
    """Yield a reason for each gap in the evidence about a directory's transactions; none if no produced row is in one.

    With a gap the audit is incomplete: a count of 0 would only mean that nothing was looked at."""
    if not totals["transactional"]:
        return
    if totals["unlisted"]:
        yield f"ledger/transactions: lacks the transactions of {totals['unlisted']} produced rows"
    if files.timeless:
        yield "ledger/transactions: no column commit_ns, so early reads cannot be detected"
    if not files.committed_read:
        yield "ledger/consumed: transactions, and no final read at read_committed, so torn ones cannot be detected"


def _conclude(planned: _PlannedDirectory) -> None:
    """Conclude the audit of a directory: publish its results and set `job.result`, or fail the job with the reason.

    If files were newly found to be unreadable, or to have wrong statistics, do neither: the next round audits without
    them.
    """
    job = planned.job
    errors = [trouble.error for trouble in planned.troubles]
    if refused := [str(error) for error in errors if isinstance(error, Rejected)]:
        job.fail(BAD_INPUT, min(refused))
        return
    unreadable = {error.path: error.reason for error in errors if isinstance(error, UnreadablePart)}
    if unreadable:
        # If one file is broken, others may be: find all of them before the next round.
        job.set_aside |= find_unreadable_parts(planned.ledger.parts) | unreadable
    doubted = {str(error) for error in errors if isinstance(error, UntrustedStatistics)}
    job.doubted |= doubted
    if unreadable or doubted:
        return
    if errors:
        gone = not job.directory.is_dir()
        broken = f"the results cannot be written: {errors[0]}"
        job.fail(INCOMPLETE, f"{job.directory}: disappeared during the audit" if gone else broken)
        return
    reasons = (
        *planned.ledger.reasons,
        *_transaction_gaps(planned.target.transactions, planned.counted.totals),
        *(reason for group in planned.groups for reason in group.broken),
    )
    try:
        into = job.outputs.findings("windows")
        if copied := copy_window_findings(job.outputs.case, planned.windows, into):
            planned.counted.add(Tally(job.number, copied, findings=[into.name]))
        add_unrecovered(job.outputs, planned.counted)
        counts = tuple(group.count(planned.counted) for group in planned.groups)
        for of_group in counts:
            planned.counted.counts.update(of_group.counts)
        digests = dict(planned.ledger.digests)
        for group in planned.groups:
            digests |= group.digests
        file = results.build_audit_file(planned.counted, reasons, digests)
        sums = sum_windows(planned.windows, planned.ledger, planned.counted.counts[SPARED])
        file = results.publish(
            job.outputs, planned.counted, file.model_copy(update={"deleted": sums, "groups": counts})
        )
    except BadInput as error:
        job.fail(BAD_INPUT, str(error))
        return
    except OSError as error:
        job.fail(INCOMPLETE, f"{job.directory}: the results cannot be written ({error.strerror or error})")
        return
    job.result = AuditResult(job.directory, file, INCOMPLETE if reasons else COUNTED, reasons)

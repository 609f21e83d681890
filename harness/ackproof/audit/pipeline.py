"""One audit of any number of directories, from their footers to `audit.json`, as one Spark job.

A directory whose files turn out to be other than their footers say (a page that cannot be decoded, statistics that
lie) is audited again without them, alone; the others are not touched by that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from ackproof.audit import results, stages
from ackproof.audit.bucket import Totals
from ackproof.audit.outputs import SPARED, Outputs
from ackproof.audit.planning import Plan, bucket_units, plan
from ackproof.audit.results import (
    BAD_INPUT,
    COUNTED,
    INCOMPLETE,
    AuditResult,
    add_unrecovered,
    deleted_of,
    findings_of,
    sums_of,
    unexplained,
    windows_of,
)
from ackproof.audit.slices import OrderUnit, PlaceUnit, Sliced, SliceUnit, Walked, crossed, sliced, walks_of
from ackproof.audit.units import (
    BucketUnit,
    Counted,
    Limits,
    Split,
    Target,
    Trouble,
    do_whole,
    unreadable_parts,
)
from ackproof.base.errors import AuditFailed, BadInput
from ackproof.ledgers.directory import Ledger, Rejected, examine
from ackproof.ledgers.load import Mistrusted, UnreadablePart
from ackproof.ledgers.transactions import TransactionFiles, look
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.removals import Removal, read_removals
from ackproof.rundir.windows import WindowFile
from ackproof.spark.job import Edge, Key, Progress

Edges = Callable[[], Edge]


@dataclass
class _Job:
    """One directory on its way. It is done when it has a result."""

    number: int
    directory: Path
    outputs: Outputs
    existed: bool
    set_aside: dict[str, str] = field(default_factory=dict)
    doubted: set[str] = field(default_factory=set)
    result: AuditResult | None = None
    withdraws: bool = False
    """Results of an older audit go: they would pass for those of this one."""

    def fail(self, code: int, reason: str, *, withdraws: bool = True) -> None:
        """Nothing can be counted here."""
        self.result = AuditResult(self.directory, None, code, (reason,))
        self.withdraws = withdraws and self.existed


@dataclass
class _Ready:
    """A directory whose footers are read, in one round."""

    job: _Job
    ledger: Ledger
    target: Target
    plan: Plan
    counted: Counted
    windows: Sequence[WindowFile] = ()
    """Of a soak of which some were deleted."""
    troubles: list[Trouble] = field(default_factory=list)


def audit_all(
    directories: Sequence[Path], edges: Edges, progress: Progress, limits: Limits
) -> list[AuditResult]:
    """Audit; one result per directory, in their order. `edges` gives Spark, once it is needed.

    Raises nothing for what is wrong with one directory or with Spark: the results say it.
    """
    jobs: dict[Path, _Job] = {}
    for directory in directories:
        path = directory.absolute()
        jobs.setdefault(path, _Job(len(jobs), path, Outputs.of(path), path.is_dir()))
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


def _round(jobs: Sequence[_Job], edges: Edges, progress: Progress, limits: Limits) -> None:
    """Bring each directory to a result, or learn which of its files must be set aside."""
    progress(f"reading the footers of {_directories(len(jobs))}")
    ready = {job.number: one for job in jobs if (one := _examined(job, limits)) is not None}
    spark: list[_Ready] = []
    for one in ready.values():
        if one.ledger.parts:
            spark.append(one)
        else:  # nothing to read
            assert one.plan.whole is not None
            _sort_in(ready, [do_whole(one.plan.whole)])
    if spark:
        rows = sum(one.ledger.rows("produced") + one.ledger.rows("consumed") for one in spark)
        progress(f"auditing {rows:,} rows of {_directories(len(spark))}")
        try:
            _count(cache(lambda: stages.started(edges(), rows, limits)), spark, ready, limits)
        except AuditFailed as error:
            for one in spark:
                one.job.fail(error.code, str(error), withdraws=False)  # which says nothing of its ledgers
    for one in ready.values():
        if one.job.result is None:
            _conclude(one)
    for job in jobs:
        if job.withdraws and job.result is not None:
            try:
                results.withdraw(job.directory)
            except OSError as error:
                stays = (
                    f"{job.directory}: an older audit's results cannot be removed ({error.strerror or error})"
                )
                job.result = replace(job.result, reasons=(*job.result.reasons, stays))


def _directories(count: int) -> str:
    return f"{count} director{'y' if count == 1 else 'ies'}"


def _examined(job: _Job, limits: Limits) -> _Ready | None:
    try:
        ledger = examine(job.directory, set_aside=job.set_aside)
        told = look(ledger, job.set_aside)
        found = windows_of(job.outputs.case)
        ledger.reasons += unexplained(found, ledger)
        removals = _removals(job)
        job.outputs.begin()
    except Rejected as error:
        if job.existed and not job.directory.is_dir():
            job.fail(INCOMPLETE, f"{job.directory}: disappeared while it was read")
        else:
            job.fail(BAD_INPUT, str(error))
        return None
    except OSError as error:
        job.fail(INCOMPLETE, f"{job.directory}: cannot be read or written ({error.strerror or error})")
        return None
    rows = ledger.rows("produced") + ledger.rows("consumed")
    target = Target(
        number=job.number,
        outputs=job.outputs,
        open_producers=ledger.open_producers,
        shares=max(1, -(-rows // limits.share_rows)),
        transactions=told,
        deleted=deleted_of(found, ledger),
        keys=ledger.keys,
        removals=removals,
    )
    planned = plan(ledger, target, limits, frozenset(job.doubted))
    return _Ready(job, ledger, target, planned, Counted(job.number), found)


def _count(edges: Edges, spark: Sequence[_Ready], ready: Mapping[int, _Ready], limits: Limits) -> None:
    """Run the Spark jobs; counts and troubles go to their directories. Raises `AuditFailed` if Spark dies."""
    splits: dict[int, list[Split]] = {one.job.number: [] for one in spark}
    for answer in _sort_in(
        ready, stages.split(edges, [unit for one in spark for unit in one.plan.splits], limits)
    ):
        if isinstance(answer, Split):
            splits[answer.target.number].append(answer)
    units: list[stages.Counting] = []
    hot: list[BucketUnit] = []
    for one in spark:
        if one.plan.whole is not None:
            units.append(one.plan.whole)
        elif not one.troubles:
            for bucket in bucket_units(one.plan, one.target, splits[one.job.number]):
                (units if bucket.rows <= limits.range_rows or _undivided(bucket) else hot).append(bucket)
    edge = edges()
    places: dict[Key, PlaceUnit] = {}
    units += _sliced(edge, hot, ready, places, limits)
    slices: dict[Key, list[Sliced]] = defaultdict(list)
    for answer in _sort_in(ready, stages.count(edge, units, places, limits)):
        if isinstance(answer, Sliced):
            slices[answer.number, answer.of.bucket].append(answer)
            ready[answer.number].counted.add(answer.counted)
    again: list[OrderUnit] = []
    for (number, _), of_bucket in slices.items():
        if not ready[number].troubles:
            orders, counted = crossed(of_bucket)
            again += orders
            _sort_in(ready, counted)
    _sort_in(ready, stages.order(edge, again, limits))


def _removals(job: _Job) -> Mapping[TopicPartition, Removal] | None:
    try:
        return read_removals(job.outputs.case)
    except BadInput as error:
        raise Rejected(str(error)) from error


def _undivided(bucket: BucketUnit) -> bool:
    """Whether what was removed can only be told from all identities of the bucket together."""
    return bool(bucket.target.keys) or bucket.target.removal(bucket.place).removes


def _sliced(
    edge: Edge,
    hot: Sequence[BucketUnit],
    ready: Mapping[int, _Ready],
    places: dict[Key, PlaceUnit],
    limits: Limits,
) -> list[SliceUnit]:
    """Cut hot buckets, once their reads are walked; the ranges of places go to `places`."""
    walked: dict[Key, list[Walked]] = defaultdict(list)
    walks = [unit for bucket in hot for unit in walks_of(bucket, limits)]
    for answer in _sort_in(ready, stages.walk(edge, walks, limits)):
        if isinstance(answer, Walked):
            walked[answer.number, answer.of.bucket].append(answer)
            ready[answer.number].counted.add(answer.counted)
    slices: list[SliceUnit] = []
    for bucket in hot:
        target = bucket.target
        if ready[target.number].troubles:
            continue
        first = target.shares + sum(number == target.number for number, _ in places)
        try:
            counted, of_bucket, ranges = sliced(bucket, walked[target.number, bucket.number], limits, first)
        except OSError as error:
            ready[target.number].troubles.append(Trouble(target.number, error))
            continue
        ready[target.number].counted.add(counted)
        slices += of_bucket
        places.update({(target.number, first + unit.number): unit for unit in ranges})
    return slices


def _sort_in(ready: Mapping[int, _Ready], answers: Sequence[stages.Message]) -> Sequence[stages.Message]:
    """Counts and troubles go to their directories; all answers come back."""
    for answer in answers:
        if isinstance(answer, Counted):
            ready[answer.number].counted.add(answer)
        elif isinstance(answer, Trouble):
            ready[answer.number].troubles.append(answer)
    return answers


def _unsaid(told: TransactionFiles, totals: Totals) -> Iterator[str]:
    """What cannot be known of the transactions of a directory: no class of theirs may be 0 for want of looking."""
    if not totals.transactional:
        return
    if totals.untold:
        yield f"ledger/transactions: says nothing of the transactions of {totals.untold} produced rows"
    if told.timeless:
        yield "ledger/transactions: no column commit_ns, so early reads cannot be told"
    if not told.committed_read:
        yield "ledger/consumed: transactions, and no final read at read_committed, so torn ones cannot be told"


def _add_deleted(one: _Ready) -> None:
    """What deleted windows found counts with the rest. Raises OSError."""
    into = one.job.outputs.findings("windows")
    counts = findings_of(one.job.outputs.case, one.windows, into)
    if counts:
        one.counted.add(Counted(one.job.number, counts, findings=[into.name]))


def _conclude(one: _Ready) -> None:
    """Publish, refuse, or leave the directory for another round."""
    job = one.job
    errors = [trouble.error for trouble in one.troubles]
    if refused := [str(error) for error in errors if isinstance(error, Rejected)]:
        job.fail(BAD_INPUT, min(refused))
        return
    unreadable = {error.path: error.reason for error in errors if isinstance(error, UnreadablePart)}
    if unreadable:
        # Where one file is broken others may be: find them all before the next round.
        job.set_aside |= unreadable_parts(one.ledger.parts) | unreadable
    doubted = {str(error) for error in errors if isinstance(error, Mistrusted)}
    job.doubted |= doubted
    if unreadable or doubted:
        return
    if errors:
        gone = not job.directory.is_dir()
        broken = f"the results cannot be written: {errors[0]}"
        job.fail(INCOMPLETE, f"{job.directory}: disappeared while it was read" if gone else broken)
        return
    reasons = (*one.ledger.reasons, *_unsaid(one.target.transactions, one.counted.totals))
    try:
        _add_deleted(one)
        add_unrecovered(job.outputs, one.counted)
        file = results.document(one.counted, reasons, one.ledger.digests)
        sums = sums_of(one.windows, one.ledger, one.counted.counts[SPARED])
        file = results.publish(job.outputs, one.counted, file.model_copy(update={"deleted": sums}))
    except BadInput as error:
        job.fail(BAD_INPUT, str(error))
        return
    except OSError as error:
        job.fail(INCOMPLETE, f"{job.directory}: the results cannot be written ({error.strerror or error})")
        return
    job.result = AuditResult(job.directory, file, INCOMPLETE if reasons else COUNTED, reasons)

"""The trend of a folder of batches: verdicts, lost records, recovery and throughput of each case, by date."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.quantities.answer import measured
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Value
from ackproof.quantities.vocabulary import parse_ask
from ackproof.repeats.decide import contrast_groups
from ackproof.repeats.demand import Contrast, Statistic
from ackproof.repeats.intervals import CONFIDENCE
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.bounds import WHOLE
from ackproof.rundir.lab import TrendCase, TrendFile, TrendPoint
from ackproof.rundir.layout import BatchDir
from ackproof.rundir.outcome import Verdict
from ackproof_lab.compare.groups import Asked, Group, groups_of, settings_of, side

RECOVERY: Final[Asked] = ("longest_gap(produce)", "")
THROUGHPUT: Final[Asked] = ("rate(produce)", "")
_MEAN: Final = Statistic("mean")
_MOST: Final = 3
"""Greatest number of changed settings that a point of the trend names."""


def trend(directory: Path, step: Callable[[str], None] = lambda _: None) -> TrendFile:
    """Return the batches directly below a folder as a trend, oldest first; symbolic links are skipped. `step` is called
    with a sentence on the progress. Folders without a readable `batch.json` are named in `unread`. Raises
    `BadInput` if there is no batch, OSError if `directory` cannot be read.
    """
    series: dict[str, list[tuple[str, Group]]] = {}
    unread: list[str] = []
    folders = [one for one in sorted(directory.iterdir()) if one.is_dir() and not one.is_symlink()]
    for folder in folders:
        try:
            file = BatchFile.load(BatchDir(folder).batch_json)
        except BadInput as error:
            unread.append(str(error))
            continue
        step(f"measuring {len(file.cases)} runs of {folder.name}")
        for name, group in groups_of(folder, file, _measure).items():
            named = name if ": " in name or not file.name else f"{file.name}: {name}"
            series.setdefault(named, []).append((folder.name, group))
    if not series:
        raise BadInput(f"{directory}: no batches here")
    for points in series.values():
        # A batch without a date stays after the one whose folder name precedes its own.
        dates: list[int] = []
        for _, group in points:
            dates.append(_wall_ns(group) or (dates[-1] if dates else 0))
        points[:] = [point for _, point in sorted(zip(dates, points, strict=True), key=itemgetter(0))]
    pairs = sum(len(points) - 1 for points in series.values())
    sure = 1 - (1 - CONFIDENCE) / max(1, 2 * pairs)  # so that all marks of the page hold together
    cases = tuple(
        TrendCase(case=name, points=tuple(_points(points, sure))) for name, points in series.items()
    )
    return TrendFile(directory=directory.resolve().name, cases=cases, unread=tuple(unread))


def _wall_ns(group: Group) -> int:
    return group.file.wall_ns if group.file else 0


def _measure(evidence: Evidence) -> Iterable[tuple[Asked, Value]]:
    for asked in (RECOVERY, THROUGHPUT):
        yield asked, measured(evidence, parse_ask(asked[0]), WHOLE)


def _points(points: Sequence[tuple[str, Group]], sure: float) -> Iterator[TrendPoint]:
    before: Group | None = None
    told: dict[Asked, Sequence[Value]] = {}
    for batch, group in points:
        verdicts = [entry.verdict for entry in group.entries]
        lost = [entry.counts.get(Anomaly.LOST) for entry in group.entries]
        recovery, throughput = (
            side(group.values_of(asked), parse_ask(asked[0]).quantity.unit, _MEAN)
            for asked in (RECOVERY, THROUGHPUT)
        )
        yield TrendPoint(
            batch=batch,
            wall_ns=_wall_ns(group),
            version=group.file.environment.get("kafka", "") if group.file else "",
            verdicts=group.verdicts,
            worst=next(
                (str(one) for one in (Verdict.FAIL, None, Verdict.INCONCLUSIVE) if one in verdicts), "PASS"
            ),
            lost=None if None in lost else sum(one or 0 for one in lost),
            recovery=recovery,
            throughput=throughput,
            changed=tuple(_changed(before, group)) if before else (),
            apart=tuple(_certain_differences(told, group, sure)),
        )
        before = group


def _changed(before: Group, now: Group) -> Iterator[str]:
    """Yield each setting that changed between two batches, in words, the Kafka version first: at most three, then the
    number of further ones. Yield nothing if a batch has no readable `case.json`."""
    old, new = settings_of(before), settings_of(now)
    if not old or not new:
        return
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
    names.sort(key=lambda name: name != "cluster.kafka")
    yield from (f"{name}: {old.get(name, 'not set')} → {new.get(name, 'not set')}" for name in names[:_MOST])
    if len(names) > _MOST:
        yield f"and {len(names) - _MOST} more settings"


def _certain_differences(told: dict[Asked, Sequence[Value]], now: Group, sure: float) -> Iterator[str]:
    """Yield in words each difference of `now` from the last known values that is certain: the confidence interval of
    their ratio excludes 1. `sure`: confidence of the interval.

    `told`: last known values of each quantity, updated here. A batch without values therefore hides no difference.
    """
    for asked, word in ((RECOVERY, "recovery"), (THROUGHPUT, "throughput")):
        old, new = told.get(asked, ()), now.values_of(asked)
        if not new or not all(one.is_known for one in new):
            continue
        told[asked] = new
        if not old:
            continue
        found = contrast_groups(new, old, Contrast.OVER, _MEAN, sure)
        if found.low > 1 or found.high < 1:
            yield f"{word} {found.seen.low:.3g} times that before"

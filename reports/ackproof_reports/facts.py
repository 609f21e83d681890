"""Gathers everything that the three reports show of a case, once, within limits for the whole batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from ackproof.rundir.documents import Timing, group_timings
from ackproof.rundir.partition import TopicPartition
from ackproof_reports.course import Course, arrange
from ackproof_reports.evidence import Piece, evidence_of
from ackproof_reports.findings import CaseFindings, Group, read_findings
from ackproof_reports.groups import GroupPage, group_pages, last_activity
from ackproof_reports.loading import BatchView, CaseView
from ackproof_reports.picture import ChartData, chart_data
from ackproof_reports.series import Series, read_series, read_strips
from ackproof_reports.stories import lost_stories, with_causes, with_copies
from ackproof_reports.wording import duration

BINS_OF_BATCH: Final = 60_000
BINS_OF_CASE: Final = (150, 1500)
ROWS_OF_BATCH: Final = 250_000
"""Greatest number of findings embedded in one page. Further ones stay in the Parquet files, and the page says
so.
"""
ROWS_OF_CASE: Final = 100_000
STORIES_OF_BATCH: Final = 6_000


@dataclass(frozen=True)
class CaseFacts:
    """All that the report shows of one case, read from its run. A field is None if the run has no such data, or if it
    cannot be read. `absent`: a sentence for each file that is missing or unreadable. `course`: its phases, faults and
    marked events. `series`: acks and latencies over time. `picture`: data of its chart."""

    case: CaseView
    title: str
    course: Course
    series: Series | None
    findings: CaseFindings | None
    picture: ChartData | None
    evidence: tuple[Piece, ...]
    absent: tuple[str, ...]
    stories: dict[str, JsonValue] | None = None
    """Stories of lost records, in the form that `lost_stories` returns."""
    groups: tuple[GroupPage, ...] = ()
    """Report sections of the consumer groups; empty if the run had none."""

    @property
    def gap_ms(self) -> float | None:
        """The longest time between two acks of one partition, in ms. None without a series, if no partition has two
        acks, or if a soak deleted parts of the ledgers."""
        return self._longest[1] if self._longest else None

    @property
    def _longest(self) -> tuple[TopicPartition, float] | None:
        deleted = self.case.audit.deleted if self.case.audit else None
        return self.series.longest_gap if self.series and not (deleted and deleted.gone) else None

    @property
    def gap(self) -> str:
        """`gap_ms` as text, with the remark `(starved)` if the machine was too busy for times to say anything about
        Kafka."""
        return duration(self.gap_ms) + (" (starved)" if self.case.starved and self.gap_ms is not None else "")

    @property
    def gap_place(self) -> str:
        return str(self._longest[0]) if self._longest else ""

    @property
    def lost_groups(self) -> tuple[Group, ...]:
        return self.findings.lost if self.findings else ()

    def count(self, name: str) -> int | None:
        """Return a count of the audit: findings of a class, or ledger rows such as `indeterminate`. None if it was not
        counted, or if an incomplete final read does not prove it (`CaseView.counts`)."""
        if self.case.audit and name in type(self.case.audit.audited).model_fields:
            return int(getattr(self.case.audit.audited, name))
        return self.case.counts.get(name)


def gather(batch: BatchView) -> list[CaseFacts]:
    """Return the facts of every case of a batch, in order. The cases share the page's limits on the numbers of
    findings, stories and time bins. Raises OSError if the samples of a case cannot be read."""
    low, high = BINS_OF_CASE
    max_bins = max(low, min(high, BINS_OF_BATCH // max(1, len(batch.cases))))
    room = ROWS_OF_BATCH
    max_stories = STORIES_OF_BATCH // max(1, len(batch.cases))
    gathered = []
    for case in batch.cases:
        facts = _gather(batch, case, max_bins, min(ROWS_OF_CASE, room), max_stories)
        room -= facts.findings.embedded if facts.findings else 0
        gathered.append(facts)
    return gathered


def timings(facts: Sequence[CaseFacts]) -> list[tuple[Timing, str]]:
    """Return each distinct timing of the brokers (name and changed time-outs), with the titles of its cases as text; ''
    if all cases have the same timing."""
    return group_timings((fact.title, fact.case.timing) for fact in facts if fact.case.timing is not None)


def timing_names(facts: Sequence[CaseFacts]) -> str:
    """Return the distinct names of the brokers' timings (`chaos`, `Kafka's own`, …) in these cases as one text; '' if
    no case recorded its timing."""
    return ", ".join(dict.fromkeys(timing.name for timing, _ in timings(facts)))


def _gather(batch: BatchView, case: CaseView, max_bins: int, max_rows: int, max_stories: int) -> CaseFacts:
    absent = list(case.absent)
    course, title = arrange(case.events), batch.title(case)
    if not case.run.path.is_dir():
        return CaseFacts(case, title, course, None, None, None, (), tuple(absent))
    series = read_series(case.run.series, max_bins, absent)
    strips = read_strips(case.run.samples, absent)
    forbidden = [c.anomaly for c in (case.judged.classes if case.judged else ()) if c.forbidden and c.count]
    if untold := ", ".join(case.untold):
        absent.append(f"a whole final read: what the audit takes for gone ({untold}) may be there")
    findings = read_findings(case.run, max_rows, forbidden, absent, [*case.untold])
    stories = None
    if findings is not None and findings.rows is not None:
        findings.rows = with_copies(with_causes(findings.rows, case.conformance), case.run, absent)
        stories = lost_stories(findings.rows, case.run, max_stories, absent)
    lost: Counter[TopicPartition] = Counter()
    for group in findings.lost if findings else ():
        lost[TopicPartition(group.topic, group.partition)] += group.count
    picture = chart_data(case, course, series, strips, lost, last_activity(case, absent))
    groups = group_pages(case, course, picture, absent)
    evidence = tuple(evidence_of(case, course))
    return CaseFacts(case, title, course, series, findings, picture, evidence, tuple(absent), stories, groups)

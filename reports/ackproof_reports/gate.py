"""Result of a gate over experiments: one answer, a table of cases × Kafka versions, and GitHub's annotations and
outputs."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from ackproof.experiment.problems import Problem
from ackproof.rundir.lab import ComparisonFile
from ackproof.rundir.outcome import ExitCode, worst_exit_code
from ackproof_reports.expectations import state_of
from ackproof_reports.loading import WORST_FIRST, BatchView, State
from ackproof_reports.summaries import SIGNS, markdown
from ackproof_reports.wording import ABSENT, number, plural

_WORDS: Final = dict(
    zip(
        WORST_FIRST,
        ("failed", "did not finish", "ended inconclusive", "stayed unjudged", "passed"),
        strict=True,
    )
)
_CUT: Final = "\n\nThis summary is cut: GitHub does not show a longer one. The report has all of it.\n"


class GateRow(NamedTuple):
    """Result of a case, or of an expectation over repeats, on one Kafka version. `lost`: number of lost records; None:
    not counted.

    `why` of a case: the first reason of its verdict. Without one it is the error of the harness, else why losses are
    allowed, else ''. `why` of an expectation: its result in words.
    """

    title: str
    state: State
    lost: int | None
    why: str

    def __str__(self) -> str:
        return SIGNS[self.state] + ("" if self.lost is None else f", {number(self.lost)} lost")


@dataclass(frozen=True)
class GateColumn:
    """Results of all experiments on one Kafka version. `batch` is None if nothing ran. `problems`: errors and
    warnings, which become annotations in GitHub.
    """

    kafka: str
    exit_code: int
    batch: BatchView | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def rows(self) -> Iterator[GateRow]:
        """Yield a row for each case, then a row for each expectation over repeats; nothing if the column has no
        batch."""
        if self.batch is None:
            return
        for case in self.batch.cases:
            name = case.entry.experiment or self.batch.name
            title = f"{name}: {self.batch.title(case).removeprefix(f'{name}: ')}".removesuffix(": case#1")
            reasons = (*case.reasons, case.entry.error, case.judged.permitted if case.judged else "", "")
            yield GateRow(title, case.state, case.lost, next(text for text in reasons if text is not None))
        for one in self.batch.file.over_repeats:
            yield GateRow(f"over repeats: {one.title}", state_of(one), None, one.outcome_text)

    def __str__(self) -> str:
        count = Counter(row.state for row in self.rows)
        told = [f"{plural(count[state], 'check')} {word}" for state, word in _WORDS.items() if count[state]]
        return f"Kafka {self.kafka}: {', '.join(told) or 'nothing ran'}"


@dataclass(frozen=True)
class GateResult:
    """Results of `ackproof gate` on all Kafka versions; the first column is the current version.
    `comparison`: the other columns compared with the first; None if there was nothing to compare.
    """

    columns: Sequence[GateColumn]
    comparison: ComparisonFile | None = None

    def __str__(self) -> str:
        clauses = [str(column) for column in self.columns]
        if (found := self.comparison) is not None and found.fail_on:
            broken = len(found.broken)
            clauses.append(f"{found.fail_on}: {broken} broken, {found.told} checked, {found.untold} unknown")
        return f"{ExitCode(self.exit_code).name.replace('_', ' ')}: {'; '.join(clauses)}."

    @property
    def exit_code(self) -> int:
        """The worst exit code of all columns. A limit of `--fail-on` counts as FAIL if exceeded, and as INCONCLUSIVE if
        no comparison with it was decided."""
        codes = [column.exit_code for column in self.columns]
        if self.comparison is not None and self.comparison.fail_on:
            codes.append(1 if self.comparison.broken else 0 if self.comparison.told else 2)
        return worst_exit_code(codes)

    @property
    def lost(self) -> str:
        """Number of lost records of all cases on all versions as text; '' if no case counted them."""
        counts = [row.lost for column in self.columns for row in column.rows if row.lost is not None]
        return str(sum(counts)) if counts else ""

    def summary(self, limit: int) -> str:
        """Return the job summary as Markdown, with the `summary.md` of each batch, at most `limit` bytes of UTF-8. If
        it is cut, its last paragraph says so. Raises OSError if a `summary.md` cannot be read.
        """
        sign = {0: "✅", 1: "❌", 2: "❓"}.get(self.exit_code, "⚠️")
        parts = [f"## {sign} {markdown(str(self), 2000)}", "", *self._table(), "", *self._notes()]
        for column in self.columns:
            if column.batch is not None:
                text = column.batch.directory.summary_md.read_text(encoding="utf-8")
                parts.append(
                    f"\n<details><summary>Kafka {markdown(column.kafka)}</summary>\n\n{text}\n</details>"
                )
        ends = list(accumulate(len(part.encode()) + 1 for part in parts))
        if ends[-1] <= limit:
            return "\n".join(parts) + "\n"
        # Whole lines and whole folded parts, so that no Markdown stays open.
        kept = [part for part, end in zip(parts, ends, strict=True) if end + len(_CUT) <= limit]
        return "\n".join(kept) + _CUT

    def _table(self) -> Iterator[str]:
        columns = [{row.title: row for row in column.rows} for column in self.columns]
        titles = dict.fromkeys(title for column in columns for title in column)
        if titles:
            yield f"| check | {' | '.join(f'Kafka {markdown(one.kafka)}' for one in self.columns)} | why |"
            yield "| --- |" + " --- |" * (len(columns) + 1)
        for title in titles:
            rows = [column.get(title) for column in columns]
            reasons = [row for row in rows if row and row.why]
            # Why the losses of a PASS are allowed matters least.
            reasons.sort(key=lambda row: row.state is State.PASS)
            why = markdown(reasons[0].why, 240) if reasons else ""
            yield f"| {markdown(title, 200)} | {' | '.join(str(row or ABSENT) for row in rows)} | {why} |"

    def _notes(self) -> Iterator[str]:
        """Yield lines of Markdown: the problems of each Kafka version on which nothing ran, then each quantity that
        exceeds the limit of `--fail-on`. If no quantity does, yield each quantity that certainly differs from the first
        version; counts are left out."""
        told = [str(one) for column in self.columns if column.batch is None for one in column.problems]
        if (found := self.comparison) is not None:
            told += found.broken or (
                f"differs: {case.case}: {one.quantity} {one.window}: {batch.name}: {beyond.interval} times the first"
                for case in found.cases
                for one in case.quantities
                for batch, beyond in zip(found.batches[1:], one.beyond, strict=True)
                if beyond is not None and beyond.apart and one.unit != "count"
            )
        yield from (f"- {markdown(text, 1000)}" for text in dict.fromkeys(told))


def annotation(problem: Problem, file: str) -> str:
    """Return GitHub's workflow command that annotates a problem. `file`: path below the root of the repository; '' for
    no file."""
    place = f"file={_escape(file, ':,')},line={problem.line or 1},col={problem.column or 1}," if file else ""
    title = _escape(problem.path or "ackproof", ":,")
    return f"::{problem.severity} {place}title={title}::{_escape(problem.message)}"


def output(name: str, value: str) -> str:
    """Return the entry of the file `$GITHUB_OUTPUT` that sets the output `name` to a text of one or more
    lines.
    """
    delimiter = f"end-{secrets.token_hex(16)}"
    return f"{name}<<{delimiter}\n{value}\n{delimiter}\n"


def _escape(text: str, also: str = "") -> str:
    return "".join(f"%{ord(letter):02X}" if letter in f"%\r\n{also}" else letter for letter in text)

"""Evidence behind a verdict: the opinions of the judge in `verdict.json`, with the facts of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ackproof.rundir.documents import JudgedOpinion
from ackproof.rundir.lifelines import FaultLife
from ackproof.rundir.outcome import Says
from ackproof.rundir.timeline import EventKind, RunFailed
from ackproof_reports.course import Course, nodes_text
from ackproof_reports.loading import CaseView
from ackproof_reports.wording import ABSENT, duration, moment, number, one_line, plural, share

_WAITED: Final = 0.5
"""Pressure (share of time, 0 … 1, in which some process waited) above which the row asks the reader to look.
"""
_DEATHS: Final = (EventKind.NODE_DIED, EventKind.CLIENT_DIED)
_MOST_TEXTS: Final = 5


class Standing(StrEnum):
    """State of a piece of evidence, according to the opinions of the judge, or to the files if there are none."""

    THERE = "there"
    """The judge asked for this evidence and had no objection, or the machine kept up with the load."""
    LACKING = "lacking"
    """The judge found this evidence missing or contradictory. Without opinions of a judge: the files show that it is
    missing."""
    UNKNOWN = "not recorded"
    """The run has no opinions of a judge, as runs of older versions, or the load of the machine was not observed."""
    NOTE = "see"
    """A remark that is no objection of the judge: a storm's fault that missed, or a machine that may have been too
    busy."""


@dataclass(frozen=True)
class Piece:
    """One piece of evidence: a row of the report's table of evidence. `what`: its name. `found`: in words, the facts of
    the run, or the complaints of the judge if it lacks."""

    what: str
    standing: Standing
    found: str


class _Weighed:
    """The judge's complaints about one case: opinions that evidence is missing or contradictory. `piece` makes a row of
    the table of evidence and removes the complaints that this row shows. `contradictions` makes a row of every
    contradiction, also of those that another row shows. `others` yields a row with the rest."""

    def __init__(self, case: CaseView) -> None:
        opinions = case.judged.opinions if case.judged else ()
        self._known = bool(opinions) or (case.judged is not None and case.judged.verdict == "PASS")
        self._contradicting = [one for one in opinions if one.kind is Says.CONTRADICTS]
        self._bad = [one for one in opinions if one.kind in (Says.LACKS, Says.CONTRADICTS)]

    def piece(
        self, what: str, facts: str, *checks: str, subject: str | None = None, lacking: bool = False
    ) -> Piece:
        """Return a row of the table of evidence: the judge's complaints from these `checks`, or `facts` if there are
        none. `what`: the first cell.

        `subject`: only complaints about this subject; None: about any. `lacking`: True if the files alone show that
        this evidence is missing; it matters only if the run has no opinions of a judge."""
        bad = [one for one in self._bad if one.check in checks and subject in (None, one.subject)]
        self._bad = [one for one in self._bad if one not in bad]
        return self._piece(what, facts, bad, lacking=lacking)

    def contradictions(self) -> Piece:
        """Return the row of all contradictions, whatever check found them."""
        self._bad = [one for one in self._bad if one not in self._contradicting]
        return self._piece(
            "The files of the run agree with each other", "no contradiction", self._contradicting
        )

    def _piece(self, what: str, facts: str, bad: Sequence[JudgedOpinion], *, lacking: bool = False) -> Piece:
        if bad:
            return Piece(what, Standing.LACKING, _list_texts(bad))
        if self._known:
            return Piece(what, Standing.THERE, facts)
        return Piece(what, Standing.LACKING if lacking else Standing.UNKNOWN, facts)

    def others(self) -> Iterator[Piece]:
        """Yield one row with all complaints of the judge that no row of the table has shown; none if there are none."""
        if self._bad:
            yield Piece("What else the judge asked for", Standing.LACKING, _list_texts(self._bad))


def _list_texts(opinions: Sequence[JudgedOpinion]) -> str:
    texts = list(dict.fromkeys(one_line(one.text, 600) for one in opinions))
    more = len(texts) - _MOST_TEXTS
    return "; ".join(texts[:_MOST_TEXTS]) + (f"; and {more} more" if more > 0 else "")


def evidence_of(case: CaseView, course: Course) -> list[Piece]:
    """Return the rows of the table of evidence: each kind that a verdict needs, with its state; then what else the
    judge objected to; then whether the machine kept up with the load."""
    weighed = _Weighed(case)
    rows = [
        weighed.piece(
            "The run went through",
            _describe_run(case),
            *("end", "windows"),
            lacking=bool(case.events) and (not case.finished or bool(_list_errors(case))),
        ),
        weighed.piece(
            "The final read is complete",
            _describe_final_read(case),
            *("read completeness", "final read"),
            lacking=case.final is None or not case.final.complete,
        ),
        *(_describe_fault(weighed, fault) for fault in course.faults),
    ]
    if course.faults:
        rows += [
            weighed.piece(
                "Faults are as they were planned", "each was confirmed", "faults", "lives", "targets"
            ),
            weighed.piece(
                "Acks before the first fault and after the last healing", "on each targeted partition", "acks"
            ),
        ]
    read = case.judged.witnesses if case.judged else ()
    logs = f"{plural(len(read), 'read')} confirmed by them" if read else "nothing confirmed by them"
    replay = (
        f"{number(case.conformance.replayed)} steps and rows replayed" if case.conformance else "not replayed"
    )
    rows += [
        weighed.piece(
            "No node and no client ended by itself",
            _describe_deaths(case),
            *("deaths", "resets"),
            lacking=any(event.kind in _DEATHS for event in case.events),
        ),
        weighed.piece(
            "The audit counted everything, and outcomes are known",
            _describe_audit(case),
            *("audit", "unread bytes"),
            lacking=case.audit is None or not case.audit.complete,
        ),
    ]
    of_logs = (
        weighed.piece("The logs on disk agree with the final read", logs, "logs", "left replicas"),
        weighed.piece("The replay leaves no doubt", replay, "replay"),
    )
    # last, for it takes the contradictions that other rows show, too
    rows += [weighed.contradictions(), *of_logs, *weighed.others(), *_calm(case)]
    return rows


def _describe_run(case: CaseView) -> str:
    if not case.events:
        return "no timeline"
    if errors := _list_errors(case):
        return one_line("; ".join(errors), 600)
    end = "end event after" if case.finished else "no end event; last at"
    return f"{end} {moment(case.end_ns)}"


def _list_errors(case: CaseView) -> list[str]:
    return [event.what.error for event in case.events if isinstance(event.what, RunFailed)]


def _describe_final_read(case: CaseView) -> str:
    if case.final is None:
        return "there is no observed/final-read.json"
    partitions = plural(len(case.final.partitions), "partition")
    if not case.final.complete:
        return one_line(f"{partitions}; {'; '.join(case.final.reasons) or 'no reason recorded'}", 600)
    return f"{partitions} read from start to end in one leader epoch each"


def _describe_fault(weighed: _Weighed, fault: FaultLife) -> Piece:
    steps = [
        ("asked", fault.asked_ns, nodes_text(fault)),
        ("confirmed", fault.confirmed, fault.witness),
        ("healing asked", fault.healed, ""),
        ("healed", fault.recovered, fault.healing_witness),
    ]
    facts = "; ".join(
        f"{name} {moment(at)}" + (f" ({one_line(by, 200)})" if by else "")
        for name, at, by in steps
        if at is not None
    )
    if fault.missed is not None and fault.failed is None:
        what = f"Fault {fault.name} missed, as faults of a storm may: {fault.title}"
        return Piece(what, Standing.NOTE, one_line(fault.reason or "no reason recorded", 600))
    what = f"Fault {fault.name} bit and healed: {fault.title}"
    if fault.failed is not None:
        facts = one_line(fault.reason or "no reason recorded", 600)
    return weighed.piece(
        what,
        facts,
        *("faults", "lives", "targets", "scripts"),
        subject=f"fault {fault.name}",
        lacking=fault.failed is not None or any(at is None for _, at, _ in steps),
    )


def _describe_deaths(case: CaseView) -> str:
    died = [
        f"{event.node if event.node is not None else event.client} at {moment(event.t_ns)}"
        for event in case.events
        if event.kind in _DEATHS
    ]
    resets = sum(event.kind is EventKind.CLIENT_RESET for event in case.events)
    return (", ".join(died) or "none did") + (f"; {plural(resets, 'reset')} of clients" if resets else "")


def _describe_audit(case: CaseView) -> str:
    if case.audit is None:
        return "not audited"
    if not case.audit.complete:
        return one_line("; ".join(case.audit.reasons) or "no reason recorded", 600)
    records = case.audit.audited
    known = f"{number(records.indeterminate)} of {number(records.produced)} indeterminate"
    if records.produced:
        known += f" ({share(records.indeterminate, records.produced)})"
    if case.audit.unledgered:
        known += f"; {plural(case.audit.unledgered, 'final row')} of clients that died with their ledger"
    return known


def _calm(case: CaseView) -> Iterator[Piece]:
    what = "The machine kept up with the load"
    seen = case.judged.calm if case.judged else None
    if seen is None:
        yield Piece(what, Standing.UNKNOWN, "nobody watched the machine")
        return
    asked = "full speed" if seen.asked_rate is None else f"{number(round(seen.asked_rate))}/s"
    times = [
        ("sent", f"{number(round(seen.sent_rate))}/s" if seen.sent_rate >= 0 else ABSENT),
        ("half of the acks within", duration(seen.median_ms if seen.median_ms >= 0 else None)),
        ("the harness late by at most", duration(seen.late_ms)),
    ]
    shares = [
        ("processors busy", seen.busy),
        ("stolen by the host", seen.stolen),
        ("of the time some process waited for a processor", seen.cpu_pressure),
        ("for a disk", seen.io_pressure),
        ("for memory", seen.memory_pressure),
    ]
    told = [f"{asked} asked", *(f"{name} {value}" for name, value in times)]
    told += [
        f"{name} {part:.0%}".replace("%", " %") if part >= 0 else f"{name} {ABSENT}" for name, part in shares
    ]
    waited = max(seen.cpu_pressure, seen.io_pressure, seen.memory_pressure) > _WAITED
    doubtful = seen.starved or waited or seen.sent_rate < 0
    yield Piece(what, Standing.NOTE if doubtful else Standing.THERE, ", ".join(told))

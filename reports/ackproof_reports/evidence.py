"""The evidence behind a verdict, as facts found in the run's folder. Whether it suffices the judge has decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ackproof.rundir.timeline import EventKind, RunFailed
from ackproof_reports.course import Course, Fault
from ackproof_reports.loading import CaseView
from ackproof_reports.series import Series
from ackproof_reports.wording import ABSENT, duration, moment, number, one_line, plural, share

_WAITED: Final = 0.5
"""Where some process waited for more of the time than this, a reader is to look for themselves."""


class Standing(StrEnum):
    """How a piece of evidence stands."""

    THERE = "there"
    LACKING = "lacking"
    UNKNOWN = "not recorded"
    NOTE = "see"


@dataclass(frozen=True)
class Piece:
    """One piece of evidence."""

    what: str
    standing: Standing
    found: str


def evidence_of(case: CaseView, course: Course, series: Series | None) -> list[Piece]:
    """What a verdict needs, in the order of docs/architecture.md, with what is on disk about it."""
    return [
        *_run(case),
        *_final_read(case),
        *(_fault(fault) for fault in course.faults),
        *_acks(case, course, series),
        *_deaths(case),
        *_attempts(case),
        *_audit(case),
        *_calm(case),
    ]


def _run(case: CaseView) -> Iterator[Piece]:
    what = "The run went through"
    if not case.events:
        yield Piece(what, Standing.UNKNOWN, "no timeline")
        return
    errors = [e.what.error for e in case.events if isinstance(e.what, RunFailed)]
    if errors:
        yield Piece(what, Standing.LACKING, one_line("; ".join(errors), 600))
    elif not case.finished:
        yield Piece(
            what, Standing.LACKING, f"the timeline stops at {moment(case.end_ns)} without its end event"
        )
    else:
        torn = "" if case.whole else "; some lines of the timeline cannot be read"
        standing = Standing.THERE if case.whole else Standing.LACKING
        yield Piece(what, standing, f"end event after {moment(case.end_ns)}{torn}")


def _final_read(case: CaseView) -> Iterator[Piece]:
    what = "The final read is complete"
    if case.final is None:
        yield Piece(what, Standing.LACKING, "there is no observed/final-read.json")
        return
    partitions = plural(len(case.final.partitions), "partition")
    if case.final.complete:
        yield Piece(what, Standing.THERE, f"{partitions} read from start to end in one leader epoch each")
    else:
        why = "; ".join(case.final.reasons) or "no reason recorded"
        yield Piece(what, Standing.LACKING, one_line(f"{partitions}; {why}", 600))
    if case.audit and case.audit.final_read.count:
        flaws = plural(case.audit.final_read.count, "place")
        yield Piece(
            "The final reader went straight on", Standing.LACKING, f"it went back or passed over in {flaws}"
        )


def _fault(fault: Fault) -> Piece:
    what = f"Fault {fault.name} bit and healed: {fault.title}"
    if fault.missed is not None and fault.failed is None:
        what = f"Fault {fault.name} missed, as faults of a storm may: {fault.title}"
        return Piece(what, Standing.NOTE, one_line(fault.reason or "no reason recorded", 600))
    if fault.failed is not None:
        return Piece(what, Standing.LACKING, one_line(fault.reason or "no reason recorded", 600))
    steps = [
        ("asked", fault.asked, fault.on_nodes),
        ("confirmed", fault.confirmed, fault.witness),
        ("healing asked", fault.healed, ""),
        ("healed", fault.recovered, fault.healing_witness),
    ]
    told = [
        f"{name} {moment(at)}" + (f" ({one_line(by, 200)})" if by else "")
        for name, at, by in steps
        if at is not None
    ]
    missing = [name for name, at, _ in steps if at is None]
    if missing:
        told.append("never " + ", never ".join(missing))
    return Piece(what, Standing.LACKING if missing else Standing.THERE, "; ".join(told))


def _acks(case: CaseView, course: Course, series: Series | None) -> Iterator[Piece]:
    asked = [fault.asked for fault in course.faults if fault.asked is not None]
    healed = [fault.recovered for fault in course.faults if fault.recovered is not None]
    if not asked:
        return
    spans: list[tuple[str, float, float]] = [("Acks before the first fault", 0, min(asked))]
    if healed:
        spans.append(("Acks after the last healing", max(healed), float("inf")))
    for what, start, end in spans:
        if series is None:
            yield Piece(what, Standing.UNKNOWN, "no series.parquet")
            continue
        counted = {place: series.acked_between(place, start, end) for place in sorted(series.places)}
        if any(count is None for count in counted.values()):
            yield Piece(
                what, Standing.UNKNOWN, "the run is too long to show this per 0.1 s; see series.parquet"
            )
            continue
        told = [f"{topic}/{partition}: {number(count)}" for (topic, partition), count in counted.items()]
        more = f" and {len(told) - 12} more partitions" if len(told) > 12 else ""
        standing = Standing.THERE if counted and all(counted.values()) else Standing.NOTE
        yield Piece(what, standing, (", ".join(told[:12]) + more) or "no partition has any")


def _deaths(case: CaseView) -> Iterator[Piece]:
    if not case.events:
        return
    for what, kind in (
        ("No node ended by itself", EventKind.NODE_DIED),
        ("No client ended by itself", EventKind.CLIENT_DIED),
    ):
        died = [event for event in case.events if event.kind is kind]
        who = [
            f"{event.node if event.node is not None else event.client} at {moment(event.t_ns)}"
            for event in died
        ]
        yield Piece(what, Standing.LACKING if died else Standing.THERE, ", ".join(who) or "none did")
    resets = sum(event.kind is EventKind.CLIENT_RESET for event in case.events)
    if resets:
        yield Piece("Clients went on without a reset", Standing.NOTE, plural(resets, "reset"))


def _attempts(case: CaseView) -> Iterator[Piece]:
    what = "The outcome of the attempts is known"
    if case.audit is None:
        yield Piece(what, Standing.UNKNOWN, "not audited")
        return
    records = case.audit.audited
    found = f"{number(records.indeterminate)} of {number(records.produced)} indeterminate"
    bound = case.resolved("experiment", "evidence", "max_indeterminate")
    if not records.produced:
        yield Piece(what, Standing.LACKING, "nothing was produced")
        return
    found += f" ({share(records.indeterminate, records.produced)})"
    if isinstance(bound, (int, float)) and not isinstance(bound, bool):
        over = records.indeterminate / records.produced > bound
        found += f"; the experiment allows {bound:.0%}".replace("%", " %")
        yield Piece(what, Standing.LACKING if over else Standing.THERE, found)
    else:
        yield Piece(what, Standing.THERE if not records.indeterminate else Standing.NOTE, found)


def _audit(case: CaseView) -> Iterator[Piece]:
    what = "The audit counted everything"
    if case.audit is None:
        yield Piece(what, Standing.LACKING, "there is no audit.json")
    elif case.audit.complete:
        extra = f"; {plural(case.audit.unledgered, 'final row')} of clients that died with their ledger"
        yield Piece(what, Standing.THERE, "complete" + (extra if case.audit.unledgered else ""))
    else:
        yield Piece(
            what, Standing.LACKING, one_line("; ".join(case.audit.reasons) or "no reason recorded", 600)
        )


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

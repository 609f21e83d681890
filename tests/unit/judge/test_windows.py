"""Tests of a soak's windows compared with the audit of the whole run: common findings, single ones, deleted windows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.judge import judge_case
from ackproof.rundir.documents import DeletedWindows, RecordCounts, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.schema import FINDINGS
from ackproof.rundir.timeline import Event, EventKind
from ackproof.rundir.windows import WindowFile, WindowRead, window_findings, window_json
from judged_run import WHOLE, finding

CUTS = ((0, 40), (40, 70), (70, 100))


def _read(start: int, end: int, topic: str = "orders") -> tuple[WindowRead, ...]:
    return (WindowRead(topic=topic, partition=0, start=start, end=end),)


Rows = Iterable[dict[str, Any]]


def lost(seq: int, offset: int | None = None) -> dict[str, Any]:
    return {**finding("lost"), "producer": 0, "seq": seq, "offset": seq if offset is None else offset}


@pytest.fixture
def judged(make_run: Callable[..., CaseDir]) -> Callable[..., VerdictFile]:
    """Return a function that judges a soak of three windows. `found`: findings by window; `whole`: findings of the
    audit of the whole run. `changes`: `window_1`, `told_1`: other fields of the window's file or event; `gone`: windows
    without a file; `soak`: further fields of the soak; `final`, `audit`, `producers`: arguments of `make_run`."""

    def judge(found: dict[int, Rows], whole: Rows = (), **changes: Any) -> VerdictFile:
        rows = list(whole)
        count = len(rows)
        final = changes.pop("final", "whole")
        counts = {rows[0]["class"]: count} if rows else {}
        asked = {name: changes.pop(name) for name in ("audit", "producers") if name in changes}
        run = make_run(findings=rows, **counts, final=final, **asked)
        case = json.loads(run.case_json.read_text())
        case["resolved"]["experiment"]["soak"] = {"window": "5s"} | changes.pop("soak", {})
        run.case_json.write_text(json.dumps(case))
        *events, over = run.timeline.read_text().splitlines()
        for number, (start, end) in enumerate(CUTS):
            mine = list(found.get(number, ()))
            path = window_json(run, number)
            path.parent.mkdir(parents=True)
            if mine:
                pq.write_table(pa.Table.from_pylist(mine, schema=FINDINGS), window_findings(run, number))
            read = _read(start, end)
            window = WindowFile(
                number=number, last=number == 2, from_ns=0, to_ns=0, read=read,
                counts=Counter(one["class"] for one in mine),
                produced=end - start, acked=end - start, failed=0, indeterminate=0, live=0, followed=end - start,
                open=0, late=0, pinned={},
            )  # fmt: skip
            window = window.model_copy(update=changes.get(f"window_{number}", {}))
            window.save(path)
            told = {
                "number": number,
                "acked": window.acked,
                "followed": window.followed,
                "counts": window.counts,
            }
            event = Event.model_validate_json(over).model_copy(
                update={"kind": EventKind.WINDOW, "detail": told | changes.get(f"told_{number}", {})}
            )
            events.append(event.model_dump_json())
            if number in changes.get("gone", ()):
                path.unlink()
        run.timeline.write_text("".join(f"{line}\n" for line in (*events, over)))
        return judge_case(run)

    return judge


def test_windows_that_agree_are_a_witness(judged: Callable[..., VerdictFile]) -> None:
    verdict = judged({})
    assert verdict.verdict is Verdict.PASS, verdict.reasons
    assert (
        "3 windows, audited while the load went on, found what the audit of the whole did"
        in verdict.witnesses
    )


def test_a_loss_that_both_found_is_a_loss(judged: Callable[..., VerdictFile]) -> None:
    verdict = judged({1: [lost(50)]}, [lost(50)])
    assert verdict.verdict is Verdict.FAIL
    assert any(one.startswith("lost: 1") for one in verdict.reasons)


def test_what_windows_alone_found_carries_no_verdict(judged: Callable[..., VerdictFile]) -> None:
    verdict = judged({1: [lost(50)]})
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert verdict.reasons == (
        "the windows found 1 acknowledged record that the audit of the whole did not: such as producer 0, seq 50 at "
        "orders/0, offset 50",
    )


def test_a_loss_after_its_window_is_a_loss(judged: Callable[..., VerdictFile]) -> None:
    """The record was present when its window was read, so only the audit of the whole run finds the loss."""
    verdict = judged({}, [lost(50)])
    assert verdict.verdict is Verdict.FAIL
    assert any("1 acknowledged record that no window did" in one for one in verdict.not_judged)


def test_one_that_the_settings_permit_is_none_of_a_soak_either(judged: Callable[..., VerdictFile]) -> None:
    verdict = judged({}, [lost(50)], producers="acks: '1'")
    assert verdict.verdict is Verdict.PASS, verdict.reasons


@pytest.mark.parametrize(("late", "found"), [(3, Verdict.FAIL), (0, Verdict.INCONCLUSIVE)])
def test_what_late_live_reads_show_the_whole_alone_sees(
    judged: Callable[..., VerdictFile], late: int, found: Verdict
) -> None:
    skipped = {**finding("skipped"), "producer": -1, "seq": -1, "offset": 50}
    assert judged({}, [skipped], window_2={"late": late}).verdict is found


def test_a_place_that_was_taken_is_no_loss_where_its_record_comes_later(
    judged: Callable[..., VerdictFile],
) -> None:
    overwritten = {**lost(50), "class": "overwritten"}
    displaced = {**lost(50), "class": "displaced"}
    verdict = judged({1: [lost(50), overwritten], 2: [displaced]}, [displaced])
    assert not any("windows found" in one for one in verdict.reasons), verdict.reasons


def test_a_window_that_did_not_see_all_is_no_witness(judged: Callable[..., VerdictFile]) -> None:
    verdict = judged({}, window_1={"reasons": ("it was cut",)})
    assert any("window 1: it was cut" in one for one in verdict.not_judged)
    assert not any("windows, audited" in one for one in verdict.witnesses)


def test_what_a_window_must_have_seen_and_did_not(judged: Callable[..., VerdictFile]) -> None:
    verdict = judged({}, [{**lost(50), "class": "duplicate"}])
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert any("found 1 duplicate copy that no window did" in one for one in verdict.reasons)


def test_a_record_that_was_only_late_is_not_lost(judged: Callable[..., VerdictFile]) -> None:
    verdict = judged({1: [lost(50, -1)]}, window_2={"found_late": ((0, 50),)})
    assert verdict.verdict is Verdict.PASS, verdict.reasons


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"window_2": {"last": False}}, "the last window of the soak was not audited"),
        ({"window_1": {"produced": 29}}, "the windows count 99 attempts, and the ledgers have, or had, 100"),
        ({"window_1": {"acked": 29}}, "the windows count 99 acked, and the audit of the whole 100"),
        (
            {"window_1": {"read": _read(41, 70)}},
            "orders/0: window 0 ends at 40, and window 1 begins at 41",
        ),
        ({"window_0": {"read": _read(15, 40)}}, "orders/0: the soak begins at 0, and window 0 begins at 15"),
        ({"window_2": {"read": _read(70, 85)}}, "window 2 ends at 85 as the last, and the final read at 100"),
        ({"window_1": {"read": ()}}, "window 1 and the case have not the same partitions: orders/0"),
        ({"window_1": {"read": _read(40, 70, "nowhere")}}, "same partitions: nowhere/0, orders/0"),
        ({"window_1": {"counts": {"lost": 3}}}, "window 1 counts {'lost': 3}, and its findings are {}"),
        ({"window_1": {"deleted": True}}, "window 1 was deleted, and the case keeps all"),
        ({"told_1": {"followed": 31}}, "window 1 is not what the timeline says of it"),
        ({"gone": (1,)}, "the timeline tells that window 1 was audited, and there is no such window"),
    ],
)  # fmt: skip
def test_windows_that_are_not_whole(
    judged: Callable[..., VerdictFile], changes: dict[str, Any], said: str
) -> None:
    verdict = judged({}, **changes)
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert any(said in one for one in verdict.reasons), verdict.reasons


@pytest.mark.parametrize(
    ("gone", "reasons"),
    [(30, ()), (29, ("the windows count 100 attempts, and the ledgers have, or had, 99",))],
)
def test_the_verdict_says_of_what_it_cannot_speak(
    judged: Callable[..., VerdictFile], gone: int, reasons: tuple[str, ...]
) -> None:
    """The verdict does not cover deleted windows. That their records are missing in the log is no reason against it."""
    (one,) = WHOLE.partitions
    final = WHOLE.model_copy(update={"partitions": (one.model_copy(update={"start": 40, "records": 60}),)})
    sums = RecordCounts(produced=100, acked=100)
    audit = {
        "records": RecordCounts(produced=70, acked=70, consumed_final=60),
        "deleted": DeletedWindows(windows=1, records=sums, gone=gone, spared=10),
    }
    verdict = judged({}, final=final, window_0={"deleted": True}, audit=audit, soak={"keep": 2})
    assert verdict.reasons == reasons
    assert any(
        "what stood in the logs before orders/0 40" in one and "nobody can tell" in one
        for one in verdict.not_judged
    )

"""Tests that the table of evidence shows what the judge asked for, whatever the facts of the run are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackproof.judge.checks.windows import check_windows
from ackproof.judge.verdict import COHERENCE, SEALED_COHERENCE, Check, check_name
from ackproof.rundir.documents import JudgedOpinion, VerdictFile
from ackproof.rundir.lifelines import FaultLife
from ackproof.rundir.outcome import Verdict
from ackproof_reports.course import Course
from ackproof_reports.evidence import Standing, evidence_of

FAULTS = (
    FaultLife(1, "kill", number=1, confirmed=2, healed=3, recovered=4),
    FaultLife(1, "cut", number=2),
)


def _standings(
    *opinions: JudgedOpinion, verdict: Verdict = Verdict.INCONCLUSIVE
) -> dict[str, tuple[str, str]]:
    case = SimpleNamespace(
        judged=VerdictFile(verdict=verdict, reasons=(), opinions=opinions),
        events=(),
        finished=True,
        end_ns=0,
        final=None,
        audit=None,
        conformance=None,
    )
    found = evidence_of(cast(Any, case), Course(faults=FAULTS))
    return {piece.what: (piece.standing, piece.found) for piece in found}


def _lack(check: str, text: str, **more: Any) -> JudgedOpinion:
    return JudgedOpinion(check=check, kind="lacks", text=text, **more)


@pytest.mark.parametrize(
    ("opinion", "row"),
    [
        (_lack("end", "it stopped"), "The run went through"),
        (_lack("final read", "half of it"), "The final read is complete"),
        (_lack("faults", "never healed", subject="fault 2"), "Fault 2 bit and healed: cut"),
        (_lack("acks", "orders/0 has none"), "Acks before the first fault and after the last healing"),
        (_lack("read completeness", "a part of it"), "The final read is complete"),
        (_lack("high watermarks", "two answers of Kafka differ"), "What else the judge asked for"),
        (_lack("logs", "no log"), "The logs on disk agree with the final read"),
        (_lack("a new check", "something"), "What else the judge asked for"),
    ],
    ids=lambda one: one.check if isinstance(one, JudgedOpinion) else "",
)
def test_a_complaint_of_the_judge_stands_in_its_row_and_in_no_other(opinion: JudgedOpinion, row: str) -> None:
    found = _standings(opinion)
    assert found[row] == (Standing.LACKING, opinion.text)
    assert [what for what, (standing, _) in found.items() if standing is Standing.LACKING] == [row]


def test_contradictions_are_shown_and_agreement_is_not_a_lack() -> None:
    agrees = JudgedOpinion(check="logs", kind="agrees", text="they agree")
    odd = JudgedOpinion(check="disks", kind="contradicts", text="they differ")
    found = _standings(agrees, odd)
    assert found["The files of the run agree with each other"] == (Standing.LACKING, "they differ")
    assert found["The logs on disk agree with the final read"][0] is Standing.THERE


@pytest.mark.parametrize("check", [*COHERENCE, *SEALED_COHERENCE, check_windows], ids=check_name)
def test_every_contradiction_denies_that_the_files_agree(check: Check) -> None:
    """The row on the agreement of files shows all contradictions, also those of a row above. No other row repeats a
    contradiction that only this row shows."""
    odd = JudgedOpinion(check=check_name(check), kind="contradicts", text="they differ", subject="fault 2")
    found = _standings(odd)
    assert found["The files of the run agree with each other"] == (Standing.LACKING, "they differ")
    assert "What else the judge asked for" not in found
    faulty = found["Fault 2 bit and healed: cut"][0] is Standing.LACKING
    assert faulty is (check_name(check) in ("lives", "scripts", "targets"))


def test_without_opinions_only_what_files_lack_is_said() -> None:
    """Verdicts of older versions, and runs that were never judged, have no opinions."""
    standings = {standing for standing, _ in _standings().values()}
    assert Standing.THERE not in standings and Standing.UNKNOWN in standings
    found = {what for what, (standing, _) in _standings().items() if standing is Standing.LACKING}
    assert "The final read is complete" in found
    assert Standing.THERE in {standing for standing, _ in _standings(verdict=Verdict.PASS).values()}


def test_many_complaints_are_counted() -> None:
    found = _standings(*(_lack("acks", f"orders/{number} has none") for number in range(1000)))
    _, text = found["Acks before the first fault and after the last healing"]
    assert text.startswith("orders/0 has none; orders/1") and text.endswith("; and 995 more")

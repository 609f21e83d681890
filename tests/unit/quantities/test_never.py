"""Tests of times until events that never occurred, and of acknowledgements with acks=0: no number stands for them."""

from __future__ import annotations

import pytest

from ackproof.quantities.answer import measured
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Value
from ackproof.quantities.vocabulary import parse_ask
from ackproof.rundir.bounds import WHOLE
from ackproof.rundir.documents import CaseFile

from .conftest import Make, attempt, life


def value(evidence: Evidence, text: str) -> Value:
    return measured(evidence, parse_ask(text), WHOLE)


def test_never_is_what_no_partition_or_the_last_of_all_did_not_come_to(make: Make) -> None:
    """`first refused` needs one partition with a refusal, `first ack` an acknowledgement on every partition."""
    run = make(produced=[attempt(3, 3.1), attempt(3, outcome=2, partition=1)], events=life(2, 2))
    assert value(run, "time_to(first refused, fault 1)").never
    assert value(run, "time_to(first ack, fault 1)").never
    assert not value(run, "time_to(first ack, fault 1, orders/0)").never
    told = [attempt(3, 3.1), attempt(3, 4, outcome=1, error=7, partition=1)]
    assert not value(make(produced=told, events=life(2, 2)), "time_to(first refused, fault 1)").never


def test_without_an_answer_there_is_no_acknowledgement(make: Make) -> None:
    """With acks=0 a success only means that the record was written to a socket."""
    run = make(produced=[attempt(3, 3.1), attempt(4, 5, outcome=1, error=7)], events=life(2, 2))
    case = CaseFile.load(run.run.case_json)
    acks = {"experiment": {"workload": {"producers": {"acks": "0"}}}}
    case.model_copy(update={"resolved": acks}).save(run.run.case_json)
    evidence = Evidence.of_run(run.run)
    for what in ("ack", "accepted"):
        found = value(evidence, f"time_to(first {what}, fault 1)")
        assert not found.is_known
        assert "with acks=0 no broker acknowledges" in found.why
    assert value(evidence, "time_to(first refused, fault 1)").high == pytest.approx(3)

"""Live readers that retention overtook."""

from __future__ import annotations

from dataclasses import replace

from ackproof.judge.checks import run
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Says
from ackproof.rundir.timeline import ClientReset

from .conftest import MakeRun
from .test_coherent_watching import event


def test_a_reader_that_was_sent_on_past_records_is_told_of(make_run: MakeRun) -> None:
    facts = Facts.read(make_run())
    reset = ClientReset(assignment=1, position=10, start=40, end=100, goes_on=40)
    cut = ClientReset(assignment=2, position=90, start=40, end=80, goes_on=70)
    happened = tuple(event(one, 0.9, client="r0", topic="orders", partition=0) for one in (reset, cut))
    (told,) = run.check_resets(replace(facts, events=happened))
    assert (told.says, told.text) == (
        Says.NOT_JUDGED,
        "reader r0 was at offset 10 of orders/0 at 0.9 s, and the log began at 40 by then: it went on at 40 and "
        "never read the 30 offsets between",
    )

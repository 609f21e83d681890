"""Expectations on what is measured: what each comes to in the verdict, and what `verdict.json` keeps of it."""

from __future__ import annotations

import pytest

from ackproof.judge.facts import Facts
from ackproof.judge.verdict import judge
from ackproof.rundir.documents import QuietSeconds
from ackproof.rundir.outcome import Verdict

from .conftest import MakeRun, attempt

SENT = [attempt(number, at) for number, at in enumerate((0.5, 1.05, 1.2, 1.3))]
"""All sent at 0 s: the longest gap is 0.55 s, the longest latency 1.3 s."""


@pytest.mark.parametrize(
    ("expect", "verdict", "reason"),
    [
        ('longest_gap(produce): "< 1s"', Verdict.PASS, ""),
        (
            'longest_gap(produce): "< 100ms"',
            Verdict.FAIL,
            "expected longest_gap(produce) < 100ms, measured 550 ms with timing chaos",
        ),
        (
            'latency(max): "> 1m"',
            Verdict.INCONCLUSIVE,
            "not demonstrated: expected latency(max) > 60s, measured 1.300 s with timing chaos",
        ),
        (
            "lag: never > 5",
            Verdict.INCONCLUSIVE,
            "it cannot be told: lag(orders/0): no look tells it within that time",
        ),
        (
            'time_to(first ack, fault 1): "< 6s"',
            Verdict.INCONCLUSIVE,
            "nothing was acknowledged on orders/0 until 1.400 s of the run",
        ),
    ],
)
def test_what_each_comes_to(make_run: MakeRun, expect: str, verdict: Verdict, reason: str) -> None:
    found = judge(Facts.read(make_run(expect=f"expect:\n  - {expect}", attempts=SENT)))
    assert found.verdict is verdict
    assert reason in " ".join(found.reasons)
    (one,) = found.expected
    assert one.timing == ("" if expect.startswith("lag") else "chaos")
    assert one.holds is {Verdict.PASS: True, Verdict.FAIL: False}.get(verdict, one.holds)


@pytest.mark.parametrize(
    ("expect", "verdict"),
    [
        ('longest_gap(produce): "< 100ms"', Verdict.INCONCLUSIVE),
        ('longest_gap(produce): "> 100ms"', Verdict.INCONCLUSIVE),
        ('longest_gap(produce): "< 60s"', Verdict.PASS),
        ('rate(produce): "> 1/s"', Verdict.PASS),
        ('rate(produce): "< 100000/s"', Verdict.INCONCLUSIVE),
        ('attempts(acked): "> 0"', Verdict.PASS),
        ("lost: 0", Verdict.PASS),
    ],
)
def test_what_takes_time_on_a_starved_machine_is_held_neither_against_kafka_nor_for_it(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, expect: str, verdict: Verdict
) -> None:
    starved = QuietSeconds(
        seconds=1, asked_rate=None, sent_rate=1, median_ms=1, late_ms=1, looks_per_s=1, busy=1, stolen=0,
        cpu_pressure=0, io_pressure=0, memory_pressure=0, starved=("it stood still",),
    )  # fmt: skip
    monkeypatch.setattr(Facts, "calm", starved)
    found = judge(Facts.read(make_run(expect=f"expect:\n  - {expect}", attempts=SENT)))
    assert found.verdict is verdict
    assert ["on a starved machine: it stood still" in one for one in found.reasons] == [True] * (
        verdict is Verdict.INCONCLUSIVE
    )


def test_what_is_lacking_elsewhere_does_not_hide_it(make_run: MakeRun) -> None:
    """A hole in what one expectation needs keeps no loss from being told."""
    run = make_run(expect="expect:\n  - {lost: 0}\n  - lag: never > 5", attempts=SENT, lost=1)
    assert judge(Facts.read(run)).verdict is Verdict.FAIL

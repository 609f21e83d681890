"""Test that every kind of fault has a dud on real brokers, or a reason why not: its witness must not confirm a dud."""

from __future__ import annotations

import pkgutil
from pathlib import Path

import pytest

from ackproof.faults.registry import fault_kinds
from faultbench.claim_duds import CLAIM_DUDS
from faultbench.duds import DUDS, NO_DUD
from scripted import LIES

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("kind", sorted(fault_kinds()))
def test_every_kind_of_fault_has_one(kind: str) -> None:
    planted = {dud.fault.partition(":")[0] for duds in DUDS.values() for dud in duds.values()}
    assert (kind in planted) is not (kind in NO_DUD), "faultbench/duds.py: a dud, or a reason, and not both"


@pytest.mark.parametrize("where", sorted(DUDS))
def test_each_is_planted(where: str) -> None:
    asked = f'duds_on("{where}")'
    assert any(asked in file.read_text(encoding="utf-8") for file in TESTS.glob("*/test_*.py"))


def test_each_replaces_a_call_that_exists() -> None:
    calls = {call for duds in DUDS.values() for dud in duds.values() for call in dud.spoilt}
    calls |= {call for of_a_claim in CLAIM_DUDS.values() for call in of_a_claim}
    calls |= {f"ackproof.{lie.call}" for lie in LIES}
    for call in calls:
        assert callable(pkgutil.resolve_name(call)), call

"""Keyed records: what a file may say of them beside compaction and transactions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof.experiment.problems import InvalidExperiment
from ackproof.plan import Plan, cases
from ackproof.plan.cases import case_from_json, case_to_json

Load = Callable[[str], Plan]


def text(producers: str, policy: str = "compact", backend: str = "process") -> str:
    return (
        f"name: x\nbackend: {backend}\ntopics: {{t: {{config: {{cleanup.policy: {policy}}}}}}}\n"
        f"workload: {{producers: {{{producers}}}}}\n"
    )


@pytest.mark.parametrize(
    "written",
    [
        text("keys: 5"),
        text("keys: 5, tombstone_every: 2", policy="'compact,delete'"),
        text("keys: 5", policy="delete"),
        text("acks: all", policy="delete"),
    ],
)
def test_what_is_right(load_text: Load, written: str) -> None:
    (case,) = cases(load_text(written))
    assert case_from_json(case_to_json(case)) == case


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (text("acks: all"), "takes no record without a key"),
        (text("tombstone_every: 2", policy="delete"), "without keys there is nothing to delete"),
        (text("keys: 5, tombstone_every: 2", policy="delete"), "a tombstone deletes nothing there"),
        (text("keys: 5, idempotence: true, transaction_size: 10"), "whether it was torn"),
        (text("keys: 5", backend="model"), "its records have none"),
        (text("keys: 0"), "keys"),
    ],
)
def test_what_is_refused(load_text: Load, written: str, said: str) -> None:
    with pytest.raises(InvalidExperiment) as caught:
        load_text(written)
    assert any(said in str(problem) for problem in caught.value.problems), caught.value

"""Topics of the case beside the metadata log."""

from __future__ import annotations

from typing import Any

import pytest

from ackproof.judge.facts import Facts
from ackproof.rundir.metadata import ConfigChanged, write_metadata

from .conftest import decided, said


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"value": "1"}, "the metadata log has min.insync.replicas=1 for topic orders, and the case 2"),
        ({"value": None}, None),
        ({"name": "others", "value": "1"}, None),
        ({"resource": 4, "value": "1"}, None),
        (
            {"key": "unclean.leader.election.enable", "value": "true"},
            "the metadata log has unclean.leader.election.enable=true for topic orders, and the case does not set it",
        ),
        ({"key": "segment.bytes", "value": "7"}, None),
    ],
    ids=str,
)
def test_a_setting_that_was_in_force_is_that_of_the_case(
    facts: Facts, changes: dict[str, Any], words: str | None
) -> None:
    config = {"resource": 2, "name": "orders", "key": "min.insync.replicas", "value": "2", **changes}
    record = ConfigChanged(offset=1, epoch=1, timestamp_ms=0, **config)
    write_metadata(facts.run.metadata_log, [record, decided(1)])
    assert said(facts) == ([] if words is None else [words])


def test_a_topic_has_as_many_replicas_as_the_case(facts: Facts) -> None:
    created = decided(1).model_copy(update={"partition_epoch": 0, "replicas": (1, 2)})
    grown = decided(1).model_copy(update={"replicas": (1, 2)})
    write_metadata(facts.run.metadata_log, [created, decided(1)])
    assert said(facts) == ["orders/0 was created with 2 replicas, and the case has 3"]
    write_metadata(facts.run.metadata_log, [grown, decided(1)])
    assert said(Facts.read(facts.run)) == []

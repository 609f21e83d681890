"""Decisions of the controller that a script's step does not account for, and a log that is read while it is written."""

from __future__ import annotations

from typing import Any

import pytest

from ackproof.cluster.metadata.protocol import NotDecoded
from ackproof.faults.script.stage import PartitionObserver, find_unexpected_decisions
from ackproof.rundir.metadata import BrokerChanged, BrokerRegistered
from ackproof.rundir.partition import TopicPartition

PLACE = TopicPartition("t", 0)


def changed(node: int, fenced: bool) -> BrokerChanged:
    return BrokerChanged(offset=1, epoch=1, timestamp_ms=1, node=node, broker_epoch=3, fenced=fenced)


def test_who_was_fenced_when_it_stopped_is_fenced_again_when_its_session_ends() -> None:
    assert list(find_unexpected_decisions([changed(2, True)], PLACE, [2])) == []
    assert list(find_unexpected_decisions([changed(2, True)], PLACE, [3])) == [
        ("broker", 2, "broker 2 was fenced")
    ]


def test_who_has_come_back_can_be_fenced() -> None:
    back = BrokerRegistered(
        offset=1, epoch=1, timestamp_ms=1, node=2, broker_epoch=9, incarnation="x", fenced=True
    )
    said = [
        what
        for _, _, what in find_unexpected_decisions([back, changed(2, False), changed(2, True)], PLACE, [2])
    ]
    assert said == ["broker 2 registered", "broker 2 was unfenced", "broker 2 was fenced"]


def test_a_log_that_is_being_written_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stage: Any = object.__new__(PartitionObserver)
    answers = [NotDecoded("torn"), OSError("gone"), "decided"]

    def decode(_: PartitionObserver) -> object:
        answer = answers.pop(0) if answers else NotDecoded("of a newer form")
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(PartitionObserver, "_decode", decode)
    assert stage.read_decisions() == "decided"
    monkeypatch.setattr("ackproof.faults.script.stage._WRITTEN_WITHIN_S", 0.05)
    with pytest.raises(NotDecoded, match="of a newer form"):
        stage.read_decisions()

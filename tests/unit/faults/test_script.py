"""Decisions of the controller that a script's step does not account for, and a log that is read while it is written."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.metadata.protocol import NotDecoded
from ackproof.experiment.spec import ClusterSpec
from ackproof.faults.script.acts import ScriptActions
from ackproof.faults.script.spec import StepSpec
from ackproof.faults.script.stage import ControllerState, Gates, PartitionObserver, find_unexpected_decisions
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


class _LearnsAfter:
    """Observer of a broker that has learnt all decisions at its third observation."""

    def __init__(self) -> None:
        self.observed = 0

    def try_decisions(self) -> ControllerState:
        return ControllerState()

    def knows(self, broker: int, decided: ControllerState) -> bool:
        del broker, decided
        self.observed += 1
        return self.observed == 3


def _until(look: Any, what: str) -> None:
    if not any(look() for _ in range(5)):
        raise FaultNotConfirmed(what)


def test_steps_at_an_open_gate_wait_for_it_and_do_not_end_the_run() -> None:
    laid: Any = None
    actions = ScriptActions(
        cast("Any", None),
        cast("Any", None),
        Gates(laid, ClusterSpec(), 1),
        cast("Any", _LearnsAfter()),
        cast("Any", _until),
        "all",
    )
    said = actions.take(StepSpec(learn=2))
    assert said == "let 0 fetches of the metadata log through to broker 2"
    with pytest.raises(FaultNotConfirmed, match="a fetch of broker 2 to be there"):
        actions.take(StepSpec(set_aside=2))

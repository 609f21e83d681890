"""Tests of elections of controllers and leaders, and of what hides elections, on planted metadata logs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

from ackproof.quantities.answer import measured
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Value
from ackproof.quantities.vocabulary import parse_ask
from ackproof.rundir.bounds import WHOLE
from ackproof.rundir.metadata import EligibleCleared, LogEnded, MetadataRecord, PartitionChanged, TopicRemoved
from ackproof.rundir.timeline import EventKind

from .conftest import Make, decided, ended, event, life


def value(evidence: Evidence, text: str) -> Value:
    return measured(evidence, parse_ask(text), WHOLE)


@pytest.mark.parametrize(
    ("epochs", "asked_s", "expected"),
    [
        ([(0, 1), (1, 1), (3.5, 2), (9, 2)], 2, Value(1.5, 1.501)),
        ([(0, 1), (2, 2)], 2, Value(0, 0.001)),
        ([(1.999, 1), (3, 2)], 2, Value(1, 1.001)),
        ([(0, 1), (2, 1), (3.5, 2)], 2.0005, Value(1.4995, 1.5005)),
        ([(0, 1), (2, 2), (3.5, 3)], 2.0005, Value(0, 1.5005)),
        (
            [(0, 1), (2, 2)],
            2.0005,
            Value(0, math.inf, "a controller began within a moment of when the fault was asked for"),
        ),
        (
            [(0, 1), (9, 1)],
            2,
            Value(8, math.inf, "no controller began until 10.000 s of the run, the end of the load"),
        ),
        ([(3, 1), (4, 2)], 2, Value.unknown("the metadata log begins after the fault")),
    ],
    ids=["later", "at once", "just before", "nothing new within its moment", "one within its moment, and a later one",
         "within its moment", "never", "no log before"],
)  # fmt: skip
def test_when_a_controller_was_elected(
    make: Make, epochs: Sequence[tuple[float, int]], asked_s: float, expected: Value
) -> None:
    """The timestamp of a record is rounded down to a millisecond, so the time is known to a millisecond."""
    log = ended([decided(number, at, epoch=epoch) for number, (at, epoch) in enumerate(epochs)])
    found = value(make(metadata=log, events=life(asked_s, asked_s)), "time_to(controller elected, fault 1)")
    assert (found.low, found.high, found.why) == (
        pytest.approx(expected.low),
        pytest.approx(expected.high),
        expected.why,
    )


def test_controllers_are_dated_by_a_wall_clock_that_must_stand(make: Make) -> None:
    asked = "time_to(controller elected, fault 1)"
    log = ended([decided(0), decided(1, 1), decided(2, 3.5, epoch=2), decided(3, 9, epoch=2)])
    jumped = make(metadata=log, events=[*life(2, 2), event(EventKind.NOTE, 5, wall_ns=5)])
    assert value(jumped, asked).why.startswith("the wall clock, by which the metadata log is dated, moved by")
    moved = make(metadata=log, events=life(2, 2, kind="clock_jump"))
    assert value(moved, asked).why == "a fault moved wall clocks, by which the metadata log is dated"


def test_controllers_that_change_are_counted_by_their_epochs(make: Make) -> None:
    records = [decided(0, epoch=1), decided(1, epoch=3), decided(2, epoch=3)]
    assert value(make(metadata=ended(list(records))), "controller_changes") == Value.exactly(1)
    cut = value(make(metadata=list(records)), "controller_changes")
    assert (cut.low, cut.high) == (1, math.inf)
    assert json.loads(records[1].model_dump_json())["epoch"] == 3


# -- elections ----------------------------------------------------------------------------------------------------


def end(offset: int, records: int) -> LogEnded:
    return LogEnded(offset=offset, epoch=1, timestamp_ms=0, records=records)


def unlike(number: int, **fields: Any) -> PartitionChanged:
    """Return the record of `decided(number)` with these fields changed."""
    return decided(number).model_copy(update=fields)


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ([], "there is no metadata log"),
        ([decided(0), decided(1)], "the metadata log has no end"),
        ([decided(0), decided(1), end(2, 3)], "the metadata log has 2 records, and 3 were written"),
        ([decided(1), decided(2), end(3, 2)], "the metadata log begins at offset 1"),
        ([decided(0), decided(1), end(3, 2)], "the metadata log ended at offset 3, and its last record has 1"),
        ([decided(0), decided(2), end(3, 2)], "the metadata log has nothing between the offsets 0 and 2"),
        ([decided(0), decided(2, epoch=2), end(3, 2)], "the metadata log has nothing between the offsets 0 and 2"),
        ([decided(0), decided(2), decided(1), end(2, 3)], "the metadata log has nothing between the offsets 0 and 2"),
        ([decided(0), decided(0), end(1, 2)], "the metadata log goes from offset 0 to 0"),
        (
            [decided(0), unlike(1, partition_epoch=2), end(2, 2)],
            "orders/0: the metadata log goes from partition epoch 0 to 2, and each change takes the next",
        ),
        (
            [decided(0), unlike(1, partition_epoch=0), end(2, 2)],
            "orders/0: the metadata log goes from partition epoch 0 to 0, and each change takes the next",
        ),
        (
            [decided(0), decided(1, leader_epoch=2), end(2, 2)],
            "orders/0: the metadata log goes from leader epoch 0 to 2, and each election takes the next",
        ),
        (
            [decided(0, leader_epoch=1), decided(1, leader_epoch=0), end(2, 2)],
            "orders/0: the metadata log goes from leader epoch 1 to 0, and each election takes the next",
        ),
    ],
)  # fmt: skip
def test_what_is_missing_of_a_metadata_log_may_have_been_elections(
    make: Make, log: list[MetadataRecord], why: str
) -> None:
    found = value(make(metadata=log), "elections")
    assert (found.high, found.why) == (math.inf, why)


@pytest.mark.parametrize(
    ("log", "mode", "why"),
    [
        ([decided(0), unlike(2, epoch=2, partition_epoch=1)], "kraft", ""),  # what a quorum writes for itself
        (
            [decided(0), decided(1, leader_epoch=2)],
            "kraft",
            "orders/0: the metadata log goes from leader epoch 0 to 2",
        ),
        (
            [decided(0), unlike(2, partition_epoch=1)],
            "zookeeper",
            "the metadata log has nothing between the offsets",
        ),
    ],
)
def test_a_simulated_log_ends_without_a_word(
    make: Make, log: list[MetadataRecord], mode: str, why: str
) -> None:
    found = value(make(metadata=log, backend="model", mode=mode), "elections")
    assert (found.high < math.inf, found.why.startswith(why)) == (not why, True)


@pytest.mark.parametrize(("number", "whole"), [(0, True), (1, False)])
def test_one_zxid_may_mean_several_and_others_are_of_no_partition(
    make: Make, number: int, whole: bool
) -> None:
    """In ZooKeeper mode a zxid may occur twice or be missing, but none may be lower than the one before it."""
    log: list[MetadataRecord] = [decided(number), unlike(0, partition_epoch=number + 1), decided(9)]
    log[2] = unlike(9, partition_epoch=number + 2, leader=2, leader_epoch=1)
    found = value(make(metadata=[*log, end(30, 3)], mode="zookeeper"), "elections")
    assert (found.low, found.high < math.inf) == (1, whole)


@pytest.mark.parametrize(("skipped", "whole"), [(2, True), (3, False)])
def test_each_time_that_eligible_replicas_are_forgotten_may_skip_a_partition_epoch(
    make: Make, skipped: int, whole: bool
) -> None:
    forgot = [
        EligibleCleared(offset=number, epoch=1, timestamp_ms=0, topic=topic)
        for number, topic in enumerate(("", "other", "orders"), start=1)
    ]
    log = ended([decided(0), *forgot, unlike(4, partition_epoch=1 + skipped)])
    assert (value(make(metadata=log), "elections").high < math.inf) is whole


@pytest.mark.parametrize(("cleared", "clean"), [(None, 1), ("other", 1), ("orders", 0), ("", 0)])
def test_who_was_eligible_until_that_was_forgotten(make: Make, cleared: str | None, clean: int) -> None:
    """The election of an eligible leader replica (KIP-966) is clean, unless the ELR was cleared before it."""
    log: list[MetadataRecord] = [decided(0), decided(1, isr=(1,), elr=(2,))]
    if cleared is not None:
        log.append(EligibleCleared(offset=2, epoch=1, timestamp_ms=0, topic=cleared))
    log.append(unlike(len(log), partition_epoch=2, leader=2, leader_epoch=1, isr=(2,)))
    run = make(metadata=ended(log))
    assert value(run, "elections(clean)") == Value.exactly(clean)
    assert value(run, "elections(unclean)") == Value.exactly(1 - clean)


def test_a_forgotten_replica_of_a_removed_topic_lets_its_successor_skip_nothing(make: Make) -> None:
    cleared = EligibleCleared(offset=1, epoch=1, timestamp_ms=0, topic="orders")
    gone = TopicRemoved(offset=2, epoch=1, timestamp_ms=0, topic="orders", topic_id="")
    again = [unlike(3, partition_epoch=0), unlike(4, partition_epoch=2)]
    log = ended([decided(0), cleared, gone, *again])
    assert value(make(metadata=log), "elections").high == math.inf


def test_a_topic_that_is_removed_is_not_another(make: Make) -> None:
    gone = TopicRemoved(offset=1, epoch=1, timestamp_ms=0, topic="other", topic_id="")
    later = unlike(2, partition_epoch=1, leader=2, leader_epoch=1)
    assert value(make(metadata=ended([decided(0), gone, later])), "elections") == Value.exactly(1)


def test_a_topic_that_is_made_again_begins_anew(make: Make) -> None:
    gone = TopicRemoved(offset=2, epoch=1, timestamp_ms=0, topic="orders", topic_id="")
    again = [unlike(3, partition_epoch=0), decided(4, leader=2, leader_epoch=1)]
    again[1] = again[1].model_copy(update={"partition_epoch": 1})
    run = make(metadata=ended([decided(0), decided(1, leader=3, leader_epoch=1), gone, *again]))
    assert value(run, "elections") == Value.exactly(2)
    assert value(run, "elections(unclean)") == Value.exactly(0)

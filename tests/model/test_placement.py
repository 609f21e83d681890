"""Tests of the placement of replicas over racks and brokers."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from ackproof_reference.placement import Broker, place

SIX = [Broker(broker, rack) for broker, rack in enumerate("aabbcc")]


def rack(broker: int) -> str:
    return SIX[broker].rack


@pytest.mark.parametrize("seed", range(5))
def test_each_partition_is_in_as_many_racks_as_it_has_replicas(seed: int) -> None:
    for replicas in place(SIX, 60, 3, Random(seed)):
        assert len({rack(broker) for broker in replicas}) == 3
        assert len(set(replicas)) == 3


@pytest.mark.parametrize("seed", range(5))
def test_leaders_and_replicas_are_even_within_one_call(seed: int) -> None:
    placed = place(SIX, 60, 3, Random(seed))
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders.values()) == {10}
    everywhere = Counter(broker for replicas in placed for broker in replicas)
    assert set(everywhere.values()) == {30}


def test_more_replicas_than_racks_fill_the_racks_evenly() -> None:
    for replicas in place(SIX, 20, 5, Random(1)):
        racks = Counter(rack(broker) for broker in replicas)
        assert sorted(racks.values()) == [1, 2, 2]


def test_the_rack_goal_outranks_an_even_load() -> None:
    uneven = [Broker(0, "a"), Broker(1, "b"), Broker(2, "b"), Broker(3, "b")]
    placed = place(uneven, 12, 2, Random(3))
    assert all(0 in replicas for replicas in placed)


def test_fenced_brokers_never_lead_and_come_last() -> None:
    places = [Broker(0), Broker(1), Broker(2, fenced=True)]
    assert all(2 not in replicas for replicas in place(places, 10, 2, Random(0)))
    assert all(replicas[2] == 2 for replicas in place(places, 10, 3, Random(0)))


def test_a_rack_with_fenced_brokers_only_gives_no_leader_but_a_replica() -> None:
    places = [Broker(0, "a"), Broker(1, "b", fenced=True)]
    assert place(places, 4, 2, Random(0)) == [(0, 1)] * 4


def test_without_racks_leaders_go_round() -> None:
    placed = place([Broker(broker) for broker in range(3)], 9, 2, Random(5))
    assert Counter(replicas[0] for replicas in placed) == {0: 3, 1: 3, 2: 3}


@pytest.mark.parametrize("factor", [0, 4])
def test_what_cannot_be_placed_is_refused(factor: int) -> None:
    with pytest.raises(ValueError, match="replication factor"):
        place([Broker(0), Broker(1), Broker(2)], 1, factor, Random(0))


def test_with_every_broker_fenced_nothing_is_placed() -> None:
    with pytest.raises(ValueError, match="fenced"):
        place([Broker(0, fenced=True)], 1, 1, Random(0))


class Unshuffled(Random):
    """Random source that neither shuffles nor offsets, so that only the striping decides."""

    def shuffle(self, x: object) -> None:
        """Keep the order."""

    def randrange(self, *_: object) -> int:
        return 0


def test_each_partition_begins_one_rack_on_and_each_rack_one_broker_on() -> None:
    """There are three racks of two brokers. Source: StripedReplicaPlacer (RackList, BrokerList)."""
    assert place(SIX, 6, 3, Unshuffled()) == [
        (1, 3, 5),
        (2, 4, 0),
        (5, 1, 3),
        (0, 2, 4),
        (3, 5, 1),
        (4, 0, 2),
    ]


def test_one_rack_is_gone_round_broker_by_broker() -> None:
    assert place([Broker(broker) for broker in range(3)], 4, 2, Unshuffled()) == [
        (1, 2),
        (2, 0),
        (0, 1),
        (1, 2),
    ]


def test_fenced_brokers_take_turns_of_their_own() -> None:
    places = [Broker(0), Broker(1), Broker(2, fenced=True), Broker(3, fenced=True)]
    assert place(places, 2, 3, Unshuffled()) == [(1, 0, 3), (0, 1, 2)]


def test_orders_are_drawn_anew_after_as_many_partitions_as_there_are_unfenced_brokers() -> None:
    drawn = []

    class Counting(Unshuffled):
        def shuffle(self, x: object) -> None:
            drawn.append(len(x))  # type: ignore[arg-type]

    place([Broker(0, "a"), Broker(1, "b"), Broker(2, "b", fenced=True)], 5, 1, Counting())
    assert drawn == 3 * [2, 1, 0, 1, 1]


def test_a_rack_that_gave_no_leader_is_the_first_to_give_a_replica() -> None:
    places = [Broker(0, "a", fenced=True), Broker(1, "b"), Broker(2, "c")]
    assert place(places, 1, 2, Unshuffled()) == [(1, 0)]

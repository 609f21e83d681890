"""Tests of the invariants, and of what clients observe of a step."""

from __future__ import annotations

from dataclasses import replace

from ackproof_reference.broker import Broker, Process
from ackproof_reference.explore.invariants import (
    CONFLICT,
    DIVERGED,
    DUPLICATE,
    INVALID_ISR,
    LOST,
    TWO_LEADERS,
    VANISHED,
    checks,
    records,
    witness,
)
from ackproof_reference.explore.scope import CLIENT, CONTROLLER, Client, Scope, log_cell, process_cell
from ackproof_reference.log import COMMIT, Batch, Log, append
from ackproof_reference.messages import Error, Produced
from ackproof_reference.metadata import Metadata, Registration
from ackproof_reference.rules import Rules
from partition import fetch, following, leading, log, metadata, partition

SCOPE = Scope(Rules())
OUT = metadata(partition(isr=(2, 3)))
"""Broker 1 leads but is not in the ISR, so findings concern it as the leader, not as a member of the ISR."""


def broken(name: str, cells: tuple[int, ...], *values: object, scope: Scope = SCOPE) -> list[str]:
    """Return the classes of findings of the check with this name and these cells, for these values of the cells."""
    (group,) = (group for group in checks(scope) if (group.name, group.cells) == (name, cells))
    assert group.check is not None
    return [kind for kind, _ in group.check(*values)]


def of_broker(
    broker: Broker, client: Client, newest: Metadata | None = None, scope: Scope = SCOPE
) -> list[str]:
    """Return the classes of findings about one broker. `newest`: the controller's metadata; None: what the broker
    knows."""
    cells = (CLIENT, CONTROLLER, log_cell(broker.id), process_cell(broker.id))
    known = newest or broker.process.metadata
    return broken("leader", cells, client, known, broker.log, broker.process, scope=scope)


def leader(held: Log, known: Metadata = OUT) -> Broker:
    return leading(held, of=known.partition, known=known)


def test_each_broker_and_each_pair_of_brokers_is_checked_once() -> None:
    groups = [(group.name, group.cells) for group in checks(SCOPE)]
    assert groups == [
        ("promises", (CLIENT,)),
        ("leader", (CLIENT, CONTROLLER, log_cell(1), process_cell(1))),
        ("logs", (log_cell(1), log_cell(2))),
        ("leaders", (process_cell(1), process_cell(2))),
        ("logs", (log_cell(1), log_cell(3))),
        ("leaders", (process_cell(1), process_cell(3))),
        ("leader", (CLIENT, CONTROLLER, log_cell(2), process_cell(2))),
        ("logs", (log_cell(2), log_cell(3))),
        ("leaders", (process_cell(2), process_cell(3))),
        ("leader", (CLIENT, CONTROLLER, log_cell(3), process_cell(3))),
    ]


def test_what_the_observer_saw_broken_is_found() -> None:
    assert broken("promises", (CLIENT,), Client(wrong=((CONFLICT, "so"), (LOST, "and so")))) == [
        CONFLICT,
        LOST,
    ]
    assert broken("promises", (CLIENT,), Client()) == []


def test_a_leader_holds_all_that_was_acknowledged() -> None:
    assert of_broker(leader(log(0, 0)), Client(acked=(0, 1))) == []
    assert of_broker(leader(log(0)), Client(acked=(0, 1))) == [LOST]
    assert of_broker(leader(log()), Client(acked=(1,))) == [LOST]


def test_the_first_record_that_is_gone_is_named() -> None:
    told = [
        text
        for group in checks(SCOPE)[1:2]
        if group.check
        for _, text in group.check(Client(acked=(0, 1, 2)), OUT, log(0), leader(log(0)).process)
    ]
    assert told == ["acknowledged record 1 is not in the log of the leader, broker 1"]


def test_a_leader_holds_all_that_was_read_in_the_same_order() -> None:
    assert of_broker(leader(log(0, 0)), Client(read=(0,))) == []
    assert of_broker(leader(log(0)), Client(read=(0, 1))) == [VANISHED]
    assert of_broker(leader(log(0, 0)), Client(read=(1,))) == [VANISHED]


def test_only_who_leads_in_the_newest_epoch_is_asked() -> None:
    lost = Client(acked=(0,), read=(0,))
    assert of_broker(leader(log()), lost, metadata(partition(isr=(2, 3), epoch=1))) == []
    assert of_broker(following(log(), OUT.partition, broker=1), lost, OUT) == []
    assert of_broker(leader(log()), lost) == [LOST, VANISHED]


def test_with_idempotence_a_leader_holds_no_record_twice() -> None:
    twice = append(log(0), Batch(1, 0, 0, 0))
    idempotent = replace(SCOPE, idempotent=True)
    assert of_broker(leader(twice), Client(), scope=idempotent) == [DUPLICATE]
    assert of_broker(leader(twice), Client()) == []
    assert of_broker(leader(log(0, 0)), Client(), scope=idempotent) == []


def test_who_may_be_elected_next_holds_all_that_was_read() -> None:
    read = Client(read=(0,))
    for of in (partition(leader=2), partition(leader=2, isr=(2,), elr=(1,))):
        known = metadata(of)
        assert of_broker(following(log(), of, broker=1), read, known) == [INVALID_ISR]
        assert of_broker(following(log(0), of, broker=1), read, known) == []
    assert of_broker(leader(log(), metadata(partition())), read) == [VANISHED, INVALID_ISR]


def test_who_is_out_of_the_isr_or_dead_or_fenced_is_not_elected() -> None:
    read, of = Client(read=(0,)), partition(leader=2)
    lagging = following(log(), of, broker=1)
    assert of_broker(lagging, read, metadata(partition(leader=2, isr=(2, 3)))) == []
    assert of_broker(lagging, read, metadata(of, fenced=(1,))) == []
    dead = lagging._replace(process=Process(up=False, epoch=0))
    assert of_broker(dead, read, metadata(of)) == []


def test_an_incarnation_that_the_controller_does_not_know_yet_is_not_elected() -> None:
    of = partition(leader=2)
    newer = Metadata(of, tuple(Registration(i, int(i == 1)) for i in (1, 2, 3)))
    assert of_broker(following(log(), of, broker=1), Client(read=(0,)), newer) == []


def test_two_logs_are_the_same_below_the_lower_high_watermark() -> None:
    one = log(0, 0, high_watermark=2)
    other = append(log(0), Batch(1, 1, 0, 7))
    cells = (log_cell(1), log_cell(2))
    assert broken("logs", cells, one, other._replace(high_watermark=2)) == [DIVERGED]
    assert broken("logs", cells, one, other._replace(high_watermark=1)) == []
    assert broken("logs", cells, one._replace(high_watermark=1), other._replace(high_watermark=2)) == []
    assert broken("logs", cells, one, one) == []


def test_one_leader_for_each_epoch() -> None:
    def in_epoch(broker: int, epoch: int) -> Process:
        return leading(log(), of=partition(epoch=epoch), broker=broker).process

    cells = (process_cell(1), process_cell(2))
    assert broken("leaders", cells, in_epoch(1, 1), in_epoch(2, 1)) == [TWO_LEADERS]
    assert broken("leaders", cells, in_epoch(1, 1), in_epoch(2, 2)) == []
    follower = following(log(), partition(epoch=1)).process
    assert broken("leaders", cells, in_epoch(1, 1), follower) == []
    assert broken("leaders", cells, follower, in_epoch(2, 1)) == []


# The observer


def seen(
    before: Broker, after: Broker, *messages: Produced, client: Client | None = None, acks: int = -1
) -> Client:
    return witness(client or Client(), before, after, messages, replace(SCOPE, acks=acks))


def acked(sequence: int, error: Error = Error.NONE) -> Produced:
    return Produced(0, sequence, error, sequence)


EMPTY, WROTE = leader(log()), leader(log(0))
COMMITTED = leader(log(0, high_watermark=1))


def test_records_are_counted_one_by_one_and_markers_not() -> None:
    made = (Batch(0, 0, 0, 4, length=3), Batch(3, 0, 0, -1, kind=COMMIT), Batch(4, 0, 0, 9))
    assert records(made) == (4, 5, 6, 9)


def test_readers_see_what_lies_below_a_leaders_high_watermark() -> None:
    assert seen(EMPTY, WROTE) == Client()
    assert seen(WROTE, COMMITTED) == Client(read=(0,))
    assert seen(following(log(0)), following(log(0, high_watermark=1))) == Client()


def test_readers_who_have_seen_more_are_shown_nothing_new() -> None:
    more = Client(sent=2, read=(0, 1))
    assert seen(WROTE, COMMITTED, client=more) is more
    assert seen(WROTE, leader(log(0, 0, high_watermark=2)), client=more) is more


def test_another_record_at_the_same_offset_is_a_conflict() -> None:
    after = seen(WROTE, COMMITTED, client=Client(read=(7,)))
    assert [kind for kind, _ in after.wrong] == ["conflict"]
    assert after.read == (7,)
    longer = seen(WROTE, leader(log(0, 0, high_watermark=2)), client=Client(read=(0, 7)))
    assert [kind for kind, _ in longer.wrong] == ["conflict"]
    shorter = seen(WROTE, leader(log(0, 0, high_watermark=2)), client=Client(read=(7,)))
    assert ([kind for kind, _ in shorter.wrong], shorter.read) == (["conflict"], (7,))


def test_a_high_watermark_does_not_go_back_on_a_leader_within_its_epoch() -> None:
    after = seen(COMMITTED, WROTE)
    assert [kind for kind, _ in after.wrong] == ["high watermark went back"]
    assert seen(WROTE, WROTE).wrong == ()
    assert seen(COMMITTED, COMMITTED).wrong == ()
    next_epoch = leader(log(0), metadata(partition(isr=(2, 3), epoch=1)))
    assert seen(COMMITTED, next_epoch).wrong == ()
    assert seen(following(log(0, high_watermark=1), broker=1), WROTE).wrong == ()


def test_what_breaks_again_is_told_once() -> None:
    once = seen(COMMITTED, WROTE)
    assert seen(COMMITTED, WROTE, client=once) is once
    both = seen(COMMITTED, WROTE, acked(1), client=once)
    assert [kind for kind, _ in both.wrong] == ["high watermark went back", "acked before committed"]


def test_acknowledgements_are_kept_in_the_records_order() -> None:
    first = seen(WROTE, COMMITTED, acked(0), client=Client(sent=2, acked=(1,)))
    assert first == Client(2, (0, 1), (0,), ())
    again = seen(COMMITTED, COMMITTED, acked(0), client=first)
    assert again is first


def test_other_messages_acknowledge_nothing() -> None:
    assert witness(Client(), WROTE, WROTE, (fetch(1),), SCOPE) == Client()


def test_a_refused_record_is_not_acknowledged() -> None:
    assert seen(EMPTY, EMPTY, acked(0, Error.NOT_ENOUGH_REPLICAS)) == Client()


def test_acks_all_is_answered_for_what_lies_below_the_high_watermark() -> None:
    assert seen(EMPTY, COMMITTED, acked(0)).wrong == ()
    early = seen(EMPTY, WROTE, acked(0))
    assert (early.acked, [kind for kind, _ in early.wrong]) == ((0,), ["acked before committed"])
    assert seen(EMPTY, WROTE, acked(0), acks=1) == Client(acked=(0,))

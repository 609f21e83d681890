"""Tests of transactions: their state in a log, their coordinator, and every interleaving of two clients."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackproof_reference.explore.search import Search
from ackproof_reference.explore.transactional import Bounds, transactions
from ackproof_reference.log import ABORT, COMMIT, DATA, Batch, Log, append
from ackproof_reference.messages import Error, Produce, WriteMarker
from ackproof_reference.node import step
from ackproof_reference.producers import check_sequence
from ackproof_reference.rules import Rules, rules_of
from ackproof_reference.transactions import (
    State,
    Transaction,
    aborted,
    add_partition,
    check_marker,
    end_transaction,
    init_producer,
    last_stable_offset,
    marker_batch,
    marker_for,
    marker_written,
    needs_verification,
    open_transactions,
    taken_over,
    verified,
    visible,
)
from partition import following, leading, log, partition

RULES = Rules()
ONGOING = Transaction(7, 2, State.ONGOING, (0, 1))


def written(*batches: tuple[int, str], high_watermark: int | None = None) -> Log:
    """Return a log of (producer, kind) batches, one record each; producer 0 writes outside transactions."""
    made = Log()
    for producer, kind in batches:
        made = append(
            made, Batch(made.end, 0, producer, made.end, 1, 0, kind=kind, transactional=producer > 0)
        )
    return made._replace(high_watermark=made.end if high_watermark is None else high_watermark)


def bases(of: Log, *, committed: bool = True) -> list[int]:
    return [batch.base for batch in visible(of, committed=committed)]


def test_readers_of_committed_records_stop_at_the_first_open_transaction() -> None:
    made = written((0, DATA), (1, DATA), (2, DATA), (1, COMMIT), (0, DATA))
    assert open_transactions(made) == {2: 2}
    assert last_stable_offset(made) == 2
    assert bases(made) == [0, 1]
    assert bases(made, committed=False) == [0, 1, 2, 4]


def test_a_transaction_begins_with_its_first_record() -> None:
    assert open_transactions(written((1, DATA), (1, DATA))) == {1: 0}
    assert open_transactions(written((1, DATA), (1, COMMIT), (1, DATA))) == {1: 2}
    assert open_transactions(written((1, ABORT))) == {}


def test_what_was_aborted_is_not_handed_over() -> None:
    made = written((1, DATA), (2, DATA), (1, ABORT), (2, COMMIT), (1, DATA), (1, COMMIT))
    assert bases(made) == [1, 4]


def test_a_batch_is_aborted_when_the_next_marker_of_its_producer_says_so() -> None:
    made = written((1, DATA), (2, DATA), (0, DATA), (1, ABORT), (2, COMMIT), (1, DATA))
    assert [aborted(made, batch) for batch in made.batches if batch.kind == DATA] == [
        True,
        False,
        False,
        False,
    ]
    alone = made.batches[0]._replace(transactional=False)
    assert not aborted(made, alone)


def test_the_high_watermark_bounds_it_too() -> None:
    made = written((0, DATA), (0, DATA), high_watermark=1)
    assert last_stable_offset(made) == 1
    assert bases(made) == [0]
    assert bases(made, committed=False) == [0]


def test_a_marker_takes_an_offset_and_fences_older_epochs() -> None:
    before = leading(log(0), {2: 1}, partition(isr=(1,)))
    after, _ = step(before, WriteMarker(7, 3, commit=False), RULES)
    assert (after.log.end, after.log.high_watermark) == (2, 2)
    assert after.log.batches[-1] == Batch(
        1, 0, 7, -1, 1, 3, kind=ABORT, transactional=True, coordinator_epoch=0
    )
    assert check_sequence(after.log, Produce(7, 0, -1, 1, 2), RULES)[0] is Error.INVALID_PRODUCER_EPOCH
    assert check_sequence(after.log, Produce(7, 0, -1, 1, 3), RULES)[0] is Error.NONE
    assert check_sequence(after.log, Produce(8, 0, -1, 1, 2), RULES)[0] is Error.NONE
    _, (refused,) = step(following(log(0)), WriteMarker(7, 3, commit=True), RULES)
    assert refused.error is Error.NOT_LEADER_OR_FOLLOWER  # type: ignore[union-attr]
    committed, _ = step(before, WriteMarker(7, 3, commit=True), RULES)
    assert committed.log.batches[-1].kind == COMMIT


def test_only_a_batch_that_opens_a_transaction_is_verified() -> None:
    request = Produce(1, 0, -1, 1, 0, transactional=True)
    assert needs_verification(written((0, DATA)), request, RULES)
    assert not needs_verification(written((1, DATA)), request, RULES)
    assert not needs_verification(written(), request._replace(transactional=False), RULES)
    assert not needs_verification(written(), request, rules_of("3.5"))
    assert verified(ONGOING, 2, 1)
    assert not verified(ONGOING, 1, 1)
    assert not verified(ONGOING, 2, 5)
    assert not verified(ONGOING._replace(state=State.PREPARE_ABORT), 2, 1)


def test_a_new_client_fences_the_old_one_and_aborts_what_it_left_open() -> None:
    assert Transaction(7) == Transaction(7, -1, State.EMPTY, (), -1)
    assert init_producer(Transaction(7)) == (Transaction(7, 0), Error.NONE)
    fenced, error = init_producer(ONGOING)
    assert (fenced.epoch, fenced.state, error) == (3, State.PREPARE_ABORT, Error.INVALID_TXN_STATE)
    assert init_producer(fenced) == (fenced, Error.INVALID_TXN_STATE)
    assert marker_for(fenced, 0) == WriteMarker(7, 3, commit=False)
    assert add_partition(fenced, 2, 0)[1] is Error.PRODUCER_FENCED
    assert end_transaction(fenced, 2, commit=True)[1] is Error.PRODUCER_FENCED


def test_partitions_join_before_they_are_written_to() -> None:
    begun, error = add_partition(Transaction(7, 0), 0, 1)
    assert (begun.state, begun.partitions, error) == (State.ONGOING, (1,), Error.NONE)
    assert add_partition(begun, 0, 0)[0].partitions == (0, 1)
    ending = begun._replace(state=State.PREPARE_COMMIT)
    assert add_partition(ending, 0, 0) == (ending, Error.INVALID_TXN_STATE)


@pytest.mark.parametrize(("version", "epoch"), [(2, 3), (1, 2)])
def test_the_decision_stands_before_the_markers(version: int, epoch: int) -> None:
    decided, error = end_transaction(ONGOING._replace(version=version), 2, commit=True)
    assert (decided.state, error) == (State.PREPARE_COMMIT, Error.NONE)
    assert marker_for(decided, 0) == WriteMarker(7, epoch, commit=True, version=version)
    assert (decided.epoch, marker_for(decided, 5), marker_for(ONGOING, 0)) == (epoch, None, None)
    one = marker_written(decided, 0)
    assert (one.state, one.partitions, marker_for(one, 0)) == (State.PREPARE_COMMIT, (1,), None)
    done = marker_written(one, 1)
    assert (done.state, done.partitions, done.decided) == (State.COMPLETE_COMMIT, (), ())
    assert end_transaction(Transaction(7, 2), 2, commit=True)[1] is Error.INVALID_TXN_STATE
    assert init_producer(done) == (done._replace(epoch=epoch + 1, state=State.EMPTY), Error.NONE)


@pytest.mark.parametrize("version", [1, 2])
def test_who_asks_again_is_told_again(version: int) -> None:
    """A repeated EndTxn names the epoch of the decision. The first protocol cannot tell it from that of the next
    transaction."""
    decided, _ = end_transaction(ONGOING._replace(version=version), 2, commit=True)
    assert end_transaction(decided, 2, commit=True) == (decided, Error.INVALID_TXN_STATE)
    done = marker_written(marker_written(decided, 0), 1)
    assert end_transaction(done, 2, commit=True) == (done, Error.NONE)
    assert end_transaction(done, 2, commit=False)[1] is not Error.NONE
    next_one = end_transaction(done, done.epoch, commit=True)
    assert next_one == (done, Error.NONE if version == 1 else Error.INVALID_TXN_STATE)


def test_who_takes_over_sends_all_markers_again() -> None:
    decided, _ = end_transaction(ONGOING, 2, commit=False)
    new = taken_over(marker_written(decided, 0))
    assert marker_for(new, 0) == WriteMarker(7, 2, commit=False, coordinator_epoch=1)
    assert taken_over(ONGOING) == ONGOING._replace(coordinator_epoch=1)


def marked(*markers: WriteMarker, then: int = 0) -> Log:
    """Return a log with these markers, and then an open transaction of `then` records in epoch 3."""
    made = Log()
    for marker in markers:
        made = append(made, marker_batch(made, 0, marker))
    for _ in range(then):
        made = append(made, Batch(made.end, 0, 7, 0, 1, 3, transactional=True))
    return made


LAST = WriteMarker(7, 3, commit=False, coordinator_epoch=1, version=2)


@pytest.mark.parametrize(
    ("marker", "of", "error"),
    [
        (LAST, marked(), Error.NONE),
        (LAST, marked(LAST), Error.NONE),
        (LAST, marked(LAST, then=1), Error.INVALID_PRODUCER_EPOCH),
        (LAST._replace(version=1), marked(LAST, then=1), Error.NONE),
        (LAST._replace(producer_epoch=4), marked(LAST, then=1), Error.NONE),
        (LAST._replace(producer_epoch=2), marked(LAST), Error.INVALID_PRODUCER_EPOCH),
        (LAST._replace(coordinator_epoch=0), marked(LAST), Error.TRANSACTION_COORDINATOR_FENCED),
        (LAST._replace(producer=8, producer_epoch=0, coordinator_epoch=0), marked(LAST), Error.NONE),
    ],
    ids=["first", "again", "late", "late, v1", "its own", "older", "older coordinator", "another's"],
)
def test_which_markers_a_log_takes(marker: WriteMarker, of: Log, error: Error) -> None:
    """Source: ProducerAppendInfo.checkProducerEpoch and checkCoordinatorEpoch of 4.2.0 to 4.3.1."""
    assert check_marker(of, marker, RULES) is error
    before = leading(of, {2: of.end}, partition(isr=(1,)))
    after, messages = step(before, marker, RULES)
    assert after.log.end == of.end + (error is Error.NONE)
    assert [one.error for one in messages] == ([] if error is Error.NONE else [error])  # type: ignore[union-attr]


def test_without_its_protections_a_log_takes_any_marker_of_the_epoch() -> None:
    late, older = LAST, LAST._replace(coordinator_epoch=0)
    assert check_marker(marked(LAST, then=1), late, replace(RULES, strict_markers=False)) is Error.NONE
    assert check_marker(marked(LAST), older, replace(RULES, coordinator_epochs=False)) is Error.NONE


def findings(rules: Rules, clients: int = 2, in_turn: int = 1, **bounds: int) -> dict[str, int]:
    """Visit all states of a model of transactions; return the steps of the shortest counterexample by class. `in_turn`:
    transactions of each client, one after the other. `bounds`: fields of `Bounds`."""
    search = Search(transactions(rules, clients, in_turn, Bounds(**bounds)), frozenset({"nothing"}))
    search.run(max_states=300_000)
    assert search.exhausted
    return {kind: one.depth for kind, one in search.findings.items()}


def test_before_kip_890_a_late_record_left_a_transaction_that_nobody_ends() -> None:
    """The next transaction of that producer also commits the late record."""
    assert findings(rules_of("3.5")).keys() == {"hanging", "aborted read"}


def test_each_part_of_kip_890_is_enough_for_that() -> None:
    assert not findings(rules_of("3.9"))
    assert not findings(replace(rules_of("4.1"), verify_transactions=False))
    assert not findings(rules_of("4.1"))
    assert not findings(rules_of("4.1"), clients=1, in_turn=2)


OF_THE_FIRST_PROTOCOL = replace(RULES, bump_every_transaction=False)
"""Rules of the newest release for a client without KIP-890's second part, such as librdkafka."""


@pytest.mark.parametrize("rules", [rules_of("3.9"), rules_of("4.1"), OF_THE_FIRST_PROTOCOL])
def test_a_marker_that_comes_again_ends_the_next_transaction(rules: Rules) -> None:
    """Readers at read_committed then lack half of a committed transaction, or get an aborted one."""
    assert findings(rules, clients=1, in_turn=2, repeats=1).keys() == {"early read", "aborted read", "torn"}


def test_strict_markers_are_enough_for_that() -> None:
    assert not findings(RULES, clients=1, in_turn=2, repeats=1)


def test_an_old_coordinator_does_harm_where_an_epoch_lasts() -> None:
    """The old coordinator answers from its outdated memory that a partition takes part, or that a transaction is
    committed."""
    found = findings(OF_THE_FIRST_PROTOCOL, clients=1, in_turn=2, moves=1)
    assert found.keys() == {"hanging", "early read", "torn", "aborted read"}
    assert not findings(RULES, clients=1, in_turn=2, moves=1)
    assert not findings(rules_of("4.1"), clients=1, in_turn=2, moves=1)


def test_its_markers_are_refused_by_their_coordinators_epoch_or_for_being_late() -> None:
    lenient = replace(RULES, coordinator_epochs=False)
    assert not findings(lenient, clients=1, in_turn=2, moves=1)
    lenient = replace(lenient, strict_markers=False)
    assert findings(lenient, clients=1, in_turn=2, moves=1).keys() == {"early read", "aborted read", "torn"}

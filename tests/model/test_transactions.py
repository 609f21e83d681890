"""Transactions: what a log says of them, their coordinator, and every interleaving of two clients."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackproof_reference.explore.search import Search
from ackproof_reference.explore.transactional import transactions
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
    end_transaction,
    init_producer,
    last_stable_offset,
    marker_for,
    marker_written,
    needs_verification,
    open_transactions,
    verified,
    visible,
)
from partition import following, leading, log, partition

RULES = Rules()
ONGOING = Transaction(7, 2, State.ONGOING, (0, 1))


def written(*batches: tuple[int, str], high_watermark: int | None = None) -> Log:
    """A log of (producer, kind), each one record; producer 0 writes outside transactions."""
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
    assert after.log.batches[-1] == Batch(1, 0, 7, -1, 1, 3, kind=ABORT, transactional=True)
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
    assert end_transaction(fenced, 2, RULES, commit=True)[1] is Error.PRODUCER_FENCED


def test_partitions_join_before_they_are_written_to() -> None:
    begun, error = add_partition(Transaction(7, 0), 0, 1)
    assert (begun.state, begun.partitions, error) == (State.ONGOING, (1,), Error.NONE)
    assert add_partition(begun, 0, 0)[0].partitions == (0, 1)
    ending = begun._replace(state=State.PREPARE_COMMIT)
    assert add_partition(ending, 0, 0) == (ending, Error.INVALID_TXN_STATE)


@pytest.mark.parametrize(("version", "epoch"), [("4.1", 3), ("3.9", 2)])
def test_the_decision_stands_before_the_markers(version: str, epoch: int) -> None:
    decided, error = end_transaction(ONGOING, 2, rules_of(version), commit=True)
    assert (decided.state, error) == (State.PREPARE_COMMIT, Error.NONE)
    assert marker_for(decided, 0) == WriteMarker(7, epoch, commit=True)
    assert (decided.epoch, marker_for(decided, 5), marker_for(ONGOING, 0)) == (epoch, None, None)
    one = marker_written(decided, 0)
    assert (one.state, one.partitions, marker_for(one, 0)) == (State.PREPARE_COMMIT, (1,), None)
    assert marker_written(one, 1).state is State.EMPTY
    assert end_transaction(Transaction(7, 2), 2, RULES, commit=True)[1] is Error.INVALID_TXN_STATE


def findings(rules: Rules) -> set[str]:
    search = Search(transactions(rules), frozenset({"nothing"}))
    search.run(max_states=300_000)
    assert search.exhausted
    return set(search.findings)


def test_before_kip_890_a_late_record_left_a_transaction_that_nobody_ends() -> None:
    """And the next transaction of that producer commits it along with its own."""
    assert findings(rules_of("3.5")) == {"hanging", "aborted read"}


def test_each_part_of_kip_890_is_enough_for_that() -> None:
    assert findings(rules_of("3.9")) == set()
    assert findings(replace(rules_of("4.1"), verify_transactions=False)) == set()
    assert findings(rules_of("4.1")) == set()

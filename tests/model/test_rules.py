"""Tests of the presets by release, and of what idempotent producers may append."""

from __future__ import annotations

from dataclasses import asdict, fields, replace

import pytest

from ackproof_reference.log import Batch, Log, append
from ackproof_reference.messages import Error, Produce
from ackproof_reference.producers import check_sequence, newest_epoch
from ackproof_reference.rules import PROTECTIONS, VERSIONS, Rules, Truncation, rules_of, without


@pytest.mark.parametrize(
    ("version", "preset"),
    [
        ("0.8.2", "0.8"),
        ("0.10.2.1", "0.10"),
        ("1.1", "0.11"),
        ("2.0.1", "2.0"),
        ("2.6", "2.1"),
        ("2.7", "2.7"),
        ("2.7.2-zk", "2.7"),
        ("2.8-zk", "2.7"),
        ("3.6.1-zk", "2.7"),
        ("3.9.2-zk", "3.7-zk"),
        ("3.4.0", "3.3"),
        ("3.5.1", "3.5"),
        ("3.9.1", "3.7"),
        ("4.0.0", "4.0"),
        ("4.2.2", "4.2"),
        ("4.3.1", "4.3"),
        ("4.10", "4.3"),
    ],
)
def test_a_release_follows_the_newest_preset_not_above_it(version: str, preset: str) -> None:
    assert rules_of(version) == VERSIONS[preset]


@pytest.mark.parametrize("wrong", ["0.7", "four", "4.1-raft", "", "2.8", "4.0-zk"])
def test_what_is_no_version_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"version|no rules|no ZooKeeper mode"):
        rules_of(wrong)


def test_elr_can_be_switched_apart_from_the_version() -> None:
    assert rules_of("4.0", elr=True) == replace(rules_of("4.0"), elr=True, unclean_shutdown_detection=True)
    assert rules_of("4.1", elr=False) == replace(rules_of("4.1"), elr=False, unclean_shutdown_detection=False)


NEWEST = {
    "min_insync": 1,
    "unclean_election": False,
    "max_fetch_batches": 1,
    "truncation": Truncation.ON_FETCH,
    "bump_on_shrink": False,
}
"""Defaults of Kafka 4.3; all fields that are not listed are protections, which are on."""


def test_the_newest_release_has_every_protection() -> None:
    assert asdict(Rules()) == {field.name: NEWEST.get(field.name, True) for field in fields(Rules)}
    assert VERSIONS["4.3"] == Rules()


HISTORY: list[tuple[str, str, dict[str, object]]] = [
    ("4.3", "4.2", {"completes_past_kept": False}),
    ("4.2", "4.1", {"strict_markers": False}),
    (
        "4.1",
        "4.0",
        {
            "elr": False,
            "unclean_shutdown_detection": False,
            "last_known_leader_unfenced": False,
            "last_known_when_leaderless": False,
        },
    ),
    ("4.0", "3.7", {"bump_every_transaction": False}),
    ("3.7", "3.6", {"strict_min_isr": False}),
    ("3.6", "3.5", {"bump_on_shrink": True, "verify_transactions": False}),
    ("3.5", "3.3", {"broker_epoch_check": False}),
    ("3.3", "2.7", {"fencing": False, "moves_from_all": False}),
    (
        "2.7",
        "3.7-zk",
        {"strict_min_isr": True, "broker_epoch_check": True, "verify_transactions": True},
    ),
    ("2.7", "2.1", {"truncation": Truncation.WALK_BACK, "alter_partition": False}),
    ("2.1", "2.0", {"fetch_fencing": False, "expand_from_epoch_start": False}),
    ("2.0", "0.11", {"truncation": Truncation.EPOCH}),
    (
        "0.11",
        "0.10",
        {"truncation": Truncation.HIGH_WATERMARK, "unclean_election": True, "idempotence": False},
    ),
    ("0.10", "0.8", {"assignment_order": False}),
]
"""Pairs of releases, each as (newer, older, fields in which the older one differs)."""


@pytest.mark.parametrize(("one", "other", "otherwise"), HISTORY, ids=lambda value: str(value)[:6])
def test_a_release_differs_from_its_neighbour_in_this(
    one: str, other: str, otherwise: dict[str, object]
) -> None:
    here, there = asdict(VERSIONS[one]), asdict(VERSIONS[other])
    assert {name: there[name] for name in there if there[name] != here[name]} == otherwise


def test_every_release_is_in_its_history() -> None:
    assert {name for one, other, _ in HISTORY for name in (one, other)} == set(VERSIONS)


@pytest.mark.parametrize("name", PROTECTIONS)
def test_without_a_protection_only_that_is_otherwise(name: str) -> None:
    weaker = asdict(without(Rules(), name))
    otherwise = {field: value for field, value in weaker.items() if value != asdict(Rules())[field]}
    assert otherwise == PROTECTIONS[name]
    assert all(value is False for field, value in otherwise.items() if field not in NEWEST)
    assert otherwise.get("unclean_election", True) is True


def test_each_protection_can_be_taken_away() -> None:
    for name in PROTECTIONS:
        assert without(Rules(), name) != Rules()
    with pytest.raises(KeyError):
        without(Rules(), "hope")


def produced(*batches: tuple[int, int, int]) -> Log:
    log = Log()
    for epoch, sequence, length in batches:
        log = append(log, Batch(log.end, 0, 7, sequence, length, epoch))
    return log


@pytest.mark.parametrize(
    ("held", "sent", "error"),
    [
        (((0, 0, 2),), (0, 2, 1), Error.NONE),
        (((0, 0, 2),), (0, 3, 1), Error.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (((0, 0, 2),), (0, 1, 1), Error.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (((0, 0, 2),), (1, 0, 1), Error.NONE),
        (((0, 0, 2),), (1, 2, 1), Error.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (((1, 0, 2),), (0, 2, 1), Error.INVALID_PRODUCER_EPOCH),
        ((), (0, 9, 1), Error.NONE),
        (((0, 0, 2),), (-1, 9, 1), Error.NONE),
    ],
)
def test_sequences_follow_each_other(
    held: tuple[tuple[int, int, int], ...], sent: tuple[int, int, int], error: Error
) -> None:
    epoch, sequence, length = sent
    request = Produce(7, sequence, -1, length, epoch)
    assert check_sequence(produced(*held), request, Rules()) == (error, None)


def test_a_batch_follows_the_newest_one() -> None:
    held = produced((0, 0, 1), (0, 1, 2))
    assert check_sequence(held, Produce(7, 3, -1, 1, 0), Rules()) == (Error.NONE, None)
    assert check_sequence(held, Produce(7, 2, -1, 1, 0), Rules())[0] is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_that_a_log_does_not_know_has_no_epoch() -> None:
    assert newest_epoch(produced((3, 0, 1), (4, 0, 1)), 7) == 4
    assert newest_epoch(produced((3, 0, 1)), 8) == -1


def test_one_of_the_last_five_batches_sent_again_is_answered_with_its_offset() -> None:
    log = produced(*[(0, n, 1) for n in range(7)])
    for sequence in range(7):
        error, known = check_sequence(log, Produce(7, sequence, -1, 1, 0), Rules())
        if sequence < 2:
            assert (error, known) == (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, None)
        else:
            assert known is not None
            assert (error, known.base) == (Error.NONE, sequence)


def test_a_batch_of_another_length_is_not_the_same() -> None:
    error, known = check_sequence(produced((0, 0, 2)), Produce(7, 0, -1, 1, 0), Rules())
    assert (error, known) == (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, None)


def test_without_idempotence_anything_goes() -> None:
    request = Produce(7, 9, -1, 1, 0)
    assert check_sequence(produced((0, 0, 2)), request, Rules(idempotence=False)) == (Error.NONE, None)


def test_errors_have_kafkas_numbers() -> None:
    assert {error.name: error.value for error in Error} == {
        "NONE": 0,
        "OFFSET_OUT_OF_RANGE": 1,
        "NOT_LEADER_OR_FOLLOWER": 6,
        "REQUEST_TIMED_OUT": 7,
        "NOT_ENOUGH_REPLICAS": 19,
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND": 20,
        "NOT_CONTROLLER": 41,
        "INVALID_REQUEST": 42,
        "OUT_OF_ORDER_SEQUENCE_NUMBER": 45,
        "INVALID_PRODUCER_EPOCH": 47,
        "INVALID_TXN_STATE": 48,
        "TRANSACTION_COORDINATOR_FENCED": 52,
        "FENCED_LEADER_EPOCH": 74,
        "UNKNOWN_LEADER_EPOCH": 75,
        "PRODUCER_FENCED": 90,
        "INVALID_UPDATE_VERSION": 95,
        "INELIGIBLE_REPLICA": 107,
    }

"""Presets by version, and what idempotent producers may append."""

from __future__ import annotations

import pytest

from ackproof_reference.log import Batch, Log, append
from ackproof_reference.messages import Error, Produce
from ackproof_reference.producers import check_sequence
from ackproof_reference.rules import PROTECTIONS, VERSIONS, Rules, Truncation, rules_of, without


@pytest.mark.parametrize(
    ("version", "preset"),
    [
        ("0.8.2", "0.8"),
        ("0.10.2.1", "0.10"),
        ("1.1", "0.11"),
        ("2.0.1", "2.0"),
        ("2.6", "2.1"),
        ("2.8-zk", "2.8-zk"),
        ("3.6.1-zk", "2.8-zk"),
        ("3.9.2-zk", "3.7-zk"),
        ("3.4.0", "3.3"),
        ("3.5.1", "3.5"),
        ("3.9.1", "3.7"),
        ("4.0.0", "4.0"),
        ("4.3.1", "4.1"),
        ("4.10", "4.1"),
    ],
)
def test_a_release_follows_the_newest_preset_not_above_it(version: str, preset: str) -> None:
    assert rules_of(version) == VERSIONS[preset]


@pytest.mark.parametrize("wrong", ["0.7", "four", "4.1-raft", "", "2.8"])
def test_what_is_no_version_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"version|no rules"):
        rules_of(wrong)


def test_elr_can_be_switched_apart_from_the_version() -> None:
    assert rules_of("4.0", elr=True).unclean_shutdown_detection
    assert not rules_of("4.1", elr=False).elr


def test_presets_differ_where_the_releases_do() -> None:
    assert rules_of("0.10").truncation is Truncation.HIGH_WATERMARK
    assert rules_of("0.10").unclean_election
    assert not rules_of("0.11").unclean_election
    assert not rules_of("3.6").strict_min_isr
    assert rules_of("3.7").strict_min_isr
    assert not rules_of("4.0").elr
    assert rules_of("4.1").elr


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
        "FENCED_LEADER_EPOCH": 74,
        "UNKNOWN_LEADER_EPOCH": 75,
        "PRODUCER_FENCED": 90,
        "INVALID_UPDATE_VERSION": 95,
        "INELIGIBLE_REPLICA": 107,
    }

"""Tests of the requests that remove and add a voter: their bytes, and an error in the response."""

from __future__ import annotations

import uuid

import pytest

from ackproof.cluster.admin import add_voter, remove_voter
from ackproof.cluster.queries import Voter
from ackproof.network.wire import Question, Refused

DIRECTORY = uuid.UUID(int=7)
VOTER = Voter(103, DIRECTORY, (("CONTROLLER", "node-103.test", 29093),))
OK = b"\0\0\0\0" + b"\0\0" + b"\0" + b"\0"
TAKEN = b"\0\0\0\0" + (126).to_bytes(2, "big") + bytes([5]) + b"busy" + b"\0"


class _Asked:
    """Fake connection that keeps the frame of a request, and returns a response whose body is `answer`."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.frame = b""

    def ask(self, question: Question, *, timeout_s: float | None = None) -> object:
        del timeout_s
        self.frame = question.encode(9)
        return question.decode((9).to_bytes(4, "big") + b"\0" + self.answer, 9)


def test_a_removal() -> None:
    asked = _Asked(OK)
    remove_voter(asked, VOTER)  # type: ignore[arg-type]
    body = b"\0" + (103).to_bytes(4, "big") + DIRECTORY.bytes + b"\0"
    assert asked.frame[:4] == (len(asked.frame) - 4).to_bytes(4, "big")
    assert asked.frame[4:12] == (81).to_bytes(2, "big") + b"\0\0" + (9).to_bytes(4, "big")
    assert asked.frame.endswith(body)


def test_an_addition() -> None:
    asked = _Asked(OK)
    add_voter(asked, VOTER)  # type: ignore[arg-type]
    listener = b"\x0bCONTROLLER" + b"\x0enode-103.test" + (29093).to_bytes(2, "big") + b"\0"
    body = b"\0" + (10_000).to_bytes(4, "big") + (103).to_bytes(4, "big") + DIRECTORY.bytes
    assert asked.frame.endswith(body + b"\x02" + listener + b"\0")


def test_a_refusal_is_said_in_kafkas_words() -> None:
    with pytest.raises(Refused, match=r"removal of controller 103.*busy") as refused:
        remove_voter(_Asked(TAKEN), VOTER)  # type: ignore[arg-type]
    assert refused.value.code == 126

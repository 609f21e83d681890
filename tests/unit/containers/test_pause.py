"""Tests that a container is paused although the container runtime could not freeze it at the first attempts."""

from __future__ import annotations

import signal

import pytest
from docker.errors import APIError

from ackproof.cluster.containers.container import _FREEZES, NodeContainer
from ackproof.cluster.containers.engine import EngineFailed

UNFROZEN = "Cannot pause container 7b08: OCI runtime pause failed: unable to freeze: unknown"


class Stubborn:
    """Fake container that refuses the first `times` calls of `pause` with the error text `words`."""

    def __init__(self, times: int, words: str) -> None:
        self.times, self.words, self.asked = times, words, 0

    def pause(self) -> None:
        self.asked += 1
        if self.asked <= self.times:
            raise APIError("500 Server Error", explanation=self.words)


class Node(NodeContainer):
    """`NodeContainer` whose container exists from the start."""

    container: Stubborn

    def __init__(self, container: Stubborn) -> None:
        self.__dict__["container"] = container

    def __getattribute__(self, name: str) -> object:
        return self.__dict__["container"] if name == "container" else super().__getattribute__(name)


@pytest.mark.parametrize("refused", [0, 1, _FREEZES - 1])
def test_the_runtime_is_asked_again(refused: int) -> None:
    container = Stubborn(refused, UNFROZEN)
    assert Node(container).send(signal.SIGSTOP)
    assert container.asked == refused + 1


def test_not_for_ever() -> None:
    container = Stubborn(1000, UNFROZEN)
    with pytest.raises(EngineFailed, match="unable to freeze"):
        Node(container).send(signal.SIGSTOP)
    assert container.asked == _FREEZES


def test_any_other_refusal_is_one() -> None:
    container = Stubborn(1, "the device is on fire")
    with pytest.raises(EngineFailed, match="on fire"):
        Node(container).send(signal.SIGSTOP)
    assert container.asked == 1


def test_what_ended_meanwhile_is_no_failure() -> None:
    assert not Node(Stubborn(1, "Container 7b08 is not running")).send(signal.SIGSTOP)

"""Requests that wait at a broker in virtual time, and what is remembered of them: who sent them, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ackproof_reference.messages import Error, Fetch
from ackproof_simulator.network import Connection


class Producing(Protocol):
    """A client that waits for an answer to a batch that it sent."""

    def answered(self, attempt: object, error: Error, offset: int) -> None:
        """The leader's answer."""


class Asked(NamedTuple):
    """A produce request at its leader: who sent it, over which connection, for which of its attempts."""

    client: Producing
    connection: Connection
    generation: int
    attempt: object
    since: int
    request_timeout: int


class Parked(NamedTuple):
    """A fetch that waits at its leader."""

    request: Fetch
    connection: Connection
    token: int


@dataclass
class Caught:
    """What a leader remembers of a follower's fetches, to tell whether it lags (kafka.cluster.Replica)."""

    caught_up: int
    fetched: int
    end_then: int

    def note(self, offset: int, end: int, now: int) -> None:
        """A fetch from an offset of a log that ends there; `now` by the leader's clock (Replica.updateFetchState)."""
        if offset >= end:
            self.caught_up = max(self.caught_up, now)
        elif offset >= self.end_then:
            self.caught_up = max(self.caught_up, self.fetched)
        self.fetched, self.end_then = now, end

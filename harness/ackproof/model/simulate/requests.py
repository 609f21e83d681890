"""Requests that wait at a broker in virtual time: who sent them, over which connection."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ackproof.model.simulate.network import Connection
from ackproof_reference.messages import Error, Fetch


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

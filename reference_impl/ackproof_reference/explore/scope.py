"""The scope (size) of a model of a partition: a client, a controller, brokers, messages in flight, and the rules.

A scope bounds incidents, not recoveries: the number of kills, power losses and cuts is limited; restarts, fetches and
elections are not.

The cells of a state: the budget of incidents, the client, the controller; and for each broker its log, its memory, its
one fetch in flight (request or response), and its one proposal to the controller in flight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ackproof_reference.rules import Rules


class Budget(NamedTuple):
    """Numbers of incidents and administrator actions that may still happen, by kind; each counts down."""

    kills: int = 0
    power_losses: int = 0
    clean_stops: int = 0
    cuts: int = 0
    """Number of times that a live broker may be fenced, because it does not reach the controller."""
    shrinks: int = 0
    """Number of times that a leader may propose an ISR without a slow follower."""
    lost: int = 0
    """Number of leaders' answers to followers that may get lost."""
    preferred: int = 0
    """Number of preferred elections that may be held."""
    hand_overs: int = 0
    """Number of times that the leadership may move to another ISR member while both live. One move stands for any quick
    change of leaders."""
    unclean: int = 0
    """Number of unclean elections that an administrator may request."""
    retries: int = 0
    """Number of times that a producer may send a record again."""
    reassignments: int = 0
    """Number of reassignments to one of the scope's `targets` that may begin."""
    time_outs: int = 0
    """Number of produce requests that may end in REQUEST_TIMED_OUT."""
    failovers: int = 0
    """Number of controllers that may fail after writing only the first records of a decision; the next controller
    continues from these."""


NOTHING = Budget()


class Reductions(NamedTuple):
    """Switches for reductions of the state space; True: on. No reduction changes an answer:
    `tests/model/test_reductions.py` compares each subset with the plain search."""

    void: bool = True
    """Remove messages in flight that have no effect any more (`forgetting.py`)."""
    memory: bool = True
    """Drop the parts of a broker's disk and memory that no later step reads (`forgetting.py`)."""
    fusing: bool = True
    """Combine a follower's request, the leader's answer and taking the answer into one step if no state tells
    them apart (`fetching.py`)."""
    ranking: bool = True
    """Compare epochs by rank, and keep the state with more budget (`ranking.py`)."""
    ending: bool = True
    """End the search at states from which no invariant can be broken (`ending.py`)."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the reductions that are on."""
        return tuple(name for name, on in zip(self._fields, self, strict=True) if on)


ALL = Reductions()
NO_REDUCTIONS = Reductions(*(False for _ in Reductions._fields))
"""Reductions of the plain search: none, so it visits every state and takes every single step."""
IN_STORIES = NO_REDUCTIONS._replace(void=True)
"""Reductions for counterexamples that are printed, or replayed on real brokers: every single step, except steps without
effect."""


class Client(NamedTuple):
    """The client's view: records sent and acknowledged, and what readers have seen below a high watermark.

    `sent`: the number of records sent; they are numbered from 0. `acked`, `read`: numbers of records. With acks=0
    every sent record counts as acknowledged. `read` is the longest sequence that any leader has shown, in log order.
    `wrong`: broken promises, each as (class, sentence).
    """

    sent: int = 0
    acked: tuple[int, ...] = ()
    read: tuple[int, ...] = ()
    wrong: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Scope:
    """Size and rules of a model of one partition. `brokers`: number of brokers, with ids from 1. `budget`: incidents
    that may happen.

    `records`: number of records that a producer sends, all with the same `acks`: 0, 1 or -1 (all). `idempotent`: True
    for an idempotent producer."""

    rules: Rules
    brokers: int = 3
    records: int = 1
    acks: int = -1
    budget: Budget = NOTHING
    assigned: tuple[int, ...] = ()
    """The partition's replicas in assignment order; empty: all brokers."""
    started_isr: tuple[int, ...] = ()
    """The ISR at the start; empty: all replicas."""
    idempotent: bool = False
    settled: bool = False
    """True if all brokers know the partition at the start; else they learn of it in the first steps."""
    victims: tuple[int, ...] = ()
    """Brokers that power losses and cuts can strike; empty: all."""
    targets: tuple[tuple[int, ...], ...] = ()
    """Assignments that a reassignment can have as its target."""
    reductions: Reductions = ALL

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(range(1, self.brokers + 1))

    @property
    def in_stories(self) -> Scope:
        """The scope for counterexamples that are printed, or replayed on real brokers. It has no reductions that
        combine steps: only `void` stays on, if it is."""
        return replace(self, reductions=NO_REDUCTIONS._replace(void=self.reductions.void))

    def strikes(self, broker: int) -> bool:
        """Return True if `victims` lets this broker lose power or be cut off."""
        return not self.victims or broker in self.victims


BUDGET, CLIENT, CONTROLLER = 0, 1, 2
_BEFORE, _EACH = 3, 4


def log_cell(broker: int) -> int:
    """Return the index of the cell with a broker's log."""
    return _BEFORE + _EACH * (broker - 1)


def process_cell(broker: int) -> int:
    """Return the index of the cell with a broker's memory, a `Process`."""
    return log_cell(broker) + 1


def fetch_cell(broker: int) -> int:
    """Return the index of the cell with a broker's fetch in flight: None, a request (possibly `Late`) or a response."""
    return log_cell(broker) + 2


def proposal_cell(broker: int) -> int:
    """Return the index of the cell with a broker's AlterPartition in flight: None, a request or a response."""
    return log_cell(broker) + 3


def broker_of(cell: int) -> int:
    """Return the id of the broker to which a cell belongs. The cell must belong to a broker."""
    return (cell - _BEFORE) // _EACH + 1


def memory_row(broker: int) -> str:
    """Return the name of the cache of steps (`Group.row`) that a broker's groups share. It is meant for groups that
    read cells of no other broker."""
    return f"broker {broker}"

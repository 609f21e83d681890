"""What is explored, and by which rules: a client, a controller, brokers with one partition, what is on its way between.

A scope bounds what goes wrong, never what heals: so many kills, power losses, cuts, but as many restarts, fetches and
elections as follow. The cells: what may still go wrong, the client, the controller, and for each broker its log, its
memory, its one fetch under way (request or response) and its one proposal to the controller under way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ackproof_reference.rules import Rules


class Budget(NamedTuple):
    """Incidents and administrator actions that may still happen; each counts down."""

    kills: int = 0
    power_losses: int = 0
    clean_stops: int = 0
    cuts: int = 0
    """Brokers that live and are fenced all the same, for they do not reach the controller."""
    shrinks: int = 0
    """Slow followers dropped by their leader."""
    lost: int = 0
    """Responses to a fetch that never arrive."""
    preferred: int = 0
    hand_overs: int = 0
    """Leadership given to another member of the ISR, both alive: what makes quick changes of leaders."""
    unclean: int = 0
    retries: int = 0
    reassignments: int = 0
    """Moves of the partition to one of the scope's `targets`."""
    time_outs: int = 0
    """Producers that get REQUEST_TIMED_OUT."""
    failovers: int = 0
    """Controllers that fail when only the first records of a decision are written; the next one goes on from these."""


NOTHING = Budget()


class Reductions(NamedTuple):
    """Switches for what a search takes together because no invariant and no later step tells it apart.

    No reduction changes an answer: `tests/model/test_reductions.py` compares each subset with the plain search.
    """

    void: bool = True
    """What is under way and can do nothing any more is taken out of the way at once (`forgetting.py`)."""
    memory: bool = True
    """Of a broker's disk and memory counts what it may look at again (`forgetting.py`)."""
    fusing: bool = True
    """A follower's asking, being answered and taking the answer are one step where nobody can tell (`fetching.py`)."""
    ranking: bool = True
    """Epochs count by their order, and of what may still go wrong the more (`ranking.py`)."""
    ending: bool = True
    """Where nothing can be broken any more the search does not go on (`ending.py`)."""

    @property
    def names(self) -> tuple[str, ...]:
        """The reductions that are switched on."""
        return tuple(name for name, on in zip(self._fields, self, strict=True) if on)


ALL = Reductions()
NO_REDUCTIONS = Reductions(*(False for _ in Reductions._fields))
"""The plain search: every state and every step for itself."""
IN_STORIES = NO_REDUCTIONS._replace(void=True)
"""For stories, told and forced: every step for itself, but for those that do nothing."""


class Client(NamedTuple):
    """The client's view: records sent and acknowledged, and what a reader has seen below a high watermark.

    Records are numbered from 0. `read` is the longest prefix that any leader showed; `wrong` what broke a promise.
    """

    sent: int = 0
    acked: tuple[int, ...] = ()
    read: tuple[int, ...] = ()
    wrong: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Scope:
    """Size and rules of a world. `acks` is 0, 1 or -1 for all its records."""

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
    """Whether all brokers know the partition at the start; else they learn of it as the first steps."""
    victims: tuple[int, ...] = ()
    """Whom power losses and cuts may strike; empty: everyone."""
    targets: tuple[tuple[int, ...], ...] = ()
    """The assignments that a reassignment may aim at."""
    reductions: Reductions = ALL

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(range(1, self.brokers + 1))

    @property
    def in_stories(self) -> Scope:
        """The same world in the steps of stories."""
        return replace(self, reductions=NO_REDUCTIONS._replace(void=self.reductions.void))

    def strikes(self, broker: int) -> bool:
        """Return True if this broker may lose power or be cut off."""
        return not self.victims or broker in self.victims


BUDGET, CLIENT, CONTROLLER = 0, 1, 2
_BEFORE, _EACH = 3, 4


def log_cell(broker: int) -> int:
    """The cell of a broker's log."""
    return _BEFORE + _EACH * (broker - 1)


def process_cell(broker: int) -> int:
    """The cell of a broker's memory."""
    return log_cell(broker) + 1


def fetch_cell(broker: int) -> int:
    """The cell of the fetch that a broker has under way: None, a request or a response."""
    return log_cell(broker) + 2


def proposal_cell(broker: int) -> int:
    """The cell of the ISR change that a broker has under way: None, a request or a response."""
    return log_cell(broker) + 3


def broker_of(cell: int) -> int:
    """Return the broker that a cell belongs to, if it is a broker's."""
    return (cell - _BEFORE) // _EACH + 1


def memory_row(broker: int) -> str:
    """Name the row of groups of a broker, the controller and the client: no cells of other brokers."""
    return f"broker {broker}"

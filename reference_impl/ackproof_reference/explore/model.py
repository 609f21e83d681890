"""What can be searched: a model is a row of cells, and groups of steps and invariants over a few of them each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class ActionKind(Enum):
    """Kinds of steps in the world of a Kafka partition, for programs that act on a story."""

    OTHER = "no step of that world"
    SEND = "a producer sends a record"
    RESEND = "a producer sends a record again"
    TIME_OUT = "a leader gives up waiting for replicas and answers a producer with an error"
    FETCH = "a follower sends a fetch or asks for the end of an epoch"
    ABANDON_FETCH = "a follower drops its request, for it has moved on since"
    FIND_LEADER_DOWN = "a request finds its leader down"
    ANSWER_FETCH = "a leader answers a follower"
    TAKE_ANSWER = "a follower takes an answer"
    LOSE_ANSWER = "an answer never arrives"
    PROPOSE_SHRINK = "a leader proposes an ISR without a slow follower"
    DECIDE_PROPOSAL = "the controller takes or refuses a proposed ISR"
    TAKE_DECISION = "a leader hears the decision about its proposal"
    LEARN = "a broker applies the newest metadata image"
    KILL = "a broker is killed"
    LOSE_POWER = "a broker loses power"
    REGISTER = "a broker starts and registers"
    UNFENCE = "a broker has caught up and is unfenced"
    FENCE = "the controller fences a broker"
    ASK_TO_STOP = "a broker asks to stop"
    STOP = "a broker stops cleanly"
    FAIL_OVER = "the controller fails with half of a decision written"
    MOVE_LEADER = "the controller moves the leadership"
    ELECT_PREFERRED = "an administrator asks for a preferred election"
    ELECT_UNCLEAN = "an administrator asks for an unclean election"
    REASSIGN = "an administrator asks for a reassignment"


class Action(NamedTuple):
    """One step: names of its actor and its target ("" nobody) and a sentence for readers, the rest for programs."""

    actor: str
    text: str
    target: str = ""
    kind: ActionKind = ActionKind.OTHER
    broker: int = 0
    """The broker that fetches, proposes, lives or dies in this step, or that is sent a record; 0: none."""
    refuses: bool = False
    """A producer gets an error."""


Row = tuple[Hashable, ...]
"""A state: a value for each cell."""
Move = tuple[Action, Row]


class StoryLine(NamedTuple):
    """One line of a counterexample: the step, and the cells that it changed (name, before, after)."""

    action: Action
    changed: tuple[tuple[str, Hashable, Hashable], ...]


class Group(NamedTuple):
    """Steps that read and write the same cells.

    `moves(*cells)` yields each possible step with the new values of those cells, in the same order. `check(*cells)`
    yields (class, sentence) for each invariant that these values break. With `at_once` its step, at most one, is
    taken together with the one that made it possible; it must change nothing that anybody looks at, and come to the
    same however long it waits. `at_once(value)` is what of a cell's value it depends on; None: it has no step then.

    Groups of one `row` are looked up together, by all their cells at once: worth it where these cells have far fewer
    combinations than there are states. `counts` are the fields that the group looks at of a cell of counters (see
    `Counting`); the others it finds to be 0, and leaves alone. Each of its steps counts as so many `steps`.
    """

    name: str
    cells: tuple[int, ...]
    moves: Callable[..., Iterable[Move]] | None = None
    check: Callable[..., Iterable[tuple[str, str]]] | None = None
    at_once: Callable[[Hashable], Hashable] | None = None
    row: str = ""
    counts: tuple[str, ...] = ()
    steps: int = 1


class Condition(NamedTuple):
    """A question about a state: `holds(*cells)`; `counts` as in `Group`."""

    cells: tuple[int, ...]
    holds: Callable[..., bool]
    counts: tuple[str, ...] = ()


class End(NamedTuple):
    """Conditions that together end the search at a state. Neither it nor any later state breaks one of these `kinds`;
    empty: of any kind.
    """

    conditions: Sequence[Condition]
    kinds: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Model:
    """A searchable world: a name for each cell, the first state, all steps and invariants.

    `counters` and `widths` say more about its cells: a search is quicker and smaller with that, its answers no others.
    """

    names: Sequence[str]
    initial: Row
    groups: Sequence[Group]
    counters: Sequence[int] = ()
    """Cells that hold a named tuple of numbers, none of which ever exceeds what it is at first."""
    widths: Sequence[int] = ()
    """Bits to number the values of each cell with at first (a cell of counters has its own)."""
    retold: Callable[[Sequence[Row]], list[StoryLine]] | None = None
    """Turns a way through its states into a story, where its steps are not those that a reader is to see."""
    ranked: bool = False
    """States that are alike with ranks in the place of epochs are one (`ranking.py`)."""
    frugal: bool = False
    """A state is not kept if another one, seen before, differs in counters only, and has as much of each left: who may
    do more of something has all the ways of who may do less."""
    ends: Sequence[End] = ()
    """A state at one of these is neither gone on from nor kept."""

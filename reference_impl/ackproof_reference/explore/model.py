"""A searchable model. A state is a row of cells; steps and invariants come in groups, each of which reads a few
cells."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class ActionKind(Enum):
    """Kinds of steps of a Kafka partition's model, for programs that evaluate a counterexample."""

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
    """One step of a counterexample.

    `actor` (such as `broker 1`), `target` ("": none) and `text`, a sentence, are for readers. `kind`, `broker` (id of
    the broker that the step is about, 0: none) and `refuses` are for programs that evaluate the counterexample."""

    actor: str
    text: str
    target: str = ""
    kind: ActionKind = ActionKind.OTHER
    broker: int = 0
    """Id of the broker that the step is about, such as one that fetches, proposes an ISR, starts, dies or receives a
    record; 0: no broker."""
    refuses: bool = False
    """True if the step answers a producer with an error."""


Row = tuple[Hashable, ...]
"""A state of the model: one value per cell, in the order of `Model.names`."""
Move = tuple[Action, Row]
"""A step, and the values of its group's cells after the step."""


class StoryLine(NamedTuple):
    """One line of a counterexample: the step, and the cells that it changed, each as (name, value before,
    value after).
    """

    action: Action
    changed: tuple[tuple[str, Hashable, Hashable], ...]


class Group(NamedTuple):
    """Steps that read and write the same cells. `cells`: indices into a state (`Model.names`).

    `moves(*cells)` gets the values of those cells. It yields each possible step with the new values, in the same order.
    `check(*cells)` yields (class, sentence) for each invariant that these values break.

    `at_once`: if set, the group has at most one step, which is taken together with the step that made it possible. That
    must change no answer of the search, and the effect of the step must not depend on how long it waits.
    `at_once(value)` gets the value of one of the cells and returns the part on which the step depends; None: there is
    no step with this value.

    `row`: groups with the same row share one cache of steps, whose key is the values of all their cells; "": the group
    shares none. Sharing pays if these cells have far fewer combinations of values than there are states. `counts`: the
    fields that the group reads of a cell of counters (`Model.counters`); it sees 0 in the other fields and does not
    change them. `steps`: length of each step in a counterexample; above 1 if the step combines several."""

    name: str
    cells: tuple[int, ...]
    moves: Callable[..., Iterable[Move]] | None = None
    check: Callable[..., Iterable[tuple[str, str]]] | None = None
    at_once: Callable[[Hashable], Hashable] | None = None
    row: str = ""
    counts: tuple[str, ...] = ()
    steps: int = 1


class Condition(NamedTuple):
    """A predicate on a state: `holds` gets the values of `cells` (indices into the state), in order.
    `counts`: the fields that it reads of a cell of counters; it sees 0 in the other fields.
    """

    cells: tuple[int, ...]
    holds: Callable[..., bool]
    counts: tuple[str, ...] = ()


class End(NamedTuple):
    """Conditions that together end the search at a state. No later state breaks an invariant of these `kinds` (empty:
    of any kind).
    """

    conditions: Sequence[Condition]
    kinds: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Model:
    """A model that can be searched: names of its cells, the first state, all steps and invariants.

    The other fields are optional. `retold` makes a counterexample easier to read. The rest makes a search faster and
    smaller, and changes no answer; `counters` and `widths` say how to pack the cells' values into one integer."""

    names: Sequence[str]
    initial: Row
    groups: Sequence[Group]
    counters: Sequence[int] = ()
    """Indices of cells that hold a named tuple of numbers, none of which ever exceeds its first value."""
    widths: Sequence[int] = ()
    """Number of bits for the values of each cell at first, one number per cell; it grows when needed. Ignored
    for cells of counters, whose size is known. Empty: the same for all."""
    retold: Callable[[Sequence[Row]], list[StoryLine]] | None = None
    """Turns a path of states into a counterexample for readers. None: the steps of the model are the steps to show."""
    ranked: bool = False
    """True if states that differ in their epochs, but not in the order of these, count as equal (`ranking.py`)."""
    frugal: bool = False
    """True to drop a state if an earlier one differs in counters only and has at least as much of each: whatever is
    possible from the dropped state is possible from that one.
    """
    ends: Sequence[End] = ()
    """Ends of the search: a state that fulfils all conditions of one of them is neither continued from nor
    stored. An end with `kinds` applies only to a search that wants no other classes."""

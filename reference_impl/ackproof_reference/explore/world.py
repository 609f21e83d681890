"""The model of a partition for the search: its cells, their first values, all steps and all invariants.

The search merges states and steps that cannot change its answer (`scope.Reductions`), so the counterexample that it
finds is a path of *reduced* states. `Retelling` turns it into single steps of the plain model (`Scope.in_stories`), for
people to read. It walks the plain model along the reduced states. Between two of these it takes one step; or several,
of which all but the last leave the reduced state unchanged; or none, if an answer in flight may as well have been
taken. So every reported finding is one that the plain model reaches.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise, product

from ackproof_reference.broker import Broker, Process
from ackproof_reference.explore.ending import ends
from ackproof_reference.explore.fetching import Late, choices_in_stories
from ackproof_reference.explore.forgetting import leftovers, remembered, remembering
from ackproof_reference.explore.invariants import checks
from ackproof_reference.explore.model import Group, Model, Row, StoryLine
from ackproof_reference.explore.moves import moves
from ackproof_reference.explore.ranking import occurring_epochs, rank_epochs, replace_epochs
from ackproof_reference.explore.scope import (
    BUDGET,
    IN_STORIES,
    NO_REDUCTIONS,
    Client,
    Scope,
    fetch_cell,
    log_cell,
    process_cell,
)
from ackproof_reference.follower import next_request
from ackproof_reference.log import Log
from ackproof_reference.metadata import Metadata, Partition, Registration
from ackproof_reference.node import step


def world(scope: Scope) -> Model:
    """Return the model of a scope: one partition, its brokers, the controller and a client.

    At first all brokers run and are registered, and the controller names the first member of the ISR as leader. The
    partition is empty; the brokers know it (`Scope.settled`) or are about to learn of it."""
    replicas = scope.assigned or scope.ids
    isr = scope.started_isr or replicas
    metadata = Metadata(
        Partition(replicas, isr[0], 0, 0, isr), tuple(Registration(broker, 0) for broker in scope.ids)
    )
    names = ["budget", "client", "controller"]
    first: list[Hashable] = [scope.budget, Client(), metadata]
    # Bits for each cell at first, where a state is packed into one integer. Brokers' memories differ most: three
    # brokers come to six digits of an integer (180 bits, 48 bytes).
    widths = [0, 8, 14]
    for number in scope.ids:
        begun = Broker(number, Log(), Process(up=True, epoch=0))
        if scope.settled:
            begun, _ = step(begun, metadata, scope.rules)
        if scope.reductions.memory:
            begun = remembered(begun, scope)
        asked = next_request(begun) if scope.reductions.fusing else None
        first += [begun.log, begun.process, asked, None]
        names += [f"{what} of broker {number}" for what in ("log", "memory", "fetch", "proposal")]
        widths += [10, 18, 10, 9]
    steps = moves(scope)
    if scope.reductions.memory:
        steps = tuple(remembering(group, scope) for group in steps)
    groups = (*steps, *leftovers(scope), *checks(scope))
    return Model(
        names,
        tuple(first),
        groups,
        counters=(BUDGET,),
        widths=widths,
        retold=None if scope.reductions in (NO_REDUCTIONS, IN_STORIES) else Retelling(scope),
        ranked=scope.reductions.ranking,
        frugal=scope.reductions.ranking,
        ends=ends(scope),
    )


_MOST_BETWEEN = 8
"""Limit of plain steps that stand for one step of the reduced model (`Retelling._walk`)."""


class Retelling:
    """Function that converts a path of the reduced model into a path of the plain model, whose single steps a reader
    can follow.

    The reduced model merges states and combines steps (`Scope.reductions`). The plain model takes every step singly
    (`Scope.in_stories`)."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @cached_property
    def reduced(self) -> Model:
        return world(self._scope)

    @cached_property
    def full(self) -> Model:
        return world(self._scope.in_stories)

    def __call__(self, way: Sequence[Row]) -> list[StoryLine]:
        """Return the plain steps of a path of reduced states, from the first state on.

        If the last reduced state breaks an invariant, so does the last plain one. Raises AssertionError if
        the plain model has no such path.
        """
        told: list[StoryLine] = []
        here = tuple(self.full.initial)
        for before, after in pairwise(way):
            here = self._walk(told, here, before, after, set())
        broken = _broken(self.reduced, way[-1])
        if not broken <= _broken(self.full, here):
            self._walk(told, here, way[-1], way[-1], broken)
        return told

    def _walk(self, told: list[StoryLine], here: Row, before: Row, after: Row, broken: set[str]) -> Row:
        """Append to `told` the shortest sequence of plain steps from `here` to a plain state for which `after` can
        stand (`images`). That state must also break the invariants in `broken`. Return it.

        `here`: a state of the plain model. `before`, `after`: neighbours on the path of the reduced model; `before` can
        stand for `here`. In between, `before` can stand for each plain state, or a broker has just started. Raises
        AssertionError if there is no such sequence of at most `_MOST_BETWEEN` steps."""
        if after in self.images(here) and broken <= _broken(self.full, here):
            return here
        known: dict[Row, list[StoryLine]] = {here: []}
        level = [here]
        for _ in range(_MOST_BETWEEN):
            following = []
            for state in level:
                for line, new in self._steps(state):
                    if new in known:
                        continue
                    images = self.images(new)
                    if after in images and broken <= _broken(self.full, new):
                        told += [*known[state], line]
                        return new
                    if before in images or self._starting(here, new):
                        known[new] = [*known[state], line]
                        following.append(new)
            level = following
        changes = zip(self.full.names, before, after, strict=True)
        raise AssertionError(f"the plain model has no way to {[one for one in changes if one[1] != one[2]]}")

    def _steps(self, row: Row) -> Iterator[tuple[StoryLine, Row]]:
        for group in self.full.groups:
            if group.moves is None or group.at_once is not None:
                continue
            for action, new in group.moves(*(row[cell] for cell in group.cells)):
                after = settled(self.full, _replaced(row, group, new))
                changed = zip(self.full.names, row, after, strict=True)
                if after != row:
                    yield StoryLine(action, tuple(one for one in changed if one[1] != one[2])), after

    def images(self, row: Row) -> set[Row]:
        """Return all reduced forms of a plain state: the states of the reduced model that can stand for it. It has
        several in two cases, in every combination:

        * An answer is in flight. The reduced model may have taken it already.
        * An outdated request to a restarted leader is in flight (`Late`). The reduced model may have dropped it."""
        choices = [self._choices(row, one) for one in self._scope.ids]
        found = set()
        for chosen in product(*choices):
            cells = list(row)
            for one, (log, process, fetch) in zip(self._scope.ids, chosen, strict=True):
                cells[log_cell(one)], cells[process_cell(one)], cells[fetch_cell(one)] = log, process, fetch
            image = settled(self.reduced, tuple(cells))
            found.add(_rank_row(image) if self.reduced.ranked else image)
        return found

    def _choices(self, row: Row, one: int) -> Iterator[tuple[Log, Process, Hashable]]:
        log, process, fetch = row[log_cell(one)], row[process_cell(one)], row[fetch_cell(one)]
        assert isinstance(log, Log) and isinstance(process, Process)
        broker, reductions = Broker(one, log, process), self._scope.reductions
        for was, under_way in (
            choices_in_stories(self._scope.rules, broker, fetch) if reductions.fusing else ((broker, fetch),)
        ):
            kept = remembered(was, self._scope) if reductions.memory else was
            yield kept.log, kept.process, under_way
            if isinstance(under_way, Late) and self._starts(row, under_way.request.leader):
                # Its leader may have died since, and it was forgotten then.
                yield kept.log, kept.process, next_request(was)

    def _starting(self, before: Row, now: Row) -> bool:
        """Return True if a broker has started since `before` and learned nothing yet; reduced states leave
        that state out.
        """
        return self._scope.reductions.fusing and any(
            self._starts(now, one) and not self._starts(before, one) for one in self._scope.ids
        )

    @staticmethod
    def _starts(row: Row, broker: int) -> bool:
        process = row[process_cell(broker)]
        return isinstance(process, Process) and process.up and process.role is None


def settled(model: Model, row: Row) -> Row:
    """Return the state that the search keeps in place of `row`: after all steps that are taken at once, in the order of
    their groups. Such a step, for example the removal of a message without effect, follows at once on the step that
    makes it possible (`Group.at_once`)."""
    for group in model.groups:
        if group.at_once is not None and group.moves is not None:
            for _, new in group.moves(*(row[cell] for cell in group.cells)):
                row = _replaced(row, group, new)
    return row


def _rank_row(row: Row) -> Row:
    """Return a state with each epoch replaced by its rank among the state's epochs of the same kind (`ranking.py`). So
    states that differ only in the values of epochs, not in their order, become equal. The same state if each epoch
    equals its rank."""
    bits = 0
    for cell, value in enumerate(row):
        bits |= occurring_epochs(cell, value)
    ranks = rank_epochs(bits)
    return (
        row if ranks is None else tuple(replace_epochs(cell, value, ranks) for cell, value in enumerate(row))
    )


def _replaced(row: Row, group: Group, new: Row) -> Row:
    after = list(row)
    for cell, value in zip(group.cells, new, strict=True):
        after[cell] = value
    return tuple(after)


def _broken(model: Model, row: Row) -> set[str]:
    return {
        kind
        for group in model.groups
        if group.check is not None
        for kind, _ in group.check(*(row[cell] for cell in group.cells))
    }

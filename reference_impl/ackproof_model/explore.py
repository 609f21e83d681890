"""`ackproof explore`: rules and scope in words, a bounded search that can be gone on with, what it found as steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.experiment.kafka import RELEASES, numbers
from ackproof.rundir.model import StoryStep
from ackproof_model.predict.answers import Watch, sources, steps_of
from ackproof_model.predict.cases import ACKS
from ackproof_model.words import known, pairs, whole
from ackproof_reference.explore.invariants import CLASSES
from ackproof_reference.explore.model import Model, Told
from ackproof_reference.explore.scope import Budget, Scope
from ackproof_reference.explore.search import Search, load, save
from ackproof_reference.explore.story import tell
from ackproof_reference.explore.world import world
from ackproof_reference.rules import PROTECTIONS, Rules, rules_of, without

USUAL: Final = "brokers=3,records=1,kills=1"
LARGEST: Final = {"brokers": 5, "records": 4}
_INCIDENTS: Final = tuple(name for name in Budget._fields if name != "reassignments")
"""A reassignment takes its targets too, which have no word here."""
_NAMES: Final = ("acks", "idempotent", "unclean_election", "min_insync", *LARGEST, *_INCIDENTS)
_SWITCHES: Final = {"true": True, "false": False}


@dataclass(frozen=True)
class World:
    """A small world to be explored. `rules`, `words`: as one says whose it is and what there is in it."""

    rules: str
    words: str
    classes: tuple[str, ...]
    """What it can come to, of what is looked for."""
    model: Model
    scope: Scope | None = None
    """Of Kafka alone."""


@dataclass(frozen=True)
class Found:
    """A class that the search reached, with the shortest way."""

    anomaly: str
    text: str
    story: tuple[str, ...]
    steps: tuple[StoryStep, ...]
    way: tuple[Told, ...] = ()
    """The same in the model's own words and states."""


@dataclass(frozen=True)
class Explored:
    """What a search came to. `exhausted`: there are no other states, so what was not found is impossible here."""

    found: tuple[Found, ...]
    missing: tuple[str, ...]
    exhausted: bool
    states: int
    seconds: float
    depth: int


def rules_in_words(version: str, taken_away: Sequence[str]) -> Rules:
    """The preset of a release (`4.1`, `2.8-zk`) without some protections. Raises `BadInput` for unknown names."""
    try:
        rules = rules_of(version)
    except ValueError as error:
        raise BadInput(f"--rules: {error}") from error
    _released(version)
    for name in taken_away:
        known("--without", "protection", name, PROTECTIONS)
    return without(rules, *taken_away)


def _released(version: str) -> None:
    """The presets reach upwards without end, and nobody knows what a release of the future does."""
    number, _, mode = version.partition("-")
    line = numbers(number)[:2]
    newest = numbers(RELEASES[-1])[:2]
    if len(line) < 2:
        raise BadInput(f"--rules: '{version}' is not one release; write it as 4.1, 4.3.1 or 3.9-zk")
    if line > newest:
        raise BadInput(f"--rules: Kafka {version} is not known; the newest is {RELEASES[-1]}")
    if mode and line >= (4, 0):
        raise BadInput(
            f"--rules: Kafka {number} has no ZooKeeper mode: 3.9 was the last with it; write 3.9-zk"
        )


def scope_in_words(text: str, rules: Rules) -> Scope:
    """`brokers=3,records=1,acks=all,min_insync=2,kills=1` as a scope. Raises `BadInput` for what does not fit."""
    sizes: dict[str, int] = {}
    budget: dict[str, int] = {}
    acks, idempotent = -1, False
    for name, value in pairs(text):
        if name == "acks":
            if value not in ACKS:
                raise BadInput(f"--scope: acks is 0, 1 or all, not '{value[:60]}'")
            acks = ACKS[value]
        elif name == "idempotent":
            idempotent = _switch(name, value)
        elif name == "unclean_election":
            rules = replace(rules, unclean_election=_switch(name, value))
        elif name == "min_insync":
            rules = replace(rules, min_insync=whole(name, value, 1, 5))
        elif name in LARGEST:
            sizes[name] = whole(name, value, 1, LARGEST[name])
        elif name in _INCIDENTS:
            budget[name] = whole(name, value, 0, 9)
        else:
            known("--scope", "name", name, _NAMES)
    return Scope(
        rules,
        brokers=sizes.get("brokers", 3),
        records=sizes.get("records", 1),
        acks=acks,
        budget=Budget(**budget),
        idempotent=idempotent,
        settled=True,
    )


def kafka(version: str, taken_away: Sequence[str], words: str = USUAL) -> World:
    """A partition of a release, in words. Raises `BadInput` for what it does not know."""
    scope = scope_in_words(words, rules_in_words(version, taken_away))
    return replace(world_of(scope), rules=named(f"Kafka {version}", taken_away), words=words)


def world_of(scope: Scope) -> World:
    """A scope as a world to be explored."""
    return World("", repr(scope), CLASSES, world(scope), scope)


def named(title: str, taken_away: Sequence[str]) -> str:
    """Whose rules, without what."""
    return title + (f" without {', '.join(taken_away)}" if taken_away else "")


def explore(
    asked: World,
    wanted: Sequence[str],
    *,
    max_seconds: float | None = None,
    max_bytes: int | None = None,
    saved: Path | None = None,
    watch: Watch | None = None,
) -> Explored:
    """Search until all wanted classes are found, all states seen, or a limit is met.

    With `saved` a search that is there is gone on with, and what is left open is written there. Raises `BadInput` when
    the file holds another search, or for a class that nobody looks for.
    """
    for name in wanted:
        known("--find", "class", name, asked.classes)
    whose = f"{asked.rules} {asked.words} {sorted(wanted)} {sources()}"
    search = Search(asked.model, frozenset(wanted))
    if saved is not None and saved.exists():
        try:
            search = load(asked.model, saved, whose)
        except (ValueError, KeyError, EOFError, OSError) as error:
            raise BadInput(f"{saved}: not a search of this scope: {error}") from error
    progress = search.run(max_seconds=max_seconds, max_bytes=max_bytes, watch=watch)
    if saved is not None and not search.exhausted and not search.satisfied:
        save(search, saved, whose)
    return Explored(
        tuple(_found(search, wanted)),
        tuple(kind for kind in wanted if kind not in search.findings),
        search.exhausted,
        progress.states,
        progress.seconds,
        progress.depth,
    )


def _found(search: Search, wanted: Sequence[str]) -> Iterator[Found]:
    for kind in wanted:
        if (finding := search.findings.get(kind)) is not None:
            way = search.way_to(finding.state)
            lines = tuple(line.strip() for line in tell(finding, way))
            yield Found(kind, finding.text, lines, tuple(steps_of(way)), tuple(way))


def _switch(name: str, value: str) -> bool:
    if value not in _SWITCHES:
        raise BadInput(f"--scope: {name} is true or false, not '{value[:60]}'")
    return _SWITCHES[value]

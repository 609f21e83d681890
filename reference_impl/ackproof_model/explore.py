"""`ackproof explore`: parses rules and scope (`brokers=3,kills=1`), and runs a bounded search that can be continued.

`kafka` makes the world of a partition; `PROTOCOLS` has those of transactions, the KRaft quorum, PacificA and ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.experiment.kafka import RELEASES, numbers
from ackproof.experiment.problems import unknown_name
from ackproof.rundir.model import StoryStep
from ackproof_model.predict.answers import sources, steps_of
from ackproof_model.predict.cases import ACKS
from ackproof_reference.explore.invariants import CLASSES
from ackproof_reference.explore.model import Model, StoryLine
from ackproof_reference.explore.protocol_worlds import (
    PacificaBounds,
    QuorumBounds,
    controllers,
    pacifica,
    quorum,
)
from ackproof_reference.explore.scope import NO_REDUCTIONS, Budget, Scope
from ackproof_reference.explore.search import Progress, Search, load, save
from ackproof_reference.explore.story import counterexample_lines
from ackproof_reference.explore.transactional import CLASSES as OF_TRANSACTIONS
from ackproof_reference.explore.transactional import Bounds as TransactionBounds
from ackproof_reference.explore.transactional import transactions
from ackproof_reference.explore.world import world
from ackproof_reference.pacifica import PacificaRules
from ackproof_reference.quorum import QuorumRules
from ackproof_reference.rules import PROTECTIONS, Rules, rules_of, without
from ackproof_reference.zookeeper import ZooKeeperRules


def _parse_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield (name, value) for each part of a text `name=value,name=value`; blanks and empty parts are ignored. Raises
    `BadInput` for a part without `=`."""
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = (side.strip() for side in part.partition("="))
        if not equals:
            raise BadInput(f"--scope: expected name=value, such as kills=1, not '{part[:60]}'")
        yield name, value


def _check_name(option: str, what: str, name: str, there: Collection[str]) -> str:
    """Return `name` if it is in `there`, the valid names. Raises `BadInput` that suggests the most similar
    one.

    For the message: `option` is the command-line option that has the name, `what` the kind of name.
    """
    if name not in there:
        raise BadInput(
            unknown_name(f"{option}: unknown {what} '{name[:60]}'", name, list(there), "there are:")
        )
    return name


def _parse_whole_number(name: str, value: str, least: int, most: int) -> int:
    """Parse `value`, a whole number from `least` to `most`. `name`: name of the number in `--scope`, for the message.

    Raises `BadInput` for any other text.
    """
    if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
        raise BadInput(f"--scope: {name} is a whole number from {least} to {most}, not '{value[:60]}'")
    return int(value)


USUAL: Final = "brokers=3,records=1,kills=1"
LARGEST: Final = {"brokers": 5, "records": 4}
_INCIDENTS: Final = tuple(name for name in Budget._fields if name != "reassignments")
"""Fields of `Budget` that `--scope` can set. Reassignments are left out, because they need targets."""
_NAMES: Final = ("acks", "idempotent", "unclean_election", "min_insync", *LARGEST, *_INCIDENTS)
_SWITCHES: Final = {"true": True, "false": False}


@dataclass(frozen=True)
class World:
    """A small model to search. `rules`: name of its rules. `words`: its size and incidents, in the form of `--scope`.
    `world_of` sets `rules` to '', and `words` to the repr of the scope."""

    rules: str
    words: str
    classes: tuple[str, ...]
    """Classes of findings that are possible in this world."""
    model: Model
    scope: Scope | None = None
    """Scope of a Kafka partition; None for other protocols."""


@dataclass(frozen=True)
class FoundClass:
    """An anomaly class that the search reached, with its shortest counterexample.

    `text`: the finding, a sentence. `story`: the counterexample as lines of text. `steps`: the same for a
    sequence diagram.
    """

    anomaly: str
    text: str
    story: tuple[str, ...]
    steps: tuple[StoryStep, ...]
    way: tuple[StoryLine, ...] = ()
    """The counterexample with what each step changes in the state of the model."""


@dataclass(frozen=True)
class Explored:
    """Result of a search. `missing`: wanted classes that were not found. `states`: number of distinct states found.
    `seconds`: time of the search, with that of the saved search that it continued.

    `exhausted`: every state was visited, so the missing classes are impossible; False: the search ended at a limit, or
    when all wanted classes were found."""

    found: tuple[FoundClass, ...]
    missing: tuple[str, ...]
    exhausted: bool
    states: int
    seconds: float


def rules_in_words(version: str, taken_away: Sequence[str]) -> Rules:
    """Return the rules of a release named as text (`4.1`, `2.8-zk`), with the protections in `taken_away` switched off.

    Raises `BadInput` for unknown protections, for a release without rules or above the newest one, for a major version
    alone, and for ZooKeeper mode from 4.0 on.
    """
    try:
        rules = rules_of(version)
    except ValueError as error:
        raise BadInput(f"--rules: {error}") from error
    # The presets reach upwards without end, and nobody knows what a release of the future does.
    line, newest = numbers(version.partition("-")[0])[:2], numbers(RELEASES[-1])[:2]
    if len(line) < 2:
        raise BadInput(f"--rules: '{version}' is not one release; write it as 4.1, 4.3.1 or 3.9-zk")
    if line > newest:
        raise BadInput(f"--rules: Kafka {version} is not known; the newest is {RELEASES[-1]}")
    for name in taken_away:
        _check_name("--without", "protection", name, PROTECTIONS)
    return without(rules, *taken_away)


def scope_in_words(text: str, rules: Rules) -> Scope:
    """Parse a scope such as `brokers=3,records=1,acks=all,min_insync=2,kills=1`. `min_insync` and
    `unclean_election` replace those of `rules`. What is not named: three brokers, one record, acks=all, no idempotence,
    no incidents. Raises `BadInput` for unknown names and values out of range.
    """
    sizes: dict[str, int] = {}
    budget: dict[str, int] = {}
    acks, idempotent = -1, False
    for name, value in _parse_pairs(text):
        if name == "acks":
            if value not in ACKS:
                raise BadInput(f"--scope: acks is 0, 1 or all, not '{value[:60]}'")
            acks = ACKS[value]
        elif name == "idempotent":
            idempotent = _switch(name, value)
        elif name == "unclean_election":
            rules = replace(rules, unclean_election=_switch(name, value))
        elif name == "min_insync":
            rules = replace(rules, min_insync=_parse_whole_number(name, value, 1, 5))
        elif name in LARGEST:
            sizes[name] = _parse_whole_number(name, value, 1, LARGEST[name])
        elif name in _INCIDENTS:
            budget[name] = _parse_whole_number(name, value, 0, 9)
        else:
            _check_name("--scope", "name", name, _NAMES)
    return Scope(
        rules,
        brokers=sizes.get("brokers", 3),
        records=sizes.get("records", 1),
        acks=acks,
        budget=Budget(**budget),
        idempotent=idempotent,
        settled=True,
    )


def kafka(version: str, taken_away: Sequence[str], words: str = USUAL, *, reduced: bool = True) -> World:
    """Return the world of one partition under a release's rules.

    `taken_away`: names of protections to switch off. `words`: the scope, as the option `--scope` takes it. `reduced`:
    False to visit every state, without reductions. Raises `BadInput` as `rules_in_words` and `scope_in_words` do: for
    unknown releases and names, and values out of range.
    """
    scope = scope_in_words(words, rules_in_words(version, taken_away))
    if not reduced:
        scope = replace(scope, reductions=NO_REDUCTIONS)
    return replace(world_of(scope), rules=_rules_title(f"Kafka {version}", taken_away), words=words)


def world_of(scope: Scope) -> World:
    """Return the world of a scope, which `explore` can search. Its `rules` is '', its `words` the scope's repr."""
    return World("", repr(scope), CLASSES, world(scope), scope)


def _rules_title(title: str, taken_away: Sequence[str]) -> str:
    """Return the title of the rules, followed by the names of the protections that are switched off: `Kafka
    4.1 without fetch fencing`."""
    return title + (f" without {', '.join(taken_away)}" if taken_away else "")


def explore(
    asked: World,
    wanted: Sequence[str],
    *,
    max_seconds: float | None = None,
    max_bytes: int | None = None,
    saved: Path | None = None,
    watch: Callable[[Progress], None] | None = None,
) -> Explored:
    """Search the world `asked` until all `wanted` classes are found, all states are visited, or a limit is reached.
    With `wanted` empty, the search ends at a finding of any class, and the result names none.

    `max_seconds`: limit of the time of this call. `max_bytes`: limit of memory. None: no limit. `saved`: file of an
    earlier search, which is continued if the file exists; a search that a limit ended is written there. `watch` gets
    the progress after each slice of at most 8192 states. Raises `BadInput` if the file cannot be read or holds another
    search, or for a class that the world cannot have; OSError if it cannot be written."""
    for name in wanted:
        _check_name("--find", "class", name, asked.classes)
    reductions = asked.scope and asked.scope.reductions.names
    whose = f"{asked.rules} {asked.words} {sorted(wanted)} {reductions} {sources()}"
    search = Search(asked.model, frozenset(wanted))
    if saved is not None and saved.exists():
        try:
            search = load(asked.model, saved, whose)
        except Exception as error:
            raise BadInput(f"{saved}: not a search of this scope: {error}") from error
    progress = search.run(max_seconds=max_seconds, max_bytes=max_bytes, watch=watch)
    if saved is not None and not search.exhausted and not search.satisfied:
        save(search, saved, whose)
    found = []
    for kind in wanted:
        if (finding := search.findings.get(kind)) is not None:
            way = search.way_to(finding.state)
            story = tuple(line.strip() for line in counterexample_lines(finding, way))
            found.append(FoundClass(kind, finding.text, story, tuple(steps_of(way)), tuple(way)))
    return Explored(
        tuple(found),
        tuple(kind for kind in wanted if kind not in search.findings),
        search.exhausted,
        progress.states,
        progress.seconds,
    )


def _switch(name: str, value: str) -> bool:
    if value not in _SWITCHES:
        raise BadInput(f"--scope: {name} is true or false, not '{value[:60]}'")
    return _SWITCHES[value]


@dataclass(frozen=True)
class Protocol:
    """A protocol to explore, other than Kafka's partitions. `counts`: name of a size or incident → its least, greatest
    and default value.

    `make` builds the model from switched-off rules (field name → False) and values of `counts`.
    """

    title: str
    protections: Mapping[str, str]
    """By name of a protection: the field of its rules."""
    counts: Mapping[str, tuple[int, int, int]]
    classes: tuple[str, ...]
    make: Callable[[Mapping[str, bool], Mapping[str, int]], Model]

    def world(self, words: str, taken_away: Sequence[str]) -> World:
        """Return the world for `--scope` words and protections to switch off. A count that `words` does not name has
        its default value. Raises `BadInput` for unknown names, and for numbers out of range."""
        off = {
            self.protections[_check_name("--without", "protection", name, self.protections)]: False
            for name in taken_away
        }
        counts = {name: usual for name, (_, _, usual) in self.counts.items()}
        for name, value in _parse_pairs(words):
            least, most, _ = self.counts[_check_name("--scope", "name", name, self.counts)]
            counts[name] = _parse_whole_number(name, value, least, most)
        said = ",".join(f"{name}={count}" for name, count in counts.items())
        return World(_rules_title(self.title, taken_away), said, self.classes, self.make(off, counts))


def _quorum(off: Mapping[str, bool], counts: Mapping[str, int]) -> Model:
    bounds = QuorumBounds(counts["elections"], counts["crashes"], counts["entries"])
    return quorum(replace(QuorumRules(), **off), bounds, counts["servers"])


def _pacifica(off: Mapping[str, bool], counts: Mapping[str, int]) -> Model:
    bounds = PacificaBounds(counts["suspicions"], counts["entries"])
    return pacifica(replace(PacificaRules(), **off), bounds, counts["replicas"])


def _zookeeper(off: Mapping[str, bool], counts: Mapping[str, int]) -> Model:
    return controllers(
        replace(ZooKeeperRules(), **off), counts["brokers"], counts["expiries"], counts["decisions"]
    )


def _transactions(off: Mapping[str, bool], counts: Mapping[str, int]) -> Model:
    bounds = TransactionBounds(counts["moves"], counts["repeats"])
    return transactions(replace(Rules(), **off), counts["clients"], counts["transactions"], bounds)  # type: ignore[arg-type]


PROTOCOLS: Final[Mapping[str, Protocol]] = {
    "quorum": Protocol(
        "a majority quorum",
        {
            "votes for newer logs": "votes_for_newer_logs",
            "commits of the own epoch": "commits_own_epoch",
            "durable votes": "durable_votes",
            "durable log": "durable_log",
        },
        {"servers": (1, 5, 3), "elections": (0, 9, 2), "crashes": (0, 9, 1), "entries": (0, 4, 1)},
        ("lost", "conflict", "two leaders"),
        _quorum,
    ),
    "pacifica": Protocol(
        "PacificA",
        {"leases": "leases", "version check": "version_check", "reconciliation": "reconciliation"},
        {"replicas": (1, 5, 3), "suspicions": (0, 9, 1), "entries": (0, 4, 1)},
        ("lost", "conflict", "stale read"),
        _pacifica,
    ),
    "zookeeper": Protocol(
        "the race for the controller in ZooKeeper",
        {"epoch check": "epoch_check", "watch before reading": "watch_before_reading"},
        {"brokers": (1, 5, 3), "expiries": (0, 9, 1), "decisions": (0, 9, 2)},
        ("overwritten", "nobody"),
        _zookeeper,
    ),
    "transactions": Protocol(
        "the protocol of transactions",
        {
            "transaction verification": "verify_transactions",
            "epochs of their own": "bump_every_transaction",
            "strict markers": "strict_markers",
            "coordinator epochs": "coordinator_epochs",
        },
        {"clients": (1, 3, 1), "transactions": (1, 3, 2), "moves": (0, 3, 0), "repeats": (0, 3, 1)},
        OF_TRANSACTIONS,
        _transactions,
    ),
}
"""The protocols that can be explored, except Kafka's partitions, by the value of `--of`."""

"""From footers to units of work. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heapreplace
from itertools import chain
from typing import TypeVar

from ackproof.audit.units import BucketUnit, Limits, Split, SplitUnit, Target, Unit, Whole
from ackproof.ledgers.directory import SCHEMAS, Ledger, Part, RowGroup
from ackproof.ledgers.load import Piece, Stream
from ackproof.ledgers.spill import Spilled
from ackproof.rundir.partition import TopicPartition
from ackproof.spark.job import filled

_UNIT_COST_ROWS = 20_000
"""What a unit costs besides its rows, in rows."""
_TOGETHER, _A_CORE, _FEWEST = 3, 4, 10

AnyUnit = TypeVar("AnyUnit", bound=Unit)


@dataclass(frozen=True)
class Plan:
    """How one directory is audited."""

    whole: Whole | None
    """All at once, or:"""
    splits: tuple[SplitUnit, ...]
    """first these,"""
    direct: dict[TopicPartition, tuple[Piece, ...]]
    """then the buckets: these row groups, and what the splits find."""


def plan(ledger: Ledger, target: Target, limits: Limits, doubted: frozenset[str]) -> Plan:
    """`doubted`: paths of files whose statistics are not to be believed."""
    parts = [part if part.path not in doubted else _without_statistics(part) for part in ledger.parts]
    if sum(part.rows for part in parts) <= limits.whole_rows:
        return Plan(Whole(target, tuple(Piece(part, part.groups) for part in parts)), (), {})
    direct: dict[TopicPartition, list[Piece]] = defaultdict(list)
    mixed: list[Piece] = []
    for part in parts:
        pure: dict[TopicPartition, list[RowGroup]] = defaultdict(list)
        rest: list[RowGroup] = []
        for group in part.groups:
            if not group.rows:
                continue
            if group.topic is not None and group.partition is not None and group.spans:
                pure[TopicPartition(group.topic, group.partition)].append(group)
            else:
                rest.append(group)
        for place, groups in pure.items():
            direct[place].append(Piece(part, tuple(groups)))
        mixed += (Piece(part, groups) for groups in filled(rest, limits.split_rows))
    even = chain.from_iterable(
        filled((piece for piece in mixed if piece.part.kind == kind), limits.split_rows) for kind in SCHEMAS
    )
    splits = tuple(SplitUnit(target, pieces, number) for number, pieces in enumerate(even))
    return Plan(None, splits, {place: tuple(pieces) for place, pieces in direct.items()})


def bucket_units(planned: Plan, target: Target, splits: Iterable[Split]) -> list[BucketUnit]:
    """The buckets of a large directory, once its mixed row groups are taken apart."""
    spilled: dict[TopicPartition, list[tuple[Stream, Spilled]]] = defaultdict(list)
    for split in splits:
        for place, stream, where in split.found:
            spilled[place].append((stream, where))
    places = sorted(planned.direct.keys() | spilled.keys())
    return [
        BucketUnit(target, planned.direct.get(place, ()), number, place, tuple(spilled.get(place, ())))
        for number, place in enumerate(places)
    ]


def tasks(units: Sequence[AnyUnit], limits: Limits, cores: int) -> list[list[AnyUnit]]:
    """Units by task, as evenly as they go, the longest first; small ones together, and `fewer` for cores elsewhere."""
    costs = [unit.rows + _UNIT_COST_ROWS for unit in units]
    small = sum(cost for cost in costs if cost < limits.task_rows)
    large = sum(cost >= limits.task_rows for cost in costs)
    count = fewer(large + math.ceil(small / limits.task_rows), cores)
    # The next longest goes to the task with the least until then.
    found: list[list[AnyUnit]] = [[] for _ in range(count)]
    waiting = [(0, number) for number in range(count)]
    for at in sorted(range(len(units)), key=lambda at: -costs[at]):
        held, number = waiting[0]
        found[number].append(units[at])
        heapreplace(waiting, (held + costs[at], number))
    return [found[number] for _, number in sorted(waiting, key=lambda one: (-one[0], one[1]))]


def fewer(count: int, cores: int) -> int:
    """How many tasks are to do what would be `count` for themselves, on so many cores elsewhere; 0: all of them.

    One that takes 0.1 s is handed out for a third of that, and whatever else its worker's machine does falls on it
    whole. So up to three are one, each as many, as long as each core gets four, and there are ten.
    """
    together = min(_TOGETHER, count // max(_FEWEST, _A_CORE * cores)) if cores else 1
    return math.ceil(count / max(1, together))


def _without_statistics(part: Part) -> Part:
    groups = tuple(RowGroup(group.number, group.rows, None, None, None) for group in part.groups)
    return replace(part, groups=groups)

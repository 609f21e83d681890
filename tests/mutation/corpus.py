"""Random ledgers as exams of the audit: in each of its ways, forty of them, against the plain implementation.

Nothing of the audit is imported before an exam needs it: a mutant may have to come first.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, given, settings

if TYPE_CHECKING:
    from ..audit.strategies import Drawn

LEDGERS = ((0, 2), (2, 8), (8, 24), (24, 40))
DRAWN = 1000
"""So many are drawn, of which the richest are asked."""


class RandomLedgers:
    """A folder of them. `make` once; `exams` in each process that asks them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self) -> None:
        """Write them, as files and as what they were drawn as: in a child, for it imports the audit."""
        from ..audit.agreement import write

        drawn, shuffle = _richest(_draw(DRAWN), LEDGERS[-1][1]), random.Random(1)
        self._folder.mkdir()
        for number, one in enumerate(drawn):
            write(self._folder / str(number), one, shuffle)
        (self._folder / "drawn").write_bytes(pickle.dumps(drawn))

    def exams(self) -> list[tuple[str, Callable[[], None]]]:
        """The name of each, and what raises where the audit does not agree."""
        from ..audit.agreement import WAYS

        drawn = pickle.loads((self._folder / "drawn").read_bytes())
        return [
            (f"ledgers {first}-{last} {way}", self._exam(drawn, first, last, way))
            for first, last in LEDGERS
            for way in WAYS
        ]

    def _exam(self, drawn: list[Drawn], first: int, last: int, way: str) -> Callable[[], None]:
        def ask() -> None:
            from ackproof.audit.pipeline import audit_all
            from ackproof.audit.units import Limits

            from ..audit.agreement import WAYS, agree
            from ..audit.local import LocalContext

            paths = [self._folder / str(number) for number in range(first, last)]
            results = audit_all(paths, LocalContext, lambda _: None, Limits(**WAYS[way]))
            for one, path, result in zip(drawn[first:last], paths, results, strict=True):
                agree(one, path, result)

        return ask


def _features(one: Drawn) -> set[tuple[object, ...]]:
    """What there is to find in a ledger, and which roads lead there."""
    from ..audit import reference

    found = reference.audit(one.produced, one.reads, one.open_producers, one.transactions, one.read_committed)
    kind = (bool(one.transactions), any(read.offset > 2**52 for read in one.reads))
    some: set[tuple[object, ...]] = {(name, min(number, 3), *kind) for name, number in found.counts.items()}
    some |= {("unledgered", min(found.unledgered, 2)), ("final read", min(len(found.final_read), 2))}
    some |= {("both acked", min(len(found.both_acked), 2)), ("untold", min(found.untold, 2))}
    some |= {("epochs", *sorted({min(max(read.leader_epoch, -1), 1) for read in one.reads}))}
    return some | {("size", len(one.produced) // 5, len(one.reads) // 10)}


def _richest(drawn: list[Drawn], count: int) -> list[Drawn]:
    """Those that together hold the most, each thing up to six times; what holds most comes first."""
    left = [(one, _features(one)) for one in drawn]
    seen: Counter[tuple[object, ...]] = Counter()
    chosen: list[Drawn] = []
    while len(chosen) < count:
        at = max(range(len(left)), key=lambda at: sum(seen[feature] < 6 for feature in left[at][1]))
        one, held = left.pop(at)
        seen.update(held)
        chosen.append(one)
    return chosen


def _draw(count: int) -> list[Drawn]:
    """Always the same ledgers."""
    from ..audit.strategies import directories

    drawn: list[Drawn] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(directories())
    def each(one: Drawn) -> None:
        drawn.append(one)

    each()
    return drawn

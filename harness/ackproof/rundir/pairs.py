"""`pairs.json`: which pairs of fault kinds a batch had in force together (`storm: {pairs: all}`)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from ackproof.rundir.documents import Document


class PairOutcome(StrEnum):
    """What came of a pair; of two the earlier one counts."""

    COVERED = "covered"
    """Both bit, and were in force at one time, as the timeline says."""
    NOT_BITTEN = "not bitten"
    """A run had it, and one of them did not bite, or was over before the other."""
    NOT_RUN = "not run"
    """No run of these had it."""
    REFUSED = "refused"
    """It cannot be."""


class PairEntry(Document):
    """One pair. `case`: the run that says so; `why`: why it was not covered."""

    kinds: tuple[str, str]
    outcome: PairOutcome
    case: str = ""
    why: str = ""


class PairTable(Document):
    """The pairs of one experiment in one setting of its matrix. `runs`: how many cases it takes to have all pairs."""

    experiment: str
    cell: str
    kafka: str
    runs: int
    pairs: tuple[PairEntry, ...]

    def having(self, outcome: PairOutcome) -> list[PairEntry]:
        """The pairs of which this came."""
        return [pair for pair in self.pairs if pair.outcome is outcome]

    @property
    def by_outcome(self) -> list[tuple[str, list[PairEntry]]]:
        """Each outcome that a pair had, with the pairs of which it came."""
        return [(str(outcome), found) for outcome in PairOutcome if (found := self.having(outcome))]

    @property
    def title(self) -> str:
        """What it is of, in words."""
        return f"{self.experiment} {self.cell}, Kafka {self.kafka}"

    @property
    def tally(self) -> str:
        """How many pairs came to what."""
        counts = ", ".join(f"{len(self.having(outcome))} {outcome}" for outcome in PairOutcome)
        return f"{len(self.pairs)} pairs of fault kinds: {counts}"


class PairsFile(Document):
    """All tables of a batch, or of several."""

    tables: tuple[PairTable, ...] = ()


def merge_pairs(files: Iterable[PairsFile]) -> PairsFile:
    """Return one file in which each pair has the best outcome that any of these gives it."""
    tables: dict[str, PairTable] = {}
    order = list(PairOutcome)
    for table in (table for file in files for table in file.tables):
        best = {pair.kinds: pair for pair in tables[table.title].pairs} if table.title in tables else {}
        for pair in table.pairs:
            known = best.get(pair.kinds)
            if known is None or order.index(pair.outcome) < order.index(known.outcome):
                best[pair.kinds] = pair
        tables[table.title] = table.model_copy(update={"pairs": tuple(best.values())})
    return PairsFile(tables=tuple(tables.values()))

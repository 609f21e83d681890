"""What a batch writes at its top: `batch.json`, and `pairs.json` of storms of pairs (`storm: {pairs: all}`)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from pydantic import Field

from ackproof.rundir.documents import Document, ExpectationJudged, Scalar
from ackproof.rundir.outcome import Verdict


class BatchCase(Document):
    """A case in `batch.json`."""

    case: str
    experiment: str = ""
    """Whose it is, where the batch is of several files: the experiment's name, with its file's if others have it."""
    settings: dict[str, Scalar]
    cell: str = ""
    """The part of the case's name that stands for settings which go together."""
    repeat: int
    verdict: Verdict | None = None
    error: str | None = None
    reasons: tuple[str, ...] = ()
    counts: dict[str, int] = Field(default_factory=dict)
    permitted: str = ""
    """Why what is gone in a PASS is right."""
    expected: tuple[ExpectationJudged, ...] = ()
    starved: tuple[str, ...] = ()
    """Why what takes time in it says nothing of Kafka."""
    timing: str = ""
    """Whose time-outs its brokers had (`Timing.name`); '' in files of older versions."""
    deleted_windows: int = 0
    """Of a soak, windows that were deleted when nothing was found in them."""
    run: str
    order: int = 0
    """Position in the run order of its batch, from 1; 0: unknown."""

    @property
    def cell_name(self) -> str:
        """What all its repeats are called: `acks=all`."""
        return self.case.rpartition("#")[0]

    @property
    def title(self) -> str:
        """What it is called beside the others: `acks=all#1`, and where several files are run `kills: acks=all#1`."""
        return f"{self.experiment}: {self.case}" if self.experiment else self.case


class RepeatValue(Document):
    """What one repeat came to: a number between two. `high` None: open above; `low` None: unknown, and `why` says
    why. `never`: it was watched for, and did not come."""

    case: str
    low: float | None = None
    high: float | None = None
    why: str = ""
    never: bool = False


class OverRepeats(Document):
    """What is expected of a quantity over the repeats of a case, or of one case beside another; and what came of it.

    `cells`: the names of the one or the two, without repeats; `values`: what each of their repeats came to. `repeats`:
    so many of each count, the first ones. `confidence`: of the interval. `verdict` None: not judged yet; `why`: what
    makes it INCONCLUSIVE.
    """

    experiment: str = ""
    quantity: str
    demand: str
    """As the file has it: `p95 < 6s`."""
    unit: str
    """Of the quantity; of the interval too, unless that is a ratio."""
    cells: tuple[str, ...]
    repeats: int
    needed: int = 0
    """So many bound the interval on each side that the demand needs; 0: it is not said."""
    timing: str = ""
    """Whose time-outs it was measured under; '' of what is no time."""
    claim: str = ""
    """The name of the claim that it shows; '' for what the experiment expects."""
    side: str = ""
    """Of that claim: `holds`, `fails` or `measured`."""
    confidence: float = 0.95
    verdict: Verdict | None = None
    why: str = ""
    seen: str = ""
    """The statistic of these repeats, in words, as `interval` is."""
    interval: str = ""
    low: float | None = None
    high: float | None = None
    """The interval, in the unit of the quantity or as a ratio; None: not bounded."""
    enough: int | None = None
    """How many repeats of each case would likely decide it; None: none would, or it is decided."""
    values: tuple[tuple[RepeatValue, ...], ...] = ()

    @property
    def title(self) -> str:
        """`p95 of time_to(first ack, fault 1), acks=all`."""
        whose = f"{self.experiment}: " if self.experiment else ""
        cells = "" if self.cells == ("case",) else f", {' and '.join(self.cells)}"
        return f"{whose}{self.quantity} {self.demand}{cells}"

    @property
    def open(self) -> bool:
        """Whether further repeats could decide it: it is not decided, and no repeat lacks its number."""
        unknown = any(value.low is None for group in self.values for value in group)
        return self.verdict not in (Verdict.PASS, Verdict.FAIL) and not unknown

    @property
    def outcome_text(self) -> str:
        """What came of it, in a sentence."""
        if self.verdict is None:
            return self.why or "not judged"
        sure = f"{self.confidence * 100:.4g} % interval {self.interval}, " if self.interval else ""
        under = f", timing {self.timing}" if self.timing else ""
        seen = f"{self.seen} ({sure}{self.repeats} repeats{under})" if self.seen else ""
        return "; ".join(text for text in (seen, self.why) if text)


class BatchFile(Document):
    """`batch.json`; rewritten after every case. `verdict` is None while a case has none and nothing failed."""

    verdict: Verdict | None
    exit_code: int
    seed: int
    name: str = ""
    command: str = ""
    interrupted: bool = False
    cases: tuple[BatchCase, ...]
    over_repeats: tuple[OverRepeats, ...] = ()
    """What is expected over repeats, and what came of it."""
    claimed: tuple[OverRepeats, ...] = ()
    """The same of what shows claims, or is measured for them: nothing that the batch is judged by."""
    at_most: int | None = None
    """How many repeats of a case there might have been: it was to go on until all of these were decided."""


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

"""Documents of a batch: `batch.json`, and `pairs.json` of storms of pairs (`storm: {pairs: all}`)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from pydantic import Field

from ackproof.rundir.document import Document
from ackproof.rundir.documents import ExpectationJudged, Scalar
from ackproof.rundir.outcome import Verdict


class BatchCase(Document):
    """Result of one case (one repeat of one combination of settings) in `batch.json`.

    `settings`: the values that its matrix chose. `counts`: findings by class, and rows of the ledgers by the names of
    `RecordCounts`; empty before the audit. `verdict`: None if it was not judged. `error`: why the harness could not
    complete the case; None if it could. `run`: folder of the run, relative to the folder of the batch.
    """

    case: str
    experiment: str = ""
    """Name of the case's experiment, followed by the file's name if experiments share the name; '' if the batch has one
    file."""
    settings: dict[str, Scalar]
    cell: str = ""
    """Part of the case's name that stands for a group of settings which vary together; '' without such a
    group.
    """
    repeat: int
    verdict: Verdict | None = None
    error: str | None = None
    reasons: tuple[str, ...] = ()
    counts: dict[str, int] = Field(default_factory=dict)
    permitted: str = ""
    """Why a PASS allows lost, expired, compacted or deleted records (`VerdictFile.permitted`); '' if it has none."""
    expected: tuple[ExpectationJudged, ...] = ()
    starved: tuple[str, ...] = ()
    """Why the times of this case say nothing about Kafka (the machine was starved); empty if they count."""
    timing: str = ""
    """Name of the brokers' timing (`Timing.name`); '' in files of older versions."""
    deleted_windows: int = 0
    """Number of windows that a soak deleted (`--keep`), which had no findings, except of class `surfaced`."""
    run: str
    order: int = 0
    """Position in the run order of its batch, from 1; 0: unknown."""

    @property
    def cell_name(self) -> str:
        """The case's name without the number of the repeat: `acks=all`."""
        return self.case.rpartition("#")[0]

    @property
    def title(self) -> str:
        """The case's name within the batch: `acks=all#1`, and with several files `kills: acks=all#1`."""
        return f"{self.experiment}: {self.case}" if self.experiment else self.case


class RepeatValue(Document):
    """A quantity in one repeat (`case`, such as `acks=all#2`): a number between `low` and `high`, in the unit of its
    `OverRepeats`. `high` None: no upper bound. `low` None: the number is unknown, for the reason in `why`. `never`: the
    event was watched for and did not occur. `starved`: measured on a too busy machine."""

    case: str
    low: float | None = None
    high: float | None = None
    why: str = ""
    never: bool = False
    starved: bool = False


class OverRepeats(Document):
    """A statistic over the repeats of one case or of two compared cases, with the demand on it and the result. An
    experiment expects it, or a claim (a statement about Kafka to be tested) needs it.

    `cells`: names of the one or two cases, without the number of the repeat. `values`: the result of each repeat, per
    cell. `repeats`: the repeats 1 … `repeats` of each cell count; later ones are ignored. `confidence`: confidence of
    the interval, 0 … 1. `seen`, `interval`: the statistic and its confidence interval, in words. `enough`: estimated
    number of repeats of each cell that would decide; None: it is decided, or no number is known to decide. `side`: the
    field of the claim from which the demand comes (`holds`, `fails` or `measured`); '' for an expectation. `verdict`
    None: not judged yet. `why`: the reason for INCONCLUSIVE.
    """

    experiment: str = ""
    quantity: str
    demand: str
    """The demand as written in the experiment file: `p95 < 6s`."""
    unit: str
    """Unit of the quantity, and of the interval unless that is a ratio."""
    cells: tuple[str, ...]
    repeats: int
    needed: int = 0
    """Least number of repeats that bounds the interval on the demanded side; 0: not stated."""
    timing: str = ""
    """Name of the brokers' timing (`Timing.name`) during the measurement; '' for a quantity that is not a
    time.
    """
    claim: str = ""
    """Name of the claim that this measurement tests; '' for an expectation of an experiment."""
    side: str = ""
    confidence: float = 0.95
    verdict: Verdict | None = None
    why: str = ""
    seen: str = ""
    interval: str = ""
    low: float | None = None
    high: float | None = None
    """Bounds of the confidence interval, in the unit of the quantity or as a ratio; None: no bound."""
    enough: int | None = None
    values: tuple[tuple[RepeatValue, ...], ...] = ()

    @property
    def title(self) -> str:
        """The expectation in words: `time_to(first ack, fault 1) p95 < 6s, acks=all`."""
        whose = f"{self.experiment}: " if self.experiment else ""
        cells = "" if self.cells == ("case",) else f", {' and '.join(self.cells)}"
        return f"{whose}{self.quantity} {self.demand}{cells}"

    @property
    def open(self) -> bool:
        """True if more repeats could decide the expectation: it is neither PASS nor FAIL yet, and every repeat has a
        number."""
        unknown = any(value.low is None for group in self.values for value in group)
        return self.verdict not in (Verdict.PASS, Verdict.FAIL) and not unknown

    @property
    def outcome_text(self) -> str:
        if self.verdict is None:
            return self.why or "not judged"
        sure = f"{self.confidence * 100:.4g} % interval {self.interval}, " if self.interval else ""
        under = f", timing {self.timing}" if self.timing else ""
        seen = f"{self.seen} ({sure}{self.repeats} repeats{under})" if self.seen else ""
        return "; ".join(text for text in (seen, self.why) if text)


class BatchFile(Document):
    """`batch.json`: results of a batch, rewritten after every case.

    `verdict`: FAIL as soon as one case or expectation over repeats is FAIL. Otherwise None until all of them have a
    verdict. Always None if the user stopped the batch (`interrupted`). `exit_code`: 255 while `verdict` is None.
    `command`: the command line that repeats the batch. `over_repeats`: expectations over repeats, with their results.
    `claimed`: statistics over repeats that test claims (statements about Kafka, under `claims` in an experiment); they
    do not affect the verdict. `at_most`: greatest number of repeats of a case under `--until-decided`; None: the number
    is fixed.
    """

    verdict: Verdict | None
    exit_code: int
    seed: int
    name: str = ""
    command: str = ""
    interrupted: bool = False
    cases: tuple[BatchCase, ...]
    over_repeats: tuple[OverRepeats, ...] = ()
    claimed: tuple[OverRepeats, ...] = ()
    at_most: int | None = None


class PairOutcome(StrEnum):
    """Result of a pair of fault kinds. If several runs contained the pair, the result that is listed first here
    counts."""

    COVERED = "covered"
    """Both were confirmed and in force at the same time, according to the timeline."""
    NOT_BITTEN = "not bitten"
    """A run had the pair, but one fault was not confirmed, or was over before the other began."""
    NOT_RUN = "not run"
    """No run contained the pair."""
    REFUSED = "refused"
    """The two kinds cannot be combined."""


class PairEntry(Document):
    """Result of one pair of fault kinds. `case`: the case from which the result comes; '' if no case had the pair.
    `why`: why the pair was refused or not bitten; '' for other outcomes."""

    kinds: tuple[str, str]
    outcome: PairOutcome
    case: str = ""
    why: str = ""


class PairTable(Document):
    """Results of all pairs of fault kinds, for one experiment in one cell (combination of settings) of its matrix.
    `kafka`: release and metadata mode. `runs`: number of cases that are needed to run all pairs."""

    experiment: str
    cell: str
    kafka: str
    runs: int
    pairs: tuple[PairEntry, ...]

    def having(self, outcome: PairOutcome) -> list[PairEntry]:
        return [pair for pair in self.pairs if pair.outcome is outcome]

    @property
    def by_outcome(self) -> list[tuple[str, list[PairEntry]]]:
        return [(str(outcome), found) for outcome in PairOutcome if (found := self.having(outcome))]

    @property
    def title(self) -> str:
        return f"{self.experiment} {self.cell}, Kafka {self.kafka}"

    @property
    def tally(self) -> str:
        counts = ", ".join(f"{len(self.having(outcome))} {outcome}" for outcome in PairOutcome)
        return f"{len(self.pairs)} pairs of fault kinds: {counts}"


class PairsFile(Document):
    """`pairs.json`: the pairs of a batch, or of several batches that were merged."""

    tables: tuple[PairTable, ...] = ()


def merge_pairs(files: Iterable[PairsFile]) -> PairsFile:
    """Return one file with the best outcome of each pair among these files: the first in the order of `PairOutcome`.
    Tables of the same experiment, cell and release become one, with the `runs` of the last."""
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

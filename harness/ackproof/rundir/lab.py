"""What `ackproof compare` writes: batches side by side, case by case (`--json`, and what its page is made of)."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

from pydantic import Field

from ackproof.rundir.batch import OverRepeats
from ackproof.rundir.documents import Document


class ComparedSide(Document):
    """A quantity of one case in one batch. `low`, `high`: the interval; None: not bounded, or none (`why`).

    `middle`: of what the statistic was seen to be between; None: that is open.
    """

    repeats: int
    seen: str = ""
    middle: float | None = None
    interval: str = ""
    low: float | None = None
    high: float | None = None
    why: str = ""


class ComparedDifference(Document):
    """A batch beside the first one: how many times as much, of counts how many more.

    `low`, `high`: the interval of this one alone. `sure_low`, `sure_high`: a wider one; all of a comparison hold at
    once with the same confidence. None: not bounded. `apart`: the wider one leaves out that they are alike.
    """

    seen: str = ""
    interval: str = ""
    low: float | None = None
    high: float | None = None
    sure_low: float | None = None
    sure_high: float | None = None
    apart: bool = False


class ComparedQuantity(Document):
    """One quantity of a case: `sides` of each batch, `beyond` of each but the first, None where it cannot be told."""

    quantity: str
    window: str
    unit: str
    sides: tuple[ComparedSide | None, ...]
    beyond: tuple[ComparedDifference | None, ...]
    expected: bool = False
    """An experiment expects something of it."""

    @property
    def differs(self) -> bool:
        """Whether any batch differs from the first for certain."""
        return any(other is not None and other.apart for other in self.beyond)


class ComparedCount(Document):
    """A class of anomalies that the batches did not count alike. `counts`: of each repeat of each batch that was
    counted."""

    anomaly: str
    counts: tuple[tuple[int, ...], ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """What each batch counted: `1,287 in 1 of 3 repeats`."""
        return tuple(self._text(counts) for counts in self.counts)

    @staticmethod
    def _text(counts: tuple[int, ...]) -> str:
        if not counts:
            return "not counted"
        repeats = (
            f" in {sum(map(bool, counts))} of {len(counts)} repeats"
            if len(counts) > 1 and any(counts)
            else ""
        )
        return f"{sum(counts):,}{repeats}"


class ComparedCase(Document):
    """One case. `verdicts`: in words, "" where a batch does not have it. `settings`: those that differ, with the
    value in each batch. `runs`: the folders of its repeats in each batch."""

    case: str
    verdicts: tuple[str, ...]
    verdicts_differ: bool = False
    counts: tuple[ComparedCount, ...] = ()
    """Classes of which the batches counted different numbers, the gravest first."""
    settings: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    quantities: tuple[ComparedQuantity, ...] = ()
    runs: tuple[tuple[str, ...], ...] = ()

    @property
    def differs(self) -> bool:
        """Whether verdicts or counts do."""
        return self.verdicts_differ or bool(self.counts)


class ComparedBatch(Document):
    """One of the batches. `path`, `report`: its folder, and its page."""

    name: str
    directory: str
    verdict: str
    cases: int
    path: str = ""
    report: str = ""


class ComparisonFile(Document):
    """All of it. `environment`: versions and the like that differ. `statistic`, `confidence`: of every interval.
    `broken`: what was forbidden with `--fail-on` and is so, a sentence each; `untold`: of how many it cannot be
    told."""

    batches: tuple[ComparedBatch, ...]
    statistic: str
    confidence: float
    environment: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    cases: tuple[ComparedCase, ...] = ()
    fail_on: str = ""
    broken: tuple[str, ...] = ()
    untold: int = 0
    nothing_in_common: str = ""
    """Why nothing is compared: no other batch has a case of the first."""
    told: int = 0
    """How many were held against `fail_on`, those that cannot be told among them not counted."""


class TrendPoint(Document):
    """A case in one batch. `verdicts` in words, `worst` of them; `lost` of all its repeats, None: not counted.

    `changed`: what differs from the point before it, in words; `apart`: what is so for certain of its numbers.
    """

    batch: str
    wall_ns: int
    version: str
    verdicts: str
    worst: str
    lost: int | None
    recovery: ComparedSide
    throughput: ComparedSide
    changed: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


class TrendCase(Document):
    """One case over time, oldest first."""

    case: str
    points: tuple[TrendPoint, ...]


class TrendFile(Document):
    """All of it. `unread`: folders that hold no batch that can be read, with why."""

    directory: str
    cases: tuple[TrendCase, ...]
    unread: tuple[str, ...] = ()


ClaimSide: TypeAlias = Literal["holds", "fails", "measured"]


class ClaimVerdict(StrEnum):
    """What live brokers answered."""

    CONFIRMED = "CONFIRMED"
    QUALIFIED = "QUALIFIED"
    """It is true under a condition: both sides of that were seen."""
    REFUTED = "REFUTED"
    MEASURED = "MEASURED"
    """It asks how much: the effect, with its interval."""
    INCONCLUSIVE = "INCONCLUSIVE"


class ClaimShowing(Document):
    """One bound of a showing in one run, or over the repeats of cases. `holds` None: it cannot be told, and `why` says
    why not."""

    case: str
    run: str
    """The run's folder, relative to that of `claims.json`; '' for a case that did not run."""
    side: ClaimSide
    quantity: str = ""
    bound: str = ""
    seen: str = ""
    holds: bool | None
    why: str = ""
    over: OverRepeats | None = None
    """What each repeat came to, where it is of repeats; then there is no one run."""


class OpenAttempt(Document):
    """An asking that left a claim open."""

    why: str
    experiment: str
    """Of its batch's folder, relative to that of `claims.json`."""
    seconds: float


class ClaimJudged(Document):
    """One claim, with all that was looked at."""

    claim: str
    says: str
    sources: tuple[str, ...] = ()
    verdict: ClaimVerdict
    why: str
    """The condition that qualifies it, or what is not known; '' where the claim is plainly so, or plainly not."""
    experiment: str
    """Of the batch's folder, relative to that of `claims.json`."""
    seconds: float
    """How long the experiment ran, all its cases, with audit and report."""
    shown: tuple[ClaimShowing, ...]
    """Of this asking; and what an asking before it saw against the claim, which counts along."""
    before: tuple[OpenAttempt, ...] = ()
    """The askings that left it open, the first one first."""

    @property
    def answered(self) -> bool:
        return self.verdict is not ClaimVerdict.INCONCLUSIVE


class ClaimsFile(Document):
    """`claims.json`; rewritten after every experiment."""

    claims: tuple[ClaimJudged, ...] = ()

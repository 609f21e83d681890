"""Documents of the lab commands: `ackproof compare --json`, `ackproof trend`, and `claims.json`."""

from __future__ import annotations

from enum import StrEnum
from itertools import chain, islice, product
from string import ascii_uppercase
from typing import Literal, TypeAlias

from pydantic import Field

from ackproof.rundir.batch import OverRepeats
from ackproof.rundir.document import Document


class ComparedSide(Document):
    """A quantity of one case in one batch, over its repeats. `seen`, `interval`: statistic and confidence interval, in
    words.

    `middle`, `low`, `high`: statistic and interval as numbers. None: unbounded on that side, or unknown for the reason
    in `why`.
    """

    repeats: int
    seen: str = ""
    middle: float | None = None
    interval: str = ""
    low: float | None = None
    high: float | None = None
    why: str = ""


class ComparedDifference(Document):
    """Ratio of a later batch to the first one; for counts the difference. `seen`, `interval`: estimate and confidence
    interval, in words.

    `low`, `high`: the interval of this comparison alone. `sure_low`, `sure_high`: a wider interval; all wider intervals
    of one output hold together with the stated confidence (Bonferroni). None: unbounded. `apart`: the wider interval
    excludes equality.
    """

    seen: str = ""
    interval: str = ""
    low: float | None = None
    high: float | None = None
    sure_low: float | None = None
    sure_high: float | None = None
    apart: bool = False


class ComparedQuantity(Document):
    """One quantity of a case in all compared batches. `window`: the part of the run in which it is measured; '' is the
    whole run. `sides`: its value in each batch; None: the batch does not have the case. `beyond`: its difference from
    the first batch, for each later batch; None: a value of either is missing or unknown, or all are 0."""

    quantity: str
    window: str
    unit: str
    sides: tuple[ComparedSide | None, ...]
    beyond: tuple[ComparedDifference | None, ...]
    expected: bool = False
    """True if an experiment has an expectation on this quantity."""

    @property
    def differs(self) -> bool:
        """True if the wider interval of any later batch excludes equality with the first."""
        return any(other is not None and other.apart for other in self.beyond)


class ComparedCount(Document):
    """A class of anomalies whose counts differ between the batches. `counts`: per batch, one number for each repeat
    that counted the class; empty if no repeat did, or if the batch does not have the case."""

    anomaly: str
    counts: tuple[tuple[int, ...], ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The counts of each batch in words: `1,287 in 1 of 3 repeats`; `not counted` if it has none."""
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
    """One case in all compared batches. `verdicts`: the verdicts in words, per batch; '' if the batch does not have the
    case.

    `settings`: settings that differ, with each batch's value; '' if it has none. `quantities`: quantities that are
    known in a repeat of any batch, whether they differ or not. `runs`: paths of the runs of the repeats in each batch;
    empty if it does not have the case.
    """

    case: str
    verdicts: tuple[str, ...]
    verdicts_differ: bool = False
    counts: tuple[ComparedCount, ...] = ()
    """Classes whose counts differ, the gravest first."""
    settings: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    quantities: tuple[ComparedQuantity, ...] = ()
    runs: tuple[tuple[str, ...], ...] = ()

    @property
    def differs(self) -> bool:
        return self.verdicts_differ or bool(self.counts)


class ComparedBatch(Document):
    """One of the compared batches. `name`: its name, or that of its folder. `directory`: name of its folder. `path`:
    path of its folder. `report`: path of its HTML page. `cases`: number of its cases."""

    name: str
    directory: str
    verdict: str
    cases: int
    path: str = ""
    report: str = ""


class ComparisonFile(Document):
    """Output of `ackproof compare --json`. `environment`: versions and other facts of the machine that differ, by name,
    with each batch's value; '' if it has none.

    `statistic`: what is compared. `confidence`: of each interval alone, and of all wider intervals (`sure_low`,
    `sure_high`) together. `broken`: violations of the limit `--fail-on`, a sentence each. `told`, `untold`: number of
    comparisons in which it is decided whether the limit is kept, and number in which it is not.
    """

    batches: tuple[ComparedBatch, ...]
    statistic: str
    confidence: float
    environment: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    cases: tuple[ComparedCase, ...] = ()
    fail_on: str = ""
    """The limit of `--fail-on`, such as `slower:20%`; '' without one."""
    broken: tuple[str, ...] = ()
    untold: int = 0
    nothing_in_common: str = ""
    """Why nothing is compared: no other batch has a case of the first batch. Empty otherwise."""
    told: int = 0

    @property
    def letters(self) -> list[str]:
        """Names of the batches in tables: A to Z, then AA, AB, …"""
        pairs = map("".join, product(ascii_uppercase, repeat=2))
        return [*islice(chain(ascii_uppercase, pairs), len(self.batches))]


class TrendPoint(Document):
    """One case in one batch, over all repeats. `wall_ns`: start of its first run, ns since the Unix epoch; 0: unknown.
    `version`: Kafka version of that run.

    `verdicts`: the verdicts in words, with their counts. `worst`: the worst verdict as text: `FAIL`, `None` (a repeat
    has no verdict), `INCONCLUSIVE` or `PASS`, in this order. `lost`: number of lost records; None unless all repeats
    counted them. `recovery`: mean over the repeats of the longest gap between acknowledgements, in seconds.
    `throughput`: mean of `rate(produce)`, in records per second. `changed`: differences of the settings from the
    previous point, in words. `apart`: in words, whether recovery or throughput differ from the last known values beyond
    the confidence interval.
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
    """One case over several batches, the oldest first."""

    case: str
    points: tuple[TrendPoint, ...]


class TrendFile(Document):
    """Output of `ackproof trend`: each case over the batches of one folder. `unread`: folders without a readable batch,
    each with the reason."""

    directory: str
    cases: tuple[TrendCase, ...]
    unread: tuple[str, ...] = ()


ClaimSide: TypeAlias = Literal["holds", "fails", "measured"]


class ClaimVerdict(StrEnum):
    """Answer of an experiment on real brokers to a claim about Kafka. The claim is true (CONFIRMED), true under a
    condition (QUALIFIED), untrue (REFUTED), or undecided (INCONCLUSIVE). MEASURED answers a claim that asks for the
    size of an effect."""

    CONFIRMED = "CONFIRMED"
    """The expected observations were made."""
    QUALIFIED = "QUALIFIED"
    """True under a condition: runs with and without it were observed."""
    REFUTED = "REFUTED"
    """The opposite was observed, or none of the expected observations."""
    MEASURED = "MEASURED"
    """The claim asks for a size: the answer is the effect with its interval."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """An observation is missing, or the observations do not answer the claim."""


class ClaimShowing(Document):
    """One bound of a claim, checked in one run or over the repeats of cases. `side`: field of the claim that has the
    bound.

    `holds`: True if the observed value (`seen`) meets the bound; None: undecided, for the reason in `why`. `quantity`,
    `bound` and `seen` are '' for a run that was not judged PASS: no bound was checked.
    """

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
    """The expectation over repeats, if the bound is one; `run` is empty then. None for a bound on a single
    run.
    """


class OpenAttempt(Document):
    """An earlier experiment on a claim that ended INCONCLUSIVE."""

    why: str
    experiment: str
    """Path of its batch, relative to the folder of `claims.json`."""
    seconds: float


class ClaimJudged(Document):
    """The verdict on one claim, with its evidence. `claim`: its name. `says`: the statement about Kafka. `sources`: who
    makes that statement."""

    claim: str
    says: str
    sources: tuple[str, ...] = ()
    verdict: ClaimVerdict
    why: str
    """The condition of the claim, its measured effects, or the first check that did not hold or is unknown; '' if there
    is nothing to add."""
    experiment: str
    """Path of the batch, relative to the folder of `claims.json`."""
    seconds: float
    """Duration of the experiment in seconds, including all cases, audit and report."""
    shown: tuple[ClaimShowing, ...]
    """Checks of this attempt, and from earlier attempts those of the side `holds` that failed: they count too."""
    before: tuple[OpenAttempt, ...] = ()
    """Earlier attempts that left the claim open, the first one first."""

    @property
    def answered(self) -> bool:
        return self.verdict is not ClaimVerdict.INCONCLUSIVE


class ClaimsFile(Document):
    """`claims.json`: verdicts on claims, rewritten after every experiment."""

    claims: tuple[ClaimJudged, ...] = ()

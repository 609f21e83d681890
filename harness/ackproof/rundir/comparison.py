"""What `ackproof compare` writes: batches side by side, case by case (`--json`, and what its page is made of)."""

from __future__ import annotations

from pydantic import Field

from ackproof.rundir.documents import Document


class Side(Document):
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


class Beyond(Document):
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
    sides: tuple[Side | None, ...]
    beyond: tuple[Beyond | None, ...]
    expected: bool = False
    """An experiment expects something of it."""

    @property
    def apart(self) -> bool:
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

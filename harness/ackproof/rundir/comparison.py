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


class ComparedCase(Document):
    """One case. `verdicts`: in words, "" where a batch does not have it. `settings`: those that differ, with the
    value in each batch."""

    case: str
    verdicts: tuple[str, ...]
    settings: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    quantities: tuple[ComparedQuantity, ...] = ()


class ComparedBatch(Document):
    """One of the batches."""

    name: str
    directory: str
    verdict: str
    cases: int


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
    told: int = 0
    """How many were held against `fail_on`, those that cannot be told among them not counted."""

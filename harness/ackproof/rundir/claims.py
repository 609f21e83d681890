"""`claims.json`: what the cases of experiments say to sentences about Kafka."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

from ackproof.rundir.documents import Document, OverRepeats

Side: TypeAlias = Literal["holds", "fails", "measured"]


class ClaimVerdict(StrEnum):
    """What live brokers answered."""

    CONFIRMED = "CONFIRMED"
    QUALIFIED = "QUALIFIED"
    """It is true under a condition: both sides of that were seen."""
    REFUTED = "REFUTED"
    MEASURED = "MEASURED"
    """It asks how much: the effect, with its interval."""
    INCONCLUSIVE = "INCONCLUSIVE"


class Shown(Document):
    """One bound of a showing in one run, or over the repeats of cases. `holds` None: it cannot be told, and `why` says
    why not."""

    case: str
    run: str
    """The run's folder, relative to that of `claims.json`; '' for a case that did not run."""
    side: Side
    quantity: str = ""
    bound: str = ""
    seen: str = ""
    holds: bool | None
    why: str = ""
    over: OverRepeats | None = None
    """What each repeat came to, where it is of repeats; then there is no one run."""


class LeftOpen(Document):
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
    shown: tuple[Shown, ...]
    """Of this asking; and what an asking before it saw against the claim, which counts along."""
    before: tuple[LeftOpen, ...] = ()
    """The askings that left it open, the first one first."""

    @property
    def answered(self) -> bool:
        return self.verdict is not ClaimVerdict.INCONCLUSIVE


class ClaimsFile(Document):
    """`claims.json`; rewritten after every experiment."""

    claims: tuple[ClaimJudged, ...] = ()

"""Opinions → one word with its reasons, in the order of docs/architecture.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ackproof.experiment.backends import BACKENDS
from ackproof.experiment.setting_effects import unjudged
from ackproof.judge.checks import (
    acks,
    counting,
    ending,
    expectations,
    faults,
    final_read,
    left,
    logs,
    nodes,
    replay,
    resets,
    unread,
    windows,
)
from ackproof.judge.checks.classes import judged_classes, opinions_on
from ackproof.judge.coherence import (
    aims,
    clients,
    controllers,
    course,
    departures,
    disks,
    ends,
    ground,
    looks,
    marks,
    processes,
    reader_epochs,
    rounds,
    rows,
    scrapes,
    scripts,
    settings,
    told,
    transactions,
    watching,
)
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, Says, not_judged
from ackproof.judge.starved import calm
from ackproof.rundir.documents import VerdictFile
from ackproof.rundir.outcome import Verdict

OF_THE_MODEL: Final = (
    "Kafka itself: this run was the reference implementation in virtual time, so it judges the model"
)

Check = Callable[[Facts], Iterator[Opinion]]


def _reach(facts: Facts) -> Iterator[Opinion]:
    """What this verdict cannot speak of, whatever the run shows."""
    if BACKENDS[facts.backend].simulated:
        yield not_judged(OF_THE_MODEL)
    yield from map(not_judged, facts.case.assumptions)
    yield from map(not_judged, unjudged(facts.case))
    for reason in facts.prediction.not_predicted:
        yield not_judged(f"predictions: {reason}")


OF_SEALED_RUNS: Final[tuple[Check, ...]] = (
    ground.check,
    aims.check,
    controllers.check,
    departures.check,
    told.check,
    looks.check,
    marks.check,
    reader_epochs.check,
)


def _sealed(facts: Facts) -> Iterator[Opinion]:
    """What is asked of runs that are known to be whole."""
    for check in OF_SEALED_RUNS if facts.sealed else ():
        yield from check(facts)


COHERENCE: Final[tuple[Check, ...]] = (
    course.check,
    scripts.check,
    settings.check,
    processes.check,
    clients.check,
    rows.check,
    ends.check,
    disks.check,
    transactions.check,
    watching.check,
    scrapes.check,
    rounds.check,
    _sealed,
)
"""What is asked first: whether one fact agrees with another …"""
EVIDENCE: Final[tuple[Check, ...]] = (
    _reach,
    ending.check,
    final_read.check,
    faults.check,
    acks.check,
    nodes.check,
    counting.check,
    unread.check,
    resets.check,
    windows.check,
)
"""… then, before the findings are looked at, whether there is enough of them …"""
BEHIND_THEM: Final[tuple[Check, ...]] = (
    logs.check,
    left.check,
    replay.check,
    expectations.check,
    logs.check_presence,
)
"""… and behind them. Reasons are told in this order."""


def judge(facts: Facts) -> VerdictFile:
    """The verdict that the facts carry."""
    classes = tuple(judged_classes(facts))
    opinions = [opinion for check in (*COHERENCE, *EVIDENCE) for opinion in check(facts)]
    opinions += opinions_on(classes)
    opinions += [opinion for check in BEHIND_THEM for opinion in check(facts)]
    verdict, reasons = combined(opinions)
    return VerdictFile(
        verdict=verdict,
        reasons=reasons,
        classes=classes,
        not_judged=_texts(opinions, Says.NOT_JUDGED),
        witnesses=_texts(opinions, Says.AGREES),
        calm=calm(facts),
        expected=tuple(expectations.judged(facts, facts.case, facts.answers)),
    )


def combined(opinions: Sequence[Opinion]) -> tuple[Verdict, tuple[str, ...]]:
    """What all opinions come to.

    Evidence that contradicts itself carries nothing: INCONCLUSIVE. Else what proves itself is FAIL; with both is told
    what evidence lacks beside. Else lacking evidence is INCONCLUSIVE; else what Kafka broke is FAIL; else what stays
    open is INCONCLUSIVE; else PASS.
    """
    contradicting = _texts(opinions, Says.CONTRADICTS)
    proven = tuple(one.text for one in opinions if one.says is Says.BREAKS and one.proven)
    lacks, breaks, still_open = (_texts(opinions, says) for says in (Says.LACKS, Says.BREAKS, Says.OPEN))
    if contradicting:
        verdict, reasons = Verdict.INCONCLUSIVE, (*contradicting, *lacks)
    elif proven:
        verdict, reasons = Verdict.FAIL, (*proven, *lacks)
    elif lacks:
        verdict, reasons = Verdict.INCONCLUSIVE, lacks
    elif breaks:
        verdict, reasons = Verdict.FAIL, breaks
    elif still_open:
        verdict, reasons = Verdict.INCONCLUSIVE, still_open
    else:
        verdict, reasons = Verdict.PASS, ()
    return verdict, tuple(dict.fromkeys(reasons))


def _texts(opinions: Sequence[Opinion], says: Says) -> tuple[str, ...]:
    return tuple(one.text for one in opinions if one.says is says)

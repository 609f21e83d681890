"""Combines all opinions of the checks into the verdict and its reasons, in the order of docs/architecture.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ackproof.experiment.backends import BACKENDS
from ackproof.experiment.setting_effects import unjudged
from ackproof.judge.checks.classes import judged_classes, opinions_on
from ackproof.judge.checks.committed import check_committed_offsets, check_committed_starts
from ackproof.judge.checks.damaged import check_damaged_batches, check_timestamp_types
from ackproof.judge.checks.expectations import check_expectations, judged
from ackproof.judge.checks.final_read import check_read_completeness
from ackproof.judge.checks.groups import check_group_offsets, check_groups
from ackproof.judge.checks.isr import check_acks_in_isr, check_left_replicas
from ackproof.judge.checks.load import check_acks, check_audit
from ackproof.judge.checks.logs import check_logs, check_presence
from ackproof.judge.checks.replay import check_replay
from ackproof.judge.checks.run import check_deaths, check_end, check_faults, check_resets, check_unread_bytes
from ackproof.judge.checks.service import check_service
from ackproof.judge.checks.shares import check_share_groups
from ackproof.judge.checks.windows import check_windows
from ackproof.judge.coherence import clients, faults, groups, logs, nodes, rows, run, samples
from ackproof.judge.facts import Facts
from ackproof.judge.groups import judge_class, opinions_on_groups
from ackproof.judge.opinion import Opinion, not_judged
from ackproof.rundir.anomalies import GROUP_CLASSES
from ackproof.rundir.documents import VerdictFile
from ackproof.rundir.outcome import Says, Verdict

MODEL_ONLY: Final = (
    "Kafka itself: this run was the reference implementation in virtual time, so it judges the model"
)

Check = Callable[[Facts], Iterator[Opinion]]


def check_scope(facts: Facts) -> Iterator[Opinion]:
    """Yield a `not judged` opinion for each subject that a verdict on this case cannot cover, whatever the
    run shows."""
    if BACKENDS[facts.backend].simulated:
        yield not_judged(MODEL_ONLY)
    yield from map(not_judged, facts.case.assumptions)
    yield from map(not_judged, unjudged(facts.case))
    for reason in facts.prediction.not_predicted:
        yield not_judged(f"predictions: {reason}")


COHERENCE: Final[tuple[Check, ...]] = (
    run.check_course,
    faults.check_lives,
    faults.check_scripts,
    run.check_settings,
    nodes.check_processes,
    faults.check_ended_nodes,
    clients.check_clients,
    rows.check_rows,
    samples.check_leader_epochs,
    logs.check_final_read,
    logs.check_disks,
    rows.check_transactions,
    clients.check_watching,
    nodes.check_scrapes,
    nodes.check_rounds,
    groups.check_group_members,
)
"""Checks that run first: do the facts agree with each other?"""
SEALED_COHERENCE: Final[tuple[Check, ...]] = (
    run.check_ground,
    faults.check_targets,
    run.check_metadata_log,
    clients.check_departures,
    samples.check_changes,
    samples.check_looks,
    samples.check_high_watermarks,
    logs.check_reader_epochs,
)
"""Checks for sealed runs only, whose files are known to be complete."""
EVIDENCE: Final[tuple[Check, ...]] = (
    check_scope,
    check_end,
    check_read_completeness,
    check_faults,
    check_acks,
    check_deaths,
    check_audit,
    check_unread_bytes,
    check_resets,
    check_windows,
    check_groups,
)
"""Checks that run before findings are judged: is there enough evidence?"""
AFTER_FINDINGS: Final[tuple[Check, ...]] = (
    check_damaged_batches,
    check_timestamp_types,
    check_logs,
    check_left_replicas,
    check_replay,
    check_expectations,
    check_presence,
    check_service,
    check_share_groups,
)
"""Checks that run after findings are judged. Reasons of one kind stand in the order of the checks."""
SEALED_FINDINGS: Final[tuple[Check, ...]] = (
    check_acks_in_isr,
    check_committed_offsets,
    check_committed_starts,
    check_group_offsets,
)
"""Checks that run last, for sealed runs only."""


def judge(facts: Facts) -> VerdictFile:
    """Run all checks on the facts. Return the verdict with its reasons and opinions. Raises `BadInput`, OSError or
    ArrowException for a broken file."""
    classes = tuple(judged_classes(facts))
    sealed = SEALED_COHERENCE if facts.sealed else ()
    opinions = [*_ask((*COHERENCE, *sealed, *EVIDENCE), facts)]
    of_groups = [
        one for name in GROUP_CLASSES if name in facts.audit.counts for one in judge_class(facts, name)
    ]
    found = (*opinions_on(classes), *opinions_on_groups(of_groups))
    opinions += (opinion.model_copy(update={"check": "classes"}) for opinion in found)
    opinions += _ask((*AFTER_FINDINGS, *(SEALED_FINDINGS if facts.sealed else ())), facts)
    verdict, reasons = combined(opinions)
    return VerdictFile(
        verdict=verdict,
        reasons=reasons,
        classes=classes,
        group_classes=tuple(one for _, one in of_groups),
        not_judged=_texts(opinions, Says.NOT_JUDGED),
        witnesses=_texts(opinions, Says.AGREES),
        calm=facts.calm,
        expected=tuple(judged(facts, facts.case, facts.answers)),
        opinions=tuple(opinions),
    )


def _ask(checks: Sequence[Check], facts: Facts) -> Iterator[Opinion]:
    for check in checks:
        name = check_name(check)
        yield from (opinion.model_copy(update={"check": name}) for opinion in check(facts))


def check_name(check: Check) -> str:
    """Return the name that opinions give for a check: `left replicas` for `check_left_replicas`."""
    return getattr(check, "__name__", "").removeprefix("check_").replace("_", " ")


def combined(opinions: Sequence[Opinion]) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict that follows from opinions, and its reasons (texts of opinions). The first of these rules that
    applies decides:

    Any `contradicts`: INCONCLUSIVE. A `breaks` that is proven: FAIL. Any `lacks`: INCONCLUSIVE. Any `breaks`: FAIL. Any
    `open`: INCONCLUSIVE. Otherwise PASS. The reasons include every `breaks`, with a prefix that says so if it could not
    decide.
    """
    contradicting = _texts(opinions, Says.CONTRADICTS)
    proven = tuple(one.text for one in opinions if one.kind is Says.BREAKS and one.proven)
    lacks, breaks, still_open = (_texts(opinions, says) for says in (Says.LACKS, Says.BREAKS, Says.OPEN))
    undecided = {text: f"forbidden, and not decided for the reasons above: {text}" for text in breaks}
    if contradicting:
        verdict, reasons = Verdict.INCONCLUSIVE, (*contradicting, *lacks, *undecided.values())
    elif proven:
        others = (undecided[text] if lacks else text for text in breaks if text not in proven)
        verdict, reasons = Verdict.FAIL, (*proven, *lacks, *others)
    elif lacks:
        verdict, reasons = Verdict.INCONCLUSIVE, (*lacks, *undecided.values())
    elif breaks:
        verdict, reasons = Verdict.FAIL, breaks
    elif still_open:
        verdict, reasons = Verdict.INCONCLUSIVE, still_open
    else:
        verdict, reasons = Verdict.PASS, ()
    return verdict, tuple(dict.fromkeys(reasons))


def _texts(opinions: Sequence[Opinion], says: Says) -> tuple[str, ...]:
    return tuple(one.text for one in opinions if one.kind is says)

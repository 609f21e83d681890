"""A finished run replayed through the reference core, and the losses that its steps explain.

A function of the run directory alone: it can be repeated on an old run.
"""

from __future__ import annotations

from collections.abc import Iterator

from ackproof.base.errors import BadInput
from ackproof.experiment.case import Case
from ackproof.plan.cases import case_from_json
from ackproof.reference.explain import EXAMPLES, LOSSES, Explanation, explain
from ackproof.reference.replay.metadata import Replay, replay
from ackproof.reference.replay.observed import observe
from ackproof.reference.replay.samples import sampled
from ackproof.rundir.conformance import ClassExplained, ConformanceFile, ForbiddenStep
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.layout import CaseDir


def replay_run(run: CaseDir) -> ConformanceFile:
    """Replay an audited run and write `conformance.json`; of a run that cannot be replayed it says why.

    Raises `BadInput` without a readable `case.json`.
    """
    case = case_from_json(CaseFile.load(run.case_json).resolved)
    try:
        told = conform(run, case)
    except BadInput as error:
        told = ConformanceFile(not_replayed=(f"the run cannot be replayed: {error}",))
    told.save(run.conformance_json)
    return told


def conform(run: CaseDir, case: Case) -> ConformanceFile:
    """Replay an audited run and say what it explains. Raises `BadInput` for files that are broken."""
    observed = observe(run, case)
    found = replay(observed)
    told = explain(observed, found.lives)
    samples, by_samples = sampled(observed, found)
    forbidden = sorted([*found.forbidden, *by_samples, *told.forbidden], key=_when)
    return ConformanceFile(
        replayed=found.replayed + samples + told.replayed,
        steps=dict(sorted(found.steps.items())),
        forbidden=forbidden[0] if forbidden else None,
        forbidden_steps=len(forbidden),
        more_forbidden=tuple(forbidden[1 : EXAMPLES + 1]),
        truncations=tuple(told.truncations),
        deletions=tuple(told.deletions),
        classes=tuple(_classes(told)),
        must_be_gone=told.must_be_gone,
        either_way=told.either_way,
        present=told.present,
        unexplained=tuple(told.examples),
        intervals=tuple(told.intervals),
        elections=tuple(found.elections),
        not_replayed=(*observed.lacks, *told.reasons, *_missed(found)),
    )


def _when(step: ForbiddenStep) -> tuple[bool, int, int]:
    """By time; what has none comes last."""
    return step.t_ns < 0, step.t_ns, step.offset


def _missed(found: Replay) -> Iterator[str]:
    if found.missed:
        yield f"{found.missed} changes of partitions: the observation jumped over them"


def _classes(told: Explanation) -> Iterator[ClassExplained]:
    for anomaly in LOSSES:
        yield ClassExplained(
            anomaly=anomaly,
            count=told.count[anomaly],
            explained=told.explained[anomaly],
            by_interval=told.by_interval[anomaly],
            unexplained=told.unexplained[anomaly],
            not_replayed=told.not_replayed[anomaly],
            deleted=told.deleted[anomaly],
        )

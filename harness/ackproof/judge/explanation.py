"""Losses and their explanation (DESIGN §1.4, §3.5): a loss that no step explains is Kafka's fault under any settings.

The explanation is the replay of the observed run through the reference implementation, `conformance.json`. So is a
step that its protocol forbids, whatever came of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ackproof.base.errors import BadInput
from ackproof.experiment.case import Case
from ackproof.reference.replay import conform
from ackproof.rundir.conformance import ClassExplained, ConformanceFile
from ackproof.rundir.documents import AuditFile
from ackproof.rundir.layout import CaseDir

_LOSSES = ("lost", "displaced")


@dataclass
class Explanation:
    """What the replay says. `breaks` are Kafka's, `not_judged` what it could not look at, `agree` is good.

    `doubts`: replay and final read cannot both be right, so that neither is relied upon.
    """

    breaks: list[str] = field(default_factory=list)
    not_judged: list[str] = field(default_factory=list)
    agree: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def explanation(run: CaseDir, case: Case, audit: AuditFile) -> Explanation:
    """Replay the run, write `conformance.json`, and say what it explains of what was lost."""
    said = Explanation()
    try:
        replay = conform(run, case)
    except BadInput as error:
        said.not_judged.append(f"explanations: the run cannot be replayed: {error}")
        return said
    replay.save(run.conformance_json)
    said.not_judged += [f"explanations: {reason}" for reason in replay.not_replayed]
    if replay.forbidden is not None:
        step = replay.forbidden
        more = f" (the first of {replay.forbidden_steps} such steps)" if replay.forbidden_steps > 1 else ""
        said.breaks.append(f"a step that the protocol forbids: {step.rule}: {step.text}; {step.source}{more}")
    elif replay.replayed:
        said.agree.append(f"{replay.replayed} observed steps were replayed; the protocol allows each")
    if replay.present:
        said.doubts.append(
            f"{replay.present} acknowledged records must be gone, as the replay says, and are there"
            f"{_example(replay, 'present')}"
        )
    for found in replay.classes:
        if found.anomaly in _LOSSES and found.count:
            _of_a_class(found, case, replay, said)
    if audit.counts.get("lost", 0) and not any(
        found.anomaly == "lost" and found.count for found in replay.classes
    ):
        said.not_judged.append("explanations: the replay says nothing of what was lost")
    return said


def _of_a_class(found: ClassExplained, case: Case, replay: ConformanceFile, said: Explanation) -> None:
    if found.unexplained:
        said.breaks.append(
            f"{found.anomaly}: {found.unexplained} of {found.count} are explained by no observed step"
            f"{_example(replay, found.anomaly)}"
        )
    if found.not_replayed:
        said.not_judged.append(
            f"explanations: {found.not_replayed} of {found.count} {found.anomaly} are on partitions that were not "
            "replayed"
        )
    if found.by_interval and case.experiment.workload.producers.acks == "all":
        said.not_judged.append(
            f"explanations: {found.by_interval} of {found.count} {found.anomaly} have no acknowledged offset to be "
            "traced by"
        )
    if found.explained == found.count:
        with_it = ""
        if found.deleted:
            by = (
                ", ".join(dict.fromkeys(one.by for one in replay.deletions if one.by))
                or "nobody who is known"
            )
            with_it = f"; {found.deleted} of them went with a topic that was deleted by {by}"
        said.agree.append(
            f"{found.anomaly}: all {found.count} are traced to the step that took them{with_it}"
        )


def _example(replay: ConformanceFile, anomaly: str) -> str:
    for one in replay.unexplained:
        if one.anomaly == anomaly:
            return f", such as {one.topic}/{one.partition} offset {one.offset}: {one.why}"
    return ""

"""Checks of the replay: steps that the protocol forbids, and losses that no observed step explains.

A loss that no step explains is Kafka's fault under any settings, and so is a step that the protocol forbids. The replay
of the observed run through the reference implementation is in `conformance.json`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, agrees, breaks, lacks, not_judged
from ackproof.rundir.anomalies import TRACED, Anomaly
from ackproof.rundir.model import ClassExplained, ConformanceFile


def check_replay(facts: Facts) -> Iterator[Opinion]:
    """Yield opinions on the replay of the run: its observed steps, applied one by one to the reference implementation
    of Kafka's protocol (`conformance.json`).

    Yields `breaks` (a promise is broken) for a step that the protocol forbids, and for losses that no observed step
    explains. Yields `lacks` (evidence is missing) if the final read has acknowledged records that must be gone
    according to the replay. Yields `not judged` for what was not replayed or cannot be traced, and `agrees` for allowed
    steps and explained losses.
    """
    replay = facts.replay
    for reason in replay.not_replayed:
        yield _not_judged(reason)
    if replay.forbidden is not None:
        step = replay.forbidden
        more = f" (one of {replay.forbidden_steps} such steps)" if replay.forbidden_steps > 1 else ""
        # A log that lacks records leaves the state before a step open, and another program may have changed the file.
        certain = facts.sealed and not replay.not_replayed
        proofs = [one for one in (step, *replay.more_forbidden) if one.certain and certain]
        first = proofs[0] if proofs else step
        text = f"a step that the protocol forbids: {first.rule}: {first.text}; {first.source}{more}"
        yield breaks(text, proven=bool(proofs))
    elif replay.replayed:
        yield agrees(f"{replay.replayed} observed steps were replayed; the protocol allows each")
    if replay.present:
        # Replay and final read cannot both be right, so that neither is relied upon.
        gone = f"{replay.present} acknowledged records must be gone, as the replay says, and are there"
        yield lacks(gone + _example(replay, "present"))
    told = [found for found in replay.classes if found.anomaly in TRACED and found.count]
    for found in told:
        yield from _of_a_class(facts, found)
    if facts.audit.counts.get(Anomaly.LOST, 0) and not any(found.anomaly == Anomaly.LOST for found in told):
        yield _not_judged("the replay says nothing of what was lost")


def _of_a_class(facts: Facts, found: ClassExplained) -> Iterator[Opinion]:
    replay, name = facts.replay, found.anomaly
    if found.unexplained:
        yield breaks(
            f"{name}: {found.unexplained} of {found.count} are explained by no observed step{_example(replay, name)}"
        )
    if found.not_replayed:
        yield _not_judged(
            f"{found.not_replayed} of {found.count} {name} are on partitions that were not replayed, or whose files on "
            "disk a fault damaged"
        )
    if found.by_interval and facts.case.experiment.workload.producers.acks == "all":
        yield _not_judged(
            f"{found.by_interval} of {found.count} {name} have no acknowledged offset to be traced by"
        )
    if found.explained == found.count:
        with_it = ""
        if found.deleted:
            known = ", ".join(dict.fromkeys(one.by for one in replay.deletions if one.by))
            by = known or "nobody who is known"
            with_it = f"; {found.deleted} of them went with a topic that was deleted by {by}"
        yield agrees(f"{name}: all {found.count} are traced to the step that took them{with_it}")


def _not_judged(text: str) -> Opinion:
    return not_judged(f"explanations: {text}")


def _example(replay: ConformanceFile, anomaly: str) -> str:
    for one in replay.unexplained:
        if one.anomaly == anomaly:
            return f", such as {one.topic}/{one.partition} offset {one.offset}: {one.why}"
    return ""

"""Checks of a service under test: did it copy each input record as it promises, and what stays unknown because it
prints too few kinds of events (`level`)?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from ackproof.clients.command.fields import Position
from ackproof.experiment.group import ServiceSpec
from ackproof.experiment.promises import Promises
from ackproof.faults.clients.client import KillClient
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, agrees, breaks, lacks, not_judged, stays_open
from ackproof.judge.service import (
    ServiceCounts,
    ServiceEvents,
    count_copies,
    read_events,
    regressed,
    unwritten,
)
from ackproof.rundir.anomalies import MISSING, PREDICTED_WITH, Anomaly
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.service import ServiceFile

_lacks, _breaks, _stays_open, _not_judged, _agrees = (
    partial(says, subject="service") for says in (lacks, breaks, stays_open, not_judged, agrees)
)
_SAMPLES: Final = 3
_UNTOLD: Final = {
    0: "which records it was handed and processed: it tells nothing (level 0)",
    1: "its own commits and who owned a partition: it tells deliveries alone (level 1)",
    2: "its sends: it does not tell them (level 2)",
}
"""Words for what is not judged of a service, by the level that its events reached (docs/clients.md). The words of all
higher levels hold as well."""


def check_service(facts: Facts) -> Iterator[Opinion]:
    """Yield opinions on a service under test: a user's program that copies each record of an input topic to an output
    topic. Its `promise` is at least once, at most once or exactly once.

    Yields `breaks` (the promise is broken) if the service dropped or doubled input records against its promise. Yields
    `breaks`, too, if a record that the service reported as acknowledged is beyond the end of the output. If its acks or
    the topic's settings permit that, the opinion is `open`. Yields `lacks` (evidence is missing) for an instance that
    died, printed wrong or too few events (docs/clients.md) or did not catch up. Yields `lacks`, too, for an output that
    cannot be read or has records that are not in the input. The same holds for commits that could not be read.

    Yields `open` (undecided) for missing records that the input or the settings may explain, and for a committed offset
    that went back. Yields `not judged` for what its promise allows, and for what its level (the events that it prints)
    does not show. If the output could be read, `agrees` comes last, with the number of copied records.

    Nothing is yielded without a service. Raises `BadInput` for a damaged `service.json`.
    """
    spec, path = facts.case.experiment.workload.service, facts.run.service
    file = ServiceFile.load(path) if path.exists() else None
    if spec is None:
        return
    if file is None:
        yield _lacks("the run has no file of what became of the service")
        return
    places = [
        TopicPartition(spec.input, number)
        for number in range(facts.case.experiment.topics[spec.input].partitions)
    ]
    try:
        counts = count_copies(facts.run, file, places)
        told = read_events(facts.run, file, spec.level)
        gone = [] if file.problem else unwritten(file, told)
    except (OSError, pa.ArrowException) as error:
        yield _lacks(f"service: its output cannot be read: {error}")
        return
    for level in range(told.level, 3):
        yield _not_judged(f"service: {_UNTOLD[level]}")
    yield _not_judged("service: whether two instances owned one partition at a time")
    kills = any(
        isinstance(fault, KillClient) and fault.client.kind == "service" for fault in facts.case.faults
    )
    yield from _evidence(spec, file, counts, told, kills=kills)
    if spec.level >= 2 and not file.committed.reason:
        for place, now, offset in regressed(file, told):
            has = "no offset" if now < 0 else f"offset {now}"
            text = f"service: group {spec.group} has {has} of {place}, and its newest granted commit was {offset}"
            yield _stays_open(text, numbers={"committed": now, "granted": offset})
    yield from _dropped(facts, spec, file, counts, told)
    yield from _doubled(spec, counts, told)
    if gone:
        yield _unwritten(facts, spec, gone, told)
    text = f"service at level {told.level}: {counts.copied:,} of {counts.records:,} input records are in its output"
    again = sum(number > 1 for number in told.delivered.values())
    yield _agrees(
        f"{text}; {again:,} were delivered more than once" if told.level else text,
        numbers={
            "level": told.level,
            "copied": counts.copied,
            "records": counts.records,
            **({"redelivered": again} if told.level else {}),
        },
    )


def _evidence(
    spec: ServiceSpec, file: ServiceFile, counts: ServiceCounts, told: ServiceEvents, *, kills: bool
) -> Iterator[Opinion]:
    for one in file.instances:
        words = f": {one.last_words.splitlines()[-1]}" if one.last_words else ""
        if one.killed:
            if not kills:
                yield _lacks(f"service {one.id} was killed, and no fault of the case kills a service")
        elif not one.asked:
            yield _lacks(f"service {one.id} ended by itself ({one.status}){words}")
        elif spec.level and one.status:
            yield _lacks(f"service {one.id} was asked to stop and ended with {one.status}{words}")
    for name, breach in told.breaches:
        yield _lacks(f"service {name} breaks the contract of docs/clients.md: {breach}")
    if told.missing:
        names = ", ".join(told.missing)
        yield _lacks(f"service: it never told {names}, and level {spec.level} needs them")
    if file.problem:
        yield _lacks(f"service: its output is not complete: {file.problem}")
    if file.committed.reason:
        yield _lacks(f"service: no commits of {spec.group}: {file.committed.reason}")
    if counts.pending:
        what = (
            f"group {spec.group} committed nothing" if counts.uncommitted else "they are not committed past"
        )
        yield _lacks(
            f"service: it did not finish: {len(counts.pending):,} input records are not in its output, and {what}: "
            f"{describe_positions(counts.pending)}",
            numbers={"pending": len(counts.pending)},
        )
    if counts.foreign:
        yield _lacks(
            f"service: {counts.foreign:,} records of its output have no identity of an input record; is "
            f"identity: {spec.identity} right?",
            numbers={"foreign": counts.foreign},
        )


def _dropped(
    facts: Facts, spec: ServiceSpec, file: ServiceFile, counts: ServiceCounts, told: ServiceEvents
) -> Iterator[Opinion]:
    if not counts.dropped or file.problem:
        return
    text = (
        f"service: {len(counts.dropped):,} of {counts.records:,} input records are not in its output, and group "
        f"{spec.group} committed past them: {describe_positions(counts.dropped)}{_describe_dropped(counts, told)}"
    )
    numbers = {"dropped": len(counts.dropped)}
    if spec.promise == "at-most-once":
        yield _not_judged(f"{text}. Allowed: it promises at most once", numbers=numbers)
    elif why := why_unread(facts, spec.input):
        yield _stays_open(f"{text}. Neither forbidden nor allowed: {why}", numbers=numbers)
    else:
        yield _breaks(f"{text}. Forbidden: it promises {spec.promise}", numbers=numbers)


def _describe_dropped(counts: ServiceCounts, told: ServiceEvents) -> str:
    """Return, as the end of a sentence, how far the dropped records got according to the service's events,
    such as `3 never delivered`; '' at level 0."""
    if not told.level:
        return ""
    numbers = {
        "never delivered": sum(one not in told.delivered for one in counts.dropped),
        "delivered and never processed": sum(
            one in told.delivered and one not in told.processed for one in counts.dropped
        ),
        "told as processed": sum(one in told.processed for one in counts.dropped),
    }
    if told.level >= 3:
        numbers["never sent"] = sum(one not in told.attempts for one in counts.dropped)
        numbers["sent with an error that was swallowed"] = sum(
            one in told.failed and one not in told.acked_of for one in counts.dropped
        )
    return " (" + ", ".join(f"{number:,} {words}" for words, number in numbers.items() if number) + ")"


def why_unread(facts: Facts, topic: str) -> str:
    """Return a reason why records of this topic may have been lost after a reader got them; '' if there is none.
    Reasons are the settings, the model's prediction and the audit's counts. Other records may have taken the offsets of
    lost ones, and a reader that had passed these offsets never gets them."""
    promises = Promises.from_experiment(facts.case.planned, topic)
    if promises.unclean_election or promises.dropped:
        return "the input topic may have lost records after they were read"
    loss = facts.prediction.find_class(Anomaly.LOST, topic)
    if promises.acks == "all" and loss is not None and loss.chance is Chance.POSSIBLE:
        return "under these faults Kafka may lose acknowledged records"
    losses = (*MISSING, *PREDICTED_WITH.values(), Anomaly.DELETED)
    if removed := [name for name in losses if facts.audit.counts.get(name)]:
        return f"the input topic itself shows {', '.join(removed)}"
    return ""


def _doubled(spec: ServiceSpec, counts: ServiceCounts, told: ServiceEvents) -> Iterator[Opinion]:
    if not counts.doubled:
        return
    count = len(counts.doubled)
    text = f"service: {count:,} input records are more than once in its output: {describe_positions(counts.doubled)}"
    if told.level:
        again = sum(told.delivered[one] > 1 for one in counts.doubled)
        text += f" ({again:,} were delivered more than once, {count - again:,} once)"
    numbers = {"doubled": count}
    if spec.promise == "at-least-once":
        yield _not_judged(f"{text}. Allowed: it promises at least once", numbers=numbers)
    else:
        yield _breaks(f"{text}. Forbidden: it promises {spec.promise}", numbers=numbers)


def _unwritten(facts: Facts, spec: ServiceSpec, gone: Sequence[Position], told: ServiceEvents) -> Opinion:
    where = describe_positions(gone)
    text = f"service: {len(gone):,} records of its output were acknowledged and are beyond its end: {where}"
    numbers = {"unwritten": len(gone)}
    promises = Promises.from_experiment(facts.case.planned, spec.input)  # the output has the input's settings
    if told.reliable and promises.min_insync >= 2 and not promises.unclean_election:
        return _breaks(f"{text}. Forbidden: it told acks=all", numbers=numbers)
    return _stays_open(f"{text}. Its acks or the topic's settings permit it", numbers=numbers)


def describe_positions(found: Sequence[Position]) -> str:
    """Return the first three positions as text: `orders/0 at 13, orders/1 at 110`. A final `…` stands for more."""
    named = [f"{place} at {offset}" for place, offset in found[:_SAMPLES]]
    return ", ".join([*named, *(["…"] if len(found) > _SAMPLES else [])])

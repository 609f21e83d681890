"""Checks of share groups: was each record delivered, and none after it was accepted?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackproof.clients.command.fields import Position
from ackproof.experiment.group import ShareGroupSpec
from ackproof.experiment.promises import Promises
from ackproof.judge.checks.groups import opinions_on_members
from ackproof.judge.checks.service import describe_positions
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, agrees, breaks, lacks, not_judged, stays_open
from ackproof.judge.shares import ShareCounts, count_shares
from ackproof.rundir import storage
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.ledger import FinalRows, parts
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.shares import SHARES, ShareGroupEnd, SharesFile

_PROMISE: Final = (
    "KIP-932 delivers each record until it is accepted, rejected or at its limit, and none after that"
)
_STATE: Final = ("share.coordinator.state.topic.replication.factor", "share.coordinator.state.topic.min.isr")


def check_share_groups(facts: Facts) -> Iterator[Opinion]:
    """Yield a `breaks` opinion (a promise is broken) if records were delivered to nobody, or were neither finished nor
    given up. Yield one, too, if records were delivered again after an acknowledged accept. Yield `open` instead where
    the settings or the input may explain that. A killed member, or a group that was not at rest, may explain all but a
    second delivery. Yield `open`, too, for records that the dead-letter topic lacks.

    Yields `lacks` if a member died or did not close its ledger, or if a group was not at rest. Yields it, too, if a
    file is missing or cannot be read. Yields `not judged` with the number of records that were given up. For each group
    whose ledger could be read, `agrees` comes last. Nothing is yielded without share groups. Raises `BadInput` for a
    damaged `shares.json`.
    """
    specs = facts.case.experiment.workload.share_groups
    if not specs:
        return
    if not facts.run.shares.exists():
        yield lacks("the run has no file of what became of its share groups: observed/shares.json")
        return
    file = SharesFile.load(facts.run.shares)
    yield from opinions_on_members(file.members, facts.run.shares_ledger)
    ends = {end.group: end for end in file.groups}
    for name, spec in specs.items():
        if name not in ends:
            yield lacks(f"share group {name}: the run does not say what became of it", subject=name)
            continue
        try:
            of_group = pc.field("group") == name
            rows = storage.read_rows(parts(facts.run.shares_ledger), SHARES.names, of_group, SHARES)
            counts = count_shares(rows, _there(facts, name), spec.delivery_limit)
        except (OSError, pa.ArrowException) as error:
            yield lacks(f"share group {name}: its ledger cannot be read: {error}", subject=name)
            continue
        killed = any(one.killed and one.group == name for one in file.members)
        yield from _judge(facts, name, spec, ends[name], counts, killed=killed)


def _there(facts: Facts, group: str) -> list[tuple[TopicPartition, np.ndarray]]:
    """Return (partition, offsets) of the intact records of the group's input in the final read. Raises OSError or
    ArrowException if the ledger cannot be read.

    With transactions these are the committed ones: members run at read_committed.
    """
    experiment, rows = facts.case.experiment, FinalRows(facts.run)
    transactional = experiment.workload.producers.transaction_size is not None
    phase = ReadPhase.FINAL_COMMITTED if transactional else ReadPhase.FINAL
    found = []
    for topic in experiment.input_of(group):
        for number in range(experiment.topics[topic].partitions):
            table = rows.read_partition(TopicPartition(topic, number), phase)
            intact = table["intact"].to_numpy() & (table["producer"].to_numpy() >= 0)
            found.append((TopicPartition(topic, number), np.unique(table["offset"].to_numpy()[intact])))
    return found


def _judge(
    facts: Facts, name: str, spec: ShareGroupSpec, end: ShareGroupEnd, counts: ShareCounts, *, killed: bool
) -> Iterator[Opinion]:
    who = f"share group {name}"
    why = _why_input(facts, name) or _why_state(facts)
    if not end.rested:
        yield lacks(f"{who}: it was not at rest after {end.waited_s:g} s", subject=name)
    limit = spec.delivery_limit
    for kind, words in (
        ("undelivered", "were delivered to nobody"),
        (
            "vanished",
            f"were neither accepted, rejected, nor delivered {limit} times, and are not delivered again",
        ),
        ("redelivered", "were delivered again after a broker had acknowledged their accept"),
    ):
        found: tuple[Position, ...] = getattr(counts, kind)
        proven = kind == "redelivered"
        open_ = why or (
            "" if proven or not killed else "A killed member may not have written down a delivery"
        )
        text = f"{who}: {len(found):,} records {words}: {describe_positions(found)}"
        numbers = {kind: len(found)}
        if found and (open_ or not (end.rested or proven)):
            yield stays_open(f"{text}. {open_ or 'It was not at rest'}", subject=name, numbers=numbers)
        elif found:
            yield breaks(f"{text}. Forbidden: {_PROMISE}", proven=proven, subject=name, numbers=numbers)
    if given_up := counts.rejected + counts.limited:
        how = f"{counts.rejected:,} rejected, {counts.limited:,} at the limit"
        text = f"{who}: {given_up:,} records were given up: {how}"
        dead = f"; its dead-letter topic has {end.dead_letters:,} records" if end.dead_letters >= 0 else ""
        numbers = {"rejected": counts.rejected, "limited": counts.limited, "dead letters": end.dead_letters}
        yield not_judged(f"{text} of {limit} deliveries{dead}", subject=name, numbers=numbers)
        if spec.dead_letters is not None and 0 <= end.dead_letters < given_up:
            yield stays_open(f"{who}: {given_up - end.dead_letters:,} of these are not there", subject=name)
    numbers = {"accepted": counts.accepted, "records": counts.records, "deliveries": counts.deliveries}
    yield agrees(
        f"{who}: {counts.accepted:,} of {counts.records:,} records were accepted, in {counts.deliveries:,} deliveries "
        f"({counts.renewed:,} renewed, {counts.refused:,} acknowledgements refused)",
        subject=name,
        numbers=numbers,
    )


def _why_input(facts: Facts, group: str) -> str:
    """Return why a topic of the group may have lost records after the group got them; '' if neither the settings nor
    the model's prediction suggest it. The final read may then have other records at their offsets."""
    for topic in facts.case.experiment.input_of(group):
        promises = Promises.from_experiment(facts.case.planned, topic)
        if promises.unclean_election or promises.dropped:
            return f"{topic} may have lost records after the group read them"
        loss = facts.prediction.find_class(Anomaly.VANISHED, topic)
        if loss is not None and loss.chance is Chance.POSSIBLE:
            return f"{topic}: records that a reader was handed may vanish"
    return ""


def _why_state(facts: Facts) -> str:
    """Return why brokers may forget which records the group has finished; '' if they may not."""
    cluster = facts.case.experiment.cluster
    if facts.case.faults and (cluster.brokers < 2 or any(cluster.config.get(name) == "1" for name in _STATE)):
        return "The topic __share_group_state has one replica, or may commit with one"
    return ""

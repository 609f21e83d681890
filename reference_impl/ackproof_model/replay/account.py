"""Results of a replay while it runs: the contents of `conformance.json`, and the rules that forbidden changes break."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ackproof.rundir.anomalies import REPLAYED
from ackproof.rundir.model import (
    ClassExplained,
    ConformanceFile,
    Deletion,
    ElectionSeen,
    ForbiddenStep,
    Truncation,
    UnexplainedRecord,
    UnplacedLoss,
)
from ackproof.rundir.partition import TopicPartition
from ackproof_model.replay.observed import Life
from ackproof_reference.explore.story import listed
from ackproof_reference.metadata import NO_LEADER, Metadata, Partition


class BrokenRule(NamedTuple):
    """A rule of Kafka that an observed change breaks. `source`: where Kafka states it. `text`: the observation.

    `certain`: True if the record of the change and the state before it prove it, even if the reference implementation
    is incomplete.
    """

    rule: str
    source: str
    text: str
    certain: bool = False


def find_broken_rule(before: Metadata, after: Partition, unclean: bool, named: int) -> BrokenRule:
    """Return the rule that an observed change of a partition breaks; if several, the one that explains it
    best.

    Call it only for a change that no step of the reference explains. `before`: the state before the change;
    `after`: the observed one. `unclean`: True if unclean elections are allowed. `named`: the leader that the
    reference elects.
    """
    old = before.partition
    active = {entry.broker for entry in before.brokers if not entry.fenced and not entry.stopping}
    return next(_find_broken_rules(old, after, active, unclean, named))


def _find_broken_rules(
    old: Partition, after: Partition, active: set[int], unclean: bool, named: int
) -> Iterator[BrokenRule]:
    if after.epoch != old.epoch + 1:
        yield BrokenRule(
            "partition epoch",
            "KIP-497; org.apache.kafka.metadata.PartitionRegistration.merge",
            f"the partition epoch went from {old.epoch} to {after.epoch}: each change takes the next one",
        )
    if after.leader not in {old.leader, NO_LEADER}:
        yield from _election_rules(old, after, active, unclean)
    must = after.leader != old.leader
    if after.leader_epoch != old.leader_epoch + 1 and (must or after.leader_epoch != old.leader_epoch):
        yield BrokenRule(
            "leader epoch",
            "KIP-101; org.apache.kafka.metadata.PartitionRegistration.merge",
            f"the leader epoch went from {old.leader_epoch} to {after.leader_epoch}"
            + (" with another leader" if must else " with the same leader"),
        )
    yield from _isr_rules(old, after, active)
    if must and after.leader != named:
        yield BrokenRule(
            "another leader than the reference names",
            "KIP-966; PartitionChangeBuilder.electLeader",
            f"{_who(after.leader)} was elected where the reference names {_who(named)}",
        )
    yield BrokenRule(
        "no such step",
        "PartitionChangeBuilder; ReplicationControlManager",
        f"no step of the protocol leads from {plain(old)} to {plain(after)}",
    )


def _election_rules(
    old: Partition, after: Partition, active: set[int], unclean: bool
) -> Iterator[BrokenRule]:
    electable = old.isr or old.elr
    who = after.leader
    if who not in old.replicas and who not in after.replicas:
        yield BrokenRule(
            "election of a stranger",
            "PartitionChangeBuilder.electAnyLeader",
            f"broker {who} has no replica and was elected",
            certain=True,
        )
    if who not in electable and not unclean and who != old.last_known_leader:
        yield BrokenRule(
            "election out of the ISR",
            "KIP-106, KIP-966; PartitionChangeBuilder.electAnyLeader",
            f"broker {who} was elected, and ISR {listed(old.isr)} and ELR {listed(old.elr)} have it not; "
            "unclean elections are off",
        )
    if who not in active:
        yield BrokenRule(
            "election of a fenced broker",
            "KIP-631; ClusterControlManager.isActive",
            f"broker {who} was elected while it was fenced or on its way out",
        )


def _isr_rules(old: Partition, after: Partition, active: set[int]) -> Iterator[BrokenRule]:
    grown = set(after.isr) - set(old.isr)
    if not set(after.isr) <= set(after.replicas):
        unassigned = sorted(set(after.isr) - set(after.replicas))
        yield BrokenRule(
            "ISR beyond the replicas",
            "ReplicationControlManager.validateAlterPartitionData",
            f"the ISR has {listed(tuple(unassigned))}, who hold no replica",
            certain=True,
        )
    if after.leader != NO_LEADER and after.leader not in after.isr:
        yield BrokenRule(
            "leader out of its ISR",
            "ReplicationControlManager.validateAlterPartitionData",
            f"broker {after.leader} leads, and the ISR {listed(after.isr)} has it not",
            certain=True,
        )
    if grown - active:
        yield BrokenRule(
            "fenced broker joined the ISR",
            "KIP-841, KIP-903; ReplicationControlManager.validateAlterPartitionData",
            f"{listed(tuple(sorted(grown - active)))} joined the ISR while fenced, unregistered or on the way out",
        )
    if grown and old.leader == NO_LEADER and after.leader == NO_LEADER:
        yield BrokenRule(
            "ISR grown without a leader",
            "KIP-497; ReplicationControlManager.validateAlterPartitionData",
            f"{listed(tuple(sorted(grown)))} joined the ISR, and nobody led to ask for it",
        )


def _who(node: int) -> str:
    return "nobody" if node == NO_LEADER else f"broker {node}"


def plain(partition: Partition) -> str:
    """Return a partition's state as text on one line."""
    text = (
        f"leader {partition.leader} in epoch {partition.leader_epoch}, partition epoch {partition.epoch}, "
        f"replicas {list(partition.replicas)}, ISR {listed(partition.isr)}"
    )
    if partition.elr:
        text += f", ELR {listed(partition.elr)}"
    if partition.last_known_leader != NO_LEADER:
        text += f", last known leader {partition.last_known_leader}"
    if partition.adding or partition.removing:
        text += f", adding {listed(partition.adding)}, removing {listed(partition.removing)}"
    return text + (", recovering" if partition.recovering else "")


def state_of(metadata: Metadata) -> str:
    """Return the state of a partition and of the brokers as text on one line, for `ForbiddenStep.state_before`."""
    brokers = "; ".join(
        f"broker {entry.broker} "
        + ("fenced" if entry.fenced else "in controlled shutdown" if entry.stopping else "active")
        + f" (epoch {entry.epoch})"
        for entry in metadata.brokers
    )
    return f"{plain(metadata.partition)}; {brokers}"


PRESENT: Final = -1
EXAMPLES: Final = 20
_COUNTED: Final = ("count", "explained", "by_interval", "unexplained", "not_replayed", "deleted")


@dataclass
class Account:
    """Results of replay and explanation, over all partitions. `replayed`: number of metadata changes, samples and
    acknowledged offsets that were checked. `not_replayed`: sentences about what could not be replayed. `steps`: how
    often each cause of a step occurred. `counts`: records by (class, field of `ClassExplained`). `forbidden`,
    `elections`, `truncations`, `deletions`: all that were found.

    `must_be_gone`, `either_way`: numbers of acknowledged offsets that the replay says are gone, and that may be gone or
    kept. `present`: number of offsets that must be gone although the audit found them. `intervals`, `unexplained`:
    examples, at most `EXAMPLES` of each.
    """

    not_replayed: list[str]
    replayed: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    forbidden: list[ForbiddenStep] = field(default_factory=list)
    elections: list[ElectionSeen] = field(default_factory=list)
    lives: dict[TopicPartition, list[Life]] = field(default_factory=lambda: defaultdict(list))
    """The incarnations of each partition, oldest first."""
    missed: int = 0
    """Number of partition changes that are missing in the observed records, as the partition epochs show."""
    truncations: list[Truncation] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    intervals: list[UnplacedLoss] = field(default_factory=list)
    unexplained: list[UnexplainedRecord] = field(default_factory=list)
    must_be_gone: int = 0
    either_way: int = 0
    present: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def count(self, what: str, found: npt.NDArray[np.int8]) -> None:
        """Add rows to the numbers of records in `conformance.json`, by class.

        `what`: field of `ClassExplained`, such as `explained`. `found`: class of each row, as an index into `REPLAYED`;
        rows with `PRESENT` are not counted.
        """
        for number, anomaly in enumerate(REPLAYED):
            self.counts[anomaly, what] += int((found == number).sum())

    def file(self) -> ConformanceFile:
        # By time, those without one last.
        forbidden = sorted(self.forbidden, key=lambda step: (step.t_ns < 0, step.t_ns, step.offset))
        missed = f"{self.missed} changes of partitions: the observation jumped over them"
        return ConformanceFile(
            replayed=self.replayed,
            steps=dict(sorted(self.steps.items())),
            forbidden=forbidden[0] if forbidden else None,
            forbidden_steps=len(forbidden),
            more_forbidden=tuple(forbidden[1 : EXAMPLES + 1]),
            truncations=tuple(self.truncations),
            deletions=tuple(self.deletions),
            classes=tuple(
                ClassExplained(anomaly=anomaly, **{what: self.counts[anomaly, what] for what in _COUNTED})
                for anomaly in REPLAYED
            ),
            must_be_gone=self.must_be_gone,
            either_way=self.either_way,
            present=self.present,
            unexplained=tuple(self.unexplained),
            intervals=tuple(self.intervals),
            elections=tuple(self.elections),
            not_replayed=(*dict.fromkeys(self.not_replayed), *([missed] if self.missed else [])),
        )

"""The metadata log replayed: each change of a partition must be a step that the protocol allows in that state."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ackproof.reference.replay.image import Image, partition_of
from ackproof.reference.replay.lives import Life, Moment, Removal, deleted_by
from ackproof.reference.replay.observed import ASKS_UNCLEAN, Observed
from ackproof.reference.replay.rules import Broken, broken_rule
from ackproof.reference.replay.steps import Step, Surroundings, same, steps
from ackproof.reference.replay.zookeeper import zookeeper_steps
from ackproof.reference.wording import plain, state_of
from ackproof.rundir.conformance import ElectionSeen, ForbiddenStep
from ackproof.rundir.metadata import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigDecided,
    MetadataRecord,
    PartitionDecided,
    TopicRemoved,
)
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import EventKind
from ackproof_reference.metadata import NO_LEADER, Metadata, Partition

_MIN_INSYNC: Final = "min.insync.replicas"
_CREATED: Final = "created"
_SHUTDOWN_NS: Final = 30_000_000_000


@dataclass
class Replay:
    """What came of replaying the metadata log."""

    replayed: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    forbidden: list[ForbiddenStep] = field(default_factory=list)
    elections: list[ElectionSeen] = field(default_factory=list)
    lives: dict[TopicPartition, list[Life]] = field(default_factory=lambda: defaultdict(list))
    """Of each partition, the incarnations of its topic, oldest first."""
    missed: int = 0
    """Changes of partitions that the observation jumped over."""


def replay(observed: Observed) -> Replay:
    """Replay every record in the order of the log. A forbidden step is taken as seen, and the replay goes on."""
    found, image = Replay(), Image(observed.case)
    unclean_asked = ASKS_UNCLEAN in observed.fault_kinds
    for group in _appends(observed.records):
        beside = _surroundings(group, image, unclean_asked)
        for record in group:
            if isinstance(record, PartitionDecided):
                _change(record, image, beside, observed, found)
            elif isinstance(record, TopicRemoved):
                _removed(record, image, observed, found)
            if not isinstance(record, PartitionDecided):
                found.replayed += _counted(record, image, found)
            image.take(record)
    return found


def _appends(records: Sequence[MetadataRecord]) -> Iterator[list[MetadataRecord]]:
    """Records that were appended at once: neighbours with one timestamp."""
    group: list[MetadataRecord] = []
    for record in records:
        if group and record.timestamp_ms != group[-1].timestamp_ms:
            yield group
            group = []
        group.append(record)
    if group:
        yield group


def _surroundings(group: Iterable[MetadataRecord], image: Image, unclean_asked: bool) -> Surroundings:
    fenced, registered, unfenced = [], [], []
    failed: dict[int, frozenset[str]] = {}
    stopping = [node for node, entry in image.brokers.items() if entry.stopping]
    configured = False
    for record in group:
        if isinstance(record, BrokerRegistered):
            registered.append(record.node)
            fenced.append(record.node)
        elif isinstance(record, BrokerUnregistered):
            fenced.append(record.node)
        elif isinstance(record, BrokerChanged):
            if record.fenced:
                fenced.append(record.node)
            elif record.fenced is False:
                unfenced.append(record.node)
            if record.controlled_shutdown:
                stopping.append(record.node)
            if record.log_dirs is not None:
                failed[record.node] = image.log_dirs.get(record.node, frozenset()) - frozenset(
                    record.log_dirs
                )
        elif isinstance(record, ConfigDecided):
            configured = configured or record.key == _MIN_INSYNC
    return Surroundings(
        tuple(fenced),
        tuple(registered),
        tuple(unfenced),
        tuple(dict.fromkeys(stopping)),
        configured,
        unclean_asked,
        failed,
    )


def _counted(record: MetadataRecord, image: Image, found: Replay) -> bool:
    """Count a step of a broker; a registration that the protocol refuses is forbidden."""
    if isinstance(record, BrokerRegistered):
        before = image.brokers.get(record.node)
        # An incarnation that asks again keeps its epoch (KIP-903).
        again = image.incarnations.get(record.node) == record.incarnation
        if before is not None and record.broker_epoch < before.epoch + (not again):
            found.forbidden.append(
                ForbiddenStep(
                    rule="broker epoch",
                    text=f"broker {record.node} registered with epoch {record.broker_epoch} after {before.epoch}",
                    state_before=str(before),
                    source="KIP-631; ClusterControlManager.registerBroker",
                    offset=record.offset,
                )
            )
        found.steps["broker registered"] += 1
        return True
    if isinstance(record, BrokerChanged):
        for changed, name in ((record.fenced, "fenced"), (record.controlled_shutdown, "controlled shutdown")):
            if changed is not None:
                found.steps[f"broker {name}" if changed else f"broker {name} no more"] += 1
        before = image.brokers.get(record.node)
        if before is not None and record.broker_epoch != before.epoch:
            found.forbidden.append(
                ForbiddenStep(
                    rule="change of another incarnation",
                    text=f"broker {record.node} in epoch {record.broker_epoch} changed; {before.epoch} is registered",
                    state_before=str(before),
                    source="KIP-631; ClusterControlManager.replay(BrokerRegistrationChangeRecord)",
                    offset=record.offset,
                )
            )
        return True
    return False


def _change(
    record: PartitionDecided, image: Image, beside: Surroundings, observed: Observed, found: Replay
) -> None:
    place, seen = TopicPartition(record.topic, record.partition), partition_of(record)
    t_ns = observed.t_ns(record.timestamp_ms)
    found.replayed += 1
    old = image.partitions.get(place)
    if old is None or _CREATED in record.changed:
        found.steps["partition created"] += 1
        found.forbidden += _created(record, seen, image, t_ns)
        moment = Moment(t_ns, record.offset, seen, "created", clean=True)
        if old is None:
            found.lives[place].append(Life(image.topic_ids.get(record.topic, ""), [moment]))
        else:
            found.lives[place][-1].history.append(moment)
        return
    rules = image.rules(record.topic)
    before = image.of(place, seen.isr)
    if image.zookeeper and seen.epoch > old.epoch + 1:
        found.missed += seen.epoch - old.epoch - 1
        found.lives[place][-1].history.append(Moment(t_ns, record.offset, seen, "unknown", clean=False))
        return
    beside = replace(
        beside,
        without_dir=tuple(
            node for node, dirs in beside.failed_dirs.items() if image.lies_in(place, node, dirs)
        ),
        eligible_cleared=rules.elr and "directories" in record.changed and image.directories_clear_eligible,
    )
    made = (
        zookeeper_steps(before, seen, rules, _leaving(observed, t_ns))
        if image.zookeeper
        else steps(before, seen, beside, rules)
    )
    step, alternative = _matching(made, seen)
    if step is None:
        broken = broken_rule(
            before, seen, rules.unclean_election or beside.unclean_asked, _named(alternative, old)
        )
        found.forbidden.append(_forbidden(broken, before, record, t_ns))
    cause = step.cause if step else "forbidden"
    found.steps[_general(cause)] += 1
    _elected(record, old, seen, step, alternative, cause, found)
    clean = step.clean if step else seen.leader in (*old.isr, *old.elr, NO_LEADER)
    found.lives[place][-1].history.append(Moment(t_ns, record.offset, seen, cause, clean))


def _leaving(observed: Observed, t_ns: int) -> set[int]:
    """Who ended within the time that a shutdown takes at most (controlled.shutdown.max.retries and the flush)."""
    return {
        event.node
        for event in observed.events
        if event.kind is EventKind.NODE_ENDED
        and event.node is not None
        and t_ns <= event.t_ns <= t_ns + _SHUTDOWN_NS
    }


def _matching(made: Iterable[Step], seen: Partition) -> tuple[Step | None, list[Step]]:
    """The step that makes what was seen; else all that could have been made."""
    tried: list[Step] = []
    for step in made:
        if same(step.partition, seen):
            return step, tried
        tried.append(step)
    return None, tried


def _named(tried: Sequence[Step], old: Partition) -> int:
    """Whom the reference elects where none of its steps was seen: of the steps that change who leads, the first."""
    leaders = [step.partition.leader for step in tried if step.partition.leader != old.leader]
    return next((leader for leader in leaders if leader != NO_LEADER), leaders[0] if leaders else old.leader)


def _elected(
    record: PartitionDecided,
    old: Partition,
    seen: Partition,
    step: Step | None,
    tried: Sequence[Step],
    cause: str,
    found: Replay,
) -> None:
    if (seen.leader, seen.leader_epoch) == (old.leader, old.leader_epoch):
        return
    found.elections.append(
        ElectionSeen(
            topic=record.topic,
            partition=record.partition,
            leader_epoch=seen.leader_epoch,
            observed=seen.leader,
            reference=step.partition.leader if step else _named(tried, old),
            cause=cause,
            offset=record.offset,
        )
    )


def _general(cause: str) -> str:
    """A cause without the broker's number, to be counted."""
    return " ".join("N" if word.isdigit() else word for word in cause.split())


def _created(record: PartitionDecided, seen: Partition, image: Image, t_ns: int) -> Iterator[ForbiddenStep]:
    """ReplicationControlManager.buildPartitionRegistration: the ISR is whoever is active, its first one leads.

    Each incarnation counts its epochs from 0; only its topic's deletion lets a partition be created again.
    """
    if image.zookeeper:
        return
    place, broken = TopicPartition(record.topic, record.partition), None
    isr = tuple(node for node in seen.replicas if image.active(node))
    if place in image.partitions:
        broken = Broken(
            "creation of what is there",
            "ReplicationControlManager.createTopics",
            f"created with leader {seen.leader} and ISR {list(seen.isr)}; its topic was not deleted before",
        )
    elif set(seen.isr) != set(isr) or (isr and seen.leader != isr[0]):
        broken = Broken(
            "creation",
            "ReplicationControlManager.buildPartitionRegistration",
            f"created with leader {seen.leader} and ISR {list(seen.isr)}; active are {list(isr)}",
        )
    elif (seen.leader_epoch, seen.epoch) != (0, 0):
        broken = Broken(
            "creation",
            "ReplicationControlManager.buildPartitionRegistration",
            f"created with leader epoch {seen.leader_epoch} and partition epoch {seen.epoch}: both begin at 0",
        )
    if broken is not None:
        if place not in image.partitions:
            image.take(record)
        yield _forbidden(broken, image.of(place), record, t_ns)


def _removed(record: TopicRemoved, image: Image, observed: Observed, found: Replay) -> None:
    """A topic's deletion ends the life of its partitions. One that nobody asked for is no step of Kafka's."""
    t_ns = observed.t_ns(record.timestamp_ms)
    removal = Removal(t_ns, record.offset, deleted_by(observed, record.topic, t_ns))
    found.steps["topic deleted"] += 1
    found.replayed += 1
    for place, lives in found.lives.items():
        if place[0] == record.topic and lives[-1].removal is None:
            lives[-1].removal = removal
    if record.topic in observed.experiment.topics and not removal.by:
        found.forbidden.append(
            ForbiddenStep(
                rule="deletion that nobody asked for",
                text=f"{record.topic} was deleted, and no fault that deletes it had been asked for",
                state_before=", ".join(
                    f"{place[0]}/{place[1]}: {plain(known)}"
                    for place, known in sorted(image.partitions.items())
                    if place[0] == record.topic
                ),
                source="ReplicationControlManager.deleteTopics",
                offset=record.offset,
                t_ns=t_ns,
                topic=record.topic,
            )
        )


def _forbidden(broken: Broken, before: Metadata, record: PartitionDecided, t_ns: int) -> ForbiddenStep:
    return ForbiddenStep(
        rule=broken.rule,
        text=f"{record.topic}/{record.partition}: {broken.text}",
        state_before=state_of(before),
        source=broken.source,
        offset=record.offset,
        t_ns=t_ns,
        topic=record.topic,
        partition=record.partition,
    )

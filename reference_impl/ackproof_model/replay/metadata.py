"""Replay of a run: each partition change in the metadata log must be a step that the protocol allows in that state.

`conform` replays a whole run directory: the metadata log, then the samples, then the explanation of losses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from operator import attrgetter
from typing import Final

from ackproof.experiment.case import Case
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    MetadataRecord,
    PartitionChanged,
    TopicRemoved,
)
from ackproof.rundir.model import ConformanceFile, ElectionSeen, ForbiddenStep
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import EventKind, fault_name
from ackproof_model.explain.explanation import explain
from ackproof_model.replay.account import Account, BrokenRule, find_broken_rule, plain, state_of
from ackproof_model.replay.image import MIN_INSYNC, Image, partition_of
from ackproof_model.replay.observed import Life, Moment, Observed, Removal, deleted_by, observe
from ackproof_model.replay.samples import replay_samples
from ackproof_model.replay.steps import AppendContext, Step, same, steps, steps_from_image, zookeeper_steps
from ackproof_reference.metadata import NO_LEADER, Metadata, Partition

_CREATED: Final = "created"
_SHUTDOWN_NS: Final = 30_000_000_000


def replay(observed: Observed, account: Account) -> None:
    """Replay every metadata record of a run in log order, and add the results to `account`. A forbidden step
    is reported and applied, and the replay continues.
    """
    replaying = _Replay(observed, account, Image(observed.case))
    # What was appended at once: neighbours with one timestamp.
    for _, records in groupby(observed.records, key=attrgetter("timestamp_ms")):
        group = list(records)
        context = _append_context(group, replaying.image)
        replaying.images.clear()
        for record in group:
            replaying.take(record, context)


def _append_context(group: Iterable[MetadataRecord], image: Image) -> AppendContext:
    fenced, registered, unfenced = [], [], []
    failed: dict[int, frozenset[str]] = {}
    unregistered: set[tuple[TopicPartition, int]] = set()
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
        elif isinstance(record, PartitionChanged) and "directories" in record.changed:
            place = TopicPartition(record.topic, record.partition)
            named = zip(record.replicas, record.directories, strict=False)
            unregistered |= {(place, node) for node, name in named if image.lacks_dir(node, name)}
        elif isinstance(record, ConfigChanged):
            configured = configured or record.key == MIN_INSYNC
    return AppendContext(
        tuple(fenced),
        tuple(registered),
        tuple(unfenced),
        tuple(dict.fromkeys(stopping)),
        configured,
        failed_dirs=failed,
        unregistered_dirs=frozenset(unregistered),
    )


@dataclass(frozen=True)
class _Replay:
    """A replay of the metadata log in progress. `image`: the cluster state after the records so far."""

    observed: Observed
    account: Account
    image: Image
    deleted: set[int] = field(default_factory=set)
    """Numbers of faults that have already deleted their topic; each fault deletes it once."""
    images: dict[TopicPartition, list[Metadata]] = field(default_factory=dict)
    """States of each partition before its earlier changes in the same append."""

    def take(self, record: MetadataRecord, context: AppendContext) -> None:
        """Check the next record against the present state, then apply it. `context`: what its append changes of
        brokers and settings, which may be the cause of a partition change."""
        if isinstance(record, PartitionChanged):
            self._change(record, context)
        elif isinstance(record, TopicRemoved):
            self._removed(record)
        elif isinstance(record, BrokerRegistered):
            self._registered(record)
        elif isinstance(record, BrokerChanged):
            self._changed(record)
        self.image.take(record)

    def _registered(self, record: BrokerRegistered) -> None:
        """Check a broker's registration, and count the step. A new incarnation must have a higher broker epoch than
        before, the same incarnation no lower one. Otherwise a forbidden step is added to the account."""
        self._step("broker registered")
        before = self.image.brokers.get(record.node)
        # An incarnation that asks again keeps its epoch (KIP-903).
        again = self.image.incarnations.get(record.node) == record.incarnation
        if before is not None and record.broker_epoch < before.epoch + (not again):
            self.account.forbidden.append(
                ForbiddenStep(
                    rule="broker epoch",
                    text=f"broker {record.node} registered with epoch {record.broker_epoch} after {before.epoch}",
                    state_before=str(before),
                    source="KIP-631; ClusterControlManager.registerBroker",
                    offset=record.offset,
                )
            )

    def _changed(self, record: BrokerChanged) -> None:
        self.account.replayed += 1
        for changed, name in ((record.fenced, "fenced"), (record.controlled_shutdown, "controlled shutdown")):
            if changed is not None:
                self.account.steps[f"broker {name}" if changed else f"broker {name} no more"] += 1
        before = self.image.brokers.get(record.node)
        if before is not None and record.broker_epoch != before.epoch:
            self.account.forbidden.append(
                ForbiddenStep(
                    rule="change of another incarnation",
                    text=f"broker {record.node} in epoch {record.broker_epoch} changed; {before.epoch} is registered",
                    state_before=str(before),
                    source="KIP-631; ClusterControlManager.replay(BrokerRegistrationChangeRecord)",
                    offset=record.offset,
                )
            )

    def _step(self, name: str) -> None:
        self.account.replayed += 1
        self.account.steps[name] += 1

    def _change(self, record: PartitionChanged, context: AppendContext) -> None:
        image, place, seen = self.image, TopicPartition(record.topic, record.partition), partition_of(record)
        old, lives = image.partitions.get(place), self.account.lives[place]

        def moment(cause: str, *, clean: bool) -> Moment:
            return Moment(self.observed.t_ns(record.timestamp_ms), record.offset, seen, cause, clean)

        if old is None or _CREATED in record.changed:
            self._step("partition created")
            if not image.zookeeper:
                self._created(record, place, seen)
            if old is None:
                lives.append(Life(image.topic_ids.get(record.topic, "")))
            lives[-1].history.append(moment("created", clean=True))
            return
        rules, before = image.rules(record.topic), image.partition_view(place, seen.isr)
        asked = self.observed.unclean_asked(place, record.timestamp_ms)
        if image.zookeeper and seen.epoch > old.epoch + 1:
            self.account.replayed += 1
            self.account.missed += seen.epoch - old.epoch - 1
            lives[-1].history.append(moment("unknown", clean=False))
            return
        made: Iterable[Step]
        if image.zookeeper:
            made = zookeeper_steps(before, seen, rules, self._leaving(record))
        else:
            lost = [node for node, dirs in context.failed_dirs.items() if image.lies_in(place, node, dirs)]
            lost += [node for node in seen.replicas if (place, node) in context.unregistered_dirs]
            cleared = rules.elr and "directories" in record.changed and image.directories_clear_eligible
            mine = replace(
                context,
                without_dir=tuple(lost),
                offline=image.offline(place),
                eligible_cleared=cleared,
                unclean_asked=asked,
            )
            images = self.images.setdefault(place, [])
            made = chain(
                steps(before, seen, mine, rules),
                *[steps_from_image(one, old, mine, rules) for one in images],
            )
            images.append(before)
        step, alternative = _find_step(made, seen)
        named = step.partition.leader if step else _find_elected(alternative, old)
        if step is None:
            unclean = rules.unclean_election or asked
            self._forbid(find_broken_rule(before, seen, unclean, named), before, record)
        cause = step.cause if step else "forbidden"
        # Causes are counted without the broker's number.
        self._step(" ".join("N" if word.isdigit() else word for word in cause.split()))
        if (seen.leader, seen.leader_epoch) != (old.leader, old.leader_epoch):
            self.account.elections.append(
                ElectionSeen(
                    topic=record.topic,
                    partition=record.partition,
                    leader_epoch=seen.leader_epoch,
                    observed=seen.leader,
                    reference=named,
                    cause=cause,
                    offset=record.offset,
                )
            )
        clean = step.clean if step else seen.leader in (*old.isr, *old.elr, NO_LEADER)
        lives[-1].history.append(moment(cause, clean=clean))

    def _leaving(self, record: PartitionChanged) -> set[int]:
        """Return the nodes that the harness ended soon after this record was written: within 30 s, the longest time
        that a controlled shutdown takes."""
        first, last = self.observed.written_within(record.timestamp_ms)
        return {
            event.node
            for event in self.observed.node_ends
            if event.kind is EventKind.NODE_ENDED
            and event.node is not None
            and first <= event.t_ns <= last + _SHUTDOWN_NS
        }

    def _created(self, record: PartitionChanged, place: TopicPartition, seen: Partition) -> None:
        """Check the creation of a partition: its ISR must be all active replicas, the first of which must lead. Both
        epochs must be 0 (ReplicationControlManager.buildPartitionRegistration). A partition that exists must not be
        created again before its topic is deleted. Otherwise a forbidden step is added to the account.
        """
        image, wrong = self.image, ""
        known, source = place in image.partitions, "buildPartitionRegistration"
        isr = tuple(node for node in seen.replicas if image.active(node))
        who = f"created with leader {seen.leader} and ISR {list(seen.isr)}"
        if known:
            wrong, source = f"{who}; its topic was not deleted before", "createTopics"
        elif set(seen.isr) != set(isr) or (isr and seen.leader != isr[0]):
            wrong = f"{who}; active are {list(isr)}"
        elif (seen.leader_epoch, seen.epoch) != (0, 0):
            epochs = f"leader epoch {seen.leader_epoch} and partition epoch {seen.epoch}"
            wrong = f"created with {epochs}: both begin at 0"
        if wrong:
            if not known:
                image.take(record)
            rule = "creation of what is there" if known else "creation"
            self._forbid(
                BrokenRule(rule, f"ReplicationControlManager.{source}", wrong),
                image.partition_view(place),
                record,
            )

    def _removed(self, record: TopicRemoved) -> None:
        """End the incarnations of a deleted topic's partitions in the account. The deletion is added as a forbidden
        step if the topic is one of the experiment's and no fault that deletes it had been requested."""
        t_ns = self.observed.t_ns(record.timestamp_ms)
        by = deleted_by(self.observed, record.topic, record.timestamp_ms, self.deleted)
        if by is not None:
            self.deleted.add(by.number)
        name = "" if by is None else f"fault {fault_name(by.number)} ({by.kind})"
        removal = Removal(t_ns, record.offset, name)
        self._step("topic deleted")
        for place, lives in self.account.lives.items():
            if place.topic == record.topic and lives[-1].removal is None:
                lives[-1].removal = removal
        if record.topic in self.observed.experiment.topics and not removal.by:
            self.account.forbidden.append(
                ForbiddenStep(
                    rule="deletion that nobody asked for",
                    text=f"{record.topic} was deleted, and no fault that deletes it had been asked for",
                    state_before=", ".join(
                        f"{place}: {plain(known)}"
                        for place, known in sorted(self.image.partitions.items())
                        if place.topic == record.topic
                    ),
                    source="ReplicationControlManager.deleteTopics",
                    offset=record.offset,
                    t_ns=t_ns,
                    topic=record.topic,
                )
            )

    def _forbid(self, broken: BrokenRule, before: Metadata, record: PartitionChanged) -> None:
        self.account.forbidden.append(
            ForbiddenStep(
                rule=broken.rule,
                # ZooKeeper has replicas and state of a partition in two nodes, which are never written together.
                certain=broken.certain and not self.image.zookeeper,
                text=f"{record.topic}/{record.partition}: {broken.text}",
                state_before=state_of(before),
                source=broken.source,
                offset=record.offset,
                t_ns=self.observed.t_ns(record.timestamp_ms),
                topic=record.topic,
                partition=record.partition,
            )
        )


def _find_step(made: Iterable[Step], seen: Partition) -> tuple[Step | None, list[Step]]:
    """Return the step among `made` that leads to the observed state `seen`, and the steps tried before it; (None, all
    steps) if none does."""
    tried: list[Step] = []
    for step in made:
        if same(step.partition, seen):
            return step, tried
        tried.append(step)
    return None, tried


def _find_elected(tried: Sequence[Step], old: Partition) -> int:
    """Return the leader that the reference elects, if none of its steps (`tried`) leads to the observed state: the
    first new leader in these steps. Without a new leader: NO_LEADER if a step removes the leader, else the leader of
    `old`."""
    leaders = [step.partition.leader for step in tried if step.partition.leader != old.leader]
    return next((leader for leader in leaders if leader != NO_LEADER), leaders[0] if leaders else old.leader)


def conform(run: CaseDir, case: Case) -> ConformanceFile:
    """Replay an audited run and explain its losses; return the content of `conformance.json`. Raises `BadInput`,
    OSError or ArrowException for broken files.
    """
    observed = observe(run, case)
    account = Account(list(observed.lacks))
    replay(observed, account)
    replay_samples(observed, account)
    explain(observed, account)
    return account.file()

"""Steps that the protocol allows: the partition states that the reference implementation derives, one per cause.

Sources for KRaft: ReplicationControlManager and PartitionChangeBuilder. In ZooKeeper mode the controller writes its
steps into the state znode of a partition, one by one (kafka.controller of 3.9: PartitionStateMachine,
ReplicaStateMachine, KafkaController, Election). There the end of a broker takes two steps: its leadership is replaced,
then it leaves the ISR. A change by the controller itself raises the leader epoch (LeaderAndIsr.newLeader,
newLeaderAndIsr). A change that a leader requests does not (AlterPartition; before 2.7 the leader's own write).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ackproof.rundir.partition import TopicPartition
from ackproof_reference.controller import (
    alter_partition,
    begin_shutdown,
    cancel_reassignment,
    clear_eligible,
    elect,
    fence,
    reassign,
    register,
    unfence,
)
from ackproof_reference.election import Election, decide, leaderless_election
from ackproof_reference.messages import AlterPartition
from ackproof_reference.metadata import NO_LEADER, Metadata, Partition
from ackproof_reference.rules import Rules


class Step(NamedTuple):
    """A change of a partition that the protocol allows: its cause in words, and the state after it according to the
    reference implementation.

    `clean`: False if the step elects a leader from outside of the ISR (if that is empty: of the ELR).
    """

    cause: str
    partition: Partition
    clean: bool = True


@dataclass(frozen=True)
class AppendContext:
    """Changes of brokers and settings in the same append of the metadata log as a change of a partition: they may be
    its cause. Integers are broker ids.

    `unclean_asked`, `without_dir`, `offline` and `eligible_cleared` concern that partition, the other fields the whole
    append."""

    fenced: tuple[int, ...] = ()
    """Brokers that are fenced, unregistered or newly registered."""
    registered: tuple[int, ...] = ()
    """Brokers that registered in this append; after an unclean stop they leave ISR and ELR (KIP-966)."""
    unfenced: tuple[int, ...] = ()
    stopping: tuple[int, ...] = ()
    """Brokers in controlled shutdown, which began in this append or before."""
    configured: bool = False
    """True if the append changes min.insync.replicas."""
    unclean_asked: bool = False
    """True if a fault or a script may have requested an unclean election of this partition."""
    failed_dirs: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """By broker: ids of the log dirs that failed."""
    unregistered_dirs: frozenset[tuple[TopicPartition, int]] = frozenset()
    """Pairs (partition, broker): the broker has its replica in a log dir that it has not registered."""
    without_dir: tuple[int, ...] = ()
    """Brokers that lost the log dir of this partition, or reported one for it that is not online."""
    offline: frozenset[int] = frozenset()
    """Brokers whose replica of this partition is in a log dir that is not online: none of them is elected."""
    eligible_cleared: bool = False
    """True if a replica reported its log dir, in a release in which that empties the ELR."""


def steps(before: Metadata, after: Partition, context: AppendContext, rules: Rules) -> Iterator[Step]:
    """Yield every possible step of a KRaft controller from the state `before`, as the reference derives it.

    `after`: the observed state, from which the ISR or replicas of a request by a leader or administrator are taken.
    `context`: changes in the same append that may be the cause. A step that changes nothing is yielded too.
    """
    leader_view, before = before, _electable(before, context.offline)
    for broker in context.fenced:
        yield _make_step(f"broker {broker} fenced", before, fence(before, broker, rules))
    for broker in context.registered:
        unclean, _ = register(before, broker, clean_epoch=-2, rules=rules)
        yield _make_step(f"broker {broker} back from an unclean stop", before, unclean)
    for broker in (node for node in context.unfenced if node not in context.offline):
        yield _make_step(f"broker {broker} unfenced", before, unfence(before, broker, rules))
    for broker in context.stopping:
        yield _make_step(
            f"broker {broker} in controlled shutdown", before, begin_shutdown(before, broker, rules)
        )
    yield from _failed_dirs(before, context, rules)
    yield from _by_the_leader(leader_view, after, rules)
    yield _make_step("preferred election", before, elect(before, Election.PREFERRED, rules))
    yield _make_step(
        "election",
        before,
        decide(before, rules, isr=before.partition.isr, election=leaderless_election(rules)),
    )
    if context.unclean_asked or rules.unclean_election:
        yield _make_step("unclean election", before, elect(before, Election.UNCLEAN, rules))
    yield from _reassigned(before, after, rules)
    if context.configured:
        yield _make_step("eligible replicas cleared with min.insync.replicas", before, clear_eligible(before))
    old = before.partition
    yield Step("log dirs of replicas", old._replace(epoch=old.epoch + 1))
    if context.eligible_cleared:
        yield _make_step("log dirs of replicas, eligible replicas forgotten", before, clear_eligible(before))


def steps_from_image(
    image: Metadata, before: Partition, context: AppendContext, rules: Rules
) -> Iterator[Step]:
    """Yield the possible steps of the second of two records that the controller writes for one request.

    The controller computes both records from `image`, the state before the first record. The second record is applied
    to `before`, the state after the first one. It is always about a failed log dir.

    Two methods write a second record about a partition before they replay the first: processBrokerHeartbeat
    (handleDirectoriesOffline after the change of the broker's state) and handleAssignReplicasToDirs
    (generateLeaderAndIsrUpdates after the new log dir)."""
    for step in _failed_dirs(_electable(image, context.offline), context, rules):
        yield step._replace(partition=_apply_record(before, image.partition, step.partition))


def _apply_record(before: Partition, image: Partition, made: Partition) -> Partition:
    """Return the state `before` after a record that the controller computed from another state: the record would turn
    `image` into `made` (PartitionRegistration.merge).

    Each field in which these two differ gets its value in `made`. The partition epoch rises by one, and so does the
    leader epoch if it differs between them."""
    changed: dict[str, Any] = {
        name: new
        for name, old, new in zip(Partition._fields, image, made, strict=True)
        if new != old and name not in {"epoch", "leader_epoch"}
    }
    led = made.leader_epoch != image.leader_epoch
    if led:
        changed["leader"] = made.leader
    return before._replace(**changed, epoch=before.epoch + 1, leader_epoch=before.leader_epoch + led)


def _electable(metadata: Metadata, offline: frozenset[int]) -> Metadata:
    """Return the image that elections use: a broker whose replica is in a failed log dir counts as fenced
    (LeaderAcceptor).
    """
    known = tuple(
        entry._replace(fenced=entry.fenced or entry.broker in offline) for entry in metadata.brokers
    )
    return Metadata(metadata.partition, known)


def _failed_dirs(before: Metadata, context: AppendContext, rules: Rules) -> Iterator[Step]:
    """Yield the steps of failed log dirs (KIP-858): the replica leaves the ISR and is not elected; its broker lives on.

    Sources: handleDirectoriesOffline; and handleAssignReplicasToDirs (offline-dir-assignment) for a broker that started
    with an empty disk and has not registered the log dir yet.
    """
    for broker in context.without_dir:
        yield _make_step(f"log dir of broker {broker} failed", before, fence(before, broker, rules))


def _by_the_leader(before: Metadata, after: Partition, rules: Rules) -> Iterator[Step]:
    """Yield the steps of AlterPartition: the leader requested the new ISR, or a larger ISR from which a reassignment
    removed replicas.
    """
    old = before.partition
    if old.leader == NO_LEADER:
        return
    registered = {entry.broker: entry.epoch for entry in before.brokers}
    leaving = tuple(node for node in old.removing if node in old.isr and node not in after.isr)
    for isr in dict.fromkeys((after.isr, (*after.isr, *leaving))):
        epochs = tuple(registered[node] for node in isr if node in registered)
        if len(epochs) < len(isr):
            continue
        request = AlterPartition(old.leader, registered[old.leader], old.leader_epoch, old.epoch, isr, epochs)
        changed, _ = alter_partition(before, request, rules)
        grown, shrunk = set(isr) - set(old.isr), set(old.isr) - set(isr)
        cause = "ISR changed" if grown and shrunk else "ISR grown" if grown else "ISR shrunk"
        if not grown and not shrunk:
            cause = "leader recovered" if old.recovering else "ISR confirmed"
        yield _make_step(f"{cause} by its leader", before, changed)


def _reassigned(before: Metadata, after: Partition, rules: Rules) -> Iterator[Step]:
    old = before.partition
    if (after.replicas, after.adding, after.removing) == (old.replicas, old.adding, old.removing):
        return
    # a move back to where everybody is in sync comes to the same, and is rarer
    if old.adding or old.removing:
        yield _make_step("reassignment cancelled", before, cancel_reassignment(before, rules))
    target = tuple(node for node in after.replicas if node not in after.removing)
    for aim in {target, after.replicas}:  # a move over another may leave what that one was removing
        yield _make_step("reassigned", before, reassign(before, aim, rules))


def _make_step(cause: str, before: Metadata, changed: Metadata) -> Step:
    old, new = before.partition, changed.partition
    if new.leader in {NO_LEADER, old.leader}:
        return Step(cause, new)
    clean = new.leader in (old.isr or old.elr)
    return Step(cause, new, clean)


def same(made: Partition, seen: Partition) -> bool:
    """Return True if two states are equal, apart from the order of ISR, ELR, adding and removing replicas."""
    return _sort_replicas(made) == _sort_replicas(seen)


def _sort_replicas(partition: Partition) -> Partition:
    isr, elr, adding, removing = (
        tuple(sorted(nodes)) for nodes in (partition.isr, partition.elr, partition.adding, partition.removing)
    )
    return partition._replace(isr=isr, elr=elr, adding=adding, removing=removing)


def zookeeper_steps(
    before: Metadata, after: Partition, rules: Rules, leaving: Collection[int] = ()
) -> Iterator[Step]:
    """Yield every possible step of a controller in ZooKeeper mode from the state `before`.

    `after`: the observed state, from which the requested replicas and ISR are taken. A live broker has a znode in
    /brokers/ids, also during its shutdown. `leaving`: brokers that ended soon afterwards. No znode shows whether the
    controller knew of their shutdown by then, so elections with and without these brokers are yielded."""
    # The assignment stands in the topic's znode: it is read with the next change of the state.
    old = before.partition._replace(replicas=after.replicas, adding=after.adding, removing=after.removing)
    live = {entry.broker for entry in before.brokers if not entry.fenced}
    stopping = {entry.broker for entry in before.brokers if entry.stopping} | set(leaving)
    yield from _offline(old, live, stopping, rules)
    first = old.replicas[0]
    if first in live and first in old.isr and first != old.leader:  # preferredReplicaPartitionLeaderElection
        yield Step("preferred election", _with_leader(old, first, old.isr))
    yield from _controlled_shutdown(old, live)
    yield from _replica_offline(old, after)
    if old.leader != NO_LEADER and old.leader in after.isr and set(after.isr) <= set(old.replicas):
        grown, shrunk = set(after.isr) - set(old.isr), set(old.isr) - set(after.isr)
        cause = "ISR changed" if grown and shrunk else "ISR grown" if grown else "ISR shrunk"
        if not rules.fencing or grown <= live:
            yield Step(f"{cause} by its leader", _with_isr(old, isr=after.isr)._replace(recovering=False))
    yield from _reassignment_steps(old, live)


def _offline(old: Partition, live: set[int], stopping: set[int], rules: Rules) -> Iterator[Step]:
    """Yield the elections for a partition whose leader is gone, in ZooKeeper mode (offlinePartitionLeaderElection). The
    first live replica in the ISR is elected; without one, the first live replica if unclean elections are allowed.

    A leader whose session ended and began again between two checks of the controller is replaced, too. A broker
    in controlled shutdown (`stopping`) does not count as live once the controller knows of it
    (ControllerContext.isReplicaOnline).
    """
    for gone in (set(), {old.leader}, stopping, {old.leader, *stopping}):
        alive = live - gone
        in_isr = [node for node in old.replicas if node in alive and node in old.isr]
        if in_isr:
            isr = tuple(node for node in old.isr if node in alive)
            yield Step("leader's broker gone", _with_leader(old, in_isr[0], isr))
        elif rules.unclean_election:
            for node in [node for node in old.replicas if node in alive][:1]:
                led = _with_leader(old, node, (node,))
                yield Step("unclean election", led, clean=False)
                # KIP-704 (3.2): the state node says that the leader has not recovered (newRecoveringLeaderAndIsr).
                yield Step("unclean election", led._replace(recovering=True), clean=False)


def _controlled_shutdown(old: Partition, live: set[int]) -> Iterator[Step]:
    """Yield the elections for a leader that shuts down, in ZooKeeper mode (controlledShutdownPartitionLeaderElection).
    It leaves the ISR, perhaps with other brokers that shut down.

    A broker that ended without a shutdown is not elected, and stays in the ISR until the controller handles its end
    (Election.leaderForControlledShutdown).
    """
    going = old.leader
    others = tuple(node for node in old.isr if node != going)
    candidates = [node for node in old.replicas if node in others and node in live]
    if not candidates or going not in old.isr:
        return
    for isr in dict.fromkeys((others, tuple(node for node in others if node in live))):
        yield Step(f"broker {going} in controlled shutdown", _with_leader(old, candidates[0], isr))


def _replica_offline(old: Partition, after: Partition) -> Iterator[Step]:
    """Yield the steps, in ZooKeeper mode, in which replicas leave the ISR
    (ReplicaStateMachine.doRemoveReplicasFromIsr). If the leader is one of them, the partition has no leader afterwards.
    The last member of an ISR stays in it."""
    going = set(old.isr) - set(after.isr)
    for gone in (going, {old.leader}, going | {old.leader}):
        if not gone & set(old.isr):
            continue
        isr = old.isr if len(old.isr) == 1 else tuple(node for node in old.isr if node not in gone)
        leader = NO_LEADER if old.leader in gone else old.leader
        if isr:
            yield Step("replica offline", _with_leader(old, leader, isr))


def _reassignment_steps(old: Partition, live: set[int]) -> Iterator[Step]:
    """Yield the steps of a reassignment in ZooKeeper mode (KafkaController.onPartitionReassignment).

    Each is a step of its own: the leader epoch rises; a leader from the target is elected; removed replicas leave the
    ISR.
    """
    yield Step("leader epoch raised", _with_leader(old, old.leader, old.isr))
    target = [node for node in old.replicas if node not in old.removing]
    for first in [node for node in target if node in live and node in old.isr][:1]:
        yield Step("leader of the new assignment", _with_leader(old, first, old.isr))
    isr = tuple(node for node in old.isr if node in target)
    if isr and set(isr) != set(old.isr):
        yield Step("moved replica offline", _with_leader(old, old.leader, isr))


def _with_leader(old: Partition, leader: int, isr: tuple[int, ...]) -> Partition:
    return _with_isr(old, isr=isr)._replace(leader=leader, leader_epoch=old.leader_epoch + 1)


def _with_isr(old: Partition, isr: tuple[int, ...]) -> Partition:
    return old._replace(isr=isr, epoch=old.epoch + 1)

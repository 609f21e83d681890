"""The steps of a partition in ZooKeeper mode, which the controller writes into its state znode one by one.

Source: kafka.controller (PartitionStateMachine, ReplicaStateMachine, KafkaController, Election) of 3.9. They differ
from KRaft's: a broker's end takes two steps (who led is replaced, then it leaves the ISR), each change that the
controller makes by itself raises the leader epoch (LeaderAndIsr.newLeader, newLeaderAndIsr), one that a leader asks
for does not (AlterPartition; before 2.7 the leader's own write).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ackproof_model.replay.steps import Step
from ackproof_reference.metadata import NO_LEADER, Metadata, Partition
from ackproof_reference.rules import Rules


def zookeeper_steps(
    before: Metadata, after: Partition, rules: Rules, leaving: Collection[int] = ()
) -> Iterator[Step]:
    """Every step that could be meant. Who is alive has a znode in /brokers/ids; one in shutdown still has one.

    `leaving`: who ended soon afterwards. No znode says whether the controller knew of their shutdown by then.
    """
    # The assignment stands in the topic's znode: it is read with the next change of the state.
    old = before.partition._replace(replicas=after.replicas, adding=after.adding, removing=after.removing)
    live = {entry.broker for entry in before.brokers if not entry.fenced}
    stopping = {entry.broker for entry in before.brokers if entry.stopping} | set(leaving)
    yield from _offline(old, live, stopping, rules)
    yield from _preferred(old, live)
    yield from _controlled_shutdown(old, live)
    yield from _replica_offline(old, after)
    if old.leader != NO_LEADER and old.leader in after.isr and set(after.isr) <= set(old.replicas):
        grown, shrunk = set(after.isr) - set(old.isr), set(old.isr) - set(after.isr)
        cause = "ISR changed" if grown and shrunk else "ISR grown" if grown else "ISR shrunk"
        if not rules.fencing or grown <= live:
            yield Step(f"{cause} by its leader", _written(old, isr=after.isr)._replace(recovering=False))
    yield from _moved(old, live)


def _offline(old: Partition, live: set[int], stopping: set[int], rules: Rules) -> Iterator[Step]:
    """offlinePartitionLeaderElection: the first of the assignment alive in the ISR; else, uncleanly, the first alive.

    A broker whose session ended and began anew between two looks of the controller is replaced all the same. One in
    shutdown does not count as alive (ControllerContext.isReplicaOnline), from when on the controller knows of it.
    """
    for gone in (set(), {old.leader}, stopping, {old.leader, *stopping}):
        alive = live - gone
        in_isr = [node for node in old.replicas if node in alive and node in old.isr]
        if in_isr:
            isr = tuple(node for node in old.isr if node in alive)
            yield Step("leader's broker gone", _led(old, in_isr[0], isr))
        elif rules.unclean_election:
            for node in [node for node in old.replicas if node in alive][:1]:
                led = _led(old, node, (node,))
                yield Step("unclean election", led, clean=False)
                # KIP-704 (3.2): the state node says that the leader has not recovered (newRecoveringLeaderAndIsr).
                yield Step("unclean election", led._replace(recovering=True), clean=False)


def _preferred(old: Partition, live: set[int]) -> Iterator[Step]:
    """preferredReplicaPartitionLeaderElection."""
    first = old.replicas[0]
    if first in live and first in old.isr and first != old.leader:
        yield Step("preferred election", _led(old, first, old.isr))


def _controlled_shutdown(old: Partition, live: set[int]) -> Iterator[Step]:
    """controlledShutdownPartitionLeaderElection: who shuts down is in no ISR afterwards; several may at once.

    Who has gone without a shutdown is not elected, and stays in the ISR until the controller comes to it
    (Election.leaderForControlledShutdown).
    """
    going = old.leader
    others = tuple(node for node in old.isr if node != going)
    candidates = [node for node in old.replicas if node in others and node in live]
    if not candidates or going not in old.isr:
        return
    for isr in dict.fromkeys((others, tuple(node for node in others if node in live))):
        yield Step(f"broker {going} in controlled shutdown", _led(old, candidates[0], isr))


def _replica_offline(old: Partition, after: Partition) -> Iterator[Step]:
    """ReplicaStateMachine.doRemoveReplicasFromIsr: out of the ISR, but the last one stays; it leads no more."""
    going = set(old.isr) - set(after.isr)
    for gone in (going, {old.leader}, going | {old.leader}):
        if not gone & set(old.isr):
            continue
        isr = old.isr if len(old.isr) == 1 else tuple(node for node in old.isr if node not in gone)
        leader = NO_LEADER if old.leader in gone else old.leader
        if isr:
            yield Step("replica offline", _led(old, leader, isr))


def _moved(old: Partition, live: set[int]) -> Iterator[Step]:
    """KafkaController.onPartitionReassignment: the epoch raised, a leader of the target, those who go leave the ISR."""
    yield Step("leader epoch raised", _led(old, old.leader, old.isr))
    target = [node for node in old.replicas if node not in old.removing]
    for first in [node for node in target if node in live and node in old.isr][:1]:
        yield Step("leader of the new assignment", _led(old, first, old.isr))
    isr = tuple(node for node in old.isr if node in target)
    if isr and set(isr) != set(old.isr):
        yield Step("moved replica offline", _led(old, old.leader, isr))


def _led(old: Partition, leader: int, isr: tuple[int, ...]) -> Partition:
    return _written(old, isr=isr)._replace(leader=leader, leader_epoch=old.leader_epoch + 1)


def _written(old: Partition, isr: tuple[int, ...]) -> Partition:
    return old._replace(isr=isr, epoch=old.epoch + 1)

"""The controller: tracks which brokers are alive, and decides every change of a partition (ReplicationControlManager,
ClusterControlManager).

Its state is the newest `Metadata`; brokers learn it later. The caller decides whether there is an active controller:
without a quorum none of these steps happens, and leaders go on with the metadata that they have.
"""

from __future__ import annotations

from ackproof_reference.election import Election, decide, leaderless_election
from ackproof_reference.messages import Altered, AlterPartition, Error
from ackproof_reference.metadata import NO_LEADER, Metadata, Registration
from ackproof_reference.rules import Rules


def fence(metadata: Metadata, broker: int, rules: Rules) -> Metadata:
    """Return the metadata after a broker's session ran out (handleBrokerFenced). The broker is fenced and
    leaves the ISR. If it led, the partition gets another leader, or none if no replica may lead. In ZooKeeper
    mode, this is the end of its ephemeral node.

    Without ELR the last member of an ISR stays in it, unless another leader is elected uncleanly.
    """
    changed = metadata.with_broker(metadata.registration(broker)._replace(fenced=True))
    return _leave(changed, broker, rules)


def begin_shutdown(metadata: Metadata, broker: int, rules: Rules) -> Metadata:
    """Return the metadata after a broker asked for a controlled shutdown: it loses the leadership and leaves the ISR
    (handleBrokerInControlledShutdown). Without ELR the last member of an ISR stays in it, unless another leader is
    elected uncleanly."""
    return _leave(half_stopping(metadata, broker), broker, rules)


def half_fenced(metadata: Metadata, broker: int, rules: Rules) -> Metadata:
    """Return the metadata that the controller leaves if it fails in the middle of `fence`: the partitions are
    changed, but the broker is not fenced.

    It writes the partitions first, in batches of their own if they are many (a non-atomic ControllerResult).
    """
    return Metadata(fence(metadata, broker, rules).partition, metadata.brokers)


def half_stopping(metadata: Metadata, broker: int) -> Metadata:
    """Return the metadata that the controller leaves if it fails in the middle of `begin_shutdown`: the broker is
    stopping, but the partitions are unchanged."""
    return metadata.with_broker(metadata.registration(broker)._replace(stopping=True))


def _leave(metadata: Metadata, broker: int, rules: Rules) -> Metadata:
    partition = metadata.partition
    if broker not in partition.isr:
        return metadata
    isr = tuple(replica for replica in partition.isr if replica != broker)
    return decide(metadata, rules, isr=isr, election=leaderless_election(rules))


def may_register(metadata: Metadata, broker: int) -> bool:
    """Return True if a broker may register. It may not while the session of its old incarnation is alive
    (DUPLICATE_BROKER_REGISTRATION)."""
    return metadata.registration(broker).fenced


def register(
    metadata: Metadata, broker: int, clean_epoch: int, rules: Rules
) -> tuple[Metadata, Registration]:
    """Register a new incarnation of a broker; return the metadata, and the registration of that incarnation
    (registerBroker).

    The broker is fenced until it has caught up with the metadata. `clean_epoch`: the broker epoch in its
    clean-shutdown file; -1 without that file. With ELR and `unclean_shutdown_detection`, a broker whose file does
    not name its last epoch leaves ISR and ELR: it may have lost records that were not flushed (KIP-966).
    Else `clean_epoch` has no effect.
    """
    last = metadata.registration(broker)
    registered = Registration(broker, last.epoch + 1, fenced=True)
    changed = metadata.with_broker(registered)
    if rules.elr and rules.unclean_shutdown_detection and clean_epoch != last.epoch:
        isr = tuple(replica for replica in metadata.partition.isr if replica != broker)
        if isr != metadata.partition.isr or broker in metadata.partition.elr:
            changed = decide(
                changed, rules, isr=isr, election=leaderless_election(rules), unclean_shutdown=(broker,)
            )
    return changed, registered


def unfence(metadata: Metadata, broker: int, rules: Rules) -> Metadata:
    """Return the metadata after a broker has caught up with it (handleBrokerUnfenced): the broker is unfenced. If the
    partition has no leader, an election takes place, which may make this broker the leader."""
    changed = metadata.with_broker(metadata.registration(broker)._replace(fenced=False))
    if changed.partition.leader != NO_LEADER:
        return changed
    return decide(changed, rules, isr=changed.partition.isr, election=leaderless_election(rules))


def alter_partition(metadata: Metadata, request: AlterPartition, rules: Rules) -> tuple[Metadata, Altered]:
    """Change the ISR as its leader proposes, or refuse the proposal
    (ReplicationControlManager.validateAlterPartitionData).

    Returns the metadata and the answer to the leader; after a refusal the metadata is unchanged, and the answer has the
    error. An accepted proposal also ends the recovery after an unclean election: Kafka inspects no log (KIP-704). It
    may complete a reassignment (`decide`).
    """
    partition = metadata.partition
    error = _invalid(metadata, request, rules)
    if error is not Error.NONE:
        return metadata, Altered(request.leader, request.leader_epoch, error)
    isr = request.isr
    if rules.assignment_order:
        isr = tuple(replica for replica in partition.replicas if replica in request.isr)
    recovered = Metadata(partition._replace(recovering=False), metadata.brokers)
    changed = decide(recovered, rules, isr=isr)
    return changed, Altered(request.leader, request.leader_epoch, Error.NONE, changed.partition)


def _invalid(metadata: Metadata, request: AlterPartition, rules: Rules) -> Error:
    partition = metadata.partition
    if not rules.alter_partition:
        # A conditional write of the state node: ZooKeeper compares the version and asks nothing else.
        return Error.NONE if request.partition_epoch == partition.epoch else Error.INVALID_UPDATE_VERSION
    if request.leader_epoch > partition.leader_epoch:
        return Error.NOT_CONTROLLER
    if request.leader_epoch < partition.leader_epoch:
        return Error.FENCED_LEADER_EPOCH
    if request.leader != partition.leader:
        return Error.INVALID_REQUEST
    if rules.partition_epoch_check and request.partition_epoch > partition.epoch:
        return Error.NOT_CONTROLLER
    if rules.partition_epoch_check and request.partition_epoch < partition.epoch:
        return Error.INVALID_UPDATE_VERSION
    if request.leader not in request.isr or not set(request.isr) <= set(partition.replicas):
        return Error.INVALID_REQUEST
    for replica, epoch in zip(request.isr, request.isr_epochs, strict=True):
        registered = metadata.registration(replica)
        if rules.fencing and (registered.fenced or registered.stopping):
            return Error.INELIGIBLE_REPLICA
        if rules.broker_epoch_check and registered.epoch != epoch:
            return Error.INELIGIBLE_REPLICA
    return Error.NONE


def elect(metadata: Metadata, election: Election, rules: Rules) -> Metadata:
    """Return the metadata after a preferred or an unclean election, as an administrator or the balancing timer requests
    it (ElectLeaders).

    An unclean election changes nothing while there is a leader.
    """
    if election is Election.UNCLEAN and metadata.partition.leader != NO_LEADER:
        return metadata
    return decide(metadata, rules, isr=metadata.partition.isr, election=election)


def hand_over(metadata: Metadata, broker: int, rules: Rules) -> Metadata:
    """Return the metadata after the leadership has moved to `broker`, another live member of the ISR. This one step of
    the model represents every fast sequence of elections with that outcome. If `broker` may not lead, a leader is
    elected as with `Election.ANY`."""
    return decide(metadata, rules, isr=metadata.partition.isr, election=Election.PREFERRED, first=broker)


def reassign(metadata: Metadata, target: tuple[int, ...], rules: Rules) -> Metadata:
    """Return the metadata after a reassignment of the partition to the replicas `target` has begun (KIP-455). Until it
    ends, the replicas that it removes stay replicas.

    It ends when the whole target is in the ISR, which may be at once. With the rule `completes_past_kept`
    (KAFKA-19975), one that removes no more replicas than it adds ends when the added replicas are in the ISR.

    The rule `moves_from_all` is about a reassignment that replaces another one:

    * With it (KRaft), the new one starts from all present replicas, also those that the old one was adding. If it adds
      no replicas itself, those of the old one stay marked as adding. If it removes none, those of the old one stay
      marked as removing (changePartitionReassignment, PartitionReassignmentReplicas).
    * Without it (KafkaController), replicas that the old one was adding are dropped, from the ISR too, unless they are
      in `target`."""
    old = metadata.partition
    current = tuple(one for one in old.replicas if rules.moves_from_all or one not in old.adding)
    adding = tuple(sorted(set(target) - set(current)))
    removing = tuple(sorted(set(current) - set(target)))
    replicas = (*target, *removing)
    if rules.moves_from_all:
        adding, removing = adding or old.adding, removing or old.removing
    isr = tuple(replica for replica in old.isr if replica in replicas)
    moving = old._replace(replicas=replicas, adding=adding, removing=removing, isr=isr)
    if moving == old:
        return metadata
    changed = decide(Metadata(moving, metadata.brokers), rules, isr=isr)
    if changed.partition.epoch == old.epoch:
        changed = Metadata(moving._replace(epoch=old.epoch + 1), metadata.brokers)
    return changed


def cancel_reassignment(metadata: Metadata, rules: Rules) -> Metadata:
    """Return the metadata after a reassignment was cancelled: with the original replicas, and those of them in the ISR
    (KIP-455). Without a reassignment nothing changes.

    If replicas had been added, the leader epoch rises even if the leader stays (cancelPartitionReassignment).
    If only added replicas are in sync, the first original replica becomes the ISR if unclean elections are
    allowed; else the reassignment goes on (PartitionReassignmentRevert).
    """
    old = metadata.partition
    if not old.adding and not old.removing:
        return metadata
    back = tuple(replica for replica in old.replicas if replica not in old.adding)
    isr = tuple(replica for replica in old.isr if replica in back)
    if not isr and not rules.unclean_election:
        return metadata
    isr = isr or back[:1]
    reverted = Metadata(old._replace(replicas=back, adding=(), removing=()), metadata.brokers)
    made = decide(reverted, rules, isr=isr, election=leaderless_election(rules)).partition
    raised = old.leader_epoch + (bool(old.adding) or made.leader != old.leader)
    return Metadata(made._replace(epoch=old.epoch + 1, leader_epoch=raised), metadata.brokers)


def clear_eligible(metadata: Metadata) -> Metadata:
    """Return the metadata with an empty ELR and no last known leader. A change of min.insync.replicas requires this:
    both were computed for the old value (KIP-966)."""
    old = metadata.partition
    if not old.elr and old.last_known_leader == NO_LEADER:
        return metadata
    cleared = old._replace(elr=(), last_known_leader=NO_LEADER, epoch=old.epoch + 1)
    return Metadata(cleared, metadata.brokers)

"""Leader election, and the ISR and ELR that follow from it (PartitionChangeBuilder, KIP-966)."""

from __future__ import annotations

from enum import Enum

from ackproof_reference.metadata import NO_LEADER, Metadata, Partition
from ackproof_reference.rules import Rules


class Election(Enum):
    """Kind of an election, which decides who may become leader."""

    ANY = "the present leader stays, if it may lead; else the first in the ISR, or ELR, that may"
    PREFERRED = "the first of the assignment, if it may lead; else like ANY"
    UNCLEAN = "like ANY, but if none of ISR and ELR can lead, any live replica"


def leaderless_election(rules: Rules) -> Election:
    """Return the kind of election for a partition without a leader: UNCLEAN if the rules allow unclean
    elections, else ANY.
    """
    return Election.UNCLEAN if rules.unclean_election else Election.ANY


def decide(
    metadata: Metadata,
    rules: Rules,
    *,
    isr: tuple[int, ...],
    election: Election = Election.ANY,
    unclean_shutdown: tuple[int, ...] = (),
    first: int = NO_LEADER,
) -> Metadata:
    """Return the image after a change of the ISR or of live brokers, with the ISR, ELR, leader and epochs that follow.
    A reassignment that this ISR completes is ended.

    `isr`: the requested ISR; if it is empty and the release has no ELR, the old ISR stays, unless a leader is elected
    uncleanly. `unclean_shutdown`: brokers that came back and may have lost the end of their log. `first`: the replica
    to elect if `election` is PREFERRED; NO_LEADER: the first of the assignment. If nothing changes, the same image is
    returned."""
    old = metadata.partition
    replicas, adding, removing = old.replicas, old.adding, old.removing
    if _completes(old, isr, rules):
        replicas = tuple(replica for replica in replicas if replica not in removing)
        isr = tuple(replica for replica in isr if replica in replicas)
        adding, removing = (), ()
    elr = _eligible(old, replicas, isr, unclean_shutdown, rules)
    preferred = first if first != NO_LEADER else replicas[0]
    order = replicas
    if not rules.assignment_order:  # by the place in the ISR, those not in it last (before KAFKA-1503)
        order = tuple(sorted(replicas, key=lambda one: isr.index(one) if one in isr else len(isr)))
    if election is Election.PREFERRED:
        order = (preferred, *order)
    leader, clean = _elect(metadata, rules, election, order, isr, elr)
    recovering = old.recovering
    if leader != NO_LEADER and (not clean or not isr):
        isr, elr = (leader,), tuple(replica for replica in elr if clean and replica != leader)
        # a clean one out of the ELR ends no recovery that has begun: that takes a proposal of a leader (tryElection)
        recovering = recovering or not clean
    if not isr and not rules.elr:
        isr = old.isr  # The last member is never removed: it alone may come back as a clean leader.
    shrunk = set(old.isr) - set(isr)
    moved = leader != old.leader or replicas != old.replicas or bool(rules.bump_on_shrink and shrunk)
    new = Partition(
        replicas,
        leader,
        old.leader_epoch + moved,
        old.epoch + 1,
        isr,
        elr,
        _last_known(old, leader, isr, rules, led=moved),
        recovering,
        adding,
        removing,
    )
    if new._replace(epoch=old.epoch) == old:
        return metadata
    return Metadata(new, metadata.brokers)


def _completes(old: Partition, isr: tuple[int, ...], rules: Rules) -> bool:
    """Return True if the new ISR `isr` ends the reassignment in progress; False without one
    (PartitionReassignmentReplicas.maybeCompleteReassignment). `old`: the partition before the change."""
    if not old.adding and not old.removing:
        return False
    target = set(old.replicas) - set(old.removing)
    in_sync = target & set(isr)
    if rules.completes_past_kept and len(old.adding) >= len(old.removing):
        return bool(in_sync) and set(old.adding) <= in_sync
    return target <= in_sync


def _eligible(
    old: Partition,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    unclean_shutdown: tuple[int, ...],
    rules: Rules,
) -> tuple[int, ...]:
    """Return the eligible leader replicas (maybePopulateTargetElr): in assignment order, and last those without a
    replica.

    They are the members of the old ISR and ELR (`old`) that are in neither `isr`, the new ISR, nor `unclean_shutdown`.
    () if the new ISR has its minimum size, or without the rule `elr`. While the ISR is below its minimum the high
    watermark stays, so the eligible replicas hold all committed records.

    With the rule `completes_past_kept`, a reassignment may end while the ISR is below its minimum. If it removes a
    member of the old ISR, that broker is in the ELR without a replica: Kafka does not check that."""
    if not rules.elr or len(isr) >= rules.effective_min_isr(len(replicas)):
        return ()
    eligible = {*old.elr, *old.isr} - {*isr, *unclean_shutdown}
    removed = sorted(eligible - set(replicas))
    return (*(replica for replica in replicas if replica in eligible), *removed)


def _elect(
    metadata: Metadata,
    rules: Rules,
    election: Election,
    order: tuple[int, ...],
    isr: tuple[int, ...],
    elr: tuple[int, ...],
) -> tuple[int, bool]:
    """Return the leader, and True if the election was clean (electAnyLeader, electPreferredLeader).

    A replica may lead if it is unfenced, not stopping, and in the ISR (if that is empty: in the ELR). The leader is the
    first of these that exists:

    * with PREFERRED, the first of `order`, if it may lead;
    * the present leader, if it still may lead;
    * the first of `order` that may lead;
    * with ELR, if ISR and ELR are empty: the last known leader, if it is in `order`. The rule
      `last_known_leader_unfenced` demands that it is unfenced and not stopping. The election is unclean;
    * with UNCLEAN, the first of `order` that is unfenced and not stopping. The election is unclean;
    * NO_LEADER, which counts as clean.
    """
    old = metadata.partition

    def acceptable(replica: int) -> bool:
        registered = metadata.registration(replica)
        return not registered.fenced and not registered.stopping

    def valid(replica: int) -> bool:
        return replica in (isr or elr) and acceptable(replica)

    if election is Election.PREFERRED and valid(order[0]):
        return order[0], True
    if valid(old.leader):
        return old.leader, True
    for replica in order:
        if valid(replica):
            return replica, True
    last = old.last_known_leader
    nobody_left = rules.elr and not isr and not elr and last in order
    if nobody_left and (acceptable(last) or not rules.last_known_leader_unfenced):
        return last, False
    if election is Election.UNCLEAN:
        for replica in order:
            if acceptable(replica):
                return replica, False
    return NO_LEADER, True


def _last_known(old: Partition, leader: int, isr: tuple[int, ...], rules: Rules, *, led: bool) -> int:
    """Return the last known leader after a change; NO_LEADER without ELR, or if there is a leader
    (maybeUpdateLastKnownLeader).

    `old`: the partition before the change. `isr`: the new ISR. `led`: True if the change also writes the leader field.
    """
    if not rules.elr or leader != NO_LEADER:
        return NO_LEADER
    if rules.last_known_when_leaderless:
        return old.leader if led and old.last_known_leader == NO_LEADER else old.last_known_leader
    if not isr and old.isr and old.leader != NO_LEADER:
        return old.leader
    return old.last_known_leader

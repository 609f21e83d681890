"""Ends of searches for lost and vanished records: from these states on, one leader leads for good.

No budget is left by which a leader could die, be fenced or be moved, and the partition is not being reassigned. Other
classes of findings are not excluded (another broker's log may still change, another broker may become electable). With
acks=0 lost records are not excluded either, because a record that the leader refuses counts as sent.

**There is a leader.** The leader that the controller names runs with the registered incarnation, and is in the ISR.
When another broker's session ends, this leader goes on (`decide`). The controller refuses proposals of earlier leaders
for their epoch; the leader's own name the present one. The leader has learned its epoch, or will learn it from the
newest image. Its log is not truncated: only followers truncate, and no answer from its time as a follower is in flight
or can still come. It holds all that was acknowledged and read. Other brokers acknowledge and show records only while
they believe that they lead. Then one of these must be true:

* No other running broker believes so. One that starts later learns the newest image, which names this leader.
* Others do, in older epochs, and the high watermark of each passes nothing that the leader lacks. Its ISR is below the
  minimum; or the leader is in its ISR, and bounds its high watermark by the last fetch that this broker knows
  (`maximal_isr`: also while it proposes another ISR).

In the second case, the leader may come to hold more by following such a broker until it learns its epoch, if its log is
a prefix of that broker's (and a record counts as held by the next fetch only, `replicated_by_next_fetch`). With acks=1
that broker must get no more records, and all that it holds counts as acknowledged. It must get none either if it counts
the leader for more than its own log holds, because that log was truncated since (without `reset_followers`). No record
may be sent again. A late fetch of the leader (only with `fusing`) may still tell that broker an old position. There
must be no such fetch if its answer would be taken (without `match_responses`), or if acknowledgements are immediate.

**There is no leader,** or it does not run or has not learned its epoch, and it was not asked to stop. No broker
believes that it leads in the newest epoch. No answer to a fetch is in flight, and no proposal that the controller would
accept. Every broker that may become leader (ISR, ELR, the last known leader; any broker with unclean elections) holds
all that was promised. Leaders of older epochs take no record from any of these, as above. The broker that becomes
leader then leads for good, and the others follow it. This requires that no broker truncates its log only because it
learns of a leader (KIP-101).

Before KIP-497 a conditional write to ZooKeeper checks no epoch. There, no other broker may have a proposal in flight,
or believe that it leads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial

from ackproof_reference.broker import Broker, Follower, Leader, Process
from ackproof_reference.explore.fetching import Late, Reply
from ackproof_reference.explore.invariants import LOST, VANISHED, holds_promised, records
from ackproof_reference.explore.model import Condition, End
from ackproof_reference.explore.scope import (
    BUDGET,
    CLIENT,
    CONTROLLER,
    Budget,
    Client,
    Scope,
    fetch_cell,
    log_cell,
    process_cell,
    proposal_cell,
)
from ackproof_reference.follower import next_request
from ackproof_reference.log import UNKNOWN, Log
from ackproof_reference.messages import Altered, AlterPartition, Error, Fetch, Fetched
from ackproof_reference.metadata import NO_LEADER, Metadata, Partition
from ackproof_reference.node import step
from ackproof_reference.rules import Rules, Truncation

_UNSEATS = (
    "kills",
    "power_losses",
    "clean_stops",
    "cuts",
    "preferred",
    "hand_overs",
    "unclean",
    "reassignments",
    "failovers",
)
"""Fields of `Budget` for events that can depose a leader. The ends do not depend on the other fields."""


def seats(scope: Scope) -> Iterator[End]:
    """Yield the ends that rule out lost and vanished records, because one leader keeps leading."""
    if scope.acks == 0 or not scope.reductions.fusing:
        return
    kinds, ids = frozenset((LOST, VANISHED)), scope.ids
    seated = Condition((BUDGET,), _seated, _UNSEATS)
    quiet = {one: Condition((fetch_cell(one),), _takes_nothing) for one in ids}
    harms = {one: [_harm(scope, one, other) for other in ids if other != one] for one in ids}
    for one in ids:
        leads = Condition((CONTROLLER, process_cell(one)), partial(_leads, one))
        holds = Condition((CLIENT, log_cell(one)), _holds)
        yield End((seated, leads, holds, quiet[one], *harms[one]), kinds)
    if scope.rules.truncation is Truncation.HIGH_WATERMARK:
        return
    silent = (
        Condition((CONTROLLER, process_cell(one), proposal_cell(one)), partial(_is_silent, scope.rules))
        for one in ids
    )
    next_ones = (
        Condition((CLIENT, CONTROLLER, log_cell(one)), partial(_next_holds, scope, one)) for one in ids
    )
    unharmed = (
        Condition((CONTROLLER, *harm.cells), partial(_unharmed, scope, one, harm.holds), harm.counts)
        for one, others in harms.items()
        for harm in others
    )
    yield End((seated, *silent, *next_ones, *quiet.values(), *unharmed), kinds)


def _harm(scope: Scope, own: int, other: int) -> Condition:
    cells = (log_cell(own), process_cell(own), fetch_cell(own))
    others = (log_cell(other), process_cell(other), proposal_cell(other))
    holds = partial(_cannot_harm, scope, own, other)
    return Condition((BUDGET, CLIENT, *cells, *others), holds, ("retries",))


def _seated(budget: Budget) -> bool:
    return not any(getattr(budget, name) for name in _UNSEATS)


def _leads(own: int, metadata: Metadata, process: Process) -> bool:
    """Return True if the broker is the leader by the controller's decision, running and unfenced, and neither
    stopping nor in a reassignment.
    """
    partition, registered = metadata.partition, metadata.registration(own)
    if partition.leader != own or own not in partition.isr or moves(partition):
        return False
    runs = process.up and registered.epoch == process.epoch and not registered.fenced
    return runs and not registered.stopping


def moves(partition: Partition) -> bool:
    """Return True if the partition is being reassigned."""
    return bool(partition.adding or partition.removing)


def _holds(client: Client, log: Log) -> bool:
    return holds_promised(client, records(log.batches))


def _takes_nothing(under_way: Hashable) -> bool:
    return not isinstance(under_way, Reply)


def _cannot_harm(
    scope: Scope,
    own: int,
    other: int,
    budget: Budget,
    client: Client,
    log: Log,
    process: Process,
    under_way: Hashable,
    others: Log,
    memory: Process,
    proposal: Hashable,
) -> bool:
    """Return True if leader `own` loses no record by what another broker acknowledges, shows to readers or
    proposes as ISR.
    """
    rules = scope.rules
    if not rules.alter_partition and isinstance(proposal, AlterPartition):
        return False
    if not memory.up or not isinstance(memory.role, Leader):
        return True
    late = under_way.request if isinstance(under_way, Late) else None
    dropped = rules.match_responses and rules.replicated_by_next_fetch
    if not rules.alter_partition or budget.retries or (late and not dropped):
        return False
    most = _most(rules, own, memory, proposal) if scope.acks == -1 else None
    if most is not None and isinstance(late, Fetch):
        most = max(most, late.offset)
    upto = others.end if most is None else max(most, others.high_watermark)
    # What is yet sent would be shown: at once, or as it takes an offset that the leader held before it was cut.
    if client.sent < scope.records and (most is None or upto > others.end):
        return False
    believed = records(others.below(upto))
    whole = records(log.batches)[: len(believed)] == believed
    return whole and not _may_cut(rules, Broker(own, log, process), Broker(other, others, memory))


def _most(rules: Rules, own: int, memory: Process, proposal: Hashable) -> int | None:
    """Return the highest offset that the high watermark of a broker that believes it leads can reach; None:
    unbounded.

    UNKNOWN: it cannot rise, because the ISR is below min.insync.replicas. While `own` is in the ISR, the
    bound is its last fetch offset.
    """
    assert isinstance(memory.role, Leader)
    partition, most = memory.partition, UNKNOWN
    known = {one.replica: one.end for one in memory.role.progress}
    decided = proposal.partition if isinstance(proposal, Altered) else None
    for isr in (partition.isr, *((decided.isr,) if decided is not None else ())):
        if rules.strict_min_isr and len(isr) < rules.effective_min_isr(len(partition.replicas)):
            continue
        if own not in isr or not rules.maximal_isr or own not in known:
            return None
        most = max(most, known[own])
    return most


def _may_cut(rules: Rules, broker: Broker, other: Broker) -> bool:
    """Return True if a broker may lose records by following another one before it learns that it leads."""
    role, leader = broker.process.role, other.process.role
    if not isinstance(role, Follower) or role.leader != other.id:
        return False
    if not rules.replicated_by_next_fetch:
        return True
    batches = broker.log.batches
    if broker.log.start != other.log.start or batches != other.log.batches[: len(batches)]:
        return True
    request = next_request(broker)
    assert isinstance(leader, Leader)
    if not isinstance(request, Fetch) or role.epoch != leader.epoch:
        return True
    answer = step(other, request, rules)[1][0]
    return not isinstance(answer, Fetched) or answer.error is not Error.NONE or answer.diverging is not None


def _is_silent(rules: Rules, metadata: Metadata, process: Process, proposal: Hashable) -> bool:
    """Return True if the broker's ISR proposals, now and later, have no effect: it is not leader, or the
    controller refuses them.
    """
    if process.up and isinstance(process.role, Leader):
        return refused(rules, metadata, process.role.epoch)
    return not isinstance(proposal, AlterPartition) or refused(rules, metadata, proposal.leader_epoch)


def refused(rules: Rules, metadata: Metadata, epoch: int) -> bool:
    """Return True if the controller refuses a proposal from this leader epoch. A write of the state node in ZooKeeper
    is never refused for it (KIP-497).
    """
    return rules.alter_partition and epoch < metadata.partition.leader_epoch


def _unharmed(
    scope: Scope, own: int, unharmed: Callable[..., bool], metadata: Metadata, *cells: Hashable
) -> bool:
    """Return True if broker `own` cannot lead next, or if `unharmed(*cells)` holds."""
    return not may_lead_next(scope.rules, own, metadata.partition) or unharmed(*cells)


def may_lead_next(rules: Rules, own: int, partition: Partition) -> bool:
    """Return True if the partition's present state lets a broker become leader."""
    clean = {*partition.isr, *partition.elr, partition.leader, partition.last_known_leader}
    return rules.unclean_election or own in clean


def _next_holds(scope: Scope, own: int, client: Client, metadata: Metadata, log: Log) -> bool:
    """Return True if a broker cannot become leader, or its log has all acknowledged and read records."""
    partition = metadata.partition
    asked_to_go = partition.leader != NO_LEADER and metadata.registration(partition.leader).stopping
    if moves(partition) or asked_to_go:
        return False
    return not may_lead_next(scope.rules, own, partition) or _holds(client, log)

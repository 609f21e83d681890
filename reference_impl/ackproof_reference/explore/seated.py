"""Ends of searches for lost and vanished records: from these states on, one leader leads for good.

An `End` is a list of conditions. If all hold in a state, the search need not continue from it: no later state breaks an
invariant of the End's classes. Each `Condition` names the cells of the state that it reads, and a predicate on them.
`seats` yields two kinds of ends, for the classes lost and vanished:

* **With a leader**, one end for each broker. The controller names it as leader, and no incident that could depose it is
  left in the budget. Its log has every record that was acknowledged or read. No other broker that still believes that
  it leads can acknowledge or show anything that this log lacks.
* **Without a leader**, one end: the same is true of every broker that may be elected next. It also covers a named
  leader that does not run, or that has not learned its epoch.

Other classes of findings are not excluded: another broker's log may still change, another broker may become electable.
There are no such ends with acks=0, because a record that the leader refuses counts as sent.

**With a leader.** Why no record gets lost or vanishes, and the function that checks each claim:

1. The leader goes on leading. It runs in its registered incarnation, is in the ISR, and is neither fenced nor stopping;
   the partition is not being reassigned (`_leads`). No kill, power loss, stop, cut, election or other move is left
   (`_seated`). If another broker's session ends, this leader stays (`election.decide`).
2. No proposal for the ISR deposes it. The controller refuses those of earlier leaders for their epoch
   (`controller.alter_partition`). Its own proposals have the present epoch and itself as a member. Before KIP-497 a
   conditional write to ZooKeeper checks no epoch: there, no other broker may have a proposal in flight, or believe that
   it leads (`_cannot_harm`).
3. It knows that it leads, or learns it from the newest image, because no later image names another leader (1, 2).
4. It has every record that was acknowledged or read (`_holds`).
5. Its log is not truncated. Only followers truncate. No answer from its time as a follower is in flight
   (`_takes_nothing`), and those that can still come truncate nothing (9, 10).
6. Other brokers acknowledge and show records only while they believe that they lead. Each other broker fulfils one of
   two conditions (`_cannot_harm`). Either it does not run, or does not believe so; once it starts, it learns the newest
   image, which names this leader. Or it believes so, in an older epoch, and 7 to 10 are true.
7. It acknowledges and shows nothing that the leader lacks: the leader's log begins with all its records below the bound
   of its high watermark (`_cannot_harm`). While its ISR is below the minimum, the high watermark stays (`_most`,
   `strict_min_isr`). If the leader is in its ISR, the bound is the leader's last fetch that this broker knows
   (`maximal_isr`: also while it proposes another ISR), or a late fetch of the leader in flight. Else, and with acks=1,
   there is no bound: all that it holds counts as acknowledged.
8. It gets no record that would change this. No record may be sent again (`retries` in the budget). No new record may
   be sent if there is no bound; nor if the bound is beyond its log end, because its log was truncated since that fetch
   (without `reset_followers`).
9. A late fetch of the leader (only with `fusing`) tells it an old position, which the bound of 7 includes. There must
   be none if its answer would be taken (without `match_responses`), or if a record counts as held as soon as it is sent
   (without `replicated_by_next_fetch`).
10. If the leader follows this broker until it learns its epoch, its log only grows (`_may_cut`): it is a prefix of
    that broker's log, and the next fetch brings no error and no divergence. By such fetches, the bound of 7 rises only
    to what the leader then holds (`replicated_by_next_fetch`).

**Without a leader.** The claims under which any broker that is elected next leads for good:

1. No incident that could depose it is left (`_seated`). The partition is not being reassigned, and the leader that the
   controller names, if any, was not asked to stop (`_next_holds`).
2. No broker believes that it leads in the newest epoch, and no proposal that the controller would accept is in flight
   (`_is_silent`; before KIP-497 it would accept any, so no broker may believe that it leads, or have one in flight).
3. No answer to a fetch is in flight to any broker (`_takes_nothing`).
4. Every broker that may become leader (`may_lead_next`: in ISR or ELR, the named or the last known leader; any broker
   with unclean elections) has every record that was acknowledged or read (`_next_holds`).
5. Leaders of older epochs take no record from any of these: 6 to 10 above are true of each (`_unharmed`).
6. So the broker that becomes leader leads for good, and the others follow it. This requires that no broker truncates
   its log only because it learns of a leader (KIP-101): `seats` yields no such end for earlier rules.
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
    """Yield the ends of a search (`End`) that rule out lost and vanished records, because one leader keeps leading.
    Each broker has one end, for states in which the controller names it as leader. One more end is for states without a
    leader (module docstring).

    Yield nothing for acks=0, or without the reduction `fusing`. For releases before KIP-101, the end without a leader
    is left out."""
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
    """Return True if the controller names the broker as leader and ISR member, and it runs in its registered
    incarnation, neither fenced nor stopping. False during a reassignment.
    """
    partition, registered = metadata.partition, metadata.registration(own)
    if partition.leader != own or own not in partition.isr or is_reassigned(partition):
        return False
    runs = process.up and registered.epoch == process.epoch and not registered.fenced
    return runs and not registered.stopping


def is_reassigned(partition: Partition) -> bool:
    """Return True while a reassignment is in progress: the partition has adding or removing replicas."""
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
    """Return True if leader `own` loses no record by what another broker acknowledges, shows to readers or proposes as
    ISR. The conditions are claims 6 to 10 of the module docstring.

    `log`, `process`, `under_way`: log, memory and fetch in flight of `own`. `others`, `memory`, `proposal`: log, memory
    and AlterPartition in flight of `other`."""
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
    # A record that is sent later would be acknowledged: at once without a bound; and with one beyond its log end,
    # because the record takes an offset that counts as held by the leader.
    if client.sent < scope.records and (most is None or upto > others.end):
        return False
    believed = records(others.below(upto))
    whole = records(log.batches)[: len(believed)] == believed
    return whole and not _may_cut(rules, Broker(own, log, process), Broker(other, others, memory))


def _most(rules: Rules, own: int, memory: Process, proposal: Hashable) -> int | None:
    """Return the highest offset to which a broker that believes that it leads can raise its high watermark, until
    broker `own` fetches again. None: there is no bound. UNKNOWN: it cannot rise, because the ISR is below
    min.insync.replicas.

    The bound is the last fetch offset of `own` that the broker knows. It requires the rule `maximal_isr`, and `own` in
    the ISR, also in one that `proposal` brings. `memory`, `proposal`: memory of that broker, and its AlterPartition in
    flight."""
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
    """Return True if `broker` may lose records while it follows `other`, before it learns that it leads itself."""
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
    """Return True if no ISR proposal of the broker, in flight or later, has an effect: the controller refuses
    them, or the broker does not lead and has none in flight.
    """
    if process.up and isinstance(process.role, Leader):
        return refused(rules, metadata, process.role.epoch)
    return not isinstance(proposal, AlterPartition) or refused(rules, metadata, proposal.leader_epoch)


def refused(rules: Rules, metadata: Metadata, epoch: int) -> bool:
    """Return True if the controller refuses an ISR proposal because its leader epoch (`epoch`) is older than the
    controller's. In ZooKeeper, a write of the state node is never refused for its epoch (KIP-497)."""
    return rules.alter_partition and epoch < metadata.partition.leader_epoch


def _unharmed(
    scope: Scope, own: int, unharmed: Callable[..., bool], metadata: Metadata, *cells: Hashable
) -> bool:
    """Return True if broker `own` cannot lead next, or if `unharmed(*cells)` holds."""
    return not may_lead_next(scope.rules, own, metadata.partition) or unharmed(*cells)


def may_lead_next(rules: Rules, own: int, partition: Partition) -> bool:
    """Return True if the partition's present state lets broker `own` become leader: it is in the ISR or ELR,
    the leader or the last known leader; with unclean elections any broker.
    """
    clean = {*partition.isr, *partition.elr, partition.leader, partition.last_known_leader}
    return rules.unclean_election or own in clean


def _next_holds(scope: Scope, own: int, client: Client, metadata: Metadata, log: Log) -> bool:
    """Return True if broker `own` cannot become leader, or its log has all acknowledged and read records. False during
    a reassignment, and if the leader that `metadata` names, if any, is in controlled shutdown."""
    partition = metadata.partition
    asked_to_go = partition.leader != NO_LEADER and metadata.registration(partition.leader).stopping
    if is_reassigned(partition) or asked_to_go:
        return False
    return not may_lead_next(scope.rules, own, partition) or _holds(client, log)

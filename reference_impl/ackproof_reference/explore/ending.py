"""Where a search need not go on: in what is reached from there nothing can be broken any more.

**All is sent, and all replicas hold the same**: every record of it, or none at all. A log grows by a record that is
sent, or by one that another log holds; neither is left. It is cut where it parts from another one, and these part
nowhere: their batches are the same, and so are the starts of the epochs that wrote them. Epochs that nobody wrote in
begin at the log's end, so cutting there takes nothing but them (`end_of_epoch`: what a leader does not know of ends at
the end of all, or it has not come so far, and nothing is cut). Whatever else happens, the logs stay as they are. So
nothing that was acknowledged or read gets lost, and two logs never differ; that there is one leader to an epoch, and
that a high watermark never falls, rests on no log.

That holds where the answer to a fetch makes followers truncate (KIP-595): before, they cut to their high
watermarks. Nor may a leader die and lead on in its epoch, which would begin again (`last_known_leader_unfenced`), a
record be sent again, or the partition be moved. While power may be lost it must be on all disks. Answers under way
must bring nothing, and cut nothing; a request from before must bring none that would be taken (`fetch_fencing`, or
`match_responses`).

Searches for lost and vanished records alone end at more states: those of `seated.py`, and where every broker that may
lead holds all that was sent. These last ends do not ask how many leaders may still die, be fenced, stop or be asked to
go. Nothing is left to be sent, and nothing was sent twice, so a record has one place in any log: where the one leader
that took it put it. Logs that hold all of them (*whole* ones) are the same then, and so are the epochs in which these
were written. A broker *counts* if it may come to lead (ISR, ELR, the leader, the last one known; with unclean elections
everybody) or believes to lead in the newest epoch; before KIP-497, in any.

**Who counts is whole.** What a stale leader acknowledges or shows is some of it, whatever it holds.

**Who is whole stays so.** Power is not lost any more, and the partition is not moved. It is cut where it parts from the
log of whom it follows: nowhere, if that one is whole (see above). It follows no stale leader that is not,
and none of another epoch answers it (`fetch_fencing`); nothing is under way to it that cuts, and what a late fetch of
its brings it drops (`match_responses`). Who learns later follows who leads then, and that one counts.

**Who comes to count is whole.** A leader takes into the ISR who has fetched from where its epoch began, or where its
high watermark is (`expand_from_epoch_start`): of who counts that is behind the last record. So who joins was there: no
request is under way from further than the log of who sent it, nobody counts another one as further than that one's
log goes, and neither a proposal nor what a leader takes the ISR to be, if it is not refused for its epoch, names one
that is not whole. That rests on a record's counting as held by the next fetch only (`replicated_by_next_fetch`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from itertools import permutations

from ackproof_reference.broker import Follower, Leader, Process, Progress
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
from ackproof_reference.explore.seated import may_lead_next, moves, refused, seats
from ackproof_reference.log import UNKNOWN, EpochEntry, Log
from ackproof_reference.messages import Altered, AlterPartition, Error, Fetch, Fetched
from ackproof_reference.metadata import Metadata
from ackproof_reference.rules import Rules, Truncation


def ends(scope: Scope) -> Sequence[End]:
    """Return the ends of a scope: conditions on which its search does not continue."""
    if not scope.reductions.ending:
        return ()
    return (*_all_alike(scope), *keeps(scope), *seats(scope))


def _all_alike(scope: Scope) -> Iterator[End]:
    budget = scope.budget
    if not stay(scope.rules) or budget.retries or budget.reassignments:
        return
    replicas = scope.assigned or scope.ids
    logs = (BUDGET, CLIENT, *map(log_cell, replicas))
    nothing = (Condition((fetch_cell(one),), brings_nothing) for one in replicas)
    yield End((Condition(logs, partial(_are_equal, scope, replicas), ("power_losses",)), *nothing))


def _are_equal(scope: Scope, replicas: Sequence[int], budget: Budget, client: Client, *logs: Log) -> bool:
    """Return True if all logs are equal, hold everything that was sent or nothing, and keep every promise."""
    first = logs[0]
    held = records(first.batches)
    if client.wrong or client.sent < scope.records or (held and not is_whole(client, first)):
        return False
    on_disk = not budget.power_losses or all(
        log.flushed == log.end for one, log in zip(replicas, logs, strict=True) if scope.strikes(one)
    )
    return holds_promised(client, held) and on_disk and all(_same(first, log) for log in logs)


def _same(one: Log, other: Log) -> bool:
    """Return True if two logs hold the same, and their epochs without records begin at the end."""
    if (one.batches, one.start, one.end) != (other.batches, other.start, other.end):
        return False
    written, unwritten = _epochs(one)
    others, unwritten_there = _epochs(other)
    return written == others and all(entry.start == one.end for entry in (*unwritten, *unwritten_there))


def _epochs(log: Log) -> tuple[list[EpochEntry], list[EpochEntry]]:
    """Split the epochs into those up to the last batch's, and later ones."""
    last = log.batches[-1].epoch if log.batches else UNKNOWN
    return (
        [entry for entry in log.epochs if entry.epoch <= last],
        [entry for entry in log.epochs if entry.epoch > last],
    )


_TAKES = ("power_losses", "unclean", "reassignments")
"""Budgets by which a log may lose something that it holds."""


def keeps(scope: Scope) -> Iterator[End]:
    """Yield the ends of searches for lost and vanished records alone."""
    rules, ids = scope.rules, scope.ids
    told = rules.fetch_fencing and rules.match_responses and rules.replicated_by_next_fetch
    if scope.budget.retries or not (stay(rules) and told and rules.expand_from_epoch_start):
        return
    conditions = [Condition((BUDGET, CLIENT), partial(_all_is_sent, scope), _TAKES)]
    for one in ids:
        own, under_way = (log_cell(one), process_cell(one)), fetch_cell(one)
        conditions.append(Condition((CLIENT, CONTROLLER, *own), partial(_is_whole_if_it_counts, rules, one)))
        conditions.append(Condition((CLIENT, own[0], under_way), _keeps_what_it_holds))
    for one, other in permutations(ids, 2):
        own, their = (log_cell(one), process_cell(one)), (log_cell(other), process_cell(other))
        knows = (CLIENT, CONTROLLER, own[0], their[1], proposal_cell(other))
        conditions.append(Condition(knows, partial(_is_known_rightly, rules, one)))
        conditions.append(Condition((CLIENT, *own, *their), partial(_follows_whole, other)))
    yield End(conditions, frozenset((LOST, VANISHED)))


def _all_is_sent(scope: Scope, budget: Budget, client: Client) -> bool:
    return not any(getattr(budget, name) for name in _TAKES) and client.sent == scope.records


def is_whole(client: Client, log: Log) -> bool:
    """Return True if a log holds all that was sent, each record once."""
    return sorted(records(log.batches)) == [*range(client.sent)]


def _is_whole_if_it_counts(
    rules: Rules, own: int, client: Client, metadata: Metadata, log: Log, process: Process
) -> bool:
    """Return True if a broker that counts is whole, and nobody joins its ISR that is not."""
    partition, role = metadata.partition, process.role
    if moves(partition):
        return False
    if isinstance(role, Leader) and not refused(rules, metadata, role.epoch):
        if max(role.start, log.high_watermark) < log.end:
            return False
    elif not may_lead_next(rules, own, partition):
        return True
    return is_whole(client, log) and holds_promised(client, records(log.batches))


def _keeps_what_it_holds(client: Client, log: Log, under_way: Hashable) -> bool:
    """Return True if nothing under way cuts a whole log, or claims more than one that is not whole holds."""
    if is_whole(client, log):
        return brings_nothing(under_way)
    request = under_way.request if isinstance(under_way, Late) else under_way
    return not isinstance(request, Fetch) or request.offset <= log.end


def _follows_whole(
    leader: int, client: Client, log: Log, process: Process, leaders: Log, leads: Process
) -> bool:
    """Return True unless a broker with a whole log follows a leader without one."""
    role, its = process.role, leads.role
    if not isinstance(role, Follower) or not isinstance(its, Leader):
        return True
    if (role.leader, role.epoch) != (leader, its.epoch):
        return True
    return is_whole(client, leaders) or not is_whole(client, log)


def _is_known_rightly(
    rules: Rules,
    own: int,
    client: Client,
    metadata: Metadata,
    log: Log,
    process: Process,
    proposal: Hashable,
) -> bool:
    """Return True if another broker counts a replica that is not whole for what it holds, and has it in no ISR."""
    if is_whole(client, log):
        return True
    role, known, named = process.role, tuple[Progress, ...](), list[tuple[int, tuple[int, ...]]]()
    if isinstance(role, Leader):
        known = role.progress
        named += [(role.epoch, process.partition.isr), (role.epoch, role.pending or ())]
    elif isinstance(role, Follower):
        known = role.remembered
    if isinstance(proposal, AlterPartition):
        named.append((proposal.leader_epoch, proposal.isr))
    elif isinstance(proposal, Altered) and proposal.partition is not None:
        named.append((proposal.leader_epoch, proposal.partition.isr))
    if any(own in isr and not refused(rules, metadata, epoch) for epoch, isr in named):
        return False
    return all(one.end <= log.end for one in known if one.replica == own)


def stay(rules: Rules) -> bool:
    """Return True if logs that are equal stay equal."""
    matched = rules.fetch_fencing or rules.match_responses
    return rules.truncation is Truncation.ON_FETCH and rules.leads_once and matched


def brings_nothing(under_way: Hashable) -> bool:
    """Return True if what a follower has under way cannot change its log."""
    if isinstance(under_way, Fetched):
        return not under_way.batches and under_way.diverging is None and under_way.error is Error.NONE
    return not isinstance(under_way, Reply)

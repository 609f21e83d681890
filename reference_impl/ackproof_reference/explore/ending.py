"""Ends of a search: states from which no later state can break an invariant.

An end has conditions on the scope, which the functions here test first, and conditions on the state (`Condition`),
which are checked on each state. What is said to follow is not checked: it is the reason why the conditions suffice.

**Equal logs** (`_all_alike`).

*On the scope* (`equal_logs_stay`): followers truncate on the answer to a fetch (KIP-595); earlier releases truncate to
the high watermark. A leader that died never leads again in its epoch (`last_known_leader_unfenced`). A late request
brings no answer that would be taken (`fetch_fencing` or `match_responses`). No record is sent again, and no partition
is reassigned.

*On the state* (`_are_equal`, `brings_nothing`): every log holds the same, all sent records or none; all records are
sent. Whatever was acknowledged or read is held. Epochs without batches begin at the log end. While a power loss is
possible, everything is flushed. Answers in flight bring no batches and truncate nothing.

*It follows* that the logs stay as they are:

* No log grows. A log grows by a record that is sent, or by one that another log holds; there is neither.
* No log is truncated. A log is truncated where it diverges from another one, and these diverge nowhere. A truncation at
  the log end removes nothing but entries of epochs without batches (`end_of_epoch`).

So no record that was acknowledged or read gets lost, and no two logs differ. The other invariants (one leader per
epoch, a high watermark that never falls) do not depend on the logs.

**Searches for lost and vanished records alone** end at more states: at those of `seated.py`, and at those of `keeps`,
where every broker that may lead holds all sent records. These ends hold for any number of leaders that still die, are
fenced, stop or are moved.

*On the scope*: as above, and a late fetch gets no answer that is taken (`fetch_fencing` and `match_responses`). A
record counts as held only by the next fetch (`replicated_by_next_fetch`). A follower joins the ISR only after a fetch
from the start of its leader's epoch, or from the high watermark (`expand_from_epoch_start`).

*On the state*: all records are sent, each once, and no power loss, unclean election or reassignment is left. A log that
holds all records is *whole*; all whole logs are equal. A broker *counts* if it may become leader (a member of the ISR
or ELR, the leader, the last known leader; any broker with unclean elections), or if it believes that it leads in the
newest epoch (before KIP-497: in any epoch).

* Each broker that counts is whole (`_is_whole_if_it_counts`).
* Nothing in flight truncates a whole log, and no fetch in flight claims more than its sender's log holds
  (`_keeps_what_it_holds`).
* No leader counts a replica for more than that replica holds. No ISR or proposal that the controller would accept names
  a broker that is not whole (both: `_is_known_rightly`).
* No whole broker follows a leader that is not whole (`_follows_whole`).

*It follows* that every broker that counts stays whole:

* A stale leader acknowledges and shows only records that a whole log has.
* A whole broker is truncated where its log diverges from its leader's: nowhere, as the leader is whole. No leader of
  another epoch answers it, and a broker that learns the metadata later follows the leader of that time, which counts.
* A broker that comes to count is whole. A leader that counts takes a follower into the ISR only at an offset beyond the
  last record, so the follower has held every record.
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
from ackproof_reference.explore.seated import is_reassigned, may_lead_next, refused, seats
from ackproof_reference.log import UNKNOWN, EpochEntry, Log
from ackproof_reference.messages import Altered, AlterPartition, Error, Fetch, Fetched
from ackproof_reference.metadata import Metadata
from ackproof_reference.rules import Rules, Truncation


def ends(scope: Scope) -> Sequence[End]:
    """Return the ends of a scope: conditions under which no later state can break an invariant. () without the
    reduction `ending`."""
    if not scope.reductions.ending:
        return ()
    return (*_all_alike(scope), *keeps(scope), *seats(scope))


def _all_alike(scope: Scope) -> Iterator[End]:
    budget = scope.budget
    if not equal_logs_stay(scope.rules) or budget.retries or budget.reassignments:
        return
    replicas = scope.assigned or scope.ids
    logs = (BUDGET, CLIENT, *map(log_cell, replicas))
    nothing = (Condition((fetch_cell(one),), brings_nothing) for one in replicas)
    yield End((Condition(logs, partial(_are_equal, scope, replicas), ("power_losses",)), *nothing))


def _are_equal(scope: Scope, replicas: Sequence[int], budget: Budget, client: Client, *logs: Log) -> bool:
    """Return True if all records are sent, no promise is broken so far, and all logs are equal and safe.

    Equal logs hold every sent record once, or no record at all. They are safe if they have all records that were
    acknowledged or read. While the budget has a power loss, they must also be flushed on brokers that it can strike.
    `replicas`: the brokers of `logs`, in the same order."""
    first = logs[0]
    held = records(first.batches)
    if client.wrong or client.sent < scope.records or (held and not _is_whole(client, first)):
        return False
    on_disk = not budget.power_losses or all(
        log.flushed == log.end for one, log in zip(replicas, logs, strict=True) if scope.strikes(one)
    )
    return holds_promised(client, held) and on_disk and all(_same(first, log) for log in logs)


def _same(one: Log, other: Log) -> bool:
    """Return True if two logs hold the same batches, and the same epochs up to that of the last batch. All later epochs
    must begin at the log end."""
    if (one.batches, one.start, one.end) != (other.batches, other.start, other.end):
        return False
    written, unwritten = _epochs(one)
    others, unwritten_there = _epochs(other)
    return written == others and all(entry.start == one.end for entry in (*unwritten, *unwritten_there))


def _epochs(log: Log) -> tuple[list[EpochEntry], list[EpochEntry]]:
    """Return two lists: a log's epochs up to that of the last batch, and the later ones, which have no batches."""
    last = log.batches[-1].epoch if log.batches else UNKNOWN
    return (
        [entry for entry in log.epochs if entry.epoch <= last],
        [entry for entry in log.epochs if entry.epoch > last],
    )


_TAKES = ("power_losses", "unclean", "reassignments")
"""Fields of `Budget` for events that can remove records from a log."""


def keeps(scope: Scope) -> Iterator[End]:
    """Yield the ends that rule out only lost and vanished records, not the other classes of findings. Yields nothing
    where the rules, or retries of producers, make such ends unsound."""
    rules, ids = scope.rules, scope.ids
    told = rules.fetch_fencing and rules.match_responses and rules.replicated_by_next_fetch
    if scope.budget.retries or not (equal_logs_stay(rules) and told and rules.expand_from_epoch_start):
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


def _is_whole(client: Client, log: Log) -> bool:
    """Return True if a log is whole: it holds every sent record exactly once."""
    return sorted(records(log.batches)) == [*range(client.sent)]


def _is_whole_if_it_counts(
    rules: Rules, own: int, client: Client, metadata: Metadata, log: Log, process: Process
) -> bool:
    """Return True if a broker does not count: it cannot lead next, and does not lead in an epoch whose proposals the
    controller accepts. Else return True if its log is whole (`_is_whole`) and keeps all promises (`holds_promised`).
    If it leads, followers must also be able to join its ISR only with all its records. False during a reassignment."""
    partition, role = metadata.partition, process.role
    if is_reassigned(partition):
        return False
    if isinstance(role, Leader) and not refused(rules, metadata, role.epoch):
        if max(role.start, log.high_watermark) < log.end:
            return False
    elif not may_lead_next(rules, own, partition):
        return True
    return _is_whole(client, log) and holds_promised(client, records(log.batches))


def _keeps_what_it_holds(client: Client, log: Log, under_way: Hashable) -> bool:
    """Return True if a broker's fetch in flight (`under_way`) can do no harm. If the broker's log is whole
    (`_is_whole`), an answer in flight must not change it. Else a request in flight must not name an offset beyond the
    log end."""
    if _is_whole(client, log):
        return brings_nothing(under_way)
    request = under_way.request if isinstance(under_way, Late) else under_way
    return not isinstance(request, Fetch) or request.offset <= log.end


def _follows_whole(
    leader: int, client: Client, log: Log, process: Process, leaders: Log, leads: Process
) -> bool:
    """Return False if a broker with a whole log (`_is_whole`) follows a leader whose log is not whole, in that leader's
    epoch; else True.

    `log`, `process`: log and memory of the follower. `leader`, `leaders`, `leads`: id, log and memory of the leader."""
    role, its = process.role, leads.role
    if not isinstance(role, Follower) or not isinstance(its, Leader):
        return True
    if (role.leader, role.epoch) != (leader, its.epoch):
        return True
    return _is_whole(client, leaders) or not _is_whole(client, log)


def _is_known_rightly(
    rules: Rules,
    own: int,
    client: Client,
    metadata: Metadata,
    log: Log,
    process: Process,
    proposal: Hashable,
) -> bool:
    """Return True if another broker's knowledge of replica `own` can do no harm. `log`: the log of `own`. `process`,
    `proposal`: the other broker's memory, and its AlterPartition in flight.

    It can do none if the log of `own` is whole. Else two conditions must hold:

    * No fetch position that the other broker has recorded for `own` is beyond that log's end.
    * Every ISR with `own` that the other broker has or proposes as leader, or that is in flight, is of an outdated
      leader epoch: the controller would refuse it."""
    if _is_whole(client, log):
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


def equal_logs_stay(rules: Rules) -> bool:
    """Return True if, under these rules, replicas with equal logs never truncate or diverge."""
    matched = rules.fetch_fencing or rules.match_responses
    return rules.truncation is Truncation.ON_FETCH and rules.leads_once and matched


def brings_nothing(under_way: Hashable) -> bool:
    """Return True if a follower's message in flight surely adds no batches to its log and truncates nothing. False for
    every answer about the end of an epoch, and for every error.

    `under_way`: a request (`Late` too), a response, or None for none.
    """
    if isinstance(under_way, Fetched):
        return not under_way.batches and under_way.diverging is None and under_way.error is Error.NONE
    return not isinstance(under_way, Reply)

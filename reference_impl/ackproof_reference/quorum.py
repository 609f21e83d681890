"""Majority quorum replication on the same logs: Raft as KRaft runs it, with followers that fetch (KIP-595).

It is the alternative to Kafka's ISR: an entry is committed when a majority holds it. So the slowest member delays no
write, and 2f + 1 servers tolerate f losses. It is also the protocol of the metadata log: terms are leader epochs; votes
and entries are on disk before any answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ackproof_reference.log import Batch, Log, append, begin_epoch, parting, truncate

NOBODY = -1


@dataclass(frozen=True)
class QuorumRules:
    """Raft's protections, each of which can be switched off. If one of them is off, data can be lost, or two
    leaders can act."""

    votes_for_newer_logs: bool = True
    """A vote goes only to a candidate whose log is at least as new (Raft §5.4.1)."""
    commits_own_epoch: bool = True
    """A leader counts copies only of entries of its own epoch; older ones commit along with them (Raft §5.4.2)."""
    durable_votes: bool = True
    """Epoch and vote are on disk before the answer (KafkaRaftClient's quorum-state file)."""
    durable_log: bool = True
    """Entries are flushed before they count as replicated (true of the metadata log, not of partitions)."""


class Server(NamedTuple):
    """One voter. `voted`: the server that it voted for in its epoch, or NOBODY. `votes`: ids of the voters
    that voted for it as a candidate. `ends`: log end offsets that a leader knows, as (server, end).
    """

    epoch: int = 0
    voted: int = NOBODY
    log: Log = Log()
    leads: bool = False
    votes: tuple[int, ...] = ()
    ends: tuple[tuple[int, int], ...] = ()


def majority(voters: int) -> int:
    """Return the smallest number of servers that is a majority of `voters`."""
    return voters // 2 + 1


def stand(server: Server, own: int) -> Server:
    """Return server `own` after its election time-out: a candidate in a new epoch that has voted for itself."""
    return Server(server.epoch + 1, own, server.log, votes=(own,))


def vote(voter: Server, candidate: Server, own: int, rules: QuorumRules) -> tuple[Server, bool]:
    """Answer the vote request of a candidate; return the voter and True if it gives its vote. `own`: id of the
    candidate.

    A voter votes for one candidate per epoch, and not in an epoch older than its own. With
    `rules.votes_for_newer_logs`, the candidate's log must be at least as new as the voter's. A newer epoch makes any
    server a follower.
    """
    if candidate.epoch < voter.epoch:
        return voter, False
    if candidate.epoch > voter.epoch:
        voter = Server(candidate.epoch, NOBODY, voter.log)
    newer = (candidate.log.last_epoch, candidate.log.end) >= (voter.log.last_epoch, voter.log.end)
    if voter.voted not in (NOBODY, own) or (rules.votes_for_newer_logs and not newer):
        return voter, False
    return voter._replace(voted=own), True


def count_vote(candidate: Server, voter: int, voters: int) -> Server:
    """Return the candidate with the vote of server `voter`. With a majority of `voters` servers it leads, and begins
    its epoch in the log."""
    votes = tuple(sorted({*candidate.votes, voter}))
    if len(votes) < majority(voters):
        return candidate._replace(votes=votes)
    return Server(candidate.epoch, candidate.voted, begin_epoch(candidate.log, candidate.epoch), leads=True)


def write(leader: Server, sequence: int, rules: QuorumRules) -> Server:
    """Return the leader with entry `sequence` appended, and flushed if the rules require that (`durable_log`)."""
    return leader._replace(
        log=_flushed(append(leader.log, Batch(leader.log.end, leader.epoch, 0, sequence)), rules)
    )


def fetch(
    follower: Server, leader: Server, own: int, voters: int, rules: QuorumRules
) -> tuple[Server, Server]:
    """Let follower `own` fetch once: it truncates where the logs diverge, or takes the next entry if there is one.
    `voters`: number of voters.

    Returns follower and leader. The fetch offset tells the leader what the follower holds, and may advance the
    high watermark. A follower of a newer epoch makes the leader step down; one of an older epoch takes the
    leader's epoch.
    """
    if follower.epoch > leader.epoch:
        return follower, Server(follower.epoch, NOBODY, leader.log)
    if follower.epoch < leader.epoch:
        follower = Server(leader.epoch, NOBODY, follower.log)
    log = follower.log
    if (cut := parting(log, leader.log)) is not None:
        return Server(follower.epoch, follower.voted, truncate(log, cut)), leader
    ends = tuple(sorted({**dict(leader.ends), own: log.end}.items()))
    leader = commit(leader._replace(ends=ends), voters, rules)
    for batch in leader.log.read(log.end, 1):
        log = _flushed(append(log, batch), rules)
    log = log._replace(high_watermark=max(log.high_watermark, min(leader.log.high_watermark, log.end)))
    return Server(follower.epoch, follower.voted, log), leader


def commit(leader: Server, voters: int, rules: QuorumRules) -> Server:
    """Return the leader with its high watermark at the highest offset up to which a majority of `voters` servers holds
    the log. The high watermark never falls.

    Nothing changes while the leader and the servers that have fetched are no majority. With `commits_own_epoch`,
    nothing changes either while that offset is not above the start of the leader's own epoch.
    """
    held = sorted([leader.log.end, *(end for _, end in leader.ends)], reverse=True)
    if len(held) < majority(voters):
        return leader
    reached = held[majority(voters) - 1]
    if rules.commits_own_epoch and reached <= leader.log.epochs[-1].start:
        return leader
    return leader._replace(log=leader.log._replace(high_watermark=max(leader.log.high_watermark, reached)))


def crash(server: Server, rules: QuorumRules) -> Server:
    """Return a server after a crash and restart: a follower with the state on its disk. Without `durable_log`, entries
    that were not flushed are lost. Without `durable_votes`, its vote is lost, and its epoch is the last one in its log,
    or 0."""
    log = truncate(server.log, server.log.end if rules.durable_log else server.log.flushed)
    if rules.durable_votes:
        return Server(server.epoch, server.voted, log)
    return Server(max(log.last_epoch, 0), NOBODY, log)


def _flushed(log: Log, rules: QuorumRules) -> Log:
    return log._replace(flushed=log.end) if rules.durable_log else log

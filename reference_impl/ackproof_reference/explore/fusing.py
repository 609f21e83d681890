"""A follower's asking, being answered and taking the answer as one step where nobody can tell it from three.

**A request is always under way**: what its follower would ask now. A request changes nothing, so nobody can tell when
it was sent, unless a step of the follower's own makes another one of it (it dies, or learns of another leader). Such
a step has two outcomes: the request had not been sent; or it had been, and is `Late`: it may still be served, for its
leader to count where the follower was. A late one that its leader will refuse whenever it comes is forgotten; that
rests on leaders that fence (`fetch_fencing`), and on leaders that died never leading in their epoch again
(`last_known_leader_unfenced`): where one of these is taken away it is kept. A late question for the end of an epoch
(before KIP-595) changes nothing at its leader, so it might as well not have been sent: only fetches are late.

A late fetch may not be forgotten, seldom as anything comes of it. Without `broker_epoch_check` its leader proposes
who has lost since what it fetched: an invalid ISR that nothing else leads to. With all protections three kills lead
to some states by late fetches alone: a dead follower is counted after another, restarted since, was answered with the
older high watermark.

**An answer that changed nothing at its leader is taken at once**: nothing that the leader will look at again, for of
what it forgets (`forgetting.py`) the states before and after are one. Taking it touches the follower alone. What
others do between the answer and the taking they can do after both; where the follower itself does something first by
which it drops the answer, or where something is broken in between, the request might as well not have been served.
That rests on followers that drop such answers (`match_responses`): where that is taken away every answer is kept
until it is taken. An answer that changed something at its leader is under way like any other: between the leader's
knowing and the follower's holding lies what protections are for.

**Who starts learns at once that it follows**, where nobody can tell when it has registered: it is no member of ISR or
ELR, and fenced before and after. Before it has learned it can do nothing but die again, and might as well not have
started: registering may be put off until it learns, whatever the controller decides in between, and what registering
does besides (it is about to stop no more, its clean-shutdown file goes) is done then. That rests on fenced brokers'
joining no ISR (`fencing`), on checkpoints that are not older a second time (`checkpointed_at_once`), and on no
leader's being elected while it is fenced.

The fused step counts as the steps that it stands for, so stories are the shortest.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import partial
from typing import NamedTuple

from ackproof_reference import controller
from ackproof_reference.broker import Broker, Follower, Process, start
from ackproof_reference.explore.fetching import Proposal, Reply, Request, loss, serve
from ackproof_reference.explore.forgetting import remembered, without_effect
from ackproof_reference.explore.model import Group, Happening, Move
from ackproof_reference.explore.scope import (
    CLIENT,
    CONTROLLER,
    Client,
    Scope,
    fetch_cell,
    log_cell,
    memory_row,
    process_cell,
    proposal_cell,
)
from ackproof_reference.explore.story import replied, taken
from ackproof_reference.follower import next_request
from ackproof_reference.log import Log
from ackproof_reference.messages import AskEpochEnd, Error, Fetch
from ackproof_reference.metadata import Metadata
from ackproof_reference.node import step
from ackproof_reference.rules import Rules


class Late(NamedTuple):
    """A request that its follower would not send any more, and that may still be served."""

    request: Request


UnderWay = Request | Late | Reply | None


def fused(scope: Scope, own: int) -> list[Group]:
    """The groups of what a broker fetches, and of what it answers to the others."""
    log, process, fetch = log_cell(own), process_cell(own), fetch_cell(own)
    starting = Group(
        "starting", (CONTROLLER, log, process), partial(_starting, scope, own), row=memory_row(own), steps=2
    )
    groups = [
        Group("taking", (log, process, fetch), partial(_taking, scope, own), row=memory_row(own)),
        Group("asking", (log, process, fetch), partial(_asking, scope, own), at_once=_of_asking),
        asking(starting, own, scope.rules),
        loss(own),
    ]
    for other in scope.ids:
        if other == own:
            continue
        theirs = (log_cell(other), process_cell(other), fetch_cell(other))
        noting = (CLIENT, log, process, proposal_cell(own), theirs[2])
        groups.append(Group("noting", noting, partial(_noting, scope, own), row=f"leader {own}", steps=2))
        if scope.rules.match_responses:
            pair = (log, process, *theirs)
            groups.append(
                Group(
                    "feeding", pair, partial(_feeding, scope, own, other), row=f"pair {own} {other}", steps=3
                )
            )
        if _forgets_late(scope.rules):
            void = partial(_void, own, other)
            groups.append(Group("void", (process, *theirs), void, at_once=partial(_of_void, own)))
    return groups


def _forgets_late(rules: Rules) -> bool:
    return rules.fetch_fencing and leads_once(rules)


def leads_once(rules: Rules) -> bool:
    """Whether a leader that died never leads in its epoch again, for nobody is elected while it is fenced."""
    return rules.last_known_leader_unfenced or not rules.elr


def starts_unnoticed(scope: Scope, own: int, metadata: Metadata) -> bool:
    """Whether nobody can tell when a broker that is fenced registers again."""
    rules, partition = scope.rules, metadata.partition
    if not (scope.reductions.fusing and rules.fencing and rules.checkpointed_at_once and leads_once(rules)):
        return False
    member = own in (*partition.isr, *partition.elr, partition.leader)
    return own in partition.replicas and not member


def _starting(scope: Scope, own: int, metadata: Metadata, log: Log, process: Process) -> Iterator[Move]:
    """A broker registers as a new incarnation, and learns whom it follows."""
    if process.up or not metadata.registration(own).fenced or not starts_unnoticed(scope, own, metadata):
        return
    clean = process.epoch if process.clean else -1
    changed, new = controller.register(metadata, own, clean, scope.rules)
    learned = step(start(Broker(own, log, process), new), changed, scope.rules)[0]
    yield Happening(f"broker {own}", "starts, and learns what is"), (changed, learned.log, learned.process)


def asking(group: Group, own: int, rules: Rules) -> Group:
    """A group of a broker's own steps, after which it would ask for something else."""
    log, process, fetch = log_cell(own), process_cell(own), fetch_cell(own)
    if group.moves is None or not {log, process} <= {*group.cells} or fetch in group.cells:
        return group
    at, of, steps = group.cells.index(log), group.cells.index(process), group.moves

    def moves(*values: Hashable) -> Iterator[Move]:
        *cells, under_way = values
        before = _request(own, cells[at], cells[of])
        if before is not None and not _counts(rules, before):
            before = None
        for happening, new in steps(*cells):
            for left in _left(before, _request(own, new[at], new[of]), under_way):
                yield happening, (*new, left)

    return group._replace(cells=(*group.cells, fetch), moves=moves)


def _request(own: int, log: object, process: object) -> Request | None:
    assert isinstance(log, Log) and isinstance(process, Process)
    return next_request(Broker(own, log, process))


def _counts(rules: Rules, request: Request) -> bool:
    """Whether anything can come of a request when it is late: its leader counts where the follower was, or the answer
    is taken all the same."""
    return isinstance(request, Fetch) or not rules.match_responses


def _left(before: Request | None, after: Request | None, under_way: object) -> tuple[Hashable, ...]:
    """What may be under way of a broker's fetching after a step of its own."""
    if isinstance(under_way, Late):
        return (after if under_way.request == after else under_way,)
    if isinstance(under_way, Reply):
        return (under_way,)
    if before is None or before == after:
        return (after,)
    return after, Late(before)


def left(rules: Rules, broker: Broker, fetch: Hashable) -> Iterator[tuple[Broker, Hashable]]:
    """What a broker is, and what it has under way, told one by one: as it is, and with an answer taken."""
    now = next_request(broker)
    if isinstance(fetch, Request):
        yield broker, Late(fetch) if fetch != now and _counts(rules, fetch) else now
        return
    yield broker, now if fetch is None else fetch
    if isinstance(fetch, Reply) and broker.process.up:
        after = step(broker, fetch, rules)[0]
        yield after, next_request(after)


def _taking(scope: Scope, own: int, log: Log, process: Process, under_way: UnderWay) -> Iterator[Move]:
    """A follower takes an answer, and asks again."""
    if isinstance(under_way, Reply) and process.up:
        after = step(Broker(own, log, process), under_way, scope.rules)[0]
        yield Happening(f"broker {own}", taken(under_way)), (after.log, after.process, next_request(after))


def _asking(scope: Scope, own: int, log: Log, process: Process, under_way: UnderWay) -> Iterator[Move]:
    """Where nothing is under way, or an answer that will never do anything, the follower asks."""
    broker, now = Broker(own, log, process), under_way
    if isinstance(now, Reply) and (process.role is None or without_effect(scope.rules, broker, now)):
        now = None
    if now is None:
        now = next_request(broker)
    if now != under_way:
        yield Happening("", "asks"), (log, process, now)


def _of_asking(value: object) -> Hashable:
    """All of its cells, but a request stays."""
    return None if isinstance(value, (Fetch, AskEpochEnd, Late)) else (value,)


def _noting(
    scope: Scope,
    own: int,
    client: Client,
    log: Log,
    process: Process,
    proposal: Proposal,
    under_way: UnderWay,
) -> Iterator[Move]:
    """A leader answers a follower, and takes note of where it is."""
    request = under_way.request if isinstance(under_way, Late) else under_way
    if not isinstance(request, Request) or request.leader != own or not process.up:
        return
    before = Broker(own, log, process)
    happening, new = serve(scope, client, before, step(before, request, scope.rules), proposal)
    after = _kept(scope, Broker(own, new[1], new[2]))  # type: ignore[arg-type]
    changed = (new[0], after, new[3]) != (client, before, proposal)
    if new[4] is not None and (changed or not scope.rules.match_responses):
        yield happening, new


def _kept(scope: Scope, broker: Broker) -> Broker:
    """A leader as far as it tells two states apart."""
    return remembered(broker, scope) if scope.reductions.memory else broker


def _feeding(
    scope: Scope,
    own: int,
    other: int,
    log: Log,
    process: Process,
    its: Log,
    memory: Process,
    under_way: UnderWay,
) -> Iterator[Move]:
    """A leader answers a follower without anything new to it, and the follower takes the answer."""
    if not isinstance(under_way, Request) or under_way.leader != own or not process.up:
        return
    before, follower = Broker(own, log, process), Broker(other, its, memory)
    after, (reply, *messages) = step(before, under_way, scope.rules)
    assert isinstance(reply, Reply)
    if (
        _kept(scope, after) != before
        or messages
        or reply.error not in (Error.NONE, Error.OFFSET_OUT_OF_RANGE)
    ):
        return
    fed = step(follower, reply, scope.rules)[0]
    text = f"answers broker {other}{replied(reply)}, and it takes that"
    yield (
        Happening(f"broker {own}", text, f"broker {other}"),
        (log, process, fed.log, fed.process, next_request(fed)),
    )


def _void(
    own: int, other: int, leader: Process, log: Log, process: Process, late: UnderWay
) -> Iterator[Move]:
    """A late request to one that is down, or has left the request's epoch behind, and will refuse it."""
    if not isinstance(late, Late) or late.request.leader != own:
        return
    role, epoch = leader.role, late.request.leader_epoch
    past = role is not None and (role.epoch > epoch or (role.epoch == epoch and isinstance(role, Follower)))
    if past or not leader.up:
        request = next_request(Broker(other, log, process))
        yield Happening("", "a request that will be refused is forgotten"), (leader, log, process, request)


def _of_void(own: int, value: object) -> Hashable:
    """A late request to this broker, how far that is; what it would ask for instead."""
    if isinstance(value, Process):
        role = value.role
        return value.up, role and (role.epoch, isinstance(role, Follower))
    if isinstance(value, Log):
        return ""
    return value if isinstance(value, Late) and value.request.leader == own else None

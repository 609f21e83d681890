"""Steps by which followers fetch: the request, the answer, and taking the answer, as three steps or as one.

`one_by_one` has a group for each step. `fused` (`Reductions.fusing`) combines steps if no state tells them apart:

**A request is always in flight**: the one that its follower would send now. A request changes no state. So the time of
its sending matters only if the follower dies or learns of another leader, and therefore sends another request. Such a
step of the follower has two outcomes. Either the old request had not been sent; or it had, and is `Late`: it may still
be served, and its leader then notes where the follower was. A late request that its leader will always refuse is
dropped. This requires leaders that fence (`fetch_fencing`) and that never lead in an epoch again after they died
(`Rules.leads_once`); without one of them it is kept. A late request for the end of an epoch (before KIP-595) changes
nothing at its leader, so it is kept only without `match_responses`.

A late fetch matters seldom, but it matters. Without `broker_epoch_check` its leader proposes a follower that has lost
records since that fetch: an invalid ISR that nothing else leads to. With all protections, some states with three kills
are reached only by late fetches.

**An answer that changed nothing at its leader is taken at once**; a change that `forgetting.py` drops does not count as
one. Taking it concerns the follower alone: all other steps between answer and taking are possible after both as well.
If the follower first takes a step by which it drops the answer, the request might as well not have been served. The
same holds if an invariant breaks in between. This requires followers that drop such answers (`match_responses`);
without it every answer is kept until it is taken. An answer to a request that changed its leader stays in flight: other
steps may depend on that change before the follower has taken the answer.

A fused step counts as the number of single steps in it, so counterexamples are still the shortest.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import partial
from typing import NamedTuple

from ackproof_reference.broker import Broker, BrokerAndMessages, Follower, Process
from ackproof_reference.explore.forgetting import remembered, without_effect
from ackproof_reference.explore.invariants import witness
from ackproof_reference.explore.model import Action, ActionKind, Group, Move
from ackproof_reference.explore.scope import (
    BUDGET,
    CLIENT,
    Budget,
    Client,
    Scope,
    fetch_cell,
    log_cell,
    memory_row,
    process_cell,
    proposal_cell,
)
from ackproof_reference.explore.story import (
    answered,
    describe_arrival,
    describe_request,
    effects,
    refuses,
    replied,
)
from ackproof_reference.follower import next_request
from ackproof_reference.log import Log
from ackproof_reference.messages import Altered, AlterPartition, AskEpochEnd, EpochEnd, Error, Fetch, Fetched
from ackproof_reference.node import step
from ackproof_reference.rules import Rules

Request = Fetch | AskEpochEnd
Reply = Fetched | EpochEnd
Proposal = AlterPartition | Altered | None


class Late(NamedTuple):
    """A request in flight that its follower would no longer send now. The leader may still answer it."""

    request: Request


UnderWay = Request | Late | Reply | None


def one_by_one(scope: Scope, own: int) -> list[Group]:
    """Return the groups for fetches that broker `own` sends or serves, without the reduction `fusing`: request, answer
    and taking the answer are three steps."""
    log, process, fetch = log_cell(own), process_cell(own), fetch_cell(own)
    groups = [
        Group("fetching", (log, process, fetch), partial(_fetching, scope, own), row=memory_row(own)),
        connection(process, fetch),
        loss(own),
    ]
    for other in scope.ids:
        if other != own:
            cells = (CLIENT, log, process, proposal_cell(own), fetch_cell(other))
            groups.append(Group("serving", cells, partial(_serving, scope, own), row=f"leader {own}"))
    return groups


def _fetching(
    scope: Scope, own: int, log: Log, process: Process, under_way: Request | Reply | None
) -> Iterator[Move]:
    name = f"broker {own}"
    broker = Broker(own, log, process)
    if under_way is None:
        request = next_request(broker)
        if request is not None:
            yield (
                Action(name, describe_request(request), f"broker {request.leader}", ActionKind.FETCH, own),
                (log, process, request),
            )
        return
    if isinstance(under_way, Reply):
        if process.up:
            after = step(broker, under_way, scope.rules)[0]
            action = Action(name, describe_arrival(under_way), "", ActionKind.TAKE_ANSWER, own)
            yield action, (after.log, after.process, None)
        return
    role = process.role
    moved_on = not isinstance(role, Follower) or (role.leader, role.epoch) != (
        under_way.leader,
        under_way.leader_epoch,
    )
    if moved_on:
        text = f"gives up its request to broker {under_way.leader}"
        yield Action(name, text, "", ActionKind.ABANDON_FETCH, own), (log, process, None)


def connection(process: int, under_way: int) -> Group:
    """Return the group of steps in which an answer is dropped, because the broker sent its request before it died.
    `process`, `under_way`: indices of the cells with the broker's memory and its message in flight."""
    return Group("connection", (process, under_way), _no_connection, at_once=_of_connection)


def _no_connection(process: Process, under_way: object) -> Iterator[Move]:
    """Yield the step that drops an answer to a request which a broker sent before it died: after a restart it opens a
    new connection."""
    if process.role is None and isinstance(under_way, (Fetched, EpochEnd, Altered)):
        yield Action("", "the connection is gone"), (process, None)


def _of_connection(value: object) -> Hashable:
    """Return the part of a cell that `_no_connection` depends on: "nobody" for the memory of a broker without a role,
    "answer" for an answer in flight. None for any other value: then the group has no step."""
    if isinstance(value, Process):
        return "nobody" if value.role is None else None
    return "answer" if isinstance(value, (Fetched, EpochEnd, Altered)) else None


def loss(own: int) -> Group:
    """Return the group of steps in which a leader's answer (`Reply`) to broker `own` gets lost, so that the broker asks
    again."""

    def lost(budget: Budget, under_way: object) -> Iterator[Move]:
        if budget.lost and isinstance(under_way, Reply):
            text = f"never hears the answer of broker {under_way.leader}"
            action = Action(f"broker {own}", text, "", ActionKind.LOSE_ANSWER, own)
            yield action, (budget._replace(lost=budget.lost - 1), None)

    return Group("loss", (BUDGET, fetch_cell(own)), lost, row=memory_row(own), counts=("lost",))


def _serving(
    scope: Scope,
    own: int,
    client: Client,
    log: Log,
    process: Process,
    proposal: Proposal,
    under_way: UnderWay,
) -> Iterator[Move]:
    """Yield the step in which broker `own` answers a follower's request (`under_way`). If its process is down, the
    follower gets no answer. A refusal (except OFFSET_OUT_OF_RANGE) is not kept in flight: the follower asks again."""
    name = f"broker {own}"
    if not isinstance(under_way, Request) or under_way.leader != own:
        return
    asking = f"broker {under_way.follower}"
    if not process.up:
        text = f"is down: {asking} gets no answer"
        action = Action(name, text, asking, ActionKind.FIND_LEADER_DOWN, under_way.follower)
        yield action, (client, log, process, proposal, None)
        return
    before = Broker(own, log, process)
    served = step(before, under_way, scope.rules)
    yield serve(scope, client, before, served, proposal)


def serve(
    scope: Scope, client: Client, before: Broker, served: BrokerAndMessages, proposal: Proposal
) -> Move:
    """Return a leader's step that answers a follower. `before`: the leader before the request.

    `served`: the leader after the request, with its messages, the reply first. `proposal`: its AlterPartition in
    flight, or the response to it, or None. The new values of the step are the client, the leader's log, memory and
    proposal, and the message in flight to the follower. That message is None after a refusal other than
    OFFSET_OUT_OF_RANGE: the follower asks again."""
    after, (reply, *messages) = served
    assert isinstance(reply, Reply)
    sent = None if reply.error not in (Error.NONE, Error.OFFSET_OUT_OF_RANGE) else reply
    for message in messages:
        if isinstance(message, AlterPartition):
            proposal = message
    asking = f"broker {reply.follower}"
    text = f"answers {asking}{replied(reply)}{answered(tuple(messages))}{effects(before, after)}"
    seen = witness(client, before, after, tuple(messages), scope)
    action = Action(
        f"broker {before.id}", text, asking, ActionKind.ANSWER_FETCH, reply.follower, refuses(tuple(messages))
    )
    return action, (seen, after.log, after.process, proposal, sent)


def fused(scope: Scope, own: int) -> list[Group]:
    """Return the groups for fetches that broker `own` sends or serves, with the reduction `fusing`: a request, its
    answer and the follower's taking it are one step where the states in between make no difference."""
    log, process, fetch = log_cell(own), process_cell(own), fetch_cell(own)
    groups = [
        Group("taking", (log, process, fetch), partial(_taking, scope, own), row=memory_row(own)),
        Group("asking", (log, process, fetch), partial(_asking, scope, own), at_once=_of_asking),
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
        if scope.rules.fetch_fencing and scope.rules.leads_once:
            void = partial(_void, own, other)
            groups.append(Group("void", (process, *theirs), void, at_once=partial(_of_void, own)))
    return groups


def asking(group: Group, own: int, rules: Rules) -> Group:
    """Extend a group of steps that change the next fetch of broker `own`: add the cell of its fetch in flight. Each
    step gets a second outcome, in which the old fetch was sent before the step (`Late`). A group that does not read the
    broker's log and memory, or reads its fetch already, is returned unchanged."""
    log, process, fetch = log_cell(own), process_cell(own), fetch_cell(own)
    if group.moves is None or not {log, process} <= {*group.cells} or fetch in group.cells:
        return group
    at, of, steps = group.cells.index(log), group.cells.index(process), group.moves

    def moves(*values: Hashable) -> Iterator[Move]:
        *cells, under_way = values
        before = _request(own, cells[at], cells[of])
        if before is not None and not _counts(rules, before):
            before = None
        for action, new in steps(*cells):
            for left in _requests_after(before, _request(own, new[at], new[of]), under_way):
                yield action, (*new, left)

    return group._replace(cells=(*group.cells, fetch), moves=moves)


def _request(own: int, log: object, process: object) -> Request | None:
    assert isinstance(log, Log) and isinstance(process, Process)
    return next_request(Broker(own, log, process))


def _counts(rules: Rules, request: Request) -> bool:
    """Return True if a late request can have an effect. A fetch can: its leader notes the follower's log end. A request
    for the end of an epoch can only without `match_responses`: then its follower takes the answer."""
    return isinstance(request, Fetch) or not rules.match_responses


def _requests_after(before: Request | None, after: Request | None, under_way: object) -> tuple[Hashable, ...]:
    """Return the values that a broker's fetch cell, now `under_way`, can have after a step of the broker. `before`,
    `after`: its next request before and after the step; None: none, or in `before` one without effect (`_counts`)."""
    if isinstance(under_way, Late):
        return (after if under_way.request == after else under_way,)
    if isinstance(under_way, Reply):
        return (under_way,)
    if before is None or before == after:
        return (after,)
    return after, Late(before)


def choices_in_stories(rules: Rules, broker: Broker, fetch: Hashable) -> Iterator[tuple[Broker, Hashable]]:
    """Yield each pair (broker, fetch in flight) of the reduced model that can stand for `broker` and `fetch` of the
    plain model. The reduced model combines the steps of a fetch (`Reductions.fusing`); the plain model does not
    (`Scope.in_stories`).

    * The broker as it is. No request, or one that can have no effect, becomes the broker's next request. Another
      request that it would not send now becomes `Late`. An answer stays in flight.
    * If an answer is in flight and the broker runs: the broker after it took the answer, with its next request."""
    now = next_request(broker)
    if isinstance(fetch, Request):
        yield broker, Late(fetch) if fetch != now and _counts(rules, fetch) else now
        return
    yield broker, now if fetch is None else fetch
    if isinstance(fetch, Reply) and broker.process.up:
        after = step(broker, fetch, rules)[0]
        yield after, next_request(after)


def _taking(scope: Scope, own: int, log: Log, process: Process, under_way: UnderWay) -> Iterator[Move]:
    if isinstance(under_way, Reply) and process.up:
        after = step(Broker(own, log, process), under_way, scope.rules)[0]
        yield (
            Action(f"broker {own}", describe_arrival(under_way)),
            (after.log, after.process, next_request(after)),
        )


def _asking(scope: Scope, own: int, log: Log, process: Process, under_way: UnderWay) -> Iterator[Move]:
    broker, now = Broker(own, log, process), under_way
    if isinstance(now, Reply) and (process.role is None or without_effect(scope.rules, broker, now)):
        now = None
    if now is None:
        now = next_request(broker)
    if now != under_way:
        yield Action("", "asks"), (log, process, now)


def _of_asking(value: object) -> Hashable:
    """Return the part of a cell that `_asking` depends on: its value, in a tuple because the value may be None. None if
    a request is in flight: then the group has no step."""
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
    request = under_way.request if isinstance(under_way, Late) else under_way
    if not isinstance(request, Request) or request.leader != own or not process.up:
        return
    before = Broker(own, log, process)
    action, new = serve(scope, client, before, step(before, request, scope.rules), proposal)
    after = _reduce_memory(scope, Broker(own, new[1], new[2]))  # type: ignore[arg-type]
    changed = (new[0], after, new[3]) != (client, before, proposal)
    if new[4] is not None and (changed or not scope.rules.match_responses):
        yield action, new


def _reduce_memory(scope: Scope, broker: Broker) -> Broker:
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
    """Yield the step in which leader `own` answers the request in flight of `other` (`under_way`, not `Late`), and
    `other` takes the answer. `log`, `process`: log and memory of `own`. `its`, `memory`: those of `other`. There is
    no step if the request changes the leader (beyond what `remembered` drops), or makes it send other messages. Nor is
    there one if the leader refuses the request with another error than OFFSET_OUT_OF_RANGE."""
    if not isinstance(under_way, Request) or under_way.leader != own or not process.up:
        return
    before, follower = Broker(own, log, process), Broker(other, its, memory)
    after, (reply, *messages) = step(before, under_way, scope.rules)
    assert isinstance(reply, Reply)
    if (
        _reduce_memory(scope, after) != before
        or messages
        or reply.error not in (Error.NONE, Error.OFFSET_OUT_OF_RANGE)
    ):
        return
    fed = step(follower, reply, scope.rules)[0]
    text = f"answers broker {other}{replied(reply)}, and it takes that"
    yield (
        Action(f"broker {own}", text, f"broker {other}"),
        (log, process, fed.log, fed.process, next_request(fed)),
    )


def _void(
    own: int, other: int, leader: Process, log: Log, process: Process, late: UnderWay
) -> Iterator[Move]:
    """Yield the step that drops a late request (`late`) of `other` to broker `own`, which will refuse it. That broker
    is down, in a later leader epoch, or a follower in the same one. `leader`: memory of `own`. `log`, `process`: log
    and memory of `other`."""
    if not isinstance(late, Late) or late.request.leader != own:
        return
    role, epoch = leader.role, late.request.leader_epoch
    past = role is not None and (role.epoch > epoch or (role.epoch == epoch and isinstance(role, Follower)))
    if past or not leader.up:
        request = next_request(Broker(other, log, process))
        yield Action("", "a request that will be refused is forgotten"), (leader, log, process, request)


def _of_void(own: int, value: object) -> Hashable:
    """Return the part of a cell that `_void` depends on: whether a process is up, its role and epoch; '' for a log; a
    late request to `own`. None for anything else in flight: then the group has no step."""
    if isinstance(value, Process):
        role = value.role
        return value.up, role and (role.epoch, isinstance(role, Follower))
    if isinstance(value, Log):
        return ""
    return value if isinstance(value, Late) and value.request.leader == own else None

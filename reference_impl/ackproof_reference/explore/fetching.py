"""How followers fetch: asking, being answered, taking the answer; each step for itself, or fused (`fusing.py`)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import partial

from ackproof_reference.broker import Broker, Follower, Process, Step
from ackproof_reference.explore.invariants import witness
from ackproof_reference.explore.model import Group, Happening, Move
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
from ackproof_reference.explore.story import answered, asked, effects, replied, taken
from ackproof_reference.follower import next_request
from ackproof_reference.log import Log
from ackproof_reference.messages import Altered, AlterPartition, AskEpochEnd, EpochEnd, Error, Fetch, Fetched
from ackproof_reference.node import step

Request = Fetch | AskEpochEnd
Reply = Fetched | EpochEnd
UnderWay = Request | Reply | None
Proposal = AlterPartition | Altered | None


def one_by_one(scope: Scope, own: int) -> list[Group]:
    """The groups of what a broker fetches, and of what it answers to the others, each step for itself."""
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


def _fetching(scope: Scope, own: int, log: Log, process: Process, under_way: UnderWay) -> Iterator[Move]:
    """A follower asks its leader, takes the answer, or finds that it has moved on since it asked."""
    name = f"broker {own}"
    broker = Broker(own, log, process)
    if under_way is None:
        request = next_request(broker)
        if request is not None:
            yield (
                Happening(name, asked(request), f"broker {request.leader}"),
                (log, process, request),
            )
        return
    if isinstance(under_way, Reply):
        if process.up:
            after = step(broker, under_way, scope.rules)[0]
            yield Happening(name, taken(under_way)), (after.log, after.process, None)
        return
    role = process.role
    moved_on = not isinstance(role, Follower) or (role.leader, role.epoch) != (
        under_way.leader,
        under_way.leader_epoch,
    )
    if moved_on:
        yield (
            Happening(name, f"gives up its request to broker {under_way.leader}"),
            (log, process, None),
        )


def connection(process: int, under_way: int) -> Group:
    """The group that takes what was sent to a broker out of its cell when it has died."""
    return Group("connection", (process, under_way), _no_connection, at_once=_of_connection)


def _no_connection(process: Process, under_way: object) -> Iterator[Move]:
    """What is sent to a broker that has died since it asked never arrives: its next incarnation connects anew."""
    if process.role is None and isinstance(under_way, (Fetched, EpochEnd, Altered)):
        yield Happening("", "the connection is gone"), (process, None)


def _of_connection(value: object) -> Hashable:
    """Whether there is a role, and whether an answer is under way."""
    if isinstance(value, Process):
        return "nobody" if value.role is None else None
    return "answer" if isinstance(value, (Fetched, EpochEnd, Altered)) else None


def loss(own: int) -> Group:
    """A response is lost on its way; the follower will ask again."""

    def lost(budget: Budget, under_way: object) -> Iterator[Move]:
        if budget.lost and isinstance(under_way, Reply):
            text = f"never hears the answer of broker {under_way.leader}"
            yield Happening(f"broker {own}", text), (budget._replace(lost=budget.lost - 1), None)

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
    """A leader answers a follower. A refusal only makes the follower ask again: it is left out of what is under way."""
    name = f"broker {own}"
    if not isinstance(under_way, Request) or under_way.leader != own:
        return
    asking = f"broker {under_way.follower}"
    if not process.up:
        yield (
            Happening(name, f"is down: {asking} gets no answer", asking),
            (client, log, process, proposal, None),
        )
        return
    before = Broker(own, log, process)
    served = step(before, under_way, scope.rules)
    yield serve(scope, client, before, served, proposal)


def serve(scope: Scope, client: Client, before: Broker, served: Step, proposal: Proposal) -> Move:
    """What a leader's answer is to the client, to its log and memory, to its proposal, and what is under way then."""
    after, (reply, *messages) = served
    assert isinstance(reply, Reply)
    sent = None if reply.error not in (Error.NONE, Error.OFFSET_OUT_OF_RANGE) else reply
    for message in messages:
        if isinstance(message, AlterPartition):
            proposal = message
    asking = f"broker {reply.follower}"
    text = f"answers {asking}{replied(reply)}{answered(tuple(messages))}{effects(before, after)}"
    seen = witness(client, before, after, tuple(messages), scope)
    happening = Happening(f"broker {before.id}", text, asking)
    return happening, (seen, after.log, after.process, proposal, sent)

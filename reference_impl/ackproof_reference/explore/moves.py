"""All that can happen next in a scope: the steps of the core, each with a sentence, over the cells that it touches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ackproof_reference import controller
from ackproof_reference.broker import (
    Broker,
    Follower,
    Leader,
    Message,
    Process,
    kill,
    power_off,
    start,
    stop_cleanly,
    with_checkpoint,
)
from ackproof_reference.election import Election
from ackproof_reference.explore.forgetting import remembered
from ackproof_reference.explore.model import Group, Happening, Move
from ackproof_reference.explore.scope import (
    BUDGET,
    CLIENT,
    CONTROLLER,
    Budget,
    Client,
    Scope,
    fetch_cell,
    log_cell,
    memory_row,
    process_cell,
    proposal_cell,
)
from ackproof_reference.explore.sentences import answered, asked, decided, effects, listed, replied, taken
from ackproof_reference.explore.witness import witness
from ackproof_reference.follower import next_request
from ackproof_reference.leader import may_shrink, propose_shrink, time_out
from ackproof_reference.log import Log
from ackproof_reference.messages import (
    Altered,
    AlterPartition,
    AskEpochEnd,
    EpochEnd,
    Error,
    Fetch,
    Fetched,
    Produce,
)
from ackproof_reference.metadata import Metadata
from ackproof_reference.node import step

UnderWay = Fetch | Fetched | AskEpochEnd | EpochEnd | None
Proposal = AlterPartition | Altered | None


def moves(scope: Scope) -> tuple[Group, ...]:
    """All groups of steps of a scope."""
    asked_for = ("hand_overs", "preferred", "unclean", "reassignments")
    elections = _Elections(scope)
    groups = [Group("elections", (BUDGET, CONTROLLER), elections, row=memory_row(1), counts=asked_for)]
    for broker in scope.ids:
        log, process, fetch, proposal = (
            log_cell(broker),
            process_cell(broker),
            fetch_cell(broker),
            proposal_cell(broker),
        )
        dies, stops = ("kills", "power_losses"), ("cuts", "clean_stops")
        lags, client = ("shrinks", "time_outs"), (BUDGET, CLIENT, log, process)
        own = [
            Group("life", (BUDGET, log, process), _Life(scope, broker), counts=dies),
            Group("session", (BUDGET, CONTROLLER, log, process), _Session(scope, broker), counts=stops),
            Group("metadata", (CLIENT, CONTROLLER, log, process), _Learn(scope, broker)),
            Group("fetching", (log, process, fetch), _Fetching(scope, broker)),
            Group("loss", (BUDGET, fetch), _Loss(scope, broker), counts=("lost",)),
            Group("producing", client, _Producing(scope, broker), counts=("retries",)),
            Group("lagging", (BUDGET, log, process, proposal), _Lagging(scope, broker), counts=lags),
            Group("proposals", (CONTROLLER, proposal), _Proposals(scope, broker)),
            Group("answers", (CLIENT, log, process, proposal), _Answers(scope, broker)),
        ]
        groups += [group._replace(row=memory_row(broker)) for group in own]
        for other in scope.ids:
            if other != broker:
                cells = (CLIENT, log, process, proposal, fetch_cell(other))
                groups.append(Group("serving", cells, _Serving(scope, broker), row=f"leader {broker}"))
    return tuple(groups)


@dataclass(frozen=True)
class _Steps:
    scope: Scope

    def said(self, actor: str, text: str, target: str = "") -> Happening:
        return Happening(actor, target, text)


@dataclass(frozen=True)
class _BrokerSteps(_Steps):
    broker: int

    @property
    def name(self) -> str:
        return f"broker {self.broker}"

    def at(self, log: Log, process: Process) -> Broker:
        return Broker(self.broker, log, process)


class _Elections(_Steps):
    """What an administrator, or the balancing timer, asks the controller for."""

    def __call__(self, budget: Budget, metadata: Metadata) -> Iterator[Move]:
        rules = self.scope.rules
        for broker in metadata.partition.isr if budget.hand_overs else ():
            changed = controller.hand_over(metadata, broker, rules)
            if changed != metadata:
                spent = budget._replace(hand_overs=budget.hand_overs - 1)
                yield self.said("controller", f"moves the leadership: {decided(changed)}"), (spent, changed)
        for kind, left in ((Election.PREFERRED, budget.preferred), (Election.UNCLEAN, budget.unclean)):
            if left:
                changed = controller.elect(metadata, kind, rules)
                if changed != metadata:
                    spent = budget._replace(**{kind.name.lower(): left - 1})
                    text = f"is asked for {'a preferred' if kind is Election.PREFERRED else 'an unclean'} election"
                    yield self.said("controller", f"{text}: {decided(changed)}"), (spent, changed)
        for target in self.scope.targets if budget.reassignments else ():
            changed = controller.reassign(metadata, target, rules)
            if changed != metadata:
                spent = budget._replace(reassignments=budget.reassignments - 1)
                text = f"is asked to move the partition to {listed(target)}: {decided(changed)}"
                yield self.said("controller", text), (spent, changed)


class _Life(_BrokerSteps):
    """A broker dies, or its machine does; its checkpoint may name an older high watermark."""

    def __call__(self, budget: Budget, log: Log, process: Process) -> Iterator[Move]:
        broker = self.at(log, process)
        if process.up and budget.kills:
            less = budget._replace(kills=budget.kills - 1)
            yield from self._dead(kill(broker), "is killed", less)
        if budget.power_losses and self.scope.strikes(self.broker):
            less = budget._replace(power_losses=budget.power_losses - 1)
            places = [log.flushed, *(batch.base for batch in log.batches if batch.base > log.flushed)]
            for kept in places:
                if kept < log.end:
                    dead = power_off(broker, kept)
                    text = f"loses power, and with it what was not flushed from offset {dead.log.end} on"
                    yield from self._dead(dead, text, less)

    def _dead(self, dead: Broker, text: str, less: Budget) -> Iterator[Move]:
        log = dead.log
        yield self.said(self.name, text), (less, log, dead.process)
        if not self.scope.rules.checkpointed_at_once:
            for mark in (batch.base for batch in log.batches if batch.base < log.high_watermark):
                older = with_checkpoint(dead, mark)
                told = f"{text}; its checkpoint is of high watermark {mark}"
                yield self.said(self.name, told), (less, older.log, older.process)


class _Session(_BrokerSteps):
    """A broker and its standing with the controller: fencing, registration, unfencing, stopping in good order."""

    def __call__(self, budget: Budget, metadata: Metadata, log: Log, process: Process) -> Iterator[Move]:
        rules, registered = self.scope.rules, metadata.registration(self.broker)
        if not process.up:
            if not registered.fenced:
                fenced = controller.fence(metadata, self.broker, rules)
                yield (
                    self.said(
                        "controller",
                        f"fences {self.name}, whose session ended: {decided(fenced)}",
                        self.name,
                    ),
                    (budget, fenced, log, process),
                )
                return
            clean = process.epoch if process.clean else -1
            changed, new = controller.register(metadata, self.broker, clean, rules)
            started = start(self.at(log, process), new)
            text = f"starts and registers as incarnation {new.epoch}: {decided(changed)}"
            yield self.said(self.name, text, "controller"), (budget, changed, started.log, started.process)
            return
        known = process.metadata
        caught_up = known is not None and known.registration(self.broker).epoch == process.epoch
        if registered.fenced and caught_up and registered.epoch == process.epoch:
            free = controller.unfence(metadata, self.broker, rules)
            text = f"has caught up and is unfenced: {decided(free)}"
            yield self.said(self.name, text, "controller"), (budget, free, log, process)
        if not registered.fenced and budget.cuts and self.scope.strikes(self.broker):
            fenced = controller.fence(metadata, self.broker, rules)
            text = f"fences {self.name}, which lives but cannot reach it: {decided(fenced)}"
            less = budget._replace(cuts=budget.cuts - 1)
            yield self.said("controller", text, self.name), (less, fenced, log, process)
        if not registered.fenced and not registered.stopping and budget.clean_stops:
            leaving = controller.begin_shutdown(metadata, self.broker, rules)
            text = f"asks to stop: {decided(leaving)}"
            less = budget._replace(clean_stops=budget.clean_stops - 1)
            yield self.said(self.name, text, "controller"), (less, leaving, log, process)
        if registered.stopping and metadata.partition.leader != self.broker:
            stopped = stop_cleanly(self.at(log, process))
            gone = controller.fence(metadata, self.broker, rules)
            yield self.said(self.name, "stops in good order"), (budget, gone, stopped.log, stopped.process)


class _Learn(_BrokerSteps):
    """A running broker learns what the controller decided.

    It takes the newest image. Learning an older one later gives nothing new: a broker could have learnt it when it
    was the newest, for nothing the controller does waits for it.
    """

    def __call__(self, client: Client, metadata: Metadata, log: Log, process: Process) -> Iterator[Move]:
        if not process.up or process.metadata == metadata:
            return
        before = self.at(log, process)
        after, messages = step(before, metadata, self.scope.rules)
        after = remembered(after) if self.scope.forgetting else after
        if after != before:
            text = f"learns that {decided(metadata)}{answered(messages)}{effects(before, after)}"
            yield (
                self.said(self.name, text),
                (witness(client, before, after, messages, self.scope), metadata, after.log, after.process),
            )


class _Fetching(_BrokerSteps):
    """A follower asks its leader, and takes the answer; a broker that is down loses what was sent to it."""

    def __call__(self, log: Log, process: Process, under_way: UnderWay) -> Iterator[Move]:
        broker = self.at(log, process)
        if under_way is None:
            request = next_request(broker)
            if request is not None:
                yield (
                    self.said(self.name, asked(request), f"broker {request.leader}"),
                    (log, process, request),
                )
            return
        if isinstance(under_way, (Fetched, EpochEnd)):
            after = step(broker, under_way, self.scope.rules)[0] if process.up else broker
            text = taken(under_way) + ("" if process.up else ", but it is down")
            yield self.said(self.name, text), (after.log, after.process, None)
            return
        role = process.role
        moved_on = not isinstance(role, Follower) or (role.leader, role.epoch) != (
            under_way.leader,
            under_way.leader_epoch,
        )
        if moved_on:
            yield (
                self.said(self.name, f"gives up its request to broker {under_way.leader}"),
                (log, process, None),
            )


class _Loss(_BrokerSteps):
    """A response is lost on its way; the follower will ask again."""

    def __call__(self, budget: Budget, under_way: UnderWay) -> Iterator[Move]:
        if budget.lost and isinstance(under_way, (Fetched, EpochEnd)):
            text = f"never hears the answer of broker {under_way.leader}"
            yield self.said(self.name, text), (budget._replace(lost=budget.lost - 1), None)


class _Producing(_BrokerSteps):
    """The client sends a record to a broker that believes to lead; or one again, if it has heard nothing."""

    def __call__(self, budget: Budget, client: Client, log: Log, process: Process) -> Iterator[Move]:
        if not isinstance(process.role, Leader):
            return
        before = self.at(log, process)
        if client.sent < self.scope.records:
            yield self._send(budget, client._replace(sent=client.sent + 1), before, client.sent, "sends")
        if budget.retries:
            less = budget._replace(retries=budget.retries - 1)
            for sequence in range(client.sent):
                if sequence not in client.acked:
                    yield self._send(less, client, before, sequence, "sends once more")

    def _send(self, budget: Budget, client: Client, before: Broker, sequence: int, how: str) -> Move:
        scope = self.scope
        request = Produce(0, sequence, scope.acks, producer_epoch=0 if scope.idempotent else -1)
        after, messages = step(before, request, scope.rules)
        text = f"{how} record {sequence}{answered(messages)}"
        if scope.acks == 0 and sequence not in client.acked:
            client = client._replace(acked=(*client.acked, sequence))
        seen = witness(client, before, after, messages, scope)
        return self.said("client", text, self.name), (budget, seen, after.log, after.process)


class _Lagging(_BrokerSteps):
    """A leader finds a follower too slow, or a producer has waited too long."""

    def __call__(self, budget: Budget, log: Log, process: Process, proposal: Proposal) -> Iterator[Move]:
        if not process.up:
            return
        broker = self.at(log, process)
        for waiting in process.role.waiting if budget.time_outs and isinstance(process.role, Leader) else ():
            late, told = time_out(broker, waiting)
            less = budget._replace(time_outs=budget.time_outs - 1)
            text = f"gives up waiting{answered(told)}"
            yield self.said(self.name, text, "client"), (less, log, late.process, proposal)
        for slow in may_shrink(broker) if budget.shrinks else ():
            after, messages = propose_shrink(broker, (slow,))
            less = budget._replace(shrinks=budget.shrinks - 1)
            text = f"proposes to drop broker {slow}, which lags, from the ISR"
            yield self.said(self.name, text, "controller"), (less, after.log, after.process, messages[0])


class _Proposals(_BrokerSteps):
    """The controller decides on a proposed ISR."""

    def __call__(self, metadata: Metadata, proposal: Proposal) -> Iterator[Move]:
        if isinstance(proposal, AlterPartition):
            changed, answer = controller.alter_partition(metadata, proposal, self.scope.rules)
            isr = listed(proposal.isr)
            if answer.error is Error.NONE:
                text = f"takes {isr} as the ISR: {decided(changed)}"
            else:
                text = f"refuses {isr} as the ISR: {answer.error.name}"
            yield self.said("controller", text, self.name), (changed, answer)


class _Answers(_BrokerSteps):
    """A leader hears what became of its proposal."""

    def __call__(self, client: Client, log: Log, process: Process, proposal: Proposal) -> Iterator[Move]:
        if not isinstance(proposal, Altered):
            return
        before = after = self.at(log, process)
        messages: tuple[Message, ...] = ()
        if process.up:
            after, messages = step(before, proposal, self.scope.rules)
        text = f"hears what became of its proposal{answered(messages)}{effects(before, after)}"
        seen = witness(client, before, after, messages, self.scope)
        yield self.said(self.name, text), (seen, after.log, after.process, None)


class _Serving(_BrokerSteps):
    """A leader answers a follower. A refusal only makes the follower ask again: it is left out of what is under way."""

    def __call__(
        self, client: Client, log: Log, process: Process, proposal: Proposal, under_way: UnderWay
    ) -> Iterator[Move]:
        if not isinstance(under_way, (Fetch, AskEpochEnd)) or under_way.leader != self.broker:
            return
        asking = f"broker {under_way.follower}"
        if not process.up:
            yield (
                self.said(self.name, f"is down: {asking} gets no answer", asking),
                (client, log, process, proposal, None),
            )
            return
        before = self.at(log, process)
        after, (reply, *messages) = step(before, under_way, self.scope.rules)
        assert isinstance(reply, (Fetched, EpochEnd))
        sent = None if reply.error not in (Error.NONE, Error.OFFSET_OUT_OF_RANGE) else reply
        for message in messages:
            if isinstance(message, AlterPartition):
                proposal = message
        text = f"answers {asking}{replied(reply)}{answered(tuple(messages))}{effects(before, after)}"
        seen = witness(client, before, after, tuple(messages), self.scope)
        yield self.said(self.name, text, asking), (seen, after.log, after.process, proposal, sent)

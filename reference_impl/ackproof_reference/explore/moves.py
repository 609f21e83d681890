"""All steps that can happen next in a model of a partition, each with a sentence and the cells that it uses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ackproof_reference import controller
from ackproof_reference.broker import (
    Broker,
    Leader,
    Process,
    kill,
    power_off,
    start,
    stop_cleanly,
    with_checkpoint,
)
from ackproof_reference.election import Election
from ackproof_reference.explore.fetching import Proposal, asking, connection, fused, one_by_one
from ackproof_reference.explore.invariants import witness
from ackproof_reference.explore.model import Action, ActionKind, Group, Move
from ackproof_reference.explore.scope import (
    BUDGET,
    CLIENT,
    CONTROLLER,
    Budget,
    Client,
    Scope,
    log_cell,
    memory_row,
    process_cell,
    proposal_cell,
)
from ackproof_reference.explore.story import answered, describe_decision, effects, listed, refuses
from ackproof_reference.leader import may_shrink, propose_shrink, time_out
from ackproof_reference.log import Log
from ackproof_reference.messages import Altered, AlterPartition, Error, Produce
from ackproof_reference.metadata import Metadata
from ackproof_reference.node import step


def moves(scope: Scope) -> tuple[Group, ...]:
    """Return the groups of all steps that may happen in a scope: elections, failures, registrations, metadata
    updates, produced records, fetches and ISR changes.
    """
    asked_for = ("hand_overs", "preferred", "unclean", "reassignments")
    elections = partial(_elections, scope)
    groups = [Group("elections", (BUDGET, CONTROLLER), elections, row=memory_row(1), counts=asked_for)]
    for broker in scope.ids:
        log, process, proposal = log_cell(broker), process_cell(broker), proposal_cell(broker)
        dies, goes = ("kills", "power_losses"), ("cuts", "clean_stops")
        lags, client = ("shrinks", "time_outs"), (BUDGET, CLIENT, log, process)
        own = [
            Group("life", (BUDGET, log, process), partial(_life, scope, broker), counts=dies),
            Group("leaving", (BUDGET, CONTROLLER, process), partial(_leaving, scope, broker), counts=goes),
            Group("session", (CONTROLLER, log, process), partial(_session, scope, broker)),
            *_failover_groups(scope, broker),
            Group("metadata", (CLIENT, CONTROLLER, log, process), partial(_learn, scope, broker)),
            Group("producing", client, partial(_producing, scope, broker), counts=("retries",)),
            Group("lagging", (BUDGET, log, process, proposal), partial(_lagging, broker), counts=lags),
            Group("proposals", (CONTROLLER, proposal), partial(_proposals, scope, broker)),
            Group("answers", (CLIENT, log, process, proposal), partial(_answers, scope, broker)),
            connection(process, proposal),
        ]
        if scope.reductions.fusing:
            # What changes a follower's log or role; the others are steps of leaders.
            own = [
                asking(group, broker, scope.rules) if group.name in ("life", "session", "metadata") else group
                for group in own
            ]
        groups += [group if group.at_once else group._replace(row=memory_row(broker)) for group in own]
        if not scope.reductions.fusing:
            groups += one_by_one(scope, broker)
            continue
        cells, row = (CONTROLLER, log, process), memory_row(broker)
        starting = Group("starting", cells, partial(_starting, scope, broker), row=row, steps=2)
        taking, *others = fused(scope, broker)
        groups += [taking, asking(starting, broker, scope.rules), *others]
    return tuple(groups)


def _elections(scope: Scope, budget: Budget, metadata: Metadata) -> Iterator[Move]:
    """Yield the steps in which the controller moves the leadership, holds a preferred or an unclean election, or begins
    a reassignment. Steps that would change nothing are left out."""
    rules = scope.rules
    for broker in metadata.partition.isr if budget.hand_overs else ():
        changed = controller.hand_over(metadata, broker, rules)
        if changed != metadata:
            spent = budget._replace(hand_overs=budget.hand_overs - 1)
            text = f"moves the leadership: {describe_decision(changed)}"
            yield Action("controller", text, kind=ActionKind.MOVE_LEADER), (spent, changed)
    for election, left, name, kind in (
        (Election.PREFERRED, budget.preferred, "a preferred", ActionKind.ELECT_PREFERRED),
        (Election.UNCLEAN, budget.unclean, "an unclean", ActionKind.ELECT_UNCLEAN),
    ):
        if left:
            changed = controller.elect(metadata, election, rules)
            if changed != metadata:
                spent = budget._replace(**{election.name.lower(): left - 1})
                text = f"is asked for {name} election: {describe_decision(changed)}"
                yield Action("controller", text, kind=kind), (spent, changed)
    for target in scope.targets if budget.reassignments else ():
        changed = controller.reassign(metadata, target, rules)
        if changed != metadata:
            spent = budget._replace(reassignments=budget.reassignments - 1)
            text = f"is asked to move the partition to {listed(target)}: {describe_decision(changed)}"
            yield Action("controller", text, kind=ActionKind.REASSIGN), (spent, changed)


def _life(scope: Scope, own: int, budget: Budget, log: Log, process: Process) -> Iterator[Move]:
    """Yield the steps in which a broker's process is killed, or its machine loses power, and with it records that were
    not flushed. A machine whose process is down may lose power, too; one that has flushed all records may not.

    Without the rule `checkpointed_at_once`, the checkpointed high watermark may then be older than the one in memory.
    """
    broker = Broker(own, log, process)
    if process.up and budget.kills:
        less = budget._replace(kills=budget.kills - 1)
        yield from _dead(scope, kill(broker), ActionKind.KILL, "is killed", less)
    if budget.power_losses and scope.strikes(own):
        less = budget._replace(power_losses=budget.power_losses - 1)
        places = [log.flushed, *(batch.base for batch in log.batches if batch.base > log.flushed)]
        for kept in places:
            if kept < log.end:
                dead = power_off(broker, kept)
                text = f"loses power, and with it what was not flushed from offset {dead.log.end} on"
                yield from _dead(scope, dead, ActionKind.LOSE_POWER, text, less)


def _dead(scope: Scope, dead: Broker, kind: ActionKind, text: str, less: Budget) -> Iterator[Move]:
    name = f"broker {dead.id}"
    log = dead.log
    yield Action(name, text, "", kind, dead.id), (less, log, dead.process)
    if not scope.rules.checkpointed_at_once:
        for mark in (batch.base for batch in log.batches if batch.base < log.high_watermark):
            older = with_checkpoint(dead, mark)
            told = f"{text}; its checkpoint is of high watermark {mark}"
            yield Action(name, told, "", kind, dead.id), (less, older.log, older.process)


def _leaving(scope: Scope, own: int, budget: Budget, metadata: Metadata, process: Process) -> Iterator[Move]:
    """Yield the steps in which the controller fences a live broker that does not reach it, or a broker asks for a
    controlled shutdown."""
    name = f"broker {own}"
    rules, registered = scope.rules, metadata.registration(own)
    if not process.up or registered.fenced:
        return
    if budget.cuts and scope.strikes(own):
        fenced = controller.fence(metadata, own, rules)
        text = f"fences {name}, which lives but cannot reach it: {describe_decision(fenced)}"
        less = budget._replace(cuts=budget.cuts - 1)
        yield Action("controller", text, name, ActionKind.FENCE, own), (less, fenced, process)
    if not registered.stopping and budget.clean_stops:
        leaving = controller.begin_shutdown(metadata, own, rules)
        text = f"asks to stop: {describe_decision(leaving)}"
        less = budget._replace(clean_stops=budget.clean_stops - 1)
        yield Action(name, text, "controller", ActionKind.ASK_TO_STOP, own), (less, leaving, process)


def _session(scope: Scope, own: int, metadata: Metadata, log: Log, process: Process) -> Iterator[Move]:
    """Yield the steps that the controller takes about a broker's session: it fences a dead broker, registers a fenced
    one that starts (unless `starts_unnoticed`), or unfences one that has caught up. A controlled shutdown ends once
    the broker does not lead."""
    name = f"broker {own}"
    rules, registered = scope.rules, metadata.registration(own)
    if not process.up:
        if not registered.fenced:
            fenced = controller.fence(metadata, own, rules)
            yield (
                Action(
                    "controller",
                    f"fences {name}, whose session ended: {describe_decision(fenced)}",
                    name,
                    ActionKind.FENCE,
                    own,
                ),
                (fenced, log, process),
            )
            return
        if starts_unnoticed(scope, own, metadata):
            return
        clean = process.epoch if process.clean else -1
        changed, new = controller.register(metadata, own, clean, rules)
        started = start(Broker(own, log, process), new)
        text = f"starts and registers as incarnation {new.epoch}: {describe_decision(changed)}"
        action = Action(name, text, "controller", ActionKind.REGISTER, own)
        yield action, (changed, started.log, started.process)
        return
    known = process.metadata
    caught_up = known is not None and known.registration(own).epoch == process.epoch
    if registered.fenced and caught_up and registered.epoch == process.epoch:
        free = controller.unfence(metadata, own, rules)
        text = f"has caught up and is unfenced: {describe_decision(free)}"
        yield Action(name, text, "controller", ActionKind.UNFENCE, own), (free, log, process)
    if registered.stopping and metadata.partition.leader != own:
        stopped = stop_cleanly(Broker(own, log, process))
        gone = controller.fence(metadata, own, rules)
        action = Action(name, "stops in good order", "", ActionKind.STOP, own)
        yield action, (gone, stopped.log, stopped.process)


def starts_unnoticed(scope: Scope, own: int, metadata: Metadata) -> bool:
    """Return True if the search may take two steps as one: the registration of the fenced broker `own`, and the step in
    which it learns its role. That changes no answer. `metadata`: the controller's.

    It requires the reduction `fusing`, and the rules `fencing`, `checkpointed_at_once` and `leads_once`. The broker
    must be a replica, but neither the leader nor in ISR or ELR. Until such a broker has learned its role it can only
    die again, and no other step depends on when it registered.

    The side effects of registering happen in the combined step: the broker is no longer stopping, and its
    clean-shutdown file is removed."""
    rules, partition = scope.rules, metadata.partition
    # Fenced brokers join no ISR, checkpoints are not older a second time, and no leader is elected while it is fenced.
    if not (scope.reductions.fusing and rules.fencing and rules.checkpointed_at_once and rules.leads_once):
        return False
    member = own in (*partition.isr, *partition.elr, partition.leader)
    return own in partition.replicas and not member


def _starting(scope: Scope, own: int, metadata: Metadata, log: Log, process: Process) -> Iterator[Move]:
    if process.up or not metadata.registration(own).fenced or not starts_unnoticed(scope, own, metadata):
        return
    clean = process.epoch if process.clean else -1
    changed, new = controller.register(metadata, own, clean, scope.rules)
    learned = step(start(Broker(own, log, process), new), changed, scope.rules)[0]
    yield Action(f"broker {own}", "starts, and learns what is"), (changed, learned.log, learned.process)


def _failover_groups(scope: Scope, own: int) -> Iterator[Group]:
    """Yield the group in which a controller fails during a decision, if the scope has `failovers`. Then yield the group
    in which a broker repeats its unanswered shutdown request. Yield nothing without the rule `fencing`."""
    if not scope.rules.fencing:
        return
    if scope.budget.failovers:
        counts = ("cuts", "clean_stops", "failovers")
        cells = (BUDGET, CONTROLLER, process_cell(own))
        yield Group("half", cells, partial(_half, scope, own), counts=counts)
    yield Group("again", (CONTROLLER, process_cell(own)), partial(_again, scope, own))


def _half(scope: Scope, own: int, budget: Budget, metadata: Metadata, process: Process) -> Iterator[Move]:
    """Yield the steps in which a controller fails in the middle of a decision about a broker.

    The first records of the decision are committed. Its other records never are, no broker learns of them, and a
    broker that asked for the decision gets no answer. In KRaft that happens to decisions about many partitions
    (ControllerResult.of). A decision in one record or one batch (atomicOf) is committed as a whole or not at all. Such
    are ISR changes, elections and registrations."""
    if not budget.failovers:
        return
    name, registered = f"broker {own}", metadata.registration(own)
    less = budget._replace(failovers=budget.failovers - 1)
    cut = process.up and bool(budget.cuts) and scope.strikes(own)
    if not registered.fenced and (cut or not process.up):
        half = controller.half_fenced(metadata, own, scope.rules)
        if half != metadata:
            text = f"fails while it fences {name}: {describe_decision(half)}, and it is not fenced"
            left = less._replace(cuts=less.cuts - 1) if cut else less
            yield Action("controller", text, name, ActionKind.FAIL_OVER, own), (left, half, process)
    if process.up and not registered.fenced and budget.clean_stops and not registered.stopping:
        half = controller.half_stopping(metadata, own)
        text = f"fails while {name} stops: {describe_decision(half)}"
        stopping = less._replace(clean_stops=less.clean_stops - 1)
        yield Action("controller", text, name, ActionKind.FAIL_OVER, own), (stopping, half, process)


def _again(scope: Scope, own: int, metadata: Metadata, process: Process) -> Iterator[Move]:
    """Yield the step in which a broker repeats its shutdown request, because the controller that it asked has
    failed."""
    registered = metadata.registration(own)
    if not process.up or registered.fenced or not registered.stopping:
        return
    leaving = controller.begin_shutdown(metadata, own, scope.rules)
    if leaving != metadata:
        text = f"asks to stop again: {describe_decision(leaving)}"
        action = Action(f"broker {own}", text, "controller", ActionKind.ASK_TO_STOP, own)
        yield action, (leaving, process)


def _learn(
    scope: Scope, own: int, client: Client, metadata: Metadata, log: Log, process: Process
) -> Iterator[Move]:
    """Yield the step in which a running broker applies the newest image.

    Images that it skips need no step of their own: it could have applied each one when it was the newest, because the
    controller never waits for brokers.
    """
    if not process.up or process.metadata == metadata:
        return
    before = Broker(own, log, process)
    after, messages = step(before, metadata, scope.rules)
    if after != before:
        text = f"learns that {describe_decision(metadata)}{answered(messages)}{effects(before, after)}"
        yield (
            Action(f"broker {own}", text, "", ActionKind.LEARN, own, refuses(messages)),
            (witness(client, before, after, messages, scope), metadata, after.log, after.process),
        )


def _producing(
    scope: Scope, own: int, budget: Budget, client: Client, log: Log, process: Process
) -> Iterator[Move]:
    """Yield the steps in which the client sends a new record to a broker that believes it leads, or repeats
    one that is not acknowledged."""
    if not isinstance(process.role, Leader):
        return
    before = Broker(own, log, process)
    if client.sent < scope.records:
        yield _send(scope, budget, client._replace(sent=client.sent + 1), before, client.sent)
    if budget.retries:
        less = budget._replace(retries=budget.retries - 1)
        for sequence in range(client.sent):
            if sequence not in client.acked:
                yield _send(scope, less, client, before, sequence, again=True)


def _send(
    scope: Scope, budget: Budget, client: Client, before: Broker, sequence: int, *, again: bool = False
) -> Move:
    request = Produce(0, sequence, scope.acks, producer_epoch=0 if scope.idempotent else -1)
    after, messages = step(before, request, scope.rules)
    text = f"sends{' once more' if again else ''} record {sequence}{answered(messages)}"
    if scope.acks == 0 and sequence not in client.acked:
        client = client._replace(acked=(*client.acked, sequence))
    seen = witness(client, before, after, messages, scope)
    kind = ActionKind.RESEND if again else ActionKind.SEND
    action = Action("client", text, f"broker {before.id}", kind, before.id, refuses(messages))
    return action, (budget, seen, after.log, after.process)


def _lagging(own: int, budget: Budget, log: Log, process: Process, proposal: Proposal) -> Iterator[Move]:
    name = f"broker {own}"
    if not process.up:
        return
    broker = Broker(own, log, process)
    for waiting in process.role.waiting if budget.time_outs and isinstance(process.role, Leader) else ():
        late, told = time_out(broker, waiting)
        less = budget._replace(time_outs=budget.time_outs - 1)
        text = f"gives up waiting{answered(told)}"
        action = Action(name, text, "client", ActionKind.TIME_OUT, own, refuses(told))
        yield action, (less, log, late.process, proposal)
    for slow in may_shrink(broker) if budget.shrinks else ():
        after, messages = propose_shrink(broker, (slow,))
        less = budget._replace(shrinks=budget.shrinks - 1)
        text = f"proposes to drop broker {slow}, which lags, from the ISR"
        action = Action(name, text, "controller", ActionKind.PROPOSE_SHRINK, own)
        yield action, (less, after.log, after.process, messages[0])


def _proposals(scope: Scope, own: int, metadata: Metadata, proposal: Proposal) -> Iterator[Move]:
    name = f"broker {own}"
    if isinstance(proposal, AlterPartition):
        changed, answer = controller.alter_partition(metadata, proposal, scope.rules)
        isr = listed(proposal.isr)
        if answer.error is Error.NONE:
            text = f"takes {isr} as the ISR: {describe_decision(changed)}"
        else:
            text = f"refuses {isr} as the ISR: {answer.error.name}"
        yield Action("controller", text, name, ActionKind.DECIDE_PROPOSAL, own), (changed, answer)


def _answers(
    scope: Scope, own: int, client: Client, log: Log, process: Process, proposal: Proposal
) -> Iterator[Move]:
    if not isinstance(proposal, Altered) or not process.up:
        return
    before = Broker(own, log, process)
    after, messages = step(before, proposal, scope.rules)
    text = f"hears what became of its proposal{answered(messages)}{effects(before, after)}"
    seen = witness(client, before, after, messages, scope)
    action = Action(f"broker {own}", text, "", ActionKind.TAKE_DECISION, own, refuses(messages))
    yield action, (seen, after.log, after.process, None)

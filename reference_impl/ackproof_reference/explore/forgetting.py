"""Reductions that drop parts of a state which no invariant and no later step reads: fewer states, the same findings.

The search keeps one of all states that behave alike. A dropped part changes no later step, whatever else
happens, because epochs only grow. So each path of the full search is a path of this one, without the steps
that had no effect. `Reductions.void` and `Reductions.memory` switch them on; `tests/model/test_reductions.py`
compares the searches with and without them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import partial

from ackproof_reference.broker import Broker, Leader, Process, Progress
from ackproof_reference.explore.model import Action, Group, Move
from ackproof_reference.explore.scope import (
    CONTROLLER,
    Scope,
    fetch_cell,
    log_cell,
    process_cell,
    proposal_cell,
)
from ackproof_reference.log import UNKNOWN, Log
from ackproof_reference.messages import Altered, AlterPartition, EpochEnd, Error, Fetched
from ackproof_reference.metadata import NO_LEADER, Metadata, Partition, Registration
from ackproof_reference.node import step
from ackproof_reference.rules import Rules

_NEVER_TAKEN = (
    Error.NOT_CONTROLLER,
    Error.INVALID_REQUEST,
    Error.FENCED_LEADER_EPOCH,
    Error.INVALID_UPDATE_VERSION,
)
"""Errors to an AlterPartition after which the leader keeps waiting for newer metadata, as it would without an
answer.
"""


def remembered(broker: Broker, scope: Scope) -> Broker:
    """Return a broker without the parts of its state that no later step reads. Dropped are:

    * The recovery point, if the broker cannot lose power.
    * The clean-shutdown file, if no rule reads it.
    * In a leader's memory: the start of its epoch once the high watermark has passed it, broker epochs of fetches, and
      followers' log ends that make no difference (`_leading`). Also the fields of its image that only the controller
      reads (`_image`).
    * Of the image of a broker that does not lead, all but its own incarnation. Its role names leader and epoch, and the
      next image that it applies replaces this one. Also the broker epochs of fetches that a follower remembers."""
    rules, log, process = scope.rules, broker.log, broker.process
    if not (scope.budget.power_losses and scope.strikes(broker.id)):
        log = log._replace(flushed=log.start)
    if process.clean and not (rules.elr and rules.unclean_shutdown_detection):
        process = process._replace(clean=False)
    if isinstance(process.role, Leader):
        led = _leading(process.role, process.partition, log, scope)
        process = process._replace(role=led, metadata=_image(process, process.role, broker.id, rules))
    elif process.metadata is not None:
        image = Metadata(Partition((), NO_LEADER, 0, 0, ()), (Registration(broker.id, process.epoch),))
        role = process.role and process.role._replace(remembered=_ends(process.role.remembered))
        process = process._replace(role=role, metadata=image)
    return Broker(broker.id, log, process)


def _leading(leader: Leader, partition: Partition, log: Log, scope: Scope) -> Leader:
    """Return a leader without the parts of its epoch start and of its followers' progress that no later step reads:

    * The broker epochs of fetches. A leader proposes a follower for the ISR only at a fetch, which names the epoch
      again.
    * The start of its leader epoch, if the high watermark has passed it: a follower that joins the ISR must have
      reached the high watermark in any case. Without the rule `expand_from_epoch_start`, the start is always dropped.
    * Log ends of replicas that are neither in the ISR nor in a proposed one. They are proposed only at a fetch, which
      names the log end again.
    * Log ends of the members of these ISRs that are not beyond the high watermark: with any of these log ends, the high
      watermark stays where it is. If followers may be slow (`Budget.shrinks`), a log end equal to the leader's is kept:
      such a follower is not slow.

    Log ends are dropped only if the controller refuses a proposal that its leader gave up (`partition_epoch_check`, or
    the conditional write in ZooKeeper). Also, leaders must keep nothing from before they were deposed
    (`reset_followers`, `notice_skipped_epochs`)."""
    rules = scope.rules
    if not rules.expand_from_epoch_start or leader.start <= log.high_watermark:
        leader = leader._replace(start=0)
    compared = rules.partition_epoch_check or not rules.alter_partition
    if not (compared and rules.reset_followers and rules.notice_skipped_epochs):
        return leader._replace(progress=_ends(leader.progress))
    counted = {*partition.isr, *(leader.pending or ())}
    whole = log.end if scope.budget.shrinks else UNKNOWN

    def reduce(entry: Progress) -> Progress:
        counts = entry.replica in counted and (entry.end > log.high_watermark or entry.end == whole)
        return Progress(entry.replica, entry.end if counts else UNKNOWN)

    return leader._replace(progress=tuple(map(reduce, leader.progress)))


def _ends(progress: tuple[Progress, ...]) -> tuple[Progress, ...]:
    """Return the followers' log end offsets without their broker epochs."""
    return tuple(Progress(entry.replica, entry.end) for entry in progress)


def _image(process: Process, leader: Leader, own: int, rules: Rules) -> Metadata:
    """Return the leader's image, reduced to what the leader still reads of it.

    Kept are the partition without the fields that only the controller reads, the leader's incarnation, and the other
    brokers' registrations. Without the rule `fencing`, only their incarnations are kept.

    A fenced or stopping broker in neither the present ISR nor a proposed one may not join until a newer image says
    otherwise. That does not depend on its incarnation, so it is kept as a fenced broker without one."""
    image, partition = process.image, process.partition
    members = {*partition.isr, *(leader.pending or ())}

    def reduce(entry: Registration) -> Registration:
        if entry.broker == own:
            return Registration(own, entry.epoch)
        if not rules.fencing:
            return Registration(entry.broker, entry.epoch)
        out = (entry.fenced or entry.stopping) and entry.broker not in members
        return Registration(entry.broker, UNKNOWN, fenced=True) if out else entry

    kept = partition._replace(elr=(), last_known_leader=NO_LEADER, recovering=False, adding=(), removing=())
    return Metadata(kept, tuple(map(reduce, image.brokers)))


def remembering(group: Group, scope: Scope) -> Group:
    """Return a group whose steps store brokers without the state that no later step reads (`remembered` says
    which). A group that uses no broker's log and memory together is returned unchanged.
    """
    at = [
        (one, group.cells.index(log_cell(one)), group.cells.index(process_cell(one)))
        for one in scope.ids
        if {log_cell(one), process_cell(one)} <= {*group.cells}
    ]
    if group.moves is None or not at:
        return group
    whole = group.moves

    def moves(*values: Hashable) -> Iterator[Move]:
        for action, after in whole(*values):
            new = list(after)
            for own, log, process in at:
                kept = remembered(Broker(own, new[log], new[process]), scope)  # type: ignore[arg-type]
                new[log], new[process] = kept.log, kept.process
            yield action, tuple(new)

    return group._replace(moves=moves)


def leftovers(scope: Scope) -> tuple[Group, ...]:
    """Return the groups that remove, at once, messages in flight that have no effect any more; () without the
    reduction `void`."""
    if not scope.reductions.void:
        return ()
    groups = []
    for broker in scope.ids:
        process, proposal = process_cell(broker), proposal_cell(broker)
        if scope.rules.match_responses and not scope.reductions.fusing:
            cells, response = (
                (log_cell(broker), process, fetch_cell(broker)),
                partial(_response, scope.rules, broker),
            )
            groups.append(Group("void response", cells, response, at_once=_of_response))
        stale = partial(_stale_proposal, scope.rules)
        groups.append(Group("stale proposal", (CONTROLLER, proposal), stale, at_once=_of_proposal))
        groups.append(Group("late answer", (process, proposal), _late_answer, at_once=_of_answer))
    return tuple(groups)


def without_effect(rules: Rules, broker: Broker, reply: Fetched | EpochEnd) -> bool:
    """Return True if a follower drops a response, or takes nothing from it, now and later. False without
    `match_responses`.

    The effect of a response depends on the follower's role and log. Only the follower's own steps change these, and
    after such a step it would send another fetch, so it drops this response (`match_responses`).
    """
    return rules.match_responses and step(broker, reply, rules)[0] == broker


def _response(rules: Rules, own: int, log: Log, process: Process, under_way: object) -> Iterator[Move]:
    if isinstance(under_way, (Fetched, EpochEnd)) and without_effect(
        rules, Broker(own, log, process), under_way
    ):
        yield Action("", "a response that changes nothing is forgotten"), (log, process, None)


def _of_response(value: object) -> Hashable:
    """Return the part of a cell that `_response` depends on: the response, and all of the follower's log and memory.
    None if no response is in flight: then the group has no step."""
    return value if isinstance(value, (Log, Process, Fetched, EpochEnd)) else None


def _stale_proposal(rules: Rules, metadata: Metadata, proposal: object) -> Iterator[Move]:
    """Yield the step that drops an ISR proposal from before the controller's newest decision, which would be refused
    for its epochs alone."""
    if not isinstance(proposal, AlterPartition):
        return
    partition = metadata.partition
    older = proposal.partition_epoch < partition.epoch
    if not rules.alter_partition:
        refused = older
    else:
        checked = rules.partition_epoch_check and older
        refused = proposal.leader_epoch < partition.leader_epoch or checked
    if refused:
        yield Action("", "a proposal that will be refused is forgotten"), (metadata, None)


def _of_proposal(value: object) -> Hashable:
    """Return the part of a cell that `_stale_proposal` depends on: the proposal, and the epochs that the controller
    compares. None if no proposal is in flight: then the group has no step."""
    if isinstance(value, Metadata):
        return value.partition.leader_epoch, value.partition.epoch
    return value if isinstance(value, AlterPartition) else None


def _late_answer(process: Process, proposal: object) -> Iterator[Move]:
    """Yield the step that drops an answer to AlterPartition which changes nothing: a refusal in `_NEVER_TAKEN`; a
    change that began another leader epoch; an answer to a leader that has moved on to newer metadata or another
    leader epoch."""
    if not isinstance(proposal, Altered):
        return
    role, decided = process.role, proposal.partition
    moved_on = role is not None and role.epoch > proposal.leader_epoch
    known = isinstance(role, Leader) and decided is not None and decided.epoch <= process.partition.epoch
    ignored = decided is not None and decided.leader_epoch != proposal.leader_epoch
    if moved_on or known or ignored or proposal.error in _NEVER_TAKEN:
        yield Action("", "an answer that changes nothing is forgotten"), (process, None)


def _of_answer(value: object) -> Hashable:
    """Return the part of a cell that `_late_answer` depends on: the answer, and its leader's epochs. None for a broker
    without a role: the group `connection` drops its answers."""
    if isinstance(value, Process):
        return value.role and (value.role.epoch, isinstance(value.role, Leader) and value.partition.epoch)
    return value if isinstance(value, Altered) else None

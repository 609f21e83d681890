"""What nobody looks at again, and so need not tell two states apart: fewer states, and the same findings.

Of all states that behave alike the search keeps one. What is forgotten could neither be seen by an invariant nor change
any later step, now or after anything else that may happen (epochs only grow): each way through the whole search is a
way through this one, without the steps that did nothing. That states and findings of both agree is asked in
`tests/model/test_forgetting.py`; `Scope(forgetting=False)` is the whole search.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import partial

from ackproof_reference.broker import Broker, Leader, Process
from ackproof_reference.explore.model import Group, Happening, Move
from ackproof_reference.explore.scope import (
    CONTROLLER,
    Scope,
    fetch_cell,
    process_cell,
    proposal_cell,
)
from ackproof_reference.messages import Altered, AlterPartition, EpochEnd, Error, Fetched
from ackproof_reference.metadata import NO_LEADER, Metadata, Partition, Registration
from ackproof_reference.rules import Rules

_NEVER_TAKEN = (
    Error.NOT_CONTROLLER,
    Error.INVALID_REQUEST,
    Error.FENCED_LEADER_EPOCH,
    Error.INVALID_UPDATE_VERSION,
)
"""Refusals after which a leader goes on waiting for newer metadata, as it would without them."""


def remembered(broker: Broker) -> Broker:
    """A broker without what it will never look at again: of the image that it applied, if it does not lead.

    A follower acts by its role, which names leader and epoch; the next image that it applies is the newest one, and
    replaces what it knew. What is left of the image says that it knows of its own registration.
    """
    process = broker.process
    if process.metadata is None or isinstance(process.role, Leader):
        return broker
    image = Metadata(Partition((), NO_LEADER, 0, 0, ()), (Registration(broker.id, process.epoch),))
    return broker._replace(process=process._replace(metadata=image))


def leftovers(scope: Scope) -> tuple[Group, ...]:
    """The groups that take out of the way, at once, what is still under way and cannot do anything any more."""
    if not scope.forgetting:
        return ()
    groups = []
    for broker in scope.ids:
        process, fetch, proposal = process_cell(broker), fetch_cell(broker), proposal_cell(broker)
        if scope.rules.match_responses:
            groups.append(Group("late response", (process, fetch), _late_response, at_once=_of_response))
        stale = partial(_stale_proposal, scope.rules)
        groups.append(Group("stale proposal", (CONTROLLER, proposal), stale, at_once=_of_proposal))
        groups.append(Group("late answer", (process, proposal), _late_answer, at_once=_of_answer))
    return tuple(groups)


def _late_response(process: Process, under_way: object) -> Iterator[Move]:
    """A response to a follower that has moved on, which will drop it; a later incarnation will do so too."""
    role = process.role
    if (
        isinstance(under_way, (Fetched, EpochEnd))
        and role is not None
        and role.epoch > under_way.leader_epoch
    ):
        yield Happening("", "a response that comes too late is forgotten"), (process, None)


def _of_response(value: object) -> int | None:
    """The epochs are all that decides whether a response comes too late."""
    if isinstance(value, Process):
        return None if value.role is None else value.role.epoch
    return value.leader_epoch if isinstance(value, (Fetched, EpochEnd)) else None


def _stale_proposal(rules: Rules, metadata: Metadata, proposal: object) -> Iterator[Move]:
    """A proposal from before the controller's newest decision, which it will refuse for its epochs alone."""
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
        yield Happening("", "a proposal that will be refused is forgotten"), (metadata, None)


def _of_proposal(value: object) -> Hashable:
    """The proposal, and the epochs that the controller compares its own with."""
    if isinstance(value, Metadata):
        return value.partition.leader_epoch, value.partition.epoch
    return value if isinstance(value, AlterPartition) else None


def _late_answer(process: Process, proposal: object) -> Iterator[Move]:
    """An answer that changes nothing: a refusal, or one to who has moved on or knows as much already."""
    if not isinstance(proposal, Altered):
        return
    role, decided = process.role, proposal.partition
    moved_on = role is not None and role.epoch > proposal.leader_epoch
    known = isinstance(role, Leader) and decided is not None and decided.epoch <= process.partition.epoch
    if moved_on or known or proposal.error in _NEVER_TAKEN:
        yield Happening("", "an answer that changes nothing is forgotten"), (process, None)


def _of_answer(value: object) -> Hashable:
    """The answer, and how much its leader knows; a refusal is without effect for who is down, too."""
    if isinstance(value, Process):
        return value.role and (value.role.epoch, isinstance(value.role, Leader) and value.partition.epoch)
    return value if isinstance(value, Altered) else None

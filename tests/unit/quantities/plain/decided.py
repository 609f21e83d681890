"""Plain implementation of quantities of the metadata log: elections, controllers and registrations."""

from __future__ import annotations

import math

from ackproof.quantities.quantity import Ask
from ackproof.rundir.bounds import Window
from ackproof.rundir.metadata import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    EligibleCleared,
    PartitionChanged,
    TopicRemoved,
)

from .facts import MS, Bounds, Count, Facts, Fault, asked_for, fault_of, since

STANDS = 20 * MS
"""Greatest drift of the wall clock, in ns, with which times of the metadata log are still used."""


def whole(facts: Facts) -> bool:
    """Return True if the metadata log has every offset from 0 on, its last line, and no gap between epochs."""
    offsets = [one.offset for one in facts.records]
    return bool(offsets) and facts.ended and offsets == list(range(len(offsets))) and not _skipped(facts)


def _skipped(facts: Facts) -> bool:
    """Return True if an epoch of a partition is missing, so that a change of it was not recorded."""
    before: dict[int, PartitionChanged] = {}
    free: dict[int, int] = {}
    for one in facts.records:
        if isinstance(one, TopicRemoved):
            before = {}
        elif isinstance(one, EligibleCleared):
            for partition in before:
                free[partition] = free.get(partition, 0) + 1
        elif isinstance(one, PartitionChanged):
            last = before.get(one.partition)
            may_skip = free.pop(one.partition, 0) if last is not None else 0
            before[one.partition] = one
            if last is None:
                continue
            if one.partition_epoch - last.partition_epoch not in range(1, 2 + may_skip):
                return True
            if one.leader_epoch - last.leader_epoch not in (0, 1):
                return True
    return False


def elections(facts: Facts, ask: Ask, _: Window) -> Bounds:
    places = [one.partition for one in facts.records if isinstance(one, PartitionChanged)]
    asked = asked_for(ask, places)
    seen = {"": 0, "clean": 0, "unclean": 0}
    for partition in asked:
        before: PartitionChanged | None = None
        eligible: tuple[int, ...] = ()
        for one in facts.records:
            if isinstance(one, TopicRemoved):
                before = None
            elif isinstance(one, EligibleCleared):
                eligible = ()
            elif isinstance(one, PartitionChanged) and one.partition == partition:
                if before is not None and one.leader >= 0 and one.leader_epoch > before.leader_epoch:
                    seen[""] += 1
                    # what it was until then is known where no change is missing in between
                    if whole(facts) or one.partition_epoch == before.partition_epoch + 1:
                        clean = one.leader in before.isr or one.leader in eligible
                        seen["clean" if clean else "unclean"] += 1
                before, eligible = one, one.elr
    count = seen[ask.quantity.variant]
    return count, count if whole(facts) and asked else math.inf


def controller_changes(facts: Facts, _: Ask, __: Window) -> Bounds:
    count = max(0, len({one.epoch for one in facts.records}) - 1)
    return count, count if whole(facts) else math.inf


def registrations(facts: Facts, ask: Ask, _: Window) -> Bounds:
    kind, count = ask.quantity.variant, 0
    for one in facts.records:
        befell = ""
        if isinstance(one, BrokerRegistered):
            befell = "made"
        elif isinstance(one, BrokerChanged) and one.fenced:
            befell = "gone" if facts.zookeeper else "fenced"
        elif isinstance(one, BrokerUnregistered):
            befell = "gone"
        if befell == kind and ask.node in (None, getattr(one, "node", None)):
            count += 1
    return count, count if whole(facts) else math.inf


def controller_elected(facts: Facts, ask: Ask, _: Window) -> Bounds:
    fault = fault_of(facts, ask)
    moved = max((abs(ahead) for _, ahead in facts.steps), default=0)
    if fault is None or moved > STANDS or any(one.kind == "clock_jump" for one in facts.faults):
        return None
    if not whole(facts):
        return None
    return _elected(facts, fault, moved)


def _elected(facts: Facts, fault: Fault, moved: int) -> Bounds:
    """Return the bounds of the time until a later controller epoch; None if the first record may be later than the
    fault's request. A record was written in the millisecond that it names, by a clock that is up to `moved` ns off."""
    from .written import WALL_NS

    epoch, low = None, None
    for one in facts.records:
        first = one.timestamp_ms * MS - WALL_NS - moved
        last = one.timestamp_ms * MS - WALL_NS + MS + moved
        if last <= fault.asked:
            epoch = one.epoch
        elif epoch is None:
            return None
        elif one.epoch > epoch:
            seen = since(fault, max(first, fault.asked), last)
            if first >= fault.asked:
                return seen[0] if low is None else low, seen[1]
            epoch, low = one.epoch, 0.0  # it may have been before the fault
    return since(fault, facts.ends, 0)[0] if low is None else low, math.inf


COUNTED: dict[str, Count] = {
    "elections": elections,
    "elections(clean)": elections,
    "elections(unclean)": elections,
    "controller_changes": controller_changes,
    "registrations(made)": registrations,
    "registrations(fenced)": registrations,
    "registrations(gone)": registrations,
    "time_to(controller elected)": controller_elected,
}

"""Plain implementation of states of partitions over time, placement of replicas, and times until a sample shows an
event."""

from __future__ import annotations

import itertools
import math

from ackproof.quantities.quantity import Ask
from ackproof.rundir.bounds import Window
from ackproof.rundir.metadata import BrokerRegistered
from ackproof.rundir.observed import Sample

from .facts import SECOND, Bounds, Count, Facts, Fault, Look, Looks, asked_for, fault_of, least, most, since


def _of_sample(name: str, one: Sample, node: int) -> float | None:
    """Return the number of the state `name` in a sample; None if the sample does not show it. `node`: for
    `uncommitted`."""
    end = one.log_ends.get(one.leader)
    in_sync = [one.log_ends.get(replica) for replica in one.isr]
    if name == "isr":
        return len(one.isr)
    if name == "leader":
        return one.leader
    if name == "leader_epoch":
        return one.leader_epoch
    if name == "placement(brokers)":
        return len(set(one.replicas))
    if name == "placement(first replica)":
        return one.replicas[0] if one.replicas else None
    if name == "high_watermark":
        return one.high_watermark if one.high_watermark >= 0 else None
    if name == "log_end":
        return end
    if name == "lag":
        return None if end is None or one.high_watermark < 0 else max(0, end - one.high_watermark)
    if name == "isr_lag":
        if end is None or None in in_sync:
            return None
        return max([0, *(end - other for other in in_sync if other is not None)])
    if name == "withheld":
        if one.high_watermark < 0 or one.last_stable < 0:
            return None
        return max(0, one.high_watermark - one.last_stable)
    assert name == "uncommitted"
    own = one.log_ends.get(node)
    return None if own is None or one.high_watermark < 0 else max(0, own - one.high_watermark)


def _seen(facts: Facts) -> list[int]:
    return [one.partition for one in facts.samples]


def of_each(facts: Facts, ask: Ask) -> Looks:
    found = {}
    for partition in asked_for(ask, _seen(facts)):
        looks: list[Look] = []
        for one in facts.samples:
            number = _of_sample(ask.quantity.key, one, ask.node or 0)
            if one.partition == partition and number is not None:
                looks.append((one.t_ns, number))
        found[str(partition)] = looks
    return found


def racks(facts: Facts) -> dict[int, str]:
    return {one.node: one.rack for one in facts.records if isinstance(one, BrokerRegistered)}


def in_racks(facts: Facts, ask: Ask) -> Looks:
    found = {}
    known = racks(facts)
    for partition in asked_for(ask, _seen(facts)):
        looks: list[Look] = []
        for one in facts.samples:
            theirs = [known.get(node, "") for node in one.replicas]
            if one.partition == partition and theirs and "" not in theirs:
                looks.append((one.t_ns, len(set(theirs))))
        found[str(partition)] = looks
    return found


def of_all(facts: Facts, ask: Ask) -> Looks:
    """Return observations of a state that depends on all partitions, by broker or rack. There is one at each time at
    which every partition was sampled in the last second."""
    found: dict[str, list[Look]] = {}
    known = racks(facts)
    for at in sorted({one.t_ns for one in facts.samples}):
        newest: list[tuple[int, ...]] = []
        for partition in sorted(set(_seen(facts))):
            mine = [one for one in facts.samples if one.partition == partition and one.t_ns <= at]
            if mine and at - mine[-1].t_ns <= SECOND:
                newest.append(mine[-1].replicas)
        if len(newest) < len(set(_seen(facts))):
            continue
        numbers: dict[str, float] = {}
        if ask.quantity.variant == "in a rack":
            if "" not in known.values() and all(node in known for replicas in newest for node in replicas):
                for rack in set(known.values()):
                    numbers[rack] = sum(known[node] == rack for replicas in newest for node in replicas)
        else:
            for node in known:
                if ask.node in (None, node):
                    mine_ = [replicas for replicas in newest if node in replicas]
                    others = {other for replicas in mine_ for other in replicas} - {node}
                    on_it = ask.quantity.variant == "on a broker"
                    numbers[str(node)] = len(mine_) if on_it else len(others)
        for name, number in numbers.items():
            found.setdefault(name, []).append((at, number))
    return found


LOOKED: dict[str, object] = {
    **dict.fromkeys(
        (
            "isr", "leader", "leader_epoch", "lag", "isr_lag", "high_watermark", "log_end", "withheld", "uncommitted",
            "placement(brokers)", "placement(first replica)",
        ),
        of_each,
    ),
    "placement(racks)": in_racks,
    "placement(on a broker)": of_all,
    "placement(partners)": of_all,
    "placement(in a rack)": of_all,
}  # fmt: skip


# -- times after a fault -----------------------------------------------------------------------------------------------


def _looks(facts: Facts, fault: Fault, partition: int) -> tuple[Sample, list[Sample]] | None:
    """Return the last sample in the second before the fault was requested, and all later ones; None without the
    former."""
    mine = [one for one in facts.samples if one.partition == partition]
    before = [one for one in mine if fault.asked - SECOND <= one.t_ns <= fault.asked]
    return (before[-1], [one for one in mine if one.t_ns > fault.asked]) if before else None


def _until(fault: Fault, shown: list[tuple[int, bool]]) -> tuple[float, float]:
    """Return the bounds of the time from the fault to the first sample that shows the event. `shown`: (time in ns, True
    if the event shows) of each sample; the first is from before the fault."""
    for (last, _), (at, showed) in itertools.pairwise(shown):
        if showed:
            return since(fault, max(last, fault.asked), at)
    return since(fault, shown[-1][0], 0)[0], math.inf


def sampled(facts: Facts, ask: Ask, _: Window) -> Bounds:
    fault = fault_of(facts, ask)
    if fault is None:
        return None
    each: list[tuple[float, float]] = []
    unseen: list[tuple[float, float]] = []
    for partition in asked_for(ask, _seen(facts)):
        found = _looks(facts, fault, partition)
        if found is None:
            unseen.append((0, math.inf))
            continue
        before, after = found
        what = ask.quantity.variant
        if what == "new leader":
            if ask.place is None and before.leader not in fault.nodes:
                continue
            shown = [(one.t_ns, one.leader >= 0 and one.leader_epoch > before.leader_epoch) for one in after]
            each.append(_until(fault, [(before.t_ns, False), *shown]))
        elif what == "isr shrunk":
            shown = [(one.t_ns, any(node not in one.isr for node in before.isr)) for one in after]
            each.append(_until(fault, [(before.t_ns, False), *shown]))
        elif what == "isr full":
            lacking = [any(node not in one.isr for node in before.isr) for one in after]
            if any(lacking):
                shown = [(one.t_ns, all(node in one.isr for node in one.replicas)) for one in after]
                each.append(_until(fault, shown[lacking.index(True) :]))
        else:
            pairs: list[tuple[int, bool]] = []
            for one, two in zip([before, *after], after, strict=False):
                target = one.log_ends.get(one.leader)
                if target is not None:
                    ends = [two.log_ends.get(node, -1) for node in two.replicas]
                    pairs.append((two.t_ns, all(end >= target for end in ends)))
            equal = [one for _, one in pairs]
            if False in equal:
                each.append(_until(fault, pairs[equal.index(False) :]))
    if not each:
        return None
    return least(each + unseen) if ask.quantity.variant == "isr shrunk" else most(each + unseen)


COUNTED: dict[str, Count] = {
    f"time_to({what})": sampled for what in ("new leader", "isr shrunk", "isr full", "replicas equal")
}

"""Plain implementation of quantities of the logs on disk, and of the audit's counts."""

from __future__ import annotations

import math
from typing import Any

from ackproof.quantities.quantity import Ask
from ackproof.rundir.anomalies import TABLE
from ackproof.rundir.bounds import Window
from ackproof.rundir.replicas import Replica

from .facts import Bounds, Count, Facts, asked_for


def _replicas(facts: Facts, ask: Ask) -> list[Replica]:
    every = list(facts.disks.replicas) if facts.disks is not None else []
    asked = asked_for(ask, [one.partition for one in every])
    return [one for one in every if one.partition in asked and ask.node in (None, one.node)]


def _unread(facts: Facts, replicas: list[Replica]) -> bool:
    return bool(facts.disks and facts.disks.reasons) or any(one.reason for one in replicas)


def _batches(facts: Facts, replica: Replica) -> list[dict[str, Any]]:
    return [
        one for one in facts.batches if (one["node"], one["partition"]) == (replica.node, replica.partition)
    ]


def added(facts: Facts, ask: Ask, _: Window) -> Bounds:
    if facts.disks is None:
        return None
    count = 0
    mine = _replicas(facts, ask)
    for replica in mine:
        if ask.quantity.variant == "folders":
            count += 1
        elif ask.quantity.variant == "records":
            count += replica.records
        else:
            count += sum(one["bytes"] for one in _batches(facts, replica)) + replica.rest
    return count, math.inf if _unread(facts, mine) else count


def in_log_dirs(facts: Facts, ask: Ask, _: Window) -> Bounds:
    if facts.disks is None or facts.disks.reasons:
        return None
    numbers = []
    for node, paths in facts.disks.log_dirs.items():
        for path in paths:
            here = [
                one for one in facts.disks.replicas if one.node == node and one.folder.startswith(f"{path}/")
            ]
            if ask.node in (None, node):
                numbers.append(len(here))
    if not numbers:
        return None
    found = max(numbers) if ask.quantity.variant == "most in a log dir" else min(numbers)
    return found, found


def differing(facts: Facts, ask: Ask, _: Window) -> Bounds:
    mine = _replicas(facts, ask)
    if not mine:
        return None
    apart = set()
    for one in mine:
        for other in mine:
            if one.partition != other.partition:
                continue
            lacks = {_named(batch) for batch in _batches(facts, other)}
            for batch in _batches(facts, one):
                both = max(one.log_start, other.log_start) <= batch["first_offset"]
                both &= batch["last_offset"] < min(one.log_end, other.log_end)
                if both and _named(batch) not in lacks:
                    apart.add((one.partition, _named(batch)))
    return len(apart), math.inf if _unread(facts, mine) else len(apart)


def _named(batch: dict[str, Any]) -> tuple[int, ...]:
    return batch["first_offset"], batch["last_offset"], batch["leader_epoch"], batch["crc"]


def audited(facts: Facts, ask: Ask, _: Window) -> Bounds:
    if facts.counts is None or ask.quantity.name not in facts.counts:
        return None
    return facts.counts[ask.quantity.name], facts.counts[ask.quantity.name]


COUNTED: dict[str, Count] = {
    **{f"logs({what})": added for what in ("folders", "records", "bytes")},
    **{f"logs({which} in a log dir)": in_log_dirs for which in ("most", "fewest")},
    "logs(differing)": differing,
    **{name.value: audited for name in TABLE},
}

"""Plain implementation of quantities of brokers' views and answers, and of the brokers from which readers fetched."""

from __future__ import annotations

import itertools

from ackproof.quantities.quantity import Ask
from ackproof.rundir.bounds import Window
from ackproof.rundir.observed import BrokerRound, PartitionView, ServedReplica

from .facts import SECOND, TOPIC, Bounds, Count, Facts, Look, Looks, asked_for, inside, spans

CORRUPT_MESSAGE = 2


def _spoken_of(facts: Facts) -> list[int]:
    return [row.partition for one in facts.rounds for told in one.told for row in told.partitions]


def _rows(one: BrokerRound, partition: int) -> dict[int, PartitionView]:
    """Return what each viewer says of the partition in this round, by viewer."""
    return {told.viewer: row for told in one.told for row in told.partitions if row.partition == partition}


def said(facts: Facts, ask: Ask) -> Looks:
    found = {}
    for partition in asked_for(ask, _spoken_of(facts)):
        looks: list[Look] = []
        for one in facts.rounds:
            row = _rows(one, partition).get(ask.viewer if ask.viewer is not None else -1)
            if row is not None:
                number = {"leader": row.leader, "isr": len(row.isr), "leader epoch": row.leader_epoch}
                looks.append((one.t_ns, number[ask.quantity.variant]))
        found[str(partition)] = looks
    return found


def members(facts: Facts, ask: Ask) -> Looks:
    if not facts.rounds:
        return {}
    looks: list[Look] = []
    for one in facts.rounds:
        looks += [(one.t_ns, len(told.brokers)) for told in one.told if told.viewer == ask.viewer]
    return {"": looks}


def controller(facts: Facts, _: Ask) -> Looks:
    if not facts.rounds:
        return {}
    return {"": [(one.t_ns, one.controller) for one in facts.rounds if one.controller is not None]}


def _different(one: BrokerRound, partition: int) -> int | None:
    """Return the number of different descriptions of the partition; None if a running viewer did not answer, or none
    described it."""
    each = {
        (row.leader, row.leader_epoch, tuple(row.replicas), frozenset(row.isr))
        for row in _rows(one, partition).values()
    }
    return None if one.silent or not each else len(each)


def views(facts: Facts, ask: Ask) -> Looks:
    found = {}
    for partition in asked_for(ask, _spoken_of(facts)):
        looks: list[Look] = []
        for one in facts.rounds:
            number = _different(one, partition)
            if number is not None:
                looks.append((one.t_ns, number))
        found[str(partition)] = looks
    return found


def behind(facts: Facts, ask: Ask) -> Looks:
    found = {}
    for partition in asked_for(ask, _spoken_of(facts)):
        looks: list[Look] = []
        for one in facts.rounds:
            marks = {}
            for told in one.told:
                for row in told.served:
                    if row.partition == partition and row.fetch == 0 and row.high_watermark >= 0:
                        marks[told.viewer] = row.high_watermark
            if ask.node in marks:
                looks.append((one.t_ns, max(marks.values()) - marks[ask.node]))
        found[str(partition)] = looks
    return found


LOOKED: dict[str, object] = {
    "said(leader)": said,
    "said(isr)": said,
    "said(leader epoch)": said,
    "said(members)": members,
    "controller": controller,
    "views": views,
    "behind": behind,
}


def disagreement(facts: Facts, ask: Ask, _: Window) -> Bounds:
    each = []
    for partition in asked_for(ask, _spoken_of(facts)):
        known = [
            (one.t_ns, one.done_ns, number > 1)
            for one in facts.rounds
            if facts.begins <= one.t_ns < facts.ends and (number := _different(one, partition)) is not None
        ]
        if not known:
            return None
        # at most from a round that shows agreement, or the first, to the next that does, or the end
        open_since, high = known[0][0], 0
        for at, done, apart in known:
            if not apart:
                high, open_since = max(high, done - open_since), at
        high = max(high, facts.ends - open_since)
        # at least from when all had answered the first round that shows it until the last of these was asked
        low, begun, last = 0, None, 0
        for at, done, apart in known:
            if not apart or at - last > SECOND:
                begun = None
            if apart:
                begun = done if begun is None else begun
                low = max(low, at - begun)
            last = at
        each.append((low / 1e9, max(low, high) / 1e9))
    return (max(low for low, _ in each), max(high for _, high in each)) if each else None


def _served(facts: Facts, ask: Ask, window: Window) -> list[ServedReplica] | None:
    """Return the brokers' answers to requests in rounds that lie wholly within a window; None without any."""
    found = spans(facts, window)
    if found is None:
        return None
    answers = []
    for one in facts.rounds:
        if not any(begin <= one.t_ns and one.done_ns < end for begin, end in found):
            continue
        for told in one.told:
            if ask.node in (None, told.viewer):
                answers += [row for row in told.served if row.partition in asked_for(ask, [row.partition])]
    return answers or None


def served(facts: Facts, ask: Ask, window: Window) -> Bounds:
    answers = _served(facts, ask, window)
    if answers is None:
        return None
    count = 0
    for one in answers:
        good = one.produce == CORRUPT_MESSAGE
        if ask.quantity.variant == "fetch":
            good = one.fetch == 0 and (one.records > 0 or ask.quantity.name == "refused")
        count += good if ask.quantity.name == "served" else not good
    return count, count


def beyond(facts: Facts, ask: Ask, window: Window) -> Bounds:
    count, tempted = 0, False
    for one in _served(facts, ask, window) or []:
        if one.fetch == 0:
            count += one.beyond
            tempted |= 0 <= one.high_watermark < one.log_end or one.beyond > 0
    return (count, count) if tempted else None


def reads(facts: Facts, ask: Ask, window: Window) -> Bounds:
    found = spans(facts, window)
    if found is None or not any(facts.fetching.values()):
        return None
    sure = maybe = 0
    for one in facts.reads:
        if one.phase not in (0, 2) or not inside(one.at, found):
            continue
        if one.partition not in asked_for(ask, [one.partition]):
            continue
        certain, possible = _fetched_from(facts, one.reader, one.partition, one.at, ask.node or 0)
        sure, maybe = sure + certain, maybe + possible
    return sure, maybe


def _fetched_from(facts: Facts, reader: str, partition: int, at: int, node: int) -> tuple[bool, bool]:
    """Return (certain, possible) for the broker `node`: whether a record read at `at` was, or may have been, fetched
    from it."""
    told = [
        (line.t_ns, broker)
        for line in facts.fetching.get(reader, ())
        for topic, of, broker in line.sources
        if (topic, of) == (TOPIC, partition)
    ]
    if not told:
        return False, True
    early = [one for one in told if one[0] <= at - SECOND]
    late = [one for one in told if one[0] >= at]
    around = [*early[-1:], *(one for one in told if at - SECOND < one[0] < at), *late[:1]]
    silent = any(two[0] - one[0] > SECOND for one, two in itertools.pairwise(around))
    silent |= not late and at - told[-1][0] > SECOND
    silent |= told[0][0] - at > SECOND
    named = {broker for _, broker in around if broker >= 0}
    return named == {node} and not silent, node in named or silent or not named


COUNTED: dict[str, Count] = {
    "disagreement": disagreement,
    "served(fetch)": served,
    "served(produce)": served,
    "refused(fetch)": served,
    "refused(produce)": served,
    "beyond": beyond,
    "reads": reads,
}

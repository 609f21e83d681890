"""Quantities of consumer groups, measured from the ledgers of their members."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from ackproof.quantities.evidence import Evidence, unite_spans
from ackproof.quantities.quantity import Argument, Ask, Quantity, Unknown, Value, Witness, quantile_share
from ackproof.rundir.bounds import Unit, Window
from ackproof.rundir.lifelines import ALWAYS, Spans
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    import pyarrow.compute as pc

    from ackproof.rundir.groups import GroupEnd

_ASSIGNED: Final = "assigned"
_OVER: Final = ("revoked", "lost", "closed")


def _rows(folder: Path, columns: list[str], wanted: pc.Expression) -> pa.Table:
    """Return the rows that `wanted` selects of the ledger in `folder`. Raises `Unknown` if it has no files, OSError or
    ArrowException if one is unreadable."""
    from ackproof.rundir.ledger import ledger_rows, parts

    if not parts(folder):
        raise Unknown("no member wrote it down")
    return ledger_rows(folder, columns, wanted)


def _ends(evidence: Evidence, ask: Ask) -> list[GroupEnd]:
    found = evidence.groups.groups if evidence.groups else ()
    return [end for end in found if end.group == ask.group]


def _first_processed(evidence: Evidence, ask: Ask) -> pa.Table:
    """Return a table (producer, seq, processed_ns_min): the first time in ns at which the group processed each record
    with an effect. Processing in a transaction that was aborted, or whose outcome is unknown, has none. Raises
    `Unknown` without a ledger."""
    import pyarrow.compute as pc

    from ackproof.rundir.groups import ProcessingState

    wanted = (pc.field("group") == ask.group) & (pc.field("state") == int(ProcessingState.EFFECTIVE))
    rows = _rows(evidence.run.deliveries, ["producer", "seq", "processed_ns"], wanted)
    return rows.group_by(["producer", "seq"]).aggregate([("processed_ns", "min")])


def _waits(evidence: Evidence, ask: Ask) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return two arrays of times in ns, a row for each record of the group's input that was acknowledged under load:
    its acknowledgement, and its first processing with an effect. For a record without such processing before the end of
    the load, the second time is the end of the load. If `ask` names a partition, only its records count. Raises
    `Unknown` if no record was acknowledged under load."""
    import numpy as np
    import pyarrow.compute as pc

    wanted = (pc.field("outcome") == int(Outcome.ACKED)) & (pc.field("done_ns") < evidence.load_ends)
    wanted &= pc.field("topic").isin([topic for end in _ends(evidence, ask) for topic, _, _ in end.ends])
    if ask.place is not None:
        wanted &= (pc.field("topic") == ask.place.topic) & (pc.field("partition") == ask.place.partition)
    acked = _rows(evidence.run.produced, ["producer", "seq", "done_ns"], wanted)
    joined = acked.join(_first_processed(evidence, ask), ["producer", "seq"], join_type="left outer")
    if not len(joined):
        raise Unknown("nothing of its input was acknowledged under load")
    over = evidence.load_ends
    processed = pc.min_element_wise(pc.fill_null(joined["processed_ns_min"], over), over)
    return joined["done_ns"].to_numpy(), np.asarray(processed, np.int64)


def _lag_records(evidence: Evidence, ask: Ask, _: Window) -> Value:
    import numpy as np

    begun, ended = _waits(evidence, ask)
    waiting = ended > begun
    times = np.concatenate([begun[waiting], ended[waiting]])
    steps = np.repeat(np.array([1, -1]), int(waiting.sum()))
    order = np.lexsort((steps, times))  # a record that is processed at a time no longer waits then
    return Value.exactly(int(np.cumsum(steps[order]).max(initial=0)))


def _lag_time(evidence: Evidence, ask: Ask, _: Window) -> Value:
    begun, ended = _waits(evidence, ask)
    return Value.exactly(max(0, int((ended - begun).max())) / 1e9)


def _end_to_end(evidence: Evidence, ask: Ask, _: Window) -> Value:
    import numpy as np
    import pyarrow.compute as pc

    sent = _rows(evidence.run.produced, ["producer", "seq", "sent_ns"], pc.scalar(True))
    joined = sent.join(_first_processed(evidence, ask), ["producer", "seq"], join_type="inner")
    if not len(joined):
        raise Unknown("its members processed nothing")
    times = np.sort(joined["processed_ns_min"].to_numpy() - joined["sent_ns"].to_numpy())
    share = quantile_share(ask.quantity.variant)
    at = len(times) - 1 if share is None else max(0, math.ceil(share * len(times)) - 1)
    return Value.exactly(int(times[at]) / 1e9)


def _count(variant: str, evidence: Evidence, ask: Ask, spans: Spans = ALWAYS) -> int:
    import pyarrow.compute as pc

    from ackproof.rundir.groups import CommitResult

    wanted = (pc.field("group") == ask.group) & (pc.field("result") == int(CommitResult[variant.upper()]))
    columns = ["member", "number", "done_ns"]
    calls = _rows(evidence.run.commits_ledger, columns, wanted).group_by(["member", "number"])
    times = calls.aggregate([("done_ns", "max")])["done_ns_max"].to_pylist()
    return sum(any(begin <= t < end for begin, end in spans) for t in times)


def _count_commits(variant: str, evidence: Evidence, ask: Ask, _: Window) -> Value:
    return Value.exactly(_count(variant, evidence, ask))


def _commit_rate(evidence: Evidence, ask: Ask, window: Window) -> Value:
    length = evidence.load_s(window)
    return Value.exactly(_count("accepted", evidence, ask, evidence.under_load(window)) / length)


# -- rebalances -----------------------------------------------------------------------------------------------------


def _membership(evidence: Evidence, ask: Ask) -> dict[TopicPartition, list[tuple[int, str, int]]]:
    """Return, for each partition, rows (time in ns, event, member), by time, of members that got it or gave it
    up. An event that names no partition is about all partitions that its member has. Raises `Unknown` without
    an assignment."""
    import pyarrow.compute as pc

    columns = ["member", "event", "topic", "partition", "t_ns"]
    rows = _rows(evidence.run.membership, columns, pc.field("group") == ask.group)
    found: dict[TopicPartition, list[tuple[int, str, int]]] = defaultdict(list)
    mine: dict[int, set[TopicPartition]] = defaultdict(set)
    for row in rows.sort_by("t_ns").to_pylist():
        event, member = row["event"], row["member"]
        if event != _ASSIGNED and event not in _OVER:
            continue
        named = {TopicPartition(row["topic"], row["partition"])} if row["partition"] >= 0 else set()
        for place in named or (mine[member] if event in _OVER else ()):
            found[place].append((row["t_ns"], event, member))
        mine[member] = mine[member] | named if event == _ASSIGNED else mine[member] - (named or mine[member])
    if not any(event == _ASSIGNED for events in found.values() for _, event, _ in events):
        raise Unknown("its members told no assignment")
    return found


def _interruptions(evidence: Evidence, ask: Ask) -> Iterator[tuple[int, float]]:
    """Yield (begin, end) in ns for each change of a partition's owner under load. `begin`: when the old owner gave it
    up or, if it reported nothing, when the new owner got it. `end`: when a new owner first processed a record of it.

    An assignment to the same member again is a change, too; the first assignment is none. If no new owner processed a
    record, `end` is infinite. Such a change is left out if the group reached the end of its input.
    """
    import numpy as np
    import pyarrow.compute as pc

    from ackproof.rundir.arrow import group_rows

    wanted = (pc.field("group") == ask.group) & (pc.field("processed_ns") >= 0)
    columns = ["member", "topic", "partition", "processed_ns"]
    rows = _rows(evidence.run.deliveries, columns, wanted).sort_by("processed_ns")
    times = {key: own["processed_ns"].to_numpy() for key, own in group_rows(rows, columns[:3]).items()}
    done = any(end.caught_up for end in _ends(evidence, ask))
    for place, events in _membership(evidence, ask).items():
        begin: int | None = None
        owned = False
        for at, (t_ns, event, member) in enumerate(events):
            if event in _OVER:
                begin = t_ns if begin is None else begin
                continue
            began, begin = (t_ns if begin is None else begin) if owned else None, None
            owned = True
            if began is None or began >= evidence.load_ends:
                continue
            own = times.get((member, *place), np.zeros(0, np.int64))
            until = events[at + 1][0] if at + 1 < len(events) else math.inf
            first = own[np.searchsorted(own, t_ns) :]
            if len(first) and first[0] < until:
                yield began, float(first[0])
            elif until < math.inf:
                begin = began  # given up before it processed anything
            elif not done:
                yield began, math.inf


def _rebalance_time(evidence: Evidence, ask: Ask, _: Window) -> Value:
    spans = unite_spans(_interruptions(evidence, ask))
    if not spans:
        raise Unknown("no partition changed hands under load")
    longest = max((end - begin for begin, end in spans if end < math.inf), default=0) / 1e9
    if cut := [begin for begin, end in spans if end == math.inf]:
        low = max(longest, (evidence.load_ends - min(cut)) / 1e9)
        return Value.at_least(low, "a partition was never processed again")
    return Value.exactly(longest)


def _stop_the_world(evidence: Evidence, ask: Ask, _: Window) -> Value:
    ends: dict[int, int] = {}
    for client in evidence.groups.members if evidence.groups else ():
        if client.group == ask.group and (life := evidence.lifelines.client(client.client)).ends:
            ends[client.member] = max(event.t_ns for event in life.ends)
    owned: list[tuple[int, float]] = []
    for events in _membership(evidence, ask).values():
        since: dict[int, int] = {}
        for t_ns, event, member in events:
            if event == _ASSIGNED:
                since.setdefault(member, t_ns)
            elif member in since:
                owned.append((since.pop(member), t_ns))
        owned += [(begin, ends.get(member, math.inf)) for member, begin in since.items()]
    spans = unite_spans(span for span in owned if span[0] < span[1])
    begin, end = max(evidence.load_begins, spans[0][0]), evidence.load_ends
    if begin >= end:
        raise Unknown("no partition was assigned under load")
    inside = math.fsum(max(0.0, min(last, end) - max(first, begin)) for first, last in spans)
    return Value.exactly(1 - inside / (end - begin))


_of_group = partial(
    Quantity,
    required=(Argument.GROUP,),
    needs=Witness.GROUPS,
    unknown="Unknown without a ledger of its members.",
)
_DELIVERIES: Final = "ledger/deliveries, ledger/produced"
_MEMBERSHIP: Final = "ledger/membership, timeline.jsonl"
QUANTITIES: Final = (
    _of_group(
        name="rebalance_time",
        unit=Unit.SECONDS,
        definition="The longest rebalance of the group that began under load: from when a partition is given up (or "
        "assigned, where its owner told nothing) until its new owner has processed a record of it; times of several "
        "partitions that overlap are one rebalance. The first assignment of a partition is none.",
        source=f"{_MEMBERSHIP}, ledger/deliveries",
        unknown="Unknown where no partition changed hands. No upper bound where one was never processed again, and the "
        "group did not catch up.",
        measure=_rebalance_time,
    ),
    _of_group(
        name="stop_the_world",
        unit=Unit.SHARE,
        definition="The share of the time under load, from the first assignment on, in which no member that runs had "
        "any partition assigned.",
        source=_MEMBERSHIP,
        unknown="Unknown where members tell no assignment. A member's partitions are its own until it gives them up or "
        "its process ends.",
        measure=_stop_the_world,
    ),
    *(
        _of_group(
            name="end_to_end",
            variant=quantile,
            unit=Unit.SECONDS,
            definition="The longest time from the produce call of a record until its processing first had an effect."
            if quantile == "max"
            else f"The time from the produce call until the processing first had an effect that {quantile[1:]} % of "
            "all processed records did not exceed.",
            source=_DELIVERIES,
            measure=_end_to_end,
        )
        for quantile in ("p50", "p95", "p99", "max")
    ),
    _of_group(
        name="group_lag",
        variant="records",
        unit=Unit.COUNT,
        definition="The most records of the group's input that were acknowledged and not yet processed with an effect, "
        "at any time under load.",
        source=_DELIVERIES,
        optional=(Argument.PLACE,),
        measure=_lag_records,
    ),
    _of_group(
        name="group_lag",
        variant="time",
        unit=Unit.SECONDS,
        definition="The longest time under load that an acknowledged record of the group's input was not yet processed "
        "with an effect.",
        source=_DELIVERIES,
        optional=(Argument.PLACE,),
        measure=_lag_time,
    ),
    *(
        _of_group(
            name="group_commits",
            variant=variant,
            unit=Unit.COUNT,
            definition=definition,
            source="ledger/commits",
            takes_time=False,
            measure=partial(_count_commits, variant),
        )
        for variant, definition in (
            ("accepted", "Commits of members that were accepted, of one partition or more."),
            ("refused", "Commits of members that were refused; healthy groups have them in every rebalance."),
            ("unknown", "Commits of members that have no answer, or one after which they may be in the log."),
        )
    ),
    _of_group(
        name="commit_rate",
        unit=Unit.PER_SECOND,
        definition="Accepted commits of members per second of the load.",
        source="ledger/commits, timeline.jsonl",
        unknown="Unknown without a ledger of its members, or without load.",
        falls=True,
        measure=_commit_rate,
    ),
)

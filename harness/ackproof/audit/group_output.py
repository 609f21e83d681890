"""Output of a group against its input, by identity: torn-output, doubled-output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ackproof.audit.group_deliveries import find_passed
from ackproof.audit.group_sources import Event, GroupSources, find_values, join_keys
from ackproof.audit.outputs import FindingsWriter
from ackproof.ledgers.rows import Bools, Ints, Rows, group_starts
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.arrow import text_array, to_arrow
from ackproof.rundir.partition import TopicPartition


def audit_output(
    sources: GroupSources,
    there: Mapping[TopicPartition, Rows],
    copies: Rows,
    events: Mapping[TopicPartition, Sequence[Event]],
    findings: FindingsWriter,
) -> None:
    """Compare records of the input with their copies. Copies without an identity are left out. Raises OSError.

    `there`: the input by partition; `copies`: the output (`COPY`); both with all rows of each of their identities.
    """
    copies = copies.take((copies["producer"] >= 0) & (copies["seq"] >= 0)).sorted_by("partition", "offset")
    inputs = {place: join_keys(rows, "producer", "seq") for place, rows in there.items()}
    keys = join_keys(copies, "producer", "seq")
    order = np.argsort(keys, kind="stable")
    starts = group_starts([keys[order]])
    if Anomaly.TORN_OUTPUT in sources.counted and sources.plan.commit == "transaction":
        distinct = keys[order[starts]]
        for place, rows in there.items():
            copied = find_values(distinct, inputs[place])[1]
            _find_torn(sources, place, rows, copied, events.get(place, ()), findings)
    if Anomaly.DOUBLED_OUTPUT in sources.counted:
        _find_doubled(sources, copies, keys, (order, starts), list(inputs.values()), findings)


def _find_torn(
    sources: GroupSources,
    place: TopicPartition,
    rows: Rows,
    copied: Bools,
    events: Sequence[Event],
    findings: FindingsWriter,
) -> None:
    committed = (sources.committed or {}).get(place, 0)
    past = rows["offset"] < committed
    for which, detail in (
        (
            past & ~copied & ~find_passed(events, rows.ints("offset")),
            f"the group committed {committed}, and its output does not have it",
        ),
        (~past & copied, f"its output has it, and the group committed {committed}"),
    ):
        findings.add(place, Anomaly.TORN_OUTPUT, rows, np.flatnonzero(which), detail=detail)


def _find_doubled(
    sources: GroupSources,
    copies: Rows,
    keys: Ints,
    grouped: tuple[Ints, Ints],
    inputs: Sequence[Ints],
    findings: FindingsWriter,
) -> None:
    """Report copies beyond those of the input, the last ones of the output, in order of partition and offset.

    `keys`: of the identities. `grouped`: order of the copies by key, and where in it each key begins."""
    order, starts = grouped
    number = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    further = np.flatnonzero(number)
    if not len(further):
        return
    at, number = order[further], number[further]
    repeated = np.unique(keys[at])
    of_input = np.concatenate([key[find_values(repeated, key)[1]] for key in inputs] or [keys[:0]])
    of_input.sort()
    allowed = np.searchsorted(of_input, keys[at], "right") - np.searchsorted(of_input, keys[at])
    late = number >= np.maximum(allowed, 1)
    at, number, allowed = at[late], number[late], np.maximum(allowed, 1)[late]
    detail = text_array(
        [
            f"copy {copy + 1} in the output, and the input has {most}"
            for copy, most in zip(number.tolist(), allowed.tolist(), strict=True)
        ]
    )
    partition = copies["partition"][at]
    for one in np.unique(partition).tolist():
        place, here = TopicPartition(sources.plan.output, one), np.flatnonzero(partition == one)
        findings.add(place, Anomaly.DOUBLED_OUTPUT, copies, at[here], detail=detail.take(to_arrow(here)))

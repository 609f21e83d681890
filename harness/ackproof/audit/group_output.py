"""Output of a group against its input, by identity: torn-output, doubled-output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ackproof.audit.group_deliveries import find_passed
from ackproof.audit.group_sources import Event, GroupSources
from ackproof.audit.outputs import FindingsWriter
from ackproof.ledgers.rows import Bools, Ints, Rows, group_starts
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.arrow import text_array
from ackproof.rundir.partition import TopicPartition

COPIES: Mapping[str, str] = {"producer": "i4", "seq": "i8", "offset": "i8"}
_SEQ_BITS = 40


def audit_output(
    sources: GroupSources,
    there: Mapping[TopicPartition, Rows],
    copies: Mapping[TopicPartition, Rows],
    events: Mapping[TopicPartition, Sequence[Event]],
    findings: FindingsWriter,
) -> None:
    """Compare records of the input with their copies. Copies without an identity are left out. Raises OSError.

    `there`: the input by partition; `copies`: the output by partition (`COPIES`); both with all rows of each of their
    identities.
    """
    copies = {
        place: rows.take(np.flatnonzero((rows["producer"] >= 0) & (rows["seq"] >= 0)))
        for place, rows in copies.items()
    }
    places, outputs = sorted(there), sorted(copies)
    keys = _make_keys([*(there[place] for place in places), *(copies[place] for place in outputs)])
    inputs, copied = keys[: len(places)], keys[len(places) :]
    of_output = np.sort(np.concatenate(copied)) if copied else np.empty(0, np.int64)
    if Anomaly.TORN_OUTPUT in sources.counted and sources.transactional:
        distinct = of_output[group_starts([of_output])]
        for place, key in zip(places, inputs, strict=True):
            _find_torn(
                sources, place, there[place], _are_among(key, distinct), events.get(place, ()), findings
            )
    if Anomaly.DOUBLED_OUTPUT in sources.counted:
        _find_doubled(outputs, copies, copied, of_output, inputs, findings)


def _make_keys(tables: Sequence[Rows]) -> list[Ints]:
    """Return one number for each identity of each table, equal for equal identities."""
    limit = 1 << _SEQ_BITS
    if all(not len(rows) or (rows["seq"].max() < limit and rows["seq"].min() >= 0) for rows in tables):
        return [(rows.ints("producer") << _SEQ_BITS) | rows.ints("seq") for rows in tables]
    producer = np.concatenate([rows.ints("producer") for rows in tables])
    seq = np.concatenate([rows.ints("seq") for rows in tables])
    order = np.lexsort((seq, producer))
    numbers = np.zeros(len(order), np.int64)
    numbers[group_starts([producer[order], seq[order]])[1:]] = 1
    keys = np.empty_like(numbers)
    keys[order] = np.cumsum(numbers)
    return list(np.split(keys, np.cumsum([len(rows) for rows in tables])[:-1]))


def _are_among(keys: Ints, ascending: Ints) -> Bools:
    if not len(ascending):
        return np.zeros(len(keys), np.bool_)
    at = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    same: Bools = ascending[at] == keys
    return same


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
    without = np.flatnonzero(past & ~copied)
    without = without[~find_passed(events, rows.ints("offset")[without])]
    findings.add(
        place, Anomaly.TORN_OUTPUT, rows, without,
        detail=f"the group committed {committed}, and its output does not have it",
    )  # fmt: skip
    findings.add(
        place, Anomaly.TORN_OUTPUT, rows, np.flatnonzero(~past & copied),
        detail=f"its output has it, and the group committed {committed}",
    )  # fmt: skip


def _find_doubled(
    outputs: Sequence[TopicPartition],
    copies: Mapping[TopicPartition, Rows],
    copied: Sequence[Ints],
    ascending: Ints,
    inputs: Sequence[Ints],
    findings: FindingsWriter,
) -> None:
    """Report copies beyond those of the input, the last ones of the output, in order of partition and offset."""
    same = np.flatnonzero(ascending[1:] == ascending[:-1])
    repeated = ascending[same]
    repeated = repeated[group_starts([repeated])]
    if not len(repeated):
        return
    allowed = np.ones(len(repeated), np.int64)
    if inputs:
        of_input = np.concatenate(inputs)
        of_input = np.sort(of_input[_are_among(of_input, repeated)])
        allowed = np.maximum(
            1, np.searchsorted(of_input, repeated, "right") - np.searchsorted(of_input, repeated)
        )
    found: list[tuple[int, int, int, int]] = []
    for number, (place, keys) in enumerate(zip(outputs, copied, strict=True)):
        at = np.flatnonzero(_are_among(keys, repeated))
        which = np.searchsorted(repeated, keys[at])
        found += [
            (key, number, offset, row)
            for key, offset, row in zip(
                which.tolist(), copies[place]["offset"][at].tolist(), at.tolist(), strict=True
            )
        ]
    seen = np.zeros(len(repeated), np.int64)
    further: dict[int, list[tuple[int, str]]] = {}
    for key, number, _, row in sorted(found):
        seen[key] += 1
        if seen[key] > allowed[key]:
            detail = f"copy {seen[key]} in the output, and the input has {allowed[key]}"
            further.setdefault(number, []).append((row, detail))
    for number, rows in further.items():
        which = np.array([row for row, _ in rows], np.int64)
        detail = text_array([text for _, text in rows])
        findings.add(outputs[number], Anomaly.DOUBLED_OUTPUT, copies[outputs[number]], which, detail=detail)

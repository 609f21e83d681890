"""Whether those who were to watch did: live readers that stood still have not looked for what only they can see."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import pyarrow.compute as pc

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, lacks, not_judged
from ackproof.rundir import storage
from ackproof.rundir.anomalies import TABLE, Anomaly
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import seconds

NEED_READERS: Final = tuple(anomaly for anomaly in Anomaly if TABLE[anomaly].live)
_HOLE_NS: Final = 5_000_000_000
_BEHIND_NS: Final = 10_000_000_000
"""A live reader that is well is milliseconds behind, and reads to the end of every log before it leaves."""


def check(facts: Facts) -> Iterator[Opinion]:
    """What nobody looked for."""
    for why in _unwatched(facts):
        yield not_judged(f"{', '.join(NEED_READERS)}: not looked for: {why}")
    yield from map(lacks, _holes(facts))


def _holes(facts: Facts) -> Iterator[str]:
    """The sampler looks ten times a second whether or not anybody answers: else the harness itself stood still."""
    if not facts.pulses or "load" not in facts.phases:
        return  # of the model, of an older version, or before there was a load
    looked = [one.t_ns for one in facts.pulses if one.looks > 0]
    # The sampler begins before the clients are started, and who writes the pulses after: the first tells of all before.
    begin = [] if facts.pulses[0].looks > 0 else [facts.phases["load"]]
    for before, after in pairwise([*begin, *looked, facts.phases.get("end", 0)]):
        if after - before > _HOLE_NS:
            when = f"from {seconds(before)} to {seconds(after)}"
            yield f"nobody looked at the cluster {when}: the harness itself stood still"


def _unwatched(facts: Facts) -> Iterator[str]:
    if not facts.case.experiment.workload.consumers.live:
        yield "the experiment has no live reader"
    elif not facts.audit.records.consumed_live:
        yield "the live readers were handed nothing"
    elif behind := _behind(facts):
        yield f"the live readers stood still on {', '.join(behind)}"


def _behind(facts: Facts) -> list[str]:
    """Partitions on which live readers were handed nothing for long before the last acknowledgement, or never."""
    if not facts.run.series.exists():
        return []
    table = storage.read_table(facts.run.series, columns=["topic", "partition", "start_ns", "acked", "read"])
    last: dict[str, dict[TopicPartition, int]] = {"acked": {}, "read": {}}
    for name, latest in last.items():
        some = table.filter(pc.greater(table[name], 0)).group_by(["topic", "partition"])
        for row in some.aggregate([("start_ns", "max")]).to_pylist():
            latest[TopicPartition(row["topic"], row["partition"])] = row["start_ns_max"]
    return [
        str(at) for at, acked in sorted(last["acked"].items()) if last["read"].get(at, 0) < acked - _BEHIND_NS
    ]

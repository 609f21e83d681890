"""The metadata log: that all of it is there, in its order, and that each change of a partition takes the next epoch."""

from __future__ import annotations

from collections.abc import Iterator

from ackproof.experiment.backends import BACKENDS
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts, lacks
from ackproof.quantities.evidence import epochs_left_out, out_of_order
from ackproof.rundir.metadata import LogEnded


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions of the metadata log with itself; that a cluster of ours left none is a lack."""
    row = BACKENDS[facts.backend]
    if row.foreign:
        return
    *records, last = facts.metadata or (None,)
    if last is None:
        if facts.final_read is not None:
            yield lacks("there is no metadata log: what the controllers decided is not known")
        return
    if isinstance(last, LogEnded):
        if last.records != len(records):
            yield contradicts(f"the metadata log has {len(records)} records, and {last.records} were written")
    else:
        records.append(last)
        if not row.simulated:
            yield lacks("the metadata log has no end: nobody knows whether all of it is there")
    known = [record for record in records if record is not None]
    kraft = facts.case.experiment.cluster.mode == "kraft"
    ends_at = last.offset if isinstance(last, LogEnded) else None
    yield from map(contradicts, out_of_order(known, ends_at, gapless=kraft or row.simulated))
    # ZooKeeper's servers may have been sent a snapshot instead of what it was made of.
    yield from map(contradicts if kraft or row.simulated else lacks, epochs_left_out(known))

"""Live readers that were sent on past records: what they were not handed is told with the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, not_judged
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import ClientReset


def check(facts: Facts) -> Iterator[Opinion]:
    """A reader whose position lay before the start of the log has passed over what stood there until then."""
    for event in facts.events:
        what = event.what
        if not isinstance(what, ClientReset) or what.position is None or what.goes_on is None:
            continue
        missed = what.goes_on - max(what.position, 0)
        if missed > 0 and event.topic is not None:
            place = TopicPartition(event.topic, event.partition or 0)
            yield not_judged(
                f"reader {event.client} was at offset {max(what.position, 0):,} of {place} at "
                f"{event.t_ns / 1e9:.1f} s, and the log began at {what.start or 0:,} by then: it went on at "
                f"{what.goes_on:,} and was never handed what stood at {missed:,} offsets between"
            )

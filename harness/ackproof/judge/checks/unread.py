"""Whether a producer of ours took its last records with it: acks=0, closed before brokers had read what it had sent."""

from __future__ import annotations

from collections.abc import Iterator

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, lacks
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.timeline import Note


def check(facts: Facts) -> Iterator[Opinion]:
    """A lack where something was lost: what a client's own end takes is not Kafka's doing."""
    if not facts.audit.counts.get(Anomaly.LOST):
        return
    for event in facts.events:
        what = event.what
        if isinstance(what, Note) and what.unread_bytes:
            yield lacks(
                f"producer {what.producer} closed while {what.unread_bytes} bytes of it were read by no broker, so "
                "losses among its last records may be the harness's own"
            )

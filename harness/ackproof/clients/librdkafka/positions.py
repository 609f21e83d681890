"""Offsets at which a reader starts, and at which it resumes when its position left the log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from threading import Event
from typing import Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from ackproof.rundir.partition import TopicPartition

_ASK_S: Final = 0.5
_WAIT_S: Final = 0.05
_CUT_AT: Final = re.compile(r"broker end offset is (\d+)")
"""Pattern for the text of librdkafka's error. Only the text has the offset of a truncation: the offset field of the
error has the reader's position."""


def committed_offsets(client: Consumer, places: Sequence[TopicPartition], stop: Event) -> list[int] | None:
    """Return the committed offset of the client's group for each of `places`, -1 where it has none.

    Asks until the group coordinator answers for all of them, or until `stop` is set; then the result is None.
    """
    wanted = [ClientPartition(*place) for place in places]
    while not stop.is_set():
        try:
            found = client.committed(wanted, _ASK_S)
        except KafkaException:
            found = []
        offsets = {(one.topic, one.partition): one.offset for one in found if not one.error}
        if len(offsets) == len(wanted):
            return [max(-1, offsets[place]) for place in places]
        stop.wait(_WAIT_S)
    return None


def truncation_offset(text: str) -> int | None:
    """Return the offset at which the reader's last leader epoch ends in the leader's log (KIP-320); None if unknown.

    `text`: message of librdkafka's error.
    """
    match = _CUT_AT.search(text)
    return int(match[1]) if match else None


def resume_offset(position: int, low: int, high: int, cut: int | None) -> int:
    """Return the offset at which a reader resumes after its `position` has left the log [low, high).

    If the position is below `low`, this is `low`. Otherwise the log was truncated, and the result is `cut`, the offset
    of the truncation, limited to `low` … `high`. With `cut` None (unknown) it is `low`, so that the whole log is read
    again. Resuming at `high` would skip records that were written after the truncation.
    """
    if position < low:
        return low
    return low if cut is None else max(low, min(high, cut))

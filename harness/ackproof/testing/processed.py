"""Checks for `Ledger.assert_processed` how consumer groups of the code under test processed acknowledged records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from ackproof.base.errors import BadInput
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.testing.book import Attempt, Book, Place, Read

Promise: TypeAlias = Literal["at least once", "at most once", "exactly once"]
_MOST: Final = 10


Record: TypeAlias = tuple[Place, Attempt]
"""An acknowledged record that is in the log: its place, and the produce call that made it."""


def acknowledged_records(book: Book, final: Sequence[Read]) -> list[Record]:
    """Return the acknowledged records in the final read, except records of aborted transactions, by partition and
    offset."""
    found = []
    for read in final:
        attempt = book.find_attempt(read.identity.producer, read.identity.seq)
        if attempt is not None and attempt.outcome is Outcome.ACKED and not attempt.given_up:
            found.append((Place(read.topic, read.partition, read.offset), attempt))
    return sorted(found, key=lambda record: record[0])


def place_of(message: Any) -> Place:  # noqa: ANN401 — a message of any client library
    """Return topic, partition and offset of a message of confluent-kafka, or of a record of kafka-python or aiokafka.

    Raises TypeError for anything else.
    """
    try:
        values = [getattr(message, name) for name in Place._fields]
    except AttributeError:
        raise TypeError(f"expected a message that a consumer returned, not {message!r}") from None
    return Place(*(value() if callable(value) else value for value in values))


def mark_processed(book: Book, message: Any, group: str | None) -> None:  # noqa: ANN401 — of any client library
    """Note that a group's code processed this message. `group` None: the only group of the book's consumers. Raises
    `BadInput` if it is None and they are in several groups or in none, TypeError for an object that is no message."""
    groups = {name for name in book.reader_groups if name}
    if group is None and len(groups) != 1:
        raise BadInput(
            f"name the group: consumers of this ledger are in {', '.join(sorted(groups)) or 'none'}"
        )
    whose = group if group is not None else groups.pop()
    book.processed.append((whose, place_of(message)))


def judge_group(
    book: Book,
    group: str,
    committed: Mapping[TopicPartition, int],
    records: Sequence[Record],
    promise: Promise,
    *,
    caught_up: bool,
    tell: Callable[[Attempt], str],
) -> list[str]:
    """Return lines about the records that this group did not process as `promise` says; none if all were processed so.

    Only records of partitions for which the group committed an offset are judged. A record that the group committed
    past must be processed ("at least once"). No record may be processed twice ("at most once"). A record was processed
    as often as the test marked it; without any mark for the group, as often as a consumer of the group returned it.
    `caught_up`: records that the group did not commit past are reported too. `tell` returns a record in words.
    """
    handed = Counter(
        Place(read.topic, read.partition, read.offset)
        for reads, name in zip(book.readers, book.reader_groups, strict=True)
        if name == group
        for read in reads
    )
    marks = Counter(place for name, place in book.processed if name == group)
    done = marks or handed
    past: list[Record] = []
    ahead: list[Record] = []
    for record in records:
        topic, partition, offset = record[0]
        if (end := committed.get(TopicPartition(topic, partition))) is not None:
            (past if offset < end else ahead).append(record)
    at_least, at_most = promise != "at most once", promise != "at least once"
    missing = [record for record in past if at_least and not done[record[0]]]
    faults = {
        "committed past, never handed over": [one for one in missing if not handed[one[0]]],
        "committed past, handed over, not processed": [one for one in missing if handed[one[0]]],
        "processed more than once": [one for one in past + ahead if at_most and done[one[0]] > 1],
        "not committed past": ahead if caught_up else [],
    }
    lines = []
    for what, found in faults.items():
        if found:
            lines.append(f"{what}: {len(found)}")
            lines += [f"  {place}: {tell(attempt)}" for place, attempt in found[:_MOST]]
            lines += [f"  … and {len(found) - _MOST} more"] if len(found) > _MOST else []
    offsets = ", ".join(f"{place} {offset}" for place, offset in sorted(committed.items()))
    begin = f"group {group} did not process every record {promise} (committed offsets: {offsets})."
    return [begin, *lines] if lines else []

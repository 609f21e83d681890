"""What rows of the produced ledgers say of themselves and beside the case.

An ack has an offset and no error, a report comes after its send, within the run; the case has the place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.judge.facts import Facts, partitions_of
from ackproof.judge.opinion import Opinion, contradicts, lacks
from ackproof.rundir import storage
from ackproof.rundir.end import group_span
from ackproof.rundir.ledger import parts
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.schema import PRODUCED

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_COLUMNS: Final = ["seq", "topic", "partition", "outcome", "error", "offset", "sent_ns", "done_ns", "txn"]
_TIMES: Final = ["sent_ns", "done_ns"]
_SLACK_NS: Final = 5_000_000_000
"""A client that is asked to end reports until it has ended; the run's last event comes after that."""


Rule = tuple[str, Callable[[pa.RecordBatch], pa.Array]]
"""What rows that break it did, and which of a batch do."""


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions within rows, and partitions that never acknowledged anything."""
    rules, seen = list(_rules(facts)), _Seen()
    try:
        for path in parts(facts.run.produced):
            for batch, place in _read(path, facts):
                seen.look(batch, place, rules)
    except (OSError, pa.ArrowException):
        return  # the audit says that a part cannot be read
    for words, _ in rules:
        if count := seen.count[words]:
            yield contradicts(f"attempts that {words}: {count:,}, such as one on {seen.example[words]}")
    known = {str(place) for place in partitions_of(facts.case, facts.case.experiment.topics)}
    if strange := sorted(seen.acked.keys() - known):
        yield contradicts(f"attempts are of {', '.join(strange)}, which the case does not have")
    if never := sorted(place for place, any_ack in seen.acked.items() if not any_ack):
        yield lacks(f"nothing was ever acknowledged on {', '.join(never)}")


@dataclass
class _Seen:
    """What was seen of the rules, and which places acknowledged anything."""

    count: Counter[str] = field(default_factory=Counter)
    example: dict[str, str] = field(default_factory=dict)
    acked: dict[str, bool] = field(default_factory=dict)

    def look(self, batch: pa.RecordBatch, place: str | None, rules: Sequence[Rule]) -> None:
        """`place`: see `_read`."""
        for words, broken in rules if place is None else rules[:1]:
            if found := int(pc.sum(which := broken(batch)).as_py() or 0):
                self.count[words] += found
                first = place or _place(batch.filter(which).slice(0, 1).to_pylist()[0])
                self.example.setdefault(words, first)
        if place is not None:
            self.acked[place] = True
            return
        for row in _acks(batch):
            if row["partition"] >= 0:
                self.acked[_place(row)] = self.acked.get(_place(row), False) or row["acked_any"]


def _read(path: Path, facts: Facts) -> Iterator[tuple[pa.RecordBatch, str | None]]:
    """The rows of a part, a batch at a time; the place of those of which the footer says that all were acknowledged
    there and break no rule but perhaps the first, for which they have its two columns alone.

    Ten million attempts at once would take a gigabyte, and all their columns a third of the time of their audit.
    """
    with storage.parquet(path) as file:
        for number in range(file.num_row_groups):
            place = _in_order(file.metadata, number, facts)
            wanted = _COLUMNS if place is None else _TIMES
            schema = pa.schema([PRODUCED.field(name) for name in wanted])
            for batch in file.iter_batches(row_groups=[number], columns=wanted):
                for whole in pa.Table.from_batches([batch]).select(wanted).cast(schema).to_batches():
                    yield whole, place


def _in_order(metadata: pq.FileMetaData, number: int, facts: Facts) -> str | None:
    """The one place of a row group if its footer says all that: that each is acknowledged at an offset, in time."""
    group = metadata.row_group(number)
    leaves = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    if not group.num_rows or not leaves.keys() >= set(_COLUMNS):
        return None
    spans = {name: group_span(metadata, number, leaves[name]) for name in _COLUMNS if name != "topic"}
    topic = group.column(leaves["topic"]).statistics
    least = {name: span[0] for name, span in spans.items() if span is not None}
    most = {name: span[1] for name, span in spans.items() if span is not None}
    if len(least) < len(spans) or topic is None or not topic.has_min_max or topic.min != topic.max:
        return None
    producers = facts.case.experiment.workload.producers
    good = (
        (least["outcome"], most["outcome"], least["error"], most["error"])
        == (int(Outcome.ACKED),) * 2 + (0, 0)
        and least["partition"] == most["partition"] >= 0
        and min(least[name] for name in ("seq", "offset", "sent_ns", "done_ns")) >= 0
        and producers.acks != "0"
        and (
            least["txn"] >= 0
            if producers.transaction_size is not None
            else (least["txn"], most["txn"]) == (-1, -1)
        )
        and (not facts.events or max(most["sent_ns"], most["done_ns"]) <= facts.events[-1].t_ns + _SLACK_NS)
    )
    return f"{topic.min}/{least['partition']}" if good else None


def _rules(facts: Facts) -> Iterator[Rule]:
    """The first is the one that a footer cannot answer."""
    producers = facts.case.experiment.workload.producers
    yield (
        "were acknowledged before they were sent",
        lambda rows: pc.and_(_reported(rows), pc.less(rows["done_ns"], rows["sent_ns"])),
    )
    yield "were acknowledged without a report", lambda rows: pc.and_(_acked(rows), pc.invert(_reported(rows)))
    yield "were sent before the run began", lambda rows: pc.less(rows["sent_ns"], 0)
    yield (
        "were not acknowledged and have an offset",
        lambda rows: pc.and_(pc.invert(_acked(rows)), pc.greater_equal(rows["offset"], 0)),
    )
    yield "are numbered below 0", lambda rows: pc.less(rows["seq"], 0)
    yield "have an offset below -1", lambda rows: pc.less(rows["offset"], -1)
    yield (
        "were acknowledged with an error, or failed without one",
        lambda rows: pc.or_(
            pc.and_(_acked(rows), pc.not_equal(rows["error"], 0)),
            pc.and_(pc.equal(rows["outcome"], int(Outcome.FAILED)), pc.equal(rows["error"], 0)),
        ),
    )
    if producers.transaction_size is None:
        yield "are of a transaction, and the case has none", lambda rows: pc.not_equal(rows["txn"], -1)
    else:
        yield "are of no transaction, and the case has nothing else", lambda rows: pc.less(rows["txn"], 0)
    if producers.acks == "0":
        yield "have an offset, and nobody acknowledges", lambda rows: pc.greater_equal(rows["offset"], 0)
    if facts.events:
        end = facts.events[-1].t_ns + _SLACK_NS
        yield (
            "were sent or acknowledged after the run had ended",
            lambda rows: pc.greater(pc.max_element_wise(rows["sent_ns"], rows["done_ns"]), end),
        )
    if producers.acks != "0" and not producers.idempotence:
        yield (
            "were acknowledged without an offset",
            lambda rows: pc.and_(_acked(rows), pc.less(rows["offset"], 0)),
        )


def _acked(rows: pa.RecordBatch) -> pa.Array:
    return pc.equal(rows["outcome"], int(Outcome.ACKED))


def _reported(rows: pa.RecordBatch) -> pa.Array:
    return pc.greater_equal(rows["done_ns"], 0)


def _acks(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Each partition of a batch, and whether it acknowledged anything there."""
    rows = pa.table(
        [batch["topic"], batch["partition"], _acked(batch)], names=["topic", "partition", "acked"]
    )
    found: list[dict[str, Any]] = (
        rows.group_by(["topic", "partition"]).aggregate([("acked", "any")]).to_pylist()
    )
    return found


def _place(row: dict[str, Any]) -> str:
    return f"{row['topic']}/{row['partition']}"

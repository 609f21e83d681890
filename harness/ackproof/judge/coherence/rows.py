"""What rows of the produced ledgers say of themselves and beside the case.

An ack has an offset and no error, a report comes after its send, within the run; the case has the place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ackproof.judge.facts import Facts, partitions_of
from ackproof.judge.opinion import Opinion, contradicts, lacks
from ackproof.rundir.ledger import parts
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.schema import PRODUCED

_COLUMNS: Final = ["seq", "topic", "partition", "outcome", "error", "offset", "sent_ns", "done_ns", "txn"]
_SLACK_NS: Final = 5_000_000_000
"""A client that is asked to end reports until it has ended; the run's last event comes after that."""


Rule = tuple[str, Callable[[pa.RecordBatch], pa.Array]]
"""What rows that break it did, and which of a batch do."""


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions within rows, and partitions that never acknowledged anything."""
    files = [str(path) for path in parts(facts.run.produced)]
    if not files:
        return
    rules = list(_rules(facts))
    count: Counter[str] = Counter()
    example: dict[str, str] = {}
    acked: dict[str, bool] = {}
    try:
        # Batch by batch: of ten million attempts all at once would take a gigabyte.
        for batch in ds.dataset(files, schema=PRODUCED, format="parquet").to_batches(
            columns=_COLUMNS, batch_readahead=2, fragment_readahead=1
        ):
            for words, broken in rules:
                if found := int(pc.sum(which := broken(batch)).as_py() or 0):
                    count[words] += found
                    example.setdefault(words, _place(batch.filter(which).slice(0, 1).to_pylist()[0]))
            for row in _acks(batch):
                if row["partition"] >= 0:
                    acked[_place(row)] = acked.get(_place(row), False) or row["acked_any"]
    except (OSError, pa.ArrowException):
        return  # the audit says that a part cannot be read
    for words, _ in rules:
        if count[words]:
            yield contradicts(f"attempts that {words}: {count[words]:,}, such as one on {example[words]}")
    known = {str(place) for place in partitions_of(facts.case, facts.case.experiment.topics)}
    if strange := sorted(acked.keys() - known):
        yield contradicts(f"attempts are of {', '.join(strange)}, which the case does not have")
    if never := sorted(place for place, any_ack in acked.items() if not any_ack):
        yield lacks(f"nothing was ever acknowledged on {', '.join(never)}")


def _rules(facts: Facts) -> Iterator[Rule]:
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

"""Coherence of the ledgers: of produced rows with each other and the case, and of transactions with their rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.experiment.client import COMMAND
from ackproof.judge.facts import Facts, partitions_of
from ackproof.judge.opinion import Opinion, breaks, contradicts, lacks
from ackproof.rundir import storage
from ackproof.rundir.ledger import parts, read_parts
from ackproof.rundir.outcome import Outcome, TxnOutcome
from ackproof.rundir.parts import Footer
from ackproof.rundir.schema import PRODUCED, TRANSACTIONS

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_ACKED: Final = int(Outcome.ACKED)
_FAILED: Final = int(Outcome.FAILED)
_PLACE: Final = ("topic", "partition")
_BATCH_ROWS: Final = 1 << 18
"""Rows that are checked at once. Ten million attempts would take a gigabyte."""
_AT_ONCE: Final = 2
"""Number of ledger parts that are checked in parallel threads. Arrow releases Python's interpreter lock."""
_PARTITIONS: Final = 100_000
"""Row groups with a partition number from this one on are read: their partitions are not listed from the footer."""
_SLACK_NS: Final = 5_000_000_000
"""Tolerance for reports after the run's last event."""


class _RowRule(NamedTuple):
    """A property that no produced row may have. `words`: the property in words. `columns`: ledger columns needed to
    check it.

    `broken(batch)` returns a mask: True for each row of a batch with these columns that has the property.
    `may_break(footer)` returns False if the footer of a row group shows that none of its rows has it, so that none need
    be read. `answered`: True if a broker's answer gives a row the property. If nobody changed the ledger, the broker
    then broke a promise.
    """

    words: str
    columns: tuple[str, ...]
    broken: Callable[[pa.RecordBatch], pa.Array]
    may_break: Callable[[Footer], bool]
    answered: bool = False


def check_rows(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion (files disagree) for each rule that produced rows break, and for rows of partitions
    that the case does not have.

    A broken rule about a broker's answer yields `breaks` (a promise is broken) in a sealed run, whose digests prove its
    files unchanged. It yields `contradicts` if a fault (`answer_request`) answers requests in the place of a broker.
    Yield a `lacks` opinion (evidence is missing) if partitions that producers sent to never acknowledged a record.
    Nothing is yielded if a part of the ledger cannot be read.
    """
    rules, places = list(_rules(facts)), _PartitionsOfAttempts()
    count: Counter[str] = Counter()
    example: dict[str, str] = {}
    try:
        with ThreadPoolExecutor(_AT_ONCE) as readers:
            for found in readers.map(
                lambda path: list(_broken(path, rules, places)), parts(facts.run.produced)
            ):
                for words, rows, place in found:
                    count[words] += rows
                    example.setdefault(words, place)
    except (OSError, pa.ArrowException, KeyError):
        return  # the audit says that a part cannot be read
    # The Java client takes DUPLICATE_SEQUENCE_NUMBER for success, idempotent or not.
    answers_made = any(fault.kind == "answer_request" for fault in facts.case.faults)
    for rule in rules:
        if count[rule.words]:
            says = breaks if rule.answered and facts.sealed and not answers_made else contradicts
            yield says(
                f"attempts that {rule.words}: {count[rule.words]:,}, such as one on {example[rule.words]}"
            )
    known = {str(place) for place in partitions_of(facts.case, facts.case.experiment.topics)}
    if strange := sorted(places.tried - known):
        yield contradicts(f"attempts are of {', '.join(strange)}, which the case does not have")
    if never := sorted(places.tried - places.acked):
        yield lacks(f"nothing was ever acknowledged on {', '.join(never)}")


def _broken(
    path: Path, rules: Sequence[_RowRule], places: _PartitionsOfAttempts
) -> Iterator[tuple[str, int, str]]:
    """Yield (rule in words, number of rows that break it, partition of the first such row) for each batch of rows of a
    ledger part. Adds its partitions to `places`.

    Reads only columns about which the footers leave a question open. Row groups with the same open questions are read
    together.
    """
    with storage.open_parquet(path) as file:
        asked: dict[tuple[tuple[_RowRule, ...], bool], list[int]] = defaultdict(list)
        for group in range(file.num_row_groups):
            footer = Footer.read(file.metadata, group)
            asked[
                tuple(rule for rule in rules if rule.may_break(footer)), not places.add_footer(footer)
            ].append(group)
        for (some, where), groups in asked.items():
            wanted = {column for rule in some for column in rule.columns}
            wanted |= {*_PLACE, "outcome"} if where else set()
            row = 0
            for rows in _batches(file, groups, wanted) if wanted else ():
                for rule in some:
                    if found := int(pc.sum(which := rule.broken(rows)).as_py() or 0):
                        yield (
                            rule.words,
                            found,
                            _partition_of_row(file, groups, row + pc.index(which, True).as_py()),
                        )
                if where:
                    places.add(rows)
                row += len(rows)


def _batches(file: pq.ParquetFile, groups: Sequence[int], wanted: Set[str]) -> Iterator[pa.RecordBatch]:
    """Yield the `wanted` columns of these row groups, cast to the types of the `PRODUCED` schema."""
    schema = pa.schema([column for column in PRODUCED if column.name in wanted])
    for batch in file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=schema.names, use_threads=False):
        yield from pa.Table.from_batches([batch]).select(schema.names).cast(schema).to_batches()


@dataclass
class _PartitionsOfAttempts:
    """Partitions that producers sent to, and those that acknowledged a record, over all ledger parts."""

    tried: set[str] = field(default_factory=set)
    acked: set[str] = field(default_factory=set)

    def add(self, rows: pa.RecordBatch) -> None:
        self.tried |= _partition_names(rows)
        self.acked |= _partition_names(rows.filter(pc.equal(rows["outcome"], _ACKED)))

    def add_footer(self, footer: Footer) -> bool:
        """Add the partition of a row group if its footer names a single one. Return False if the rows must be
        read to know all partitions of the row group, and which of them acknowledged a record."""
        topic, (first, last) = footer.texts.get("topic"), footer.numbers.get("partition", (-1, -1))
        if topic is None or not 0 <= first <= last < _PARTITIONS:
            return not footer.rows
        mine = {f"{topic}/{number}" for number in range(int(first), int(last) + 1)}
        if len(mine) == 1:
            self.tried |= mine
            self.acked |= mine if footer.is_all("outcome", _ACKED) else set()
            return mine <= self.acked or not footer.may_be("outcome", _ACKED)
        return mine <= self.acked


def _rules(facts: Facts) -> Iterator[_RowRule]:
    producers = facts.case.experiment.workload.producers
    yield _RowRule(
        "were acknowledged before they were sent",
        ("done_ns", "sent_ns"),
        lambda rows: pc.and_(_reported(rows), pc.less(rows["done_ns"], rows["sent_ns"])),
        lambda footer: footer.most("done_ns") >= 0 and footer.least("done_ns") < footer.most("sent_ns"),
    )
    yield _RowRule(
        "were acknowledged without a report",
        ("outcome", "done_ns"),
        lambda rows: pc.and_(_acked(rows), pc.invert(_reported(rows))),
        lambda footer: footer.may_be("outcome", _ACKED) and footer.least("done_ns") < 0,
    )
    yield _below("were sent before the run began", "sent_ns", 0)
    yield _RowRule(
        "were not acknowledged and have an offset",
        ("outcome", "offset"),
        lambda rows: pc.and_(pc.invert(_acked(rows)), pc.greater_equal(rows["offset"], 0)),
        lambda footer: not footer.is_all("outcome", _ACKED) and footer.most("offset") >= 0,
    )
    yield _below("are numbered below 0", "seq", 0)
    yield _below("have an offset below -1", "offset", -1)
    yield _RowRule(
        "were acknowledged with an error, or failed without one",
        ("outcome", "error"),
        lambda rows: pc.or_(
            pc.and_(_acked(rows), pc.not_equal(rows["error"], 0)),
            pc.and_(pc.equal(rows["outcome"], _FAILED), pc.equal(rows["error"], 0)),
        ),
        lambda footer: (
            (footer.may_be("outcome", _ACKED) and not footer.is_all("error", 0))
            or (footer.may_be("outcome", _FAILED) and footer.may_be("error", 0))
        ),
    )
    if producers.transaction_size is None:
        yield _RowRule(
            "are of a transaction, and the case has none",
            ("txn",),
            lambda rows: pc.not_equal(rows["txn"], -1),
            lambda footer: not footer.is_all("txn", -1),
        )
    else:
        yield _below("are of no transaction, and the case has nothing else", "txn", 0)
    if producers.acks == "0":
        yield _RowRule(
            "have an offset, and nobody acknowledges",
            ("offset",),
            lambda rows: pc.greater_equal(rows["offset"], 0),
            lambda footer: footer.most("offset") >= 0,
        )
    if facts.events:
        end = facts.events[-1].t_ns + _SLACK_NS
        yield _RowRule(
            "were sent or acknowledged after the run had ended",
            ("sent_ns", "done_ns"),
            lambda rows: pc.greater(pc.max_element_wise(rows["sent_ns"], rows["done_ns"]), end),
            lambda footer: max(footer.most("sent_ns"), footer.most("done_ns")) > end,
        )
    # A program of the user need not tell offsets. An idempotent batch that is there already may have none.
    if producers.acks != "0" and not producers.idempotence and producers.client.library != COMMAND:
        yield _RowRule(
            "were acknowledged without an offset",
            ("outcome", "offset"),
            lambda rows: pc.and_(_acked(rows), pc.less(rows["offset"], 0)),
            lambda footer: footer.may_be("outcome", _ACKED) and footer.least("offset") < 0,
            answered=True,  # a leader that appended names the offset (ProduceResponse.base_offset)
        )


def _below(words: str, column: str, bound: int) -> _RowRule:
    return _RowRule(
        words,
        (column,),
        lambda rows: pc.less(rows[column], bound),
        lambda footer: footer.least(column) < bound,
    )


def _acked(rows: pa.RecordBatch) -> pa.Array:
    return pc.equal(rows["outcome"], _ACKED)


def _reported(rows: pa.RecordBatch) -> pa.Array:
    return pc.greater_equal(rows["done_ns"], 0)


def _partition_names(rows: pa.RecordBatch) -> set[str]:
    """Return the partitions of these attempts, as `topic/partition`. Attempts that never got a partition (-1) are left
    out."""
    found = (
        pa.table([rows[name] for name in _PLACE], names=_PLACE).group_by([*_PLACE]).aggregate([]).to_pylist()
    )
    return {f"{one['topic']}/{one['partition']}" for one in found if one["partition"] >= 0}


def _partition_of_row(file: pq.ParquetFile, groups: Sequence[int], row: int) -> str:
    (one,) = file.read_row_groups(groups, columns=[*_PLACE]).slice(row, 1).to_pylist()
    return f"{one['topic']}/{one['partition']}"


# -- transactions -----------------------------------------------------------------------------------------------------

_TRANSACTION: Final = ["producer", "txn"]


def check_transactions(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion (files disagree) where transactions do not fit their produced rows. Yield `lacks`
    (evidence is missing) if no transaction is known to be committed or too many outcomes are unknown. Nothing is
    yielded if the case has no transactions, or a part of the ledger cannot be read."""
    if facts.case.experiment.workload.producers.transaction_size is None:
        return
    try:
        table = read_parts(facts.run.transactions, TRANSACTIONS)
        rows = read_parts(facts.run.produced, PRODUCED).select([*_TRANSACTION, "seq", "sent_ns"])
    except (OSError, pa.ArrowException):
        return  # the audit says that a part cannot be read
    yield from map(lacks, _unknown_outcomes(facts, table))
    sent = rows.group_by(_TRANSACTION).aggregate([("seq", "min"), ("sent_ns", "min"), ("sent_ns", "max")])
    for words, broken in _broken_transactions(table.join(sent, _TRANSACTION, join_type="left outer")):
        if broken.num_rows:
            one = broken.slice(0, 1).to_pylist()[0]
            such = f"such as {one['txn']} of producer {one['producer']}"
            yield contradicts(f"transactions that {words}: {broken.num_rows:,}, {such}")


def _unknown_outcomes(facts: Facts, table: pa.Table) -> Iterator[str]:
    """Yield a sentence if there is no transaction, none is known to be committed, or the share of unknown outcomes is
    above `evidence.max_indeterminate`."""
    outcomes = table["outcome"].to_pylist()
    unknown, bound = outcomes.count(int(TxnOutcome.UNKNOWN)), facts.case.experiment.evidence.max_indeterminate
    if not outcomes:
        yield "producers were to write in transactions, and there is none"
    elif int(TxnOutcome.COMMITTED) not in outcomes:
        yield f"of {len(outcomes)} transactions none is known to be committed"
    elif unknown > bound * len(outcomes):
        yield f"of {len(outcomes)} transactions {unknown} are unknown, more than the {bound:.0%} that may be"


def _broken_transactions(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield (words, transactions) for each rule about transactions: the transactions that break it, maybe none, and
    what is wrong with them, to be put after "transactions that". `table`: one row per transaction, with the least `seq`
    and the first and last `sent_ns` of its produced rows (null if it has none)."""
    begun, commit, ended = (pc.field(name) for name in ("begun_ns", "commit_ns", "ended_ns"))
    first, last = pc.field("sent_ns_min"), pc.field("sent_ns_max")
    committed = pc.field("outcome") == int(TxnOutcome.COMMITTED)
    yield "begin before the run", table.filter(begun < 0)
    yield (
        "are committed and were never asked to be, or never ended",
        table.filter(committed & ((commit < 0) | (ended < 0))),
    )
    yield (
        "end or are to be committed before they begin, or end before that",
        table.filter(
            ((commit >= 0) & (commit < begun)) | ((ended >= 0) & ((ended < begun) | (ended < commit)))
        ),
    )
    yield "have records from before they begin", table.filter(first < begun)
    yield "have records from after their commit was asked for", table.filter((commit >= 0) & (last > commit))
    yield (
        "begin with another seq than their first record has",
        table.filter(pc.field("first_seq") != pc.field("seq_min")),
    )

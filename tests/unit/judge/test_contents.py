"""Tests that compare the records of a log on disk with the ledger of the final read, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crc32c import crc32c

from ackproof.judge.checks.contents import ComparedBatches, compare
from ackproof.judge.checks.logs import check_logs
from ackproof.judge.facts import Facts
from ackproof.observe.replica_logs import LogDir, collect_replica_logs
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import ConsumedRows, FinalRows, write_consumed
from ackproof.rundir.outcome import ReadPhase, Says
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import UNKNOWN_CONTENT, encoder
from ackproof.rundir.payload_bulk import as_int64, content_hashes, content_sum
from ackproof.rundir.replicas import BATCHES, Replica, ReplicasFile
from broker_files import as_control, batch, compressed, marker
from run_directory import write_run

records = partial(batch, key=None)
PLACE = TopicPartition("orders", 0)
RUN_ID = "ab" * 8
WHO = [(seq % 2, seq // 2) for seq in range(100)]
"""(Producer, seq) of the record at each offset."""


def _values(first: int, last: int, run_id: str = RUN_ID) -> list[bytes]:
    return [encoder(run_id, producer, "orders", 0, 80)(seq) for producer, seq in WHO[first:last]]


def _body(data: bytes) -> bytes:
    return data[61:]


def _log(tmp_path: Path, *data: bytes) -> CaseDir:
    """Return a run directory with the observed log of orders/0 on node 1, which has these batches."""
    folder = tmp_path / "data" / "orders-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").write_bytes(b"".join(data))
    run = CaseDir(tmp_path / "run")
    collect_replica_logs([LogDir(1, tmp_path / "data")], ["orders"], run, RUN_ID)
    return run


def _handed(
    run: CaseDir,
    offsets: Sequence[int],
    who: Sequence[tuple[int, int]],
    damaged: Sequence[int] = (),
    phase: ReadPhase = ReadPhase.FINAL,
) -> CaseDir:
    """Write the ledger of a reader that got records at these `offsets` with the identities `who`, in this order, and
    return the run. `damaged`: offsets whose records are not intact."""
    count = len(offsets)
    folder = run.consumed / f"client={phase}"
    folder.mkdir(parents=True)
    producers, seqs = zip(*who, strict=True)
    rows = ConsumedRows(
        reader=9, phase=phase, places=(PLACE,), origins=("orders",),
        place=np.zeros(count, np.int32), assignment=np.zeros(count, np.int32), read_seq=np.arange(count),
        offset=np.array(offsets), leader_epoch=np.zeros(count, np.int32), producer=np.array(producers, np.int32),
        seq=np.array(seqs), origin=np.zeros(count, np.int32), origin_partition=np.zeros(count, np.int32),
        intact=~np.isin(offsets, damaged), read_ns=np.zeros(count, np.int64), timestamp_ms=np.zeros(count, np.int64),
    )  # fmt: skip
    write_consumed(folder, 0, rows)
    return run


def _compared(run: CaseDir, start: int = 0, end: int = 100, committed: bool = False) -> ComparedBatches:
    return compare(FinalRows(run), PLACE, pq.read_table(run.replica_batches), start, end, committed=committed)


GOOD = (records(0, _values(0, 60)), records(60, _values(60, 100), epoch=1))


def test_a_reader_that_was_handed_what_lies_there_is_believed(tmp_path: Path) -> None:
    assert _compared(_handed(_log(tmp_path, *GOOD), range(100), WHO)) == ComparedBatches(2, 0, -1, 0)


def test_in_any_order(tmp_path: Path) -> None:
    order = [*range(1, 100, 2), *range(0, 100, 2)]
    run = _handed(_log(tmp_path, *GOOD), order, [WHO[at] for at in order])
    assert _compared(run) == ComparedBatches(2, 0, -1, 0)


def _changed(at: int, to: tuple[int, int]) -> list[tuple[int, int]]:
    return [*WHO[:at], to, *WHO[at + 1 :]]


@pytest.mark.parametrize(
    ("offsets", "who", "first"),
    [
        pytest.param(range(100), _changed(70, (0, 36)), 60, id="another seq"),
        pytest.param(range(100), _changed(70, (1, 35)), 60, id="another producer"),
        pytest.param(range(100), _changed(0, (-1, -1)), 0, id="nobody's"),
        pytest.param([*range(99)], WHO[:99], 60, id="one is missing"),
        pytest.param([*range(100), 5], [*WHO, WHO[5]], 0, id="one came twice"),
        pytest.param(range(100), [WHO[1], WHO[0], *WHO[2:]], 0, id="two changed places"),
        pytest.param([*range(59), 60, 60, *range(61, 100)], WHO, 0, id="one moved into the next batch"),
    ],
)
def test_a_ledger_that_says_otherwise_is_found_out(
    tmp_path: Path, offsets: Sequence[int], who: Sequence[tuple[int, int]], first: int
) -> None:
    compared = _compared(_handed(_log(tmp_path, *GOOD), offsets, who))
    assert (compared.first, compared.other > 0) == (first, True)


@pytest.mark.parametrize(
    ("live", "agreed"),
    [
        pytest.param(_changed(70, (0, 36)), 1, id="the same"),
        pytest.param(
            [*_changed(70, (0, 36)), *_changed(70, (0, 36))], 1, id="the same twice, after going back"
        ),
        pytest.param(WHO, 0, id="what the log holds"),
        pytest.param(_changed(70, (0, 37)), 0, id="something else"),
    ],
)
def test_a_live_reader_that_was_served_the_same_speaks_against_kafka(
    tmp_path: Path, live: Sequence[tuple[int, int]], agreed: int
) -> None:
    run = _handed(_log(tmp_path, *GOOD), range(100), _changed(70, (0, 36)))
    _handed(run, [*range(100)] * (len(live) // 100), live, phase=ReadPhase.LIVE)
    assert _compared(run) == ComparedBatches(1, 1, 60, 0, agreed)


@pytest.mark.parametrize("intact", [True, False])
def test_a_damaged_record_that_lies_there_damaged_is_told_from_one_that_does_not(
    tmp_path: Path, intact: bool
) -> None:
    first, *others = _values(0, 60)
    damaged = bytearray(first)
    damaged[-9] ^= 1
    run = _log(tmp_path, records(0, [first if intact else bytes(damaged), *others]))
    _handed(run, range(60), WHO[:60], damaged=(0,))
    assert _compared(run, end=60) == (ComparedBatches(0, 1, 0, 0) if intact else ComparedBatches(1, 0, -1, 0))


@pytest.mark.parametrize("odd", [0, 1])
def test_where_the_audits_sum_is_the_logs_the_rows_are_not_read_again(tmp_path: Path, odd: int) -> None:
    """Equal content sums make the comparison skip the rows. With another sum it reads them, and counts the batches that
    differ."""
    offsets = np.arange(100)
    producers, seqs = (np.array(column) for column in zip(*WHO, strict=True))
    sum_ = as_int64(content_sum(offsets, producers, seqs, np.ones(100, np.bool_)))
    run = _log(tmp_path, *GOOD)  # of which the ledger has nothing
    compared = compare(FinalRows(run), PLACE, pq.read_table(run.replica_batches), 0, 100, summed=sum_ + odd)
    assert compared == (ComparedBatches(0, 2, 0, 0) if odd else ComparedBatches(2, 0, -1, 0))


def test_a_sum_of_many_is_the_sum_of_their_blocks() -> None:
    offsets = np.arange(200_000)
    columns = (offsets, (offsets % 3).astype(np.int32), offsets // 3, offsets % 7 > 0)
    whole = int(content_hashes(*columns).sum(dtype=np.uint64))
    assert content_sum(*columns) == whole
    assert np.array([as_int64(whole)], np.int64).view(np.uint64)[0] == whole


def test_who_was_handed_nothing_was_handed_other_records(tmp_path: Path) -> None:
    assert _compared(_log(tmp_path, *GOOD)) == ComparedBatches(0, 2, 0, 0)


def test_of_what_reaches_beyond_the_read_nothing_is_said(tmp_path: Path) -> None:
    run = _handed(_log(tmp_path, *GOOD), range(10, 100), WHO[10:])
    assert _compared(run, start=10) == ComparedBatches(1, 0, -1, 1)
    assert _compared(run, start=10, end=99) == ComparedBatches(0, 0, -1, 2)


def test_markers_hold_nothing(tmp_path: Path) -> None:
    run = _handed(_log(tmp_path, *GOOD, as_control(records(100, [b"m"]))), range(100), WHO)
    assert _compared(run, end=101) == ComparedBatches(2, 0, -1, 0)


IN_TRANSACTIONS = (
    records(0, _values(0, 10), pid=7, txn=True),
    records(10, _values(10, 20), pid=8, txn=True),
    marker(20, 7, commit=True),
    records(21, _values(21, 30), pid=7, txn=True),
    marker(30, 8, commit=False),
    records(31, _values(31, 40)),
    marker(40, 7, commit=False),
    records(41, _values(41, 50), pid=8, txn=True),
    marker(50, 8, commit=True),
    records(51, _values(51, 60), pid=8, txn=True),
)
COMMITTED = [*range(10), *range(31, 40), *range(41, 50)]


@pytest.mark.parametrize(
    ("offsets", "result"),
    [
        pytest.param(COMMITTED, ComparedBatches(5, 0, -1, 1), id="what was committed"),
        pytest.param(COMMITTED[10:], ComparedBatches(4, 1, 0, 1), id="one transaction less"),
        pytest.param([*COMMITTED, *range(21, 30)], ComparedBatches(4, 1, 21, 1), id="one that was aborted"),
        pytest.param([*COMMITTED, 10], ComparedBatches(4, 1, 10, 1), id="a record of one"),
        pytest.param([*COMMITTED, 55], ComparedBatches(5, 0, -1, 1), id="of one that is open nobody knows"),
    ],
)
def test_at_read_committed_the_markers_decide(
    tmp_path: Path, offsets: list[int], result: ComparedBatches
) -> None:
    run = _log(tmp_path, *IN_TRANSACTIONS)
    _handed(run, offsets, [WHO[at] for at in offsets], phase=ReadPhase.FINAL_COMMITTED)
    assert _compared(run, end=61, committed=True) == result
    assert _compared(run, end=61) == ComparedBatches(0, 6, 0, 0), "nothing at read_uncommitted"


def test_the_read_at_read_committed_is_compared_by_its_own_offsets(facts: Facts) -> None:
    """The read at read_committed may end earlier than the other, at a hanging transaction."""
    assert facts.final_read is not None
    (whole,) = facts.final_read.partitions
    rows = [
        {**dict.fromkeys(BATCHES.names, 0), "node": node, "topic": "orders", "first_offset": first,
         "last_offset": first + 9, "records": 10, "control": False, "transactional": False, "sound": True}
        for node in (1, 2, 3)
        for first in range(0, 100, 10)
    ]  # fmt: skip
    logs = [
        Replica(
            node=node, topic="orders", partition=0, folder=f"/{node}", log_start=0, log_end=100, records=100
        )
        for node in (1, 2, 3)
    ]
    write_run(facts.run.path, replicas=ReplicasFile(replicas=tuple(logs)), replica_batches=rows)
    audit = facts.audit.model_copy(update={"contents": {"orders/0": (0, 0)}})
    # From 2 to 5 no batch lies wholly within the read, so that nothing is known of any.
    for start, end, agrees in ((0, 100, 1), (2, 5, 0)):
        committed = (whole.model_copy(update={"start": start, "end": end}),)
        final = facts.final_read.model_copy(update={"committed": committed})
        said = check_logs(replace(facts, final_read=final, audit=audit))
        assert sum(one.kind is Says.AGREES and "read_committed" in one.text for one in said) == agrees


def _xerial(data: bytes) -> bytes:
    half = len(data) // 2
    blocks = [pa.compress(part, codec="snappy", asbytes=True) for part in (data[:half], data[half:])]
    return b"\x82SNAPPY\x00" + bytes(8) + b"".join(len(one).to_bytes(4, "big") + one for one in blocks)


def _stream(data: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("codec", "body"),
    [
        pytest.param(1, _stream(_body(GOOD[0]), "gzip"), id="gzip"),
        pytest.param(2, pa.compress(_body(GOOD[0]), codec="snappy", asbytes=True), id="snappy, librdkafka's"),
        pytest.param(2, _xerial(_body(GOOD[0])), id="snappy, Java's"),
        pytest.param(3, _stream(_body(GOOD[0]), "lz4"), id="lz4"),
        pytest.param(4, _stream(_body(GOOD[0]), "zstd"), id="zstd"),
    ],
)
def test_compressed_batches_are_looked_into(tmp_path: Path, codec: int, body: bytes) -> None:
    run = _log(tmp_path, compressed(GOOD[0], codec, body))
    (row,) = pq.read_table(run.replica_batches).to_pylist()
    assert (row["sound"], row["content"] != UNKNOWN_CONTENT) == (True, True)
    assert _compared(_handed(run, range(60), WHO[:60]), end=60) == ComparedBatches(1, 0, -1, 0)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(records(0, _values(0, 3, run_id="cd" * 8)), id="of another run"),
        pytest.param(records(0, [*_values(0, 2), b"x"]), id="one of nobody's"),
        pytest.param(batch(0, _values(0, 3)), id="with keys"),
        pytest.param(compressed(GOOD[0], 4, b"no zstd"), id="not to be decompressed"),
        pytest.param(compressed(GOOD[0], 7, b""), id="an unknown codec"),
    ],
)
def test_what_cannot_be_read_is_unknown_and_sound(tmp_path: Path, data: bytes) -> None:
    (row,) = pq.read_table(_log(tmp_path, data).replica_batches).to_pylist()
    assert (row["sound"], row["content"]) == (True, UNKNOWN_CONTENT)


def test_a_flipped_bit_is_seen_whatever_the_header_says(tmp_path: Path) -> None:
    damaged = bytearray(GOOD[0])
    damaged[200] ^= 1
    rows = pq.read_table(_log(tmp_path, bytes(damaged), GOOD[1]).replica_batches).to_pylist()
    assert [(row["sound"], row["content"] == UNKNOWN_CONTENT) for row in rows] == [
        (False, True),
        (True, False),
    ]


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283

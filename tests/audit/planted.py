"""Ledgers of any size with known flaws and the findings that docs/audit.md demands for them.

Two producers fill each block of eight offsets, and the offset behind each block is free. Each flaw has a block of its
own, so that no two flaws touch. A flaw that needs another partition uses the free offset of a helping block there.
`flaws.py` has the flaws.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from .agreement import CLASSES

BLOCK = 8
STEP = BLOCK + 1
TOPICS = ("orders", "payments", "é-events")
PER_TOPIC = 3
PARTITIONS = len(TOPICS) * PER_TOPIC
PRODUCERS = 5
STRANGER = 900
"""Number of a producer that no ledger and no case.json names."""
LOST_END = 77
"""Number of a producer that case.json lists and whose ledger is missing, so it has no END."""
LIVE = (1, 2, 3)
FINAL = 50

Rows = dict[str, np.ndarray]


@dataclass
class Ledger:
    """Blocks of records as columns: the produced ledger, the final read and the live reads.

    `blocks`: number of blocks. `base`: the first offset of each partition. `extra`: rows added by `put`. `expected`:
    findings by class. `final_gaps`: records that the audit must report as flaws of the final read. `unledgered`: number
    of unledgered rows that it must count.
    """

    blocks: int
    base: int = 0
    seed: int = 0
    extra: list[tuple[str, Rows]] = field(default_factory=list)
    expected: dict[str, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))
    final_gaps: list[np.ndarray] = field(default_factory=list)
    unledgered: int = 0

    def __post_init__(self) -> None:
        count = self.blocks * BLOCK
        index = np.arange(count)
        block, position = index // BLOCK, index % BLOCK
        self.part = (block % PARTITIONS).astype(np.int32)
        self.offset = self.base + (block // PARTITIONS) * STEP + position
        self.producer = ((block + position % 2) % PRODUCERS).astype(np.int32)
        self.seq = np.empty(count, np.int64)
        for producer in range(PRODUCERS):
            own = np.flatnonzero(self.producer == producer)
            self.seq[own] = np.arange(len(own))
        self.written = np.ones(count, bool)
        self.outcome = np.zeros(count, np.int8)
        self.acked_at = self.offset.copy()
        self.final = self._reads_of_all()
        self.live = self._reads_of_all()
        self.live_by = {reader: np.ones(count, bool) for reader in LIVE}

    def _reads_of_all(self) -> Rows:
        count = len(self.part)
        return {
            "there": np.ones(count, bool),
            "part": self.part.copy(),
            "offset": self.offset.copy(),
            "producer": self.producer.copy(),
            "seq": self.seq.copy(),
            "origin": self.part.copy(),
            "intact": np.ones(count, bool),
            "epoch": np.full(count, 4, np.int32),
        }

    def hole(self, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the partition of each block and the free offset behind it."""
        return (block % PARTITIONS).astype(np.int32), self.base + (block // PARTITIONS) * STEP + BLOCK

    def put(self, where: str, after: np.ndarray, part, offset, identity, *, origin=None, intact=True) -> None:
        """Add one read for each index in `after`, directly behind that record in time.

        `where`: `final`, `live` for all live readers, or one of them, like `live 1`. `identity`: producer and seq.
        `origin`: partition that the record names as its own; None: `part`.
        """
        count = len(after)
        producer, seq = identity
        rows = {
            "at": after + 0.5,
            "part": part,
            "offset": offset,
            "producer": producer,
            "seq": seq,
            "origin": part if origin is None else origin,
            "intact": intact,
            "epoch": 4,
        }
        self.extra.append((where, {name: np.broadcast_to(value, count) for name, value in rows.items()}))

    def find(self, anomaly: str, first: np.ndarray, second: np.ndarray) -> None:
        """Note findings that the audit must report: (producer, seq) or (partition, offset), as the class counts."""
        self.expected[anomaly].append(np.stack([first.astype(np.int64), second.astype(np.int64)], axis=1))

    def rows(self, where: str, chosen: np.ndarray, reader: int | None = None) -> Rows:
        """Return the chosen rows of the final read or of a live reader, with those of `put`, in order of time."""
        seen = self.final if where == "final" else self.live
        parts = [{"at": np.flatnonzero(chosen).astype(float), **{k: v[chosen] for k, v in seen.items()}}]
        names = [name for name in parts[0] if name != "there"]
        parts += [rows for to, rows in self.extra if to in (where, f"{where} {reader}")]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in names}
        order = np.argsort(joined["at"], kind="stable")
        return {name: column[order] for name, column in joined.items()}

    def write(self, folder: Path) -> Path:
        """Write the ledgers in several files per client, and case.json. Return `folder`."""
        for producer in range(PRODUCERS):
            self._write_producer(folder / "ledger" / "produced" / f"client=p{producer}", producer)
        everything = self.rows("final", self.final["there"])
        for number, halves in enumerate(np.array_split(np.arange(PARTITIONS), 2)):
            mine = np.isin(everything["part"], halves)
            rows = {name: column[mine] for name, column in everything.items()}
            order = np.lexsort((rows["offset"], rows["part"]))
            # It starts again at each partition's begin, and agrees with itself.
            starts = np.searchsorted(rows["part"][order], halves)
            restarted = order[np.unique((starts[:, None] + np.arange(60)).clip(0, len(order) - 1))]
            assignment = np.repeat([0, 1], [len(order), len(restarted)])
            order = np.concatenate([order, restarted])
            again = {name: column[order] for name, column in rows.items()}
            self._write_reader(folder, FINAL + number, 1, again, assignment)
        for reader in LIVE:
            self._write_live(folder, reader)
        open_ones = [LOST_END] if self.unledgered else []
        clients = [
            {"id": f"p{n}", "kind": "producer", "producer": n} for n in (*range(PRODUCERS), *open_ones)
        ]
        (folder / "case.json").write_text(json.dumps({"clients": clients}))
        for client in (folder / "ledger").glob("*/client=*"):
            (client / "END").touch()
        return folder

    def _write_producer(self, folder: Path, producer: int) -> None:
        mine = self.written & (self.producer == producer)
        at = np.flatnonzero(mine) * 1000
        count = len(at)
        outcome = self.outcome[mine]
        columns = {
            "producer": np.full(count, producer, np.int32),
            "seq": self.seq[mine],
            **_places(self.part[mine]),
            "outcome": outcome,
            "error": np.where(outcome == 0, 0, -192).astype(np.int16),
            "offset": self.acked_at[mine],
            "sent_ns": at,
            "done_ns": np.where(outcome == 2, -1, at + 700),
            "txn": np.full(count, -1),
        }
        _write(folder, columns, files=3)

    def _write_live(self, folder: Path, reader: int) -> None:
        """Write the ledger of a live reader. Reader 1 reads all partitions in one assignment.

        The other readers read some partitions, in two assignments.
        """
        there = self.live["there"] & self.live_by[reader]
        rows = self.rows("live", there, reader)
        if reader == 1:
            return self._write_reader(folder, reader, 0, rows, np.zeros(len(rows["part"]), int))
        mine = rows["part"] % len(LIVE) != reader % len(LIVE)
        rows = {name: column[mine] for name, column in rows.items()}
        half, count = len(rows["part"]) // 2, len(rows["part"])
        # The second assignment begins 30 reads before the first ended, or 20 reads behind it.
        begins = half - 30 if reader == 2 else half + 20
        order = np.concatenate([np.arange(half), np.arange(max(begins, 0), count)])
        assignment = np.concatenate([np.zeros(half, int), np.ones(len(order) - half, int)])
        rows = {name: column[order] for name, column in rows.items()}
        return self._write_reader(folder, reader, 0, rows, assignment)

    def _write_reader(
        self, folder: Path, reader: int, phase: int, rows: Rows, assignment: np.ndarray
    ) -> None:
        count = len(rows["part"])
        topics = _places(rows["part"])
        origin = _places(rows["origin"])
        columns = {
            "reader": np.full(count, reader, np.int32),
            "phase": np.full(count, phase, np.int8),
            "assignment": assignment.astype(np.int32),
            "read_seq": np.arange(count) * 3,
            **topics,
            "offset": rows["offset"],
            "leader_epoch": rows["epoch"].astype(np.int32),
            "producer": rows["producer"].astype(np.int32),
            "seq": rows["seq"],
            "origin_topic": origin["topic"],
            "origin_partition": origin["partition"],
            "intact": rows["intact"].astype(bool),
            "read_ns": (rows["at"] * 1000).astype(np.int64),
            "timestamp_ms": np.zeros(count, np.int64),
        }
        _write(folder / "ledger" / "consumed" / f"client=r{reader}", columns, files=2)


PER_IDENTITY = ("lost", "overwritten", "duplicate", "resurrected", "surfaced", "displaced", "reordered")


def place(part: int) -> tuple[str, int]:
    """Return the topic and the partition for a number in `range(PARTITIONS)`. -1: ("", -1)."""
    return ("", -1) if part < 0 else (TOPICS[part // PER_TOPIC], 10 * (part % PER_TOPIC))


def _places(part: np.ndarray) -> dict[str, pa.Array | np.ndarray]:
    names = [*(place(number)[0] for number in range(PARTITIONS)), ""]
    numbers = np.array([*(place(number)[1] for number in range(PARTITIONS)), -1], np.int32)
    chosen = pa.array(np.where(part < 0, PARTITIONS, part).astype(np.int32))
    topics = pa.DictionaryArray.from_arrays(chosen, pa.array(names)).cast(pa.string())
    return {"topic": topics, "partition": numbers[part]}


def assert_found(ledger: Ledger, path, result) -> None:
    assert result.file is not None, result.reasons
    expected = {name: sum(map(len, ledger.expected.get(name, ()))) for name in CLASSES}
    assert result.file.counts == expected
    assert result.file.unledgered == ledger.unledgered
    assert result.file.records.produced == int(ledger.written.sum())
    assert result.file.final_read.count == sum(map(len, ledger.final_gaps))
    found: dict[str, Counter] = {name: Counter() for name in CLASSES}
    for batch in ds.dataset(path / "findings", format="parquet", partitioning=None).to_batches():
        for row in batch.to_pylist():
            identity = row["producer"], row["seq"]
            where = (row["topic"], row["partition"]), row["offset"]
            found[row["class"]][identity if row["class"] in PER_IDENTITY else where] += 1
    for name, pieces in ledger.expected.items():
        pairs = [(int(one), int(two)) for piece in pieces for one, two in piece]
        wanted = Counter(pair if name in PER_IDENTITY else (place(pair[0]), pair[1]) for pair in pairs)
        assert found[name] == wanted, name


def _write(folder: Path, columns: dict[str, pa.Array | np.ndarray], files: int) -> None:
    folder.mkdir(parents=True)
    table = pa.table(columns)
    for number, rows in enumerate(np.array_split(np.arange(table.num_rows), files)):
        if len(rows):
            piece = table.slice(int(rows[0]), len(rows))
            pq.write_table(piece, folder / f"part-{number:05}.parquet", compression="zstd")

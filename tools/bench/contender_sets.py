"""Python's own sets, for lost and duplicates alone; columns read by pyarrow."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq

ledger = Path(sys.argv[1]) / "ledger"


def identities(kind: str, column: str):
    for path in sorted(ledger.glob(f"{kind}/*/part-*.parquet")):
        table = pq.read_table(path, columns=["producer", "seq", column], partitioning=None)
        yield from zip(*(table[name].to_pylist() for name in ("producer", "seq", column)), strict=True)


def final():
    for path in sorted(ledger.glob("consumed/*/part-*.parquet")):
        table = pq.read_table(path, columns=["producer", "seq", "phase", "intact"], partitioning=None)
        columns = (table[name].to_pylist() for name in ("producer", "seq", "phase", "intact"))
        yield from (
            (producer, seq) for producer, seq, phase, intact in zip(*columns, strict=True) if phase and intact
        )


seen, duplicate = set(), 0
for identity in final():
    if identity in seen:
        duplicate += 1
    seen.add(identity)
lost = sum(
    1
    for producer, seq, outcome in identities("produced", "outcome")
    if not outcome and (producer, seq) not in seen
)
print(json.dumps({"lost": lost, "duplicate": duplicate}))

"""pandas, for lost and duplicates alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.dataset as ds

ledger = Path(sys.argv[1]) / "ledger"
produced = (
    ds.dataset(sorted(ledger.glob("produced/*/part-*.parquet")), partitioning=None)
    .to_table(columns=["producer", "seq", "partition", "outcome"])
    .to_pandas()
)
final = (
    ds.dataset(sorted(ledger.glob("consumed/*/part-*.parquet")), partitioning=None)
    .to_table(columns=["producer", "seq", "partition"], filter=(ds.field("phase") == 1) & ds.field("intact"))
    .to_pandas()
)
produced["id"] = (produced.pop("producer").astype("int64") * 2**40) + produced.pop("seq")
final["id"] = (final.pop("producer").astype("int64") * 2**40) + final.pop("seq")
copies = final.groupby("id", sort=False).size()
acked = produced[produced.outcome == 0]
joined = acked.merge(final, on=["id", "partition"], how="left", indicator=True)
lost = int((joined["_merge"] == "left_only").sum())
print(json.dumps({"lost": lost, "duplicate": int((copies - 1).sum())}))

"""Benchmark of the commit modes of a consumer group: `python tools/bench/groups.py [--repeats 3] [--batch 50] [--batch
500] [--out DIR]`.

A group of one member reads one partition in batches of `--batch` records, by default 50 and 500. Two loads are
measured. At 500 records/s: time from the produce call to the end of processing. With a backlog of 100,000 records,
which arrive faster than any mode reads them: the rate at which the member processes records. Each mode has a run of its
own; modes alternate within a repeat. Prints medians over the repeats, as rows of docs/delivery.md."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
from healthy import run_files

from ackproof.rundir.groups import ProcessingState
from ackproof.rundir.layout import CaseDir

MODES = {
    "before": "commit: before",
    "after": "commit: after",
    "timed, 1 s": "commit: timed",
    "auto, 1 s": "commit: auto",
    "after, with output": "commit: after, output: copies",
    "transaction": "commit: transaction, output: copies",
}
LOADS = {"latency": ("500/s", "8s"), "backlog": ("20000/s", "5s")}
BATCHES = (50, 500)
EXPERIMENT = """\
name: {name}
topics: {{orders: {{partitions: 1, replication_factor: 3, config: {{min.insync.replicas: 2}}}}}}
workload:
  producers: {{acks: all, rate: {rate}}}
  groups: {{billing: {{members: 1, batch: {batch}, {mode}, settle: 120s}}}}
  duration: {duration}
"""


def measure(run: CaseDir, load: str) -> float:
    """Return the median time from produce call to processing in ms; for the load `backlog`, records processed per
    second."""
    rows = ds.dataset(run.deliveries, partitioning=None).to_table(
        ["seq", "delivered_ns", "processed_ns", "state"]
    )
    effective = rows["state"].to_numpy() == int(ProcessingState.EFFECTIVE)
    processed, seq = rows["processed_ns"].to_numpy()[effective], rows["seq"].to_numpy()[effective]
    if load == "backlog":
        return float(len(seq) / (processed.max() - rows["delivered_ns"].to_numpy().min()) * 1e9)
    sent = ds.dataset(run.produced, partitioning=None).to_table(["seq", "sent_ns"])
    of_seq = np.zeros(len(sent), np.int64)
    of_seq[sent["seq"].to_numpy()] = sent["sent_ns"].to_numpy()
    return float(np.median(processed - of_seq[seq]) / 1e6)


def main() -> int:
    parser = argparse.ArgumentParser(description="what each way to commit costs")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-groups"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    batches = given.batch or BATCHES
    found: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for repeat in range(given.repeats):
        for load, (rate, duration) in LOADS.items():
            cases = [(mode, batch) for batch in batches for mode in MODES]
            files = []
            for number, (mode, batch) in enumerate(cases):
                files.append(given.out / f"{load}-{number:02d}.yaml")
                files[-1].write_text(
                    EXPERIMENT.format(
                        name=files[-1].stem, rate=rate, duration=duration, batch=batch, mode=MODES[mode]
                    ),
                    encoding="utf-8",
                )
            own = given.out / f"{repeat}-{load}-{time.strftime('%H%M%S')}"
            for (mode, batch), case in zip(cases, run_files(files, own).cases, strict=True):
                run = CaseDir(next(own.glob("2*")) / case.run)
                found[mode, batch, load].append(measure(run, load))
                if str(case.verdict) != "PASS":
                    print(f"{case.run}: {case.verdict}", *case.reasons, sep="\n    ")
    print("| `commit` | batch | produce call → processed | backlog, records/s |\n|---|---|---|---|")
    for batch in batches:
        for mode in MODES:
            latency, rate_ = (statistics.median(found[mode, batch, load]) for load in LOADS)
            print(f"| {mode} | {batch} | {latency:.0f} ms | {rate_:,.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

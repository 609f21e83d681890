"""Benchmark: cost of the judge's coherence rules, compared with the audit of the same ledger.

    python tools/bench/coherence.py [--records 10000000] [--rounds 3] [--keep DIR]

Makes a small run with eight producers, three live readers and a topic of twelve partitions. Replaces its ledger by the
benchmark's (audit_ledger.py), and its logs by logs that have all of these records. Then the audit command and each rule
take turns. Prints medians of the rounds: CPU and wall seconds of every rule, wall seconds of the audit. The last line
is the ratio of the wall times of all rules together and of the audit."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent))
import audit_ledger

from ackproof.judge.facts import Facts
from ackproof.judge.verdict import COHERENCE, SEALED_COHERENCE
from ackproof.rundir.layout import CaseDir

ACKPROOF = Path(sys.executable).with_name("ackproof")
EXPERIMENT = """\
name: coherence
topics:
  orders: {partitions: 12, replication_factor: 3, config: {min.insync.replicas: 2}}
workload:
  producers: {count: 8, acks: all, rate: 800/s}
  consumers: {live: 3}
  duration: 2s
"""


def prepared(folder: Path, records: int) -> CaseDir:
    """Run a small experiment below `folder`. Replace its ledger by one with `records` produced rows, and its logs by
    logs that have all of them. Return the run directory."""
    file = folder / "coherence.yaml"
    file.write_text(EXPERIMENT, encoding="utf-8")
    subprocess.run([ACKPROOF, "run", file, "--out", folder / "runs"], check=True, capture_output=True)
    batch = (folder / "runs" / "latest" / "batch.json").resolve()
    (case,) = json.loads(batch.read_text("utf-8"))["cases"]
    run = CaseDir(batch.parent / case["run"])
    shutil.rmtree(run.produced.parent)
    audit_ledger.write(run.path, records, "own")
    # Names of clients as the small run has them.
    final = next(client.id for client in Facts.read(run).clients if client.kind == "final")
    (run.consumed / f"client=r{audit_ledger.FINAL_READER}").rename(run.consumed / f"client={final}")
    batches = pq.read_table(run.replica_batches)
    rows = batches.group_by(["topic", "partition", "node"], use_threads=False).aggregate(
        [(name, "first") for name in batches.column_names if name not in ("topic", "partition", "node")]
    )
    whole = rows.rename_columns([name.removesuffix("_first") for name in rows.column_names])
    held = [{**row, "first_offset": 0, "last_offset": records} for row in whole.to_pylist()]
    pq.write_table(type(batches).from_pylist(held, schema=batches.schema), run.replica_batches)
    return run


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="the cost of coherence beside the audit")
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args(arguments)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="ackproof-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    took: dict[str, list[tuple[float, float]]] = defaultdict(list)
    try:
        run = prepared(folder, options.records)
        for _ in range(options.rounds):
            begin = time.monotonic()
            subprocess.run([ACKPROOF, "audit", run.path], check=False, capture_output=True)
            took["audit"].append((0.0, time.monotonic() - begin))
            facts = Facts.read(run)
            # The planted ledger is of a longer run.
            *before, end = facts.events
            facts = replace(facts, events=(*before, end.model_copy(update={"t_ns": 1 << 60})))
            total_cpu, total = time.process_time(), time.monotonic()
            for check in (*COHERENCE, *SEALED_COHERENCE):
                cpu, begin = time.process_time(), time.monotonic()
                opinions = list(check(replace(facts)))
                name = f"{getattr(check, '__name__', check)} ({len(opinions)})"
                took[name].append((time.process_time() - cpu, time.monotonic() - begin))
            took["all rules"].append((time.process_time() - total_cpu, time.monotonic() - total))
    finally:
        if options.keep is None:
            shutil.rmtree(folder)
    medians = {
        name: tuple(statistics.median(times) for times in zip(*runs, strict=True))
        for name, runs in took.items()
    }
    for name, (cpu, wall) in medians.items():
        print(f"{name:24} {f'{cpu:6.2f} s of processor' if cpu else '':24} {wall:6.2f} s")
    print(f"all rules / audit, wall: {medians['all rules'][1] / medians['audit'][1]:.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])

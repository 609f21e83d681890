"""Benchmark: the audit against DuckDB, on the same ledger.

    python tools/bench/bench_audit.py [--records 10000000] [--rounds 3] [--layout own,foreign,hot] [--keep DIR]
    python tools/bench/bench_audit.py --groups [--records 10000000] [--rounds 3] [--keep DIR]

Makes a ledger of 8 producers, 12 partitions and 3 live readers, several files per client. It has as many final rows as
produced ones, and 1.2 times as many live ones. Checks that the audit counts what was planted. Prints wall time, CPU
time and peak memory of each contender, summed over all its processes, session start included. Contenders and layouts
take turns, so that other load on the machine (printed) affects all alike. The medians of the rounds are compared.

`--groups`: compares the audit of a consumer group with the audit of a plain ledger of as many rows. The group has
`--records` deliveries and a commit for every ten of them. It is measured for a group that commits after processing, and
for a transactional group with an output. Both audits run in one process, without Spark.

Memory is the proportional set size (pages that processes share count once), sampled ten times a second."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parent))
import audit_ledger

HERE = Path(__file__).parent
CONTENDERS = ("audit", "duckdb")
LOOK_S = 0.1


@dataclass(frozen=True)
class Run:
    """One run of a contender: wall time and CPU time in seconds, peak memory in bytes, and the counts that it found by
    class."""

    wall: float
    cpu: float
    memory: int
    counts: dict[str, int]


def measured(command: list[str]) -> Run:
    """Run a command, and measure it with all processes that it starts, by samples every 0.1 s. `counts` of the result
    is the command's last line of output, as JSON. Exit with the output if the command fails."""
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, text=True)
        root = psutil.Process(process.pid)
        cpu: dict[tuple[int, float], float] = {}
        peak = 0
        while process.poll() is None:
            memory = 0
            try:
                tree = [root, *root.children(recursive=True)]
            except psutil.NoSuchProcess:
                break
            for one in tree:
                try:
                    times = one.cpu_times()
                    cpu[one.pid, one.create_time()] = times.user + times.system
                    memory += one.memory_full_info().pss
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
            peak = max(peak, memory)
            try:
                process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                continue
        wall = time.monotonic() - begin
        output.seek(0)
        said = output.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}\n{said}")
    return Run(wall, sum(cpu.values()), peak, json.loads(said.splitlines()[-1]))


def take_turns(entries: list[tuple[Path, str]], rounds: int) -> dict[tuple[str, str], list[Run]]:
    """Run each contender on its ledger, `rounds` times in turn. Return the runs by (name of the ledger's folder,
    contender). `entries`: (ledger, contender with its options)."""
    runs: dict[tuple[str, str], list[Run]] = {}
    for number in range(rounds):
        for directory, name in entries:
            script, *options = name.split()
            command = [sys.executable, str(HERE / f"contender_{script}.py"), str(directory), *options]
            last = measured(command)
            runs.setdefault((directory.name, name), []).append(last)
            print(
                f"  round {number + 1} {directory.name} {name:8} {last.wall:7.1f} s  CPU {last.cpu:7.1f} s  "
                f"load {os.getloadavg()[0]:.1f}",
                file=sys.stderr,
            )
    return runs


def compare(ledgers: list[tuple[Path, audit_ledger.Planted]], contenders: list[str], rounds: int) -> None:
    """Run the contenders on the ledgers in turn, and print medians of wall and CPU time, and peak memory. Exit with a
    message if the audit does not count what was planted."""
    runs = take_turns([(path, name) for (path, _), name in itertools.product(ledgers, contenders)], rounds)
    wall = {who: statistics.median(run.wall for run in of_who) for who, of_who in runs.items()}
    for directory, planted in ledgers:
        size = sum(path.stat().st_size for path in directory.glob("ledger/**/*.parquet")) / 2**20
        print(f"\n{directory.name}, {size:.0f} MiB, {len(os.sched_getaffinity(0))} cores")
        print(
            f"{'':10} {'wall':>8} {'CPU':>8} {'peak':>9}   wall : duckdb   wall : {ledgers[0][0].name}   counts"
        )
        for name in contenders:
            who = directory.name, name
            if name == "audit":
                check(runs[who][-1].counts, planted)
            cpu = statistics.median(run.cpu for run in runs[who])
            peak = max(run.memory for run in runs[who]) / 2**30
            duckdb = f"{wall[who] / wall[directory.name, 'duckdb']:.2f}" if "duckdb" in contenders else ""
            first = f"{wall[who] / wall[ledgers[0][0].name, name]:.2f}"
            counts = " ".join(f"{key}={value}" for key, value in runs[who][-1].counts.items() if value)
            print(
                f"{name:10} {wall[who]:6.1f} s {cpu:6.1f} s {peak:5.2f} GiB {duckdb:>15} {first:>15}   {counts}"
            )


def compare_groups(root: Path, deliveries: int, rounds: int) -> None:
    """Run the audit passes over groups and over a plain ledger in turn, each in one process, and print their costs.
    Exit with a message if an audit does not count what was planted."""
    rows = deliveries * 11 // 10
    plain, planted = audit_ledger.written(root, round(rows / audit_ledger.ROWS), "own")
    groups = [audit_ledger.written_groups(root, deliveries, commit) for commit in ("after", "transaction")]
    runs = take_turns([(plain, "passes"), *((path, "passes groups") for path, _ in groups)], rounds)
    check(runs[plain.name, "passes"][-1].counts, planted)
    for path, expected in groups:
        if (counts := runs[path.name, "passes groups"][-1].counts) != expected:
            raise SystemExit(f"the audit counted {counts}, planted was {expected}")
    print(f"\n{rows:,} rows\n{'':22} {'wall':>8} {'CPU':>8} {'peak':>9}   wall : plain   CPU : plain")
    medians = [
        (statistics.median(run.wall for run in of_one), statistics.median(run.cpu for run in of_one))
        for of_one in runs.values()
    ]
    for ((name, _), of_one), (wall, cpu) in zip(runs.items(), medians, strict=True):
        peak = max(run.memory for run in of_one) / 2**30
        ratios = f"{wall / medians[0][0]:12.2f} {cpu / medians[0][1]:13.2f}"
        print(f"{name:22} {wall:6.1f} s {cpu:6.1f} s {peak:5.2f} GiB   {ratios}")


def check(counts: dict[str, int], planted: audit_ledger.Planted) -> None:
    """Exit with a message if a count of the audit is not what was planted. A class that `counts` lacks is not
    compared."""
    expected = {
        "lost": planted.lost + planted.corrupted,  # a broken copy is no present one
        "duplicate": planted.duplicate,
        "corrupted": planted.corrupted,
        "phantom": planted.phantom,
        "surfaced": planted.surfaced,
        "skipped": planted.skipped,
    }
    wrong = {key: value for key, value in counts.items() if value != expected.get(key, 0)}
    if wrong:
        raise SystemExit(f"the audit counted {wrong}, planted was {expected}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layout", default="own,foreign")
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--groups", action="store_true", help="consumer groups against plain ledgers")
    parser.add_argument("--keep", type=Path, help="make the ledgers here, or use those that are there")
    chosen = parser.parse_args()
    root = chosen.keep or Path(tempfile.mkdtemp(prefix="ackproof-bench-"))
    try:
        if chosen.groups:
            return compare_groups(root, chosen.records, chosen.rounds)
        ledgers = [audit_ledger.written(root, chosen.records, layout) for layout in chosen.layout.split(",")]
        compare(ledgers, chosen.contenders.split(","), chosen.rounds)
    finally:
        if chosen.keep is None:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()

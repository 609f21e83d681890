"""Runs in which Kafka does nothing forbidden: every verdict must be PASS, without findings.

    python tools/bench/healthy.py [--groups] [--runs 300] [--batch 10] [--at-most N] [--backend both] [--out DIR]

The runs cover planned work and faults that time-outs cover: kills, restarts, pauses, delays. They cover every line of
releases, KRaft and ZooKeeper, with and without transactions, always with acks=all on two replicas. Brokers run as
processes; with `--backend both` every third batch runs in containers. With `--groups` three consumer groups read in
each run, with different protocols, commit modes, client libraries and releases. Records that a killed or removed member
skips (commits before processing) or processes again (commits after) are no findings there.

Prints each run that is not PASS with its reasons, then totals. Each finished run is a line in `figures.jsonl` of the
folder; the next call continues from there. `--at-most N`: at most N runs in this call, rounded up to whole batches. The
exit code is 0 if all runs so far passed without a finding."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ackproof.rundir.batch import BatchCase, BatchFile

ACKPROOF = Path(sys.executable).with_name("ackproof")
EXPERIMENT = """\
name: {name}
cluster: {{{cluster}, brokers: 3}}
topics:
  orders: {{partitions: 2, replication_factor: 3, config: {{min.insync.replicas: 2}}}}
workload:
  producers: {{count: 2, acks: all, idempotence: true, {producers}}}
  consumers: {{live: 1, isolation: {isolation}}}
  duration: 3s
faults: [{fault}]
"""
KRAFT = ("4.4.0", "4.3.1", "4.2.2", "4.1.2", "4.0.2", "3.9.2")
FAULTS = {
    "calm": "",
    "leader-kill": "{kill: {target: leader(orders/0)}, when: acked >= 1000, at_latest: 2s, restart_after: 2s}",
    "follower-kill": "{kill: {target: followers(orders/0)}, at: 1s, restart_after: 1s}",
    "controller-kill": "{kill: {target: controller}, at: 1s, restart_after: 1s}",
    "leader-restart": "{restart: {target: leader(orders/1)}, at: 1s}",
    "leader-pause": "{pause: {target: leader(orders/0)}, at: 1s, for: 4s}",
    "short-pause": "{pause: {target: follower(orders/0)}, at: 1s, for: 500ms}",
    "reassign": "{reassign: {partition: orders/0, to: [2, 1]}, at: 1s}",
    "settings": "{set: {topic: orders, config: {max.message.bytes: 500000}}, at: 1s, for: 1s}",
    "rolling-restart": "{rolling_restart: {target: brokers}, at: 500ms}",
    "recreate": "{recreate: {topic: orders}, at: 1s}",
    "producer-kill": "{kill_client: {client: producer(0)}, at: 1s, restart_after: 500ms}",
    "reader-pause": "{pause_client: {client: reader(0)}, at: 1s, for: 1s}",
    "delay": "{delay: {link: follower(orders/0) -> leader(orders/0), latency: 30ms}, at: 500ms, for: 2s}",
    "client-delay": "{delay: {link: clients -> leader(orders/0), latency: 30ms}, at: 500ms, for: 2s}",
}
DELETES = {"recreate"}
"""Kinds of runs that delete all records of a topic on purpose: their findings are left to the verdict."""
OFTEN = ("calm", "leader-kill")
KINDS = tuple(
    kind for each in FAULTS for kind in ((each,) if each in OFTEN else (each, OFTEN[len(each) % 2]))
)
FIGURES = {
    *("produced", "acked", "failed", "indeterminate", "consumed_live", "consumed_final", "surfaced"),
    *("undelivered", "redelivered"),
}
"""Counts of a case that are no findings. An attempt with unknown outcome may be in the log (`surfaced`). Members that
are killed or removed skip records (commits before processing) or process them again."""


GROUPS_EXPERIMENT = """\
name: {name}
cluster: {{kafka: "{kafka}", brokers: 3}}
topics:
  orders: {{partitions: 4, replication_factor: 3, config: {{min.insync.replicas: 2}}}}
workload:
  producers: {{acks: all, idempotence: true, rate: 200/s}}
  groups:
{groups}
  duration: 8s
faults: [{fault}]
"""
GROUP_FAULTS = {
    "calm": "",
    "member-kill": "{kill_client: {client: 'owner(billing, orders/0)'}, at: 2s, restart_after: 1s}",
    "members-kill": "{kill_client: {client: members(stock)}, at: 2s, restart_after: 500ms}",
    "short-pause": "{pause_client: {client: 'owner(billing, orders/1)'}, at: 2s, for: 2s}",
    "zombie": "{pause_client: {client: 'owner(billing, orders/0)'}, at: 1s, for: 8s}",
    "bounce": "{bounce_members: {group: billing}, at: 2s}",
    "join": "{join_group: {group: billing, count: 2}, at: 2s, for: 3s}",
    "leave": "{leave_group: {group: stock, count: 1}, at: 2s, for: 2s}",
    "coordinator-kill": "{kill: {target: coordinator(billing)}, at: 2s, restart_after: 2s}",
    "leader-kill": "{kill: {target: leader(orders/0)}, at: 2s, restart_after: 2s}",
    "coordinator-pause": "{pause: {target: coordinator(stock)}, at: 2s, for: 4s}",
    "rolling-restart": "{rolling_restart: {target: brokers}, at: 1s}",
}
GROUP_KINDS = tuple(GROUP_FAULTS)
PROTOCOLS = (
    "protocol: classic, assignor: range",
    "protocol: classic, assignor: cooperative-sticky",
    "protocol: consumer",
)
COMMITS = (
    "commit: after",
    "commit: transaction, output: copies-{name}",
    "commit: before",
    "commit: timed, commit_every: 500ms",
    "commit: auto, commit_every: 500ms",
    "commit: after, static: true",
)
PACE = "batch: 50, record_time: 2ms, settle: 90s"


def groups_experiment(number: int) -> str:
    """Return the experiment file of run `number`, with three groups: two on librdkafka, one on the Java client."""
    kafka = KRAFT[(number // len(GROUP_KINDS) + number) % len(KRAFT)]
    protocols = PROTOCOLS if kafka != "3.9.2" else PROTOCOLS[:2]
    groups = []
    for at, (name, client) in enumerate(
        {"billing": "librdkafka", "stock": "java", "audit": "librdkafka"}.items()
    ):
        protocol = protocols[(number + at) % len(protocols)]
        commit = COMMITS[(number // 2 + at * 2) % len(COMMITS)].format(name=name)
        groups.append(f"    {name}: {{client: {client}, members: 2, {protocol}, {commit}, {PACE}}}")
    kind = GROUP_KINDS[number % len(GROUP_KINDS)]
    return GROUPS_EXPERIMENT.format(
        name=f"{kind}-{number}", kafka=kafka, groups="\n".join(groups), fault=GROUP_FAULTS[kind]
    )


def findings(kind: str, case: BatchCase) -> dict[str, int]:
    """Return the findings of a case by class, without the counts named in `FIGURES`; empty for the kinds in
    `DELETES`."""
    if kind in DELETES:
        return {}
    return {name: count for name, count in case.counts.items() if count and name not in FIGURES}


@dataclass
class Tally:
    """Totals over the runs so far: number of runs by verdict, findings by class, and all other counts by name
    (`records`)."""

    verdicts: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, case: BatchCase) -> None:
        self.verdicts[str(case.verdict or "no verdict")] += 1
        found = findings(kind, case)
        self.found.update(found)
        self.records.update({name: count for name, count in case.counts.items() if name not in found})

    @property
    def well(self) -> bool:
        return set(self.verdicts) == {"PASS"} and not any(self.found.values())


def experiment(number: int) -> str:
    """Return the experiment file of run `number`. The number decides the fault, the release and the producers."""
    kind = KINDS[number % len(KINDS)]
    turn = number // len(KINDS) + number
    with_zookeeper = turn % 6 == 5
    cluster = 'kafka: "3.9.2", mode: zookeeper' if with_zookeeper else f'kafka: "{KRAFT[turn % len(KRAFT)]}"'
    in_transactions = turn % 4 == 3 and kind != "recreate"
    return EXPERIMENT.format(
        name=f"{kind}-{number}",
        cluster=cluster,
        producers="rate: 1000/s, transaction_size: 20, abort_share: 0.1"
        if in_transactions
        else "rate: 2000/s",
        isolation="read_committed" if in_transactions else "read_uncommitted",
        fault=FAULTS[kind],
    )


def files_of(numbers: Sequence[int], folder: Path, make: Callable[[int], str]) -> Iterator[Path]:
    """Write an experiment file for each number, with the text that `make` returns; yield the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        file = folder / f"{number:03d}.yaml"
        file.write_text(make(number), encoding="utf-8")
        yield file


def run_files(files: Sequence[Path], out: Path, *options: str) -> BatchFile:
    """Run these files as one batch of the command `ackproof run`, and return its `batch.json`. Exit with a message if
    the command wrote none."""
    done = subprocess.run(
        [ACKPROOF, "run", *files, "--out", out, *options, "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    try:
        return BatchFile.model_validate_json(done.stdout)
    except ValueError:
        raise SystemExit(f"no batch.json in {out}:\n{done.stderr}") from None


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="healthy runs must pass")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--backend", choices=("process", "docker", "both"), default="process")
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--at-most", type=int, default=10_000)
    parser.add_argument("--groups", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/healthy"))
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    kinds, make = (GROUP_KINDS, groups_experiment) if given.groups else (KINDS, experiment)
    tally, began, figures = Tally(), time.monotonic(), given.out / "figures.jsonl"
    if figures.exists():
        for number, line in enumerate(figures.read_text(encoding="utf-8").splitlines()):
            tally.add(kinds[number % len(kinds)], BatchCase.model_validate_json(line))
    done = tally.verdicts.total()
    for first in range(done, min(given.runs, done + given.at_most), given.batch):
        numbers = range(first, min(first + given.batch, given.runs))
        backend = given.backend
        if backend == "both":
            backend = "docker" if first // given.batch % 3 == 2 else "process"
        own = given.out / f"{first:03d}-{time.strftime('%H%M%S')}"
        files = list(files_of(numbers, own / "files", make))
        batch = run_files(files, own / "runs", "--seed", str(first), "--backend", backend)
        for number, case in zip(numbers, batch.cases, strict=True):
            kind = kinds[number % len(kinds)]
            tally.add(kind, case)
            with figures.open("a", encoding="utf-8") as file:
                file.write(case.model_dump_json() + "\n")
            found = findings(kind, case)
            if str(case.verdict) != "PASS" or found:
                print(
                    f"run {number} ({kind}), {case.run}:",
                    f"{case.verdict} {found} {case.error or ''}",
                    *case.reasons,
                    sep="\n    ",
                )
        print(
            f"after {tally.verdicts.total()} runs, {time.monotonic() - began:.0f} s: {dict(tally.verdicts)}, "
            f"findings {dict(+tally.found)}, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    print(f"verdicts: {dict(tally.verdicts)}, findings: {dict(+tally.found)}, records: {dict(tally.records)}")
    return 0 if tally.well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Benchmark: seconds and memory of each stage after a run, by number of partitions. Fails if a stage exceeds its bar.

    python tools/bench/partitions.py [--counts 10,100,1000,5000] [RUN …]

Each RUN is a run directory, whose files may be overwritten. Without any, the model runs the experiment below at each
count (minutes for 5,000 partitions). Each stage is a process of its own. Seconds are CPU time, for the audit wall time
(it has workers of its own). Memory is the peak of the process.

The bars: the stages up to the verdict together take at most 60 s at 1,000 partitions, and 300 s at 5,000. No stage
takes more than 1.5 GiB at 1,000 partitions, or more than 1.5 times as long per partition as at the count before."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from ackproof.judge import judge_case
from ackproof.judge.oracle import predict_run, replay_run
from ackproof.plan import load
from ackproof.plan.cases import cases
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.layout import CaseDir

EXPERIMENT: Final = """\
name: many-partitions
cluster: {{kafka: "4.3.1", brokers: 3, controllers: 1, config: {{broker.session.timeout.ms: 6000}}}}
topics: {{orders: {{partitions: {count}, replication_factor: 3, config: {{min.insync.replicas: 2}}}}}}
workload:
  producers: {{count: 2, acks: all, idempotence: true, rate: 5000/s}}
  consumers: {{live: 1}}
  duration: 15s
faults:
  - kill: {{target: leader(orders/0)}}
    at: 6s
    restart_after: 6s
expect:
  - {{lost: 0}}
seed: 3
"""
BARS_S: Final = {1000: 60.0, 5000: 300.0}
BAR_MIB: Final = 1536
"""Greatest peak memory of a stage at 1,000 partitions."""
GROWTH: Final = 1.5
NOISE_S: Final = 2.0
"""Seconds that a stage may spend on start-up (imports), in addition to `GROWTH`. A shorter time at the smaller count
counts as this time."""


def _audit(run: CaseDir) -> None:
    from ackproof import audit
    from ackproof.judge import prepare_audit

    prepare_audit([run.path])
    (result,) = audit.run([run.path])
    if result.file is None:
        raise SystemExit(f"audit: {'; '.join(result.reasons)}")


def _quantities(run: CaseDir) -> None:
    from ackproof.quantities.answer import answered, measured
    from ackproof.quantities.evidence import Evidence
    from ackproof.quantities.quantity import Ask
    from ackproof.quantities.vocabulary import VOCABULARY
    from ackproof.rundir.bounds import WHOLE, Bound, Unit

    evidence = Evidence.of_run(run)
    never_negative = Bound.parse("always >= 0", Unit.NUMBER)
    for quantity in VOCABULARY.values():
        if quantity.required:
            continue
        if quantity.measure is not None:
            measured(evidence, Ask(quantity), WHOLE)
        elif quantity.state is not None:
            answered(evidence, Ask(quantity), never_negative)


def _report(run: CaseDir) -> None:
    from ackproof_reports import render_batch

    render_batch(run.path.parent)


STAGES: Final[dict[str, Callable[[CaseDir], object]]] = {
    "audit": _audit,
    "replay": replay_run,
    "prediction": predict_run,
    "judge": judge_case,
    "quantities": _quantities,
    "report": _report,
}
BEFORE_THE_VERDICT: Final = ("audit", "replay", "prediction", "judge")


@dataclass(frozen=True)
class StageCost:
    """CPU seconds (of the audit: wall seconds) and peak memory in MiB of one stage."""

    seconds: float
    mib: int


def measure_stage(stage: str, run: Path) -> StageCost:
    """Run a stage in a process of its own, and return its cost."""
    words = [sys.executable, __file__, "--stage", stage, str(run)]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return StageCost(found["seconds"], found["mib"])


def run_stage(stage: str, run: CaseDir) -> None:
    """Run a stage in this process, and print its seconds and MiB as a line of JSON."""
    began = time.monotonic()
    STAGES[stage](run)
    seconds = time.monotonic() - began if stage == "audit" else time.process_time()
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"seconds": seconds, "mib": mib}))


def make_run(count: int, folder: Path) -> Path:
    """Run the experiment in the model with `count` partitions; return the run directory."""
    from ackproof_simulator.backend import run_in_model

    file = folder / f"{count}.yaml"
    file.write_text(EXPERIMENT.format(count=count), encoding="utf-8")
    (case,) = cases(load(file, backend="model"))
    run = folder / str(count) / "case_1"
    run_in_model(case, CaseDir(run), "")
    return run


def count_partitions(run: Path) -> int:
    topics = CaseFile.load(CaseDir(run).case_json).resolved["experiment"]["topics"]  # type: ignore[index,call-overload]
    return sum(topic["partitions"] for topic in topics.values())  # type: ignore[union-attr,index,call-overload,misc]


def find_faults(costs: dict[int, dict[str, StageCost]]) -> list[str]:
    """Return a sentence for each bar that a stage exceeds; empty if all hold. `costs`: by number of partitions and by
    stage."""
    faults = []
    for count, bar in BARS_S.items():
        if count in costs:
            took = sum(costs[count][stage].seconds for stage in BEFORE_THE_VERDICT)
            if took > bar:
                faults.append(f"{count} partitions: {took:.0f} s until the verdict, at most {bar:.0f} s")
    for stage, cost in costs.get(1000, {}).items():
        if cost.mib > BAR_MIB:
            faults.append(f"1000 partitions: {stage} took {cost.mib} MiB, at most {BAR_MIB} MiB")
    ordered = sorted(costs)
    for few, many in pairwise(ordered):
        for stage in STAGES:
            before, after = costs[few][stage].seconds, costs[many][stage].seconds
            if after > NOISE_S + GROWTH * max(before, NOISE_S) * many / few:
                faults.append(f"{stage}: {before:.1f} s at {few} partitions, {after:.1f} s at {many}")
    return faults


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every stage at each count, and print the table. Return exit code 1 if a bar is exceeded, else 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--counts", default="10,100,1000,5000")
    parser.add_argument("--stage", choices=[*STAGES], help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.stage is not None:
        run_stage(asked.stage, CaseDir(asked.runs[0]))
        return 0
    costs: dict[int, dict[str, StageCost]] = {}
    with tempfile.TemporaryDirectory() as folder:
        made = [] if asked.runs else [int(count) for count in asked.counts.split(",")]
        print(f"{'partitions':>10}" + "".join(f"{stage:>20}" for stage in STAGES), flush=True)
        for one in asked.runs or made:
            run = make_run(one, Path(folder)) if isinstance(one, int) else one
            count = count_partitions(run)
            costs[count] = {stage: measure_stage(stage, run) for stage in STAGES}
            cells = (f"{cost.seconds:8.1f} s {cost.mib:5d} MiB" for cost in costs[count].values())
            print(f"{count:10d}" + "".join(f"{cell:>20}" for cell in cells), flush=True)
    faults = find_faults(costs)
    print("\n".join(faults) or "every bar holds")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Synthetic batch folders for tests of the reports: what a real batch leaves, made of plausible numbers.

Run as a script to look at a page by eye: `python make_batch.py FOLDER [hostile] [huge]`.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import JsonValue

from ackproof.rundir.documents import (
    AuditFile,
    BatchCase,
    BatchFile,
    CaseFile,
    ClassJudgement,
    Client,
    FinalReadFile,
    PartitionRead,
    RecordCounts,
    Scalar,
    VerdictFile,
)
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.outcome import Verdict, batch_exit_code
from ackproof.rundir.samples import Sample
from ackproof.rundir.schema import FINDINGS, SERIES
from ackproof.rundir.timeline import Event, EventKind

ACKS = "workload.producers.acks"
MIN_ISR = "topics.orders.config[min.insync.replicas]"
WALL_NS = 1_782_000_000_000_000_000
CLASSES = (
    "lost",
    "overwritten",
    "duplicate",
    "resurrected",
    "surfaced",
    "phantom",
    "misrouted",
    "corrupted",
    "displaced",
    "reordered",
    "vanished",
    "conflict",
    "skipped",
    "rewound",
)
HOSTILE = (
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=2>",
    "'\"><svg/onload=window.hacked=3>",
    "{{ 7*7 }} <!-- \u2028 \u202egnirts\u202c \x00\x1b[31m ]]> & |`|",
    "javascript:window.hacked=4",
)


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


@dataclass(frozen=True)
class Recipe:
    """One case to make. `lost` is per partition 0; `without` names files to leave out."""

    settings: Mapping[str, Scalar]
    lost: int = 0
    verdict: Verdict | None = Verdict.PASS
    error: str | None = None
    reasons: tuple[str, ...] = ()
    repeat: int = 1
    findings: Mapping[str, int] = field(default_factory=dict)
    """Further findings per class; `lost` comes from `lost`."""
    without: tuple[str, ...] = ()
    topic: str = "orders"
    hostile: bool = False
    forbidden: tuple[str, ...] = ()
    complete: bool = True
    partitions: int = 3
    experiment: str = "acks-matrix"
    died: bool = False

    @property
    def name(self) -> str:
        cell = ",".join(
            f"{path.split('.')[-1] if '[' not in path else path.split('[')[1][:-1]}={value}"
            for path, value in self.settings.items()
        )
        return f"{cell or 'only'}#{self.repeat}"


def matrix() -> list[Recipe]:
    """The main job as it should come out: acks 0 and 1 lose their unreplicated tail, acks=all nothing."""
    losses = {("0", 1): 1874, ("0", 2): 2011, ("1", 1): 1204, ("1", 2): 1391, ("all", 1): 0, ("all", 2): 0}
    return [
        Recipe({ACKS: acks, MIN_ISR: size}, lost=lost, findings={"surfaced": 12} if acks == "all" else {})
        for (acks, size), lost in losses.items()
    ]


def hostile() -> list[Recipe]:
    """The matrix with names and messages that try to break out."""
    return [
        replace(
            recipe,
            hostile=True,
            topic=HOSTILE[index % len(HOSTILE)],
            settings={ACKS: recipe.settings[ACKS], HOSTILE[0]: HOSTILE[index % 2 + 2]},
            verdict=Verdict.INCONCLUSIVE if index == 2 else Verdict.PASS,
            reasons=HOSTILE if index == 2 else (),
            experiment=HOSTILE[2],
        )
        for index, recipe in enumerate(matrix()[::2] + matrix()[1::2])
    ]


def missing() -> list[Recipe]:
    """Everything that can be absent, a case each, beside one that is whole."""
    cells = matrix()
    everything = ("audit", "verdict", "samples", "series", "findings", "final", "ledger")
    error = (
        "node 2 ended by itself: exit status 1\nlast log lines:\n[ERROR] java.io.IOException: No space left"
    )
    return [
        replace(cells[0], verdict=None, error=error, without=everything, died=True),
        replace(cells[1], verdict=None, error="the folder was deleted", without=("folder",)),
        replace(
            cells[2], verdict=Verdict.INCONCLUSIVE, reasons=("fault 1: was not confirmed",), without=("torn",)
        ),
        replace(cells[3], verdict=None, without=("end", "audit", "verdict", "findings", "series", "final")),
        replace(
            cells[4], verdict=Verdict.FAIL, lost=12, forbidden=("lost",), reasons=("lost: 12, and acks=all",)
        ),
        cells[5],
    ]


def make_batch(
    folder: Path,
    recipes: Sequence[Recipe] | None = None,
    *,
    name: str = "acks-matrix",
    verdict: Verdict | None = None,
    interrupted: bool = False,
) -> Path:
    """Write a batch folder and return it. The batch's verdict follows from its cases unless one is given."""
    made = list(matrix() if recipes is None else recipes)
    batch = BatchDir(folder)
    folder.mkdir(parents=True, exist_ok=True)
    cases = []
    for number, recipe in enumerate(made):
        run = batch.case(recipe.name)
        if "folder" not in recipe.without:
            _case(run, recipe, number)
        cases.append(
            BatchCase(
                case=recipe.name,
                settings=dict(recipe.settings),
                repeat=recipe.repeat,
                verdict=recipe.verdict,
                error=recipe.error,
                reasons=recipe.reasons,
                counts={} if "audit" in recipe.without or "folder" in recipe.without else _counts(recipe),
                run=run.path.name,
            )
        )
    code = batch_exit_code([recipe.verdict for recipe in made])
    merged = {v.exit_code: v for v in Verdict}.get(code)
    BatchFile(
        verdict=verdict or merged,
        exit_code=int(code),
        seed=7,
        name=made[0].experiment if made and made[0].hostile else name,
        command="ackproof run experiments/acks-matrix.yaml --seed 7",
        interrupted=interrupted,
        cases=tuple(cases),
    ).save(batch.batch_json)
    return folder


def _counts(recipe: Recipe) -> dict[str, int]:
    counts = dict.fromkeys(CLASSES, 0) | dict(recipe.findings)
    counts["lost"] += recipe.lost
    return counts


def _case(run: CaseDir, recipe: Recipe, number: int) -> None:
    run.path.mkdir(parents=True, exist_ok=True)
    noise = random.Random(f"{recipe.name}/{number}")
    _case_json(run, recipe, number)
    events = _events(recipe)
    if "end" in recipe.without:
        events = events[:-6]
    lines = [event.model_dump_json(exclude_defaults=True) for event in events]
    text = "\n".join(lines) + "\n"
    if "torn" in recipe.without:
        text = text[:-40]
    run.timeline.write_text(text, encoding="utf-8")
    if "samples" not in recipe.without:
        run.samples.parent.mkdir(parents=True, exist_ok=True)
        run.samples.write_text(
            "".join(s.model_dump_json() + "\n" for s in _samples(recipe)), encoding="utf-8"
        )
    if "series" not in recipe.without:
        pq.write_table(_series(recipe, noise), run.series)
    if "final" not in recipe.without:
        _final(recipe).save(run.final_read)
    if "findings" not in recipe.without:
        run.findings.mkdir(exist_ok=True)
        write_findings(run.findings / "part-0.parquet", recipe)
    if "audit" not in recipe.without:
        _audit(recipe).save(run.audit_json)
    if "verdict" not in recipe.without and recipe.verdict is not None:
        _verdict(recipe, recipe.verdict).save(run.verdict_json)


def _case_json(run: CaseDir, recipe: Recipe, number: int) -> None:
    experiment: dict[str, JsonValue] = {
        "name": recipe.experiment,
        "cluster": {"kafka": "4.3.1", "brokers": 3},
        "topics": {recipe.topic: {"partitions": recipe.partitions, "replication_factor": 3}},
        "evidence": {"max_indeterminate": 0.5},
        "expect": [{"given": {"acks": "all"}, "lost": 0}]
        if recipe.settings.get(ACKS) == "all"
        else [{"given": {"acks": recipe.settings.get(ACKS)}, "lost": "> 0"}],
    }
    CaseFile(
        run_id=f"{number:016x}",
        case=recipe.name,
        experiment=recipe.experiment,
        settings=dict(recipe.settings),
        repeat=recipe.repeat,
        seed=1_000_003 * (number + 1),
        backend="process",
        replay=f"ackproof run experiments/acks-matrix.yaml --seed 7 --case '{recipe.name}'",
        resolved={"case": recipe.name, "experiment": cast(JsonValue, experiment)},
        clients=(Client(id="p0", kind="producer", producer=0),),
        environment={
            "ackproof": "0.1.0",
            "kafka": "4.3.1",
            "java": "17.0.21 (Debian)",
            "python": "3.11.2",
            "librdkafka": "2.16.0",
            "system": HOSTILE[0] if recipe.hostile else "Linux 6.1.0 x86_64, 2 cores",
        },
        wall_ns=WALL_NS + number * ns(20),
    ).save(run.case_json)


def _events(recipe: Recipe) -> list[Event]:
    topic = recipe.topic
    leaders = {"detail": {"leader": 2, "epoch": 1}}
    said: list[tuple[float, EventKind, dict[str, object]]] = [
        (0.01, EventKind.PHASE, {"detail": {"phase": "start"}}),
        (0.9, EventKind.NODE_STARTED, {"node": 1}),
        (2.14, EventKind.PHASE, {"detail": {"phase": "load"}}),
        (2.2, EventKind.CLIENT_STARTED, {"client": "p0"}),
        *(
            (
                2.25,
                EventKind.LEADER,
                {"topic": topic, "partition": p, "detail": {"leader": p % 3 + 1, "epoch": 0}},
            )
            for p in range(recipe.partitions)
        ),
        (
            4.00,
            EventKind.FAULT_ASKED,
            {
                "fault": 1,
                "detail": {
                    "kind": "pause",
                    "role": f"followers({topic}/0)",
                    "nodes": [2, 3],
                    "trigger": "acked >= 2000",
                },
            },
        ),
        (4.03, EventKind.FAULT_CONFIRMED, {"fault": 1, "detail": {"witness": "nodes 2 and 3 are stopped"}}),
        (
            5.05,
            EventKind.FAULT_ASKED,
            {
                "fault": 2,
                "detail": {
                    "kind": "kill",
                    "role": f"leader({topic}/0)",
                    "nodes": [1],
                    "trigger": "1s after fault 1 is confirmed",
                },
            },
        ),
        (5.07, EventKind.FAULT_CONFIRMED, {"fault": 2, "detail": {"witness": "process 4711 is gone"}}),
        (6.03, EventKind.FAULT_HEALED, {"fault": 1, "detail": {"did": "continued"}}),
        (6.06, EventKind.FAULT_RECOVERED, {"fault": 1, "detail": {"witness": "nodes 2 and 3 run"}}),
        (7.4, EventKind.LEADER, {"topic": topic, "partition": 0, **leaders}),
        (7.4, EventKind.ISR, {"topic": topic, "partition": 0, "detail": {"isr": [2, 3]}}),
        (10.1, EventKind.FAULT_HEALED, {"fault": 2, "detail": {"did": "started again"}}),
        (
            11.6,
            EventKind.FAULT_RECOVERED,
            {"fault": 2, "detail": {"witness": "broker 1 is registered and unfenced"}},
        ),
        (12.0, EventKind.ISR, {"topic": topic, "partition": 0, "detail": {"isr": [2, 3, 1]}}),
        (12.2, EventKind.PHASE, {"detail": {"phase": "heal"}}),
        (12.7, EventKind.PHASE, {"detail": {"phase": "drain"}}),
        (13.1, EventKind.PHASE, {"detail": {"phase": "settle"}}),
        (15.2, EventKind.PHASE, {"detail": {"phase": "read"}}),
        (16.0, EventKind.PHASE, {"detail": {"phase": "end"}}),
        (16.4, EventKind.END, {}),
    ]
    if recipe.hostile:
        said.insert(-1, (16.1, EventKind.NOTE, {"detail": {"note": HOSTILE[1], HOSTILE[0]: HOSTILE[3]}}))
        said.insert(
            -1, (9.0, EventKind.NODE_DIED, {"node": 3, "detail": {"status": HOSTILE[0], "log": HOSTILE[1]}})
        )
    if recipe.died:
        said = [
            *said[:10],
            (5.6, EventKind.NODE_DIED, {"node": 2, "detail": {"status": 1, "log": "No space left"}}),
            (5.7, EventKind.ERROR, {"detail": {"error": "node 2 ended by itself: exit status 1"}}),
        ]
    return [
        Event.model_validate({"t_ns": ns(t), "wall_ns": WALL_NS + ns(t), "kind": kind, **rest})
        for t, kind, rest in said
    ]


def _samples(recipe: Recipe) -> list[Sample]:
    samples = []
    for tick in range(22, 150):
        t = tick / 10
        for partition in range(recipe.partitions):
            home = partition % 3 + 1
            moved = home == 1 and t >= 7.4
            leader = (-1 if home == 1 and 6.9 <= t < 7.4 else home) if not moved else 2
            isr = (1, 2, 3) if t < 7.4 or t >= 12.0 else (2, 3)
            high = int(500 * (t - 2.2))
            tail = int(520 * (t - 4.0)) if home == 1 and 4.0 <= t < 5.1 else (3 if t < 12 else 0)
            ends = {} if leader < 0 else {b: high + (tail if b == leader else 0) for b in isr}
            samples.append(
                Sample(
                    t_ns=ns(t),
                    topic=recipe.topic,
                    partition=partition,
                    leader=leader,
                    leader_epoch=int(moved),
                    replicas=(1, 2, 3),
                    isr=isr,
                    high_watermark=high if leader >= 0 else -1,
                    log_ends=ends,
                )
            )
    return samples


def _series(recipe: Recipe, noise: random.Random) -> pa.Table:
    rows: list[dict[str, object]] = []
    for partition in range(recipe.partitions):
        for tick in range(22, 127):
            t = tick / 10
            down = partition % 3 == 0 and 5.1 <= t < 7.5
            waits = recipe.settings.get(ACKS) == "all" and 4.0 <= t < 6.1
            acked = 0 if down or waits else max(0, round(noise.gauss(55, 6) * (1 + 0.15 * math.sin(t))))
            if 7.5 <= t < 7.9 and partition % 3 == 0:
                acked *= 3
            p50 = noise.lognormvariate(0.9, 0.2) * (4 if 7.4 <= t < 8.2 else 1)
            rows.append(
                {
                    "topic": recipe.topic,
                    "partition": partition,
                    "start_ns": tick * 100_000_000,
                    "acked": acked,
                    "failed": 0,
                    "indeterminate": 4 if down and t < 5.6 else 0,
                    "read": max(0, acked - 2),
                    "p50_ms": p50 if acked else math.nan,
                    "p99_ms": p50 * noise.uniform(4, 9) if acked else math.nan,
                    "max_ms": p50 * 12 if acked else math.nan,
                    "longest_gap_ms": (2410.0 if partition % 3 == 0 else 118.0) + noise.uniform(0, 30),
                }
            )
    return pa.Table.from_pylist(rows, schema=SERIES)


def write_findings(path: Path, recipe: Recipe) -> None:
    """One Parquet file of findings: two stretches of lost offsets, and the further classes spread out."""
    unknown = recipe.settings.get(ACKS) == "0"
    columns: dict[str, list[object]] = {name: [] for name in FINDINGS.names}

    def add(*values: object) -> None:
        for name, value in zip(FINDINGS.names, values, strict=True):
            columns[name].append(value)

    for n in range(recipe.lost):
        offset = -1 if unknown else 1000 + n + (500 if n > recipe.lost // 2 else 0)
        note = HOSTILE[n % len(HOSTILE)] if recipe.hostile else f"acked after {2 + n % 7} ms by broker 1"
        add("lost", recipe.topic, 0, 0, offset, 3000 + 3 * n, note)
    for anomaly, count in recipe.findings.items():
        for n in range(count):
            add(anomaly, recipe.topic, n % recipe.partitions, n % 2, 7 * n, 11 * n, f"{anomaly} number {n}")
    pq.write_table(pa.table(columns, schema=FINDINGS), path)


def _final(recipe: Recipe) -> FinalReadFile:
    reads = tuple(
        PartitionRead(
            topic=recipe.topic,
            partition=p,
            start=0,
            end=4800 + 13 * p,
            epoch=1,
            epoch_after=1,
            position=4800 + 13 * p,
            complete=recipe.complete,
            reason="" if recipe.complete else "HW below log end",
        )
        for p in range(recipe.partitions)
    )
    return FinalReadFile(
        complete=recipe.complete,
        reasons=() if recipe.complete else ("orders/0: HW below log end",),
        partitions=reads,
    )


def _audit(recipe: Recipe) -> AuditFile:
    records = RecordCounts(
        produced=17_420,
        acked=17_300,
        failed=0,
        indeterminate=120,
        consumed_live=16_100,
        consumed_final=17_300 - recipe.lost,
    )
    return AuditFile(counts=_counts(recipe), records=records, complete=True)


def _verdict(recipe: Recipe, verdict: Verdict) -> VerdictFile:
    counts = _counts(recipe)
    always = {"resurrected", "phantom", "misrouted", "corrupted", "skipped", "rewound"}
    classes = tuple(
        ClassJudgement(
            anomaly=name,
            count=counts[name],
            forbidden=True
            if name in always or name in recipe.forbidden
            else (None if name == "lost" else False),
            why="no configuration permits it" if name in always else "acks=1 promises one copy at most",
        )
        for name in CLASSES
    )
    not_judged = ("predictions: the reference implementation does not exist yet",)
    return VerdictFile(verdict=verdict, reasons=recipe.reasons, classes=classes, not_judged=not_judged)


def main() -> None:
    """Make a batch and render it."""
    from ackproof_reports import render_batch

    folder, flags = Path(sys.argv[1]), set(sys.argv[2:])
    recipes = hostile() if "hostile" in flags else missing() if "missing" in flags else matrix()
    if "huge" in flags:
        recipes[2] = replace(recipes[2], findings={"duplicate": 60_000, "surfaced": 60_000})
    if "fail" in flags:
        reason = "lost: 37, and acks=all on at least 2 in-sync replicas, unclean election off"
        recipes[5] = replace(
            recipes[5], lost=37, verdict=Verdict.FAIL, forbidden=("lost",), reasons=(reason,)
        )
    render_batch(make_batch(folder, recipes))


if __name__ == "__main__":
    main()

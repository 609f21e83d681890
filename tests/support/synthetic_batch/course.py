"""Writes the events, samples, series and findings of a synthetic case, with plausible numbers."""

from __future__ import annotations

import math
import random

import pyarrow as pa

from ackproof.rundir.observed import Sample
from ackproof.rundir.schema import FINDINGS
from ackproof.rundir.timeline import Event, EventKind
from synthetic_batch.recipes import ACKS, HOSTILE, WALL_NS, Recipe, ns


def events_of(recipe: Recipe) -> list[Event]:
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
                    "done": "paused",
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
                    "done": "killed",
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


def samples_of(recipe: Recipe) -> list[Sample]:
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


def series_of(recipe: Recipe, noise: random.Random) -> list[dict[str, object]]:
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
    return rows


def findings_of(recipe: Recipe) -> pa.Table:
    """Return rows of `findings/`: two stretches of lost offsets (-1 with acks=0), and the further classes spread
    out."""
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
    return pa.table(columns, schema=FINDINGS)

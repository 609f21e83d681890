"""Makes synthetic batch folders for tests of the reports: the files of a real batch, with plausible numbers. `python -m
synthetic_batch FOLDER` (`__main__.py`) makes one with its reports."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from ackproof.rundir.batch import BatchCase, BatchFile
from ackproof.rundir.documents import (
    AuditFile,
    CaseFile,
    ClassJudgement,
    Client,
    FinalReadFile,
    PartitionRead,
    RecordCounts,
    VerdictFile,
)
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.outcome import Verdict, batch_exit_code
from run_directory import case_file, write_run
from synthetic_batch.course import events_of, findings_of, samples_of, series_of
from synthetic_batch.groups import add_group
from synthetic_batch.ledgers import write_ledgers
from synthetic_batch.recipes import ACKS, CLASSES, HOSTILE, WALL_NS, Recipe, matrix, ns


def make_batch(
    folder: Path,
    recipes: Sequence[Recipe] | None = None,
    *,
    name: str = "acks-matrix",
    verdict: Verdict | None = None,
    interrupted: bool = False,
) -> Path:
    """Write a batch folder with a case for each recipe, by default those of `matrix`, and return it. The batch's
    verdict follows from its cases unless one is given."""
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
                timing=recipe.timing.name if recipe.timing else "",
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
    events = events_of(recipe)
    files = {
        "samples": samples_of(recipe),
        "series": series_of(recipe, random.Random(f"{recipe.name}/{number}")),
        "final": _final(recipe),
        "findings": findings_of(recipe),
        "audit": AuditFile(counts=_counts(recipe), records=_records(recipe), complete=True),
        "verdict": recipe.verdict and _verdict(recipe, recipe.verdict),
    }
    names = {"final": "final_read", "audit": "audit_json", "verdict": "verdict_json"}
    write_run(
        run.path,
        case_json=_case_json(recipe, number),
        timeline=events[:-6] if "end" in recipe.without else events,
        **{names.get(name, name): file for name, file in files.items() if name not in recipe.without},
    )
    if "torn" in recipe.without:
        run.timeline.write_text(run.timeline.read_text("utf-8")[:-40], encoding="utf-8")
    if recipe.ledgers:
        write_ledgers(run, recipe)
    if recipe.group:
        add_group(run)


def _case_json(recipe: Recipe, number: int) -> CaseFile:
    experiment: dict[str, JsonValue] = {
        "name": recipe.experiment,
        "cluster": {"kafka": "4.4.0", "brokers": 3},
        "topics": {recipe.topic: {"partitions": recipe.partitions, "replication_factor": 3}},
        "evidence": {"max_indeterminate": 0.5},
        "expect": [{"given": {"acks": "all"}, "lost": 0}]
        if recipe.settings.get(ACKS) == "all"
        else [{"given": {"acks": recipe.settings.get(ACKS)}, "lost": "> 0"}],
    }
    return case_file(
        run_id=f"{number:016x}",
        case=recipe.name,
        experiment=recipe.experiment,
        settings=dict(recipe.settings),
        repeat=recipe.repeat,
        seed=1_000_003 * (number + 1),
        replay=f"ackproof run experiments/acks-matrix.yaml --seed 7 --case '{recipe.name}'",
        resolved={"case": recipe.name, "experiment": cast(JsonValue, experiment)},
        clients=(Client(id="p0", kind="producer", producer=0),),
        environment={
            "ackproof": "0.1.0",
            "kafka": "4.4.0",
            "java": "17.0.21 (Debian)",
            "python": "3.11.2",
            "librdkafka": "2.16.0",
            "system": HOSTILE[0] if recipe.hostile else "Linux 6.1.0 x86_64, 2 cores",
        },
        wall_ns=WALL_NS + number * ns(20),
        timing=recipe.timing,
    )


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


def _records(recipe: Recipe) -> RecordCounts:
    return RecordCounts(
        produced=17_420,
        acked=17_300,
        failed=0,
        indeterminate=120,
        consumed_live=16_100,
        consumed_final=17_300 - recipe.lost,
    )


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
    return VerdictFile(
        verdict=verdict, reasons=recipe.reasons, classes=classes, not_judged=not_judged, calm=recipe.calm
    )

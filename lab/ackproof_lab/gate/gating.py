"""Run one batch on each Kafka version, compare the batches, and publish the result (`ackproof gate`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from ackproof.base.advice import Advice, advice_of
from ackproof.base.errors import AckproofError, BadInput
from ackproof.cli.options import from_here
from ackproof.console import Console
from ackproof.experiment.problems import InvalidExperiment, Problem
from ackproof.repeats.demand import Statistic
from ackproof.run.batch import run_batch
from ackproof.run.options import BatchOptions, PlannedBatch, plan_batch
from ackproof.rundir.document import write_atomically
from ackproof.rundir.layout import safe_name
from ackproof.rundir.outcome import ExitCode
from ackproof_lab.compare.batches import Gate, compare
from ackproof_lab.compare.command import limit_of
from ackproof_reports.comparison_pages import comparison_page
from ackproof_reports.gate import GateColumn, GateResult, annotation, output
from ackproof_reports.loading import State, load_batch

_SUMMARY_BYTES: Final = 1 << 20
_COMMENT_BYTES: Final = 65_000
"""Greatest size in bytes of the comment on a pull request. GitHub accepts 65,536 characters, and the action
adds a marker.
"""


def run_gate(
    options: BatchOptions, kafka: Sequence[str], fail_on: str | None, console: Console
) -> GateResult:
    """Run every experiment file on every Kafka version, and compare the later versions with the first.

    If a file cannot be planned on a version, nothing is run: the result has only the columns of versions with this
    problem. If a run fails, its column has the error, and the other versions run all the same. Nothing is compared
    unless the first version and a later one have run. `kafka`: values of `cluster.kafka`; empty: those of the files.
    `fail_on`: limit such as `slower:20%`, which requires two versions; None: no limit.
    """
    planned: list[tuple[str, PlannedBatch]] = []
    refused: list[GateColumn] = []
    limit: Gate | None = None
    for value in kafka or ("",):
        own = replace(options, settings=(*options.settings, *([f"cluster.kafka={value}"] if value else [])))
        try:
            limit = limit_of(fail_on)
            if not options.files or (limit is not None and len(kafka) < 2):
                raise BadInput("give experiment files, and --kafka twice or more with --fail-on")
            plan = plan_batch(own)
        except AckproofError as error:
            refused.append(_not_run(value or "of the files", error, own))
            continue
        labels = {case.experiment.cluster.kafka.label for _, case in plan.cases}
        name = labels.pop() if len(labels) == 1 else "of the files"
        planned.append((name, replace(plan, options=replace(own, out=options.out / safe_name(name)))))
    columns = refused or [_run(name, plan, console) for name, plan in planned]
    ran = [(f"Kafka {one.kafka}", one.batch.directory.path) for one in columns if one.batch is not None]
    if len(ran) < 2 or columns[0].batch is None:
        return GateResult(columns)
    found = compare([path for _, path in ran], Statistic("mean"))
    # The batches of a gate have the same name; they are named by their Kafka instead.
    named = zip(found.batches, ran, strict=True)
    batches = tuple(one.model_copy(update={"name": kafka, "directory": kafka}) for one, (kafka, _) in named)
    found = found.model_copy(update={"batches": batches})
    return GateResult(columns, found if limit is None else limit.apply(found))


def _run(kafka: str, planned: PlannedBatch, console: Console) -> GateColumn:
    console.line(f"Kafka {kafka}", "bold")
    try:
        with console.show(len(planned.cases)) as view:
            batch = run_batch(planned, view)
    except Exception as error:  # noqa: BLE001 — the results of the other Kafkas are published all the same
        return _not_run(kafka, error, planned.options)
    console.batch(batch.document(), from_here(batch.directory.report_html))
    column = GateColumn(kafka, batch.document().exit_code, load_batch(batch.directory.path))
    files = [*(one.file for one in batch.planned), *(file for file, _ in planned.over_repeats)]
    texts: dict[tuple[Path, State], list[str]] = {}
    for file, row in zip(files, column.rows, strict=True):
        texts.setdefault((file, row.state), []).append(f"{row.title}: {row.why}")
    problems = [one for plan in planned.plans.values() for one in plan.warnings]
    for (file, state), lines in texts.items():
        if state is not State.PASS:
            severity: Literal["error", "warning"] = "warning" if state is State.INCONCLUSIVE else "error"
            place = planned.plans[file].file.problem(("expect",), "")
            title = f"{state} on Kafka {kafka}"
            problems.append(replace(place, path=title, message=Advice("\n".join(lines)), severity=severity))
    return replace(column, problems=tuple(problems))


def _not_run(kafka: str, error: Exception, options: BatchOptions) -> GateColumn:
    """Return the column of a Kafka version on which nothing ran, with every problem of every file; if no file has any,
    with the error."""
    problems = list(error.listed) if isinstance(error, InvalidExperiment) else []
    for file in options.files:
        try:
            plan_batch(replace(options, files=(file,), only=()))
        except InvalidExperiment as invalid:
            problems += invalid.listed
        except BadInput as refusal:
            problems.append(Problem(str(file), 0, 0, "", advice_of(refusal)))
    why = advice_of(error) if isinstance(error, AckproofError) else Advice(f"{type(error).__name__}: {error}")
    code = ExitCode.BAD_INPUT if isinstance(error, BadInput) else ExitCode.HARNESS_FAILED
    return GateColumn(kafka, code, problems=tuple(dict.fromkeys(problems)) or (Problem("", 0, 0, "", why),))


def publish(result: GateResult, out: Path, console: Console) -> None:
    """Write `summary.md`, `comment.md` and, with a comparison, `compared.json` and `compared.html` into `out`. Print
    the problems and the result. On GitHub Actions the problems are annotations, and the job's summary and outputs are
    written too. Raises OSError if a file cannot be read or written."""
    out.mkdir(parents=True, exist_ok=True)
    reports = [str(one.batch.directory.report_html) for one in result.columns if one.batch is not None]
    if result.comparison is not None:
        result.comparison.save(out / "compared.json")
        write_atomically(out / "compared.html", comparison_page(result.comparison))
        reports.append(str((out / "compared.html").resolve()))
    write_atomically(out / "summary.md", result.summary(_SUMMARY_BYTES))
    write_atomically(out / "comment.md", result.summary(_COMMENT_BYTES))
    for one in dict.fromkeys(one for column in result.columns for one in column.problems):
        if os.environ.get("GITHUB_ACTIONS") == "true":
            root = os.environ.get("GITHUB_WORKSPACE", ".")
            console.raw(annotation(one, os.path.relpath(one.file, root) if one.file else ""))
        else:
            console.line(str(one) if one.file else one.message)
    console.line(f"{result}\nsummary: {from_here(out / 'summary.md')}")
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(path).open("a", encoding="utf-8") as page:
            page.write(result.summary(_SUMMARY_BYTES - page.tell()))
    if path := os.environ.get("GITHUB_OUTPUT"):
        values = {
            "verdict": ExitCode(result.exit_code).name,
            "report": "\n".join(reports),
            "lost": result.lost,
        }
        with Path(path).open("a", encoding="utf-8") as outputs:
            outputs.writelines(
                output(*one) for one in (*values.items(), ("exit-code", str(result.exit_code)))
            )

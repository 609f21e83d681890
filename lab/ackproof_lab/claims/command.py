"""`ackproof claims`: statements about Kafka, answered by live brokers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ackproof.base.errors import BadInput
from ackproof.cli.options import FILES, backend_option, examples, from_here, setting_options

if TYPE_CHECKING:
    from ackproof.experiment.experiment import ClaimSpec
    from ackproof.rundir.lab import ClaimJudged

HERE: Final = Path("experiments/claims")
"""Folder of claims that is run without FILES, relative to the working directory."""


@click.command(
    epilog=examples("ackproof claims -k C09 -k C33", "ackproof claims --tag S2 --resume", codes=False)
)
@click.argument("files", nargs=-1, type=FILES)
@click.option(
    "-k",
    "words",
    metavar="TEXT",
    multiple=True,
    help="Only claims with this text in their name or statement (repeatable).",
)
@click.option(
    "--tag",
    "tags",
    metavar="SOURCE",
    multiple=True,
    help="Only claims of this source, such as S2 (repeatable).",
)
@click.option("--resume", is_flag=True, help="Keep the answers of OUT/claims.json, and run the other claims.")
@click.option(
    "--again",
    type=click.IntRange(0, 9),
    default=1,
    show_default=True,
    metavar="N",
    help="Run INCONCLUSIVE claims again, up to N times, after all others; the page says so.",
)
@backend_option
@setting_options
@click.option(
    "--out",
    type=FILES,
    default=Path("runs/claims"),
    show_default=True,
    help="Folder of answers and runs.",
)
@click.option(
    "--json",
    "machine",
    is_flag=True,
    help="Print claims.json on standard output, all else on standard error.",
)
def claims(
    files: tuple[Path, ...],
    words: tuple[str, ...],
    tags: tuple[str, ...],
    resume: bool,
    again: int,
    backend: str | None,
    settings: tuple[str, ...],
    out: Path,
    machine: bool,
) -> int:
    """Confirm or refute statements about Kafka: run the experiments that test them.

    Without FILES: experiments/claims. Exit code 0 if every claim has an answer, also if it is REFUTED; 2 if some are
    INCONCLUSIVE."""
    from ackproof.console import Console
    from ackproof.run.batch import run_batch
    from ackproof.run.options import BatchOptions, plan_batch
    from ackproof.rundir.lab import ClaimsFile
    from ackproof_lab.claims.judging import judge_claims
    from ackproof_reports.comparison_pages import render_claims

    console = Console(machine=machine)
    out = out.resolve()
    document, chosen = out / "claims.json", _chosen(files, words, tags, settings)
    kept = ClaimsFile.load(document).claims if resume and document.exists() else ()
    judged = {one.claim: one for one in kept}
    for attempt in range(1 + again):
        left = _open(chosen, judged)
        if left and attempt:
            console.line(f"running again, as INCONCLUSIVE: {', '.join(sorted(chain(*left.values())))}")
        for file, asked in left.items():
            number = list(chosen).index(file) + 1
            console.line(f"{number} of {len(chosen)}: {file}: {', '.join(asked)}")
            options = BatchOptions((file,), backend=backend, settings=settings, out=out)
            planned, began = plan_batch(options, console.warning), time.monotonic()
            with console.show(len(planned.cases)) as view:
                batch = run_batch(planned, view).directory
            took = time.monotonic() - began
            for one in judge_claims(asked, batch, batch.path.parent, took, judged):
                judged[one.claim] = one
                console.line(f"    {one.claim} {one.verdict}: {one.says}{one.why and f' ({one.why})'}")
            ClaimsFile(claims=tuple(judged[name] for name in sorted(judged))).save(document)
            render_claims(out)
    console.line(f"answers: {from_here(out / 'claims.html')}")
    if machine:
        console.raw(document.read_text(encoding="utf-8"))
    return 2 if _open(chosen, judged) else 0


def _open(
    chosen: Mapping[Path, Mapping[str, ClaimSpec]], judged: Mapping[str, ClaimJudged]
) -> dict[Path, dict[str, ClaimSpec]]:
    found: dict[Path, dict[str, ClaimSpec]] = {}
    for file, asked in chosen.items():
        for name, claim in asked.items():
            if name not in judged or not judged[name].answered:
                found.setdefault(file, {})[name] = claim
    return found


def _chosen(
    files: Sequence[Path], words: Sequence[str], tags: Sequence[str], settings: Sequence[str]
) -> Mapping[Path, Mapping[str, ClaimSpec]]:
    """Return the selected claims by file and name. `words`: texts, one of which must be in the name or statement of a
    claim. `tags`: sources, one of which a claim must have. An empty sequence selects all. Raises `BadInput` if no claim
    is selected, or if two files have a claim of the same name."""
    from ackproof.plan import load

    found: dict[Path, dict[str, ClaimSpec]] = {}
    files_by_claim: dict[str, Path] = {}
    given = files or sorted(HERE.glob("*.yaml"))
    for file in given:
        for name, claim in load(file, settings).spec.claims.items():
            text = f"{name} {claim.says}".lower()
            if (words and not any(word.lower() in text for word in words)) or (
                tags and not set(tags) & set(claim.sources)
            ):
                continue
            if name in files_by_claim:
                raise BadInput(f"{file}: the claim {name} is also in {files_by_claim[name]}")
            files_by_claim[name] = file
            found.setdefault(file, {})[name] = claim
    if not found:
        where = ", ".join(map(str, given)) or f"{HERE}, which does not exist here. Give experiment files"
        raise BadInput(f"no such claim in {where}")
    return found

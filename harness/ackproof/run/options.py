"""What one call of `ackproof run` asks for: which cases of which files that means, and the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ackproof.base.errors import BadInput
from ackproof.experiment.case import Case
from ackproof.experiment.problems import Problem
from ackproof.plan.cases import cases, load

if TYPE_CHECKING:
    from ackproof.cluster.backends.attach.cluster import Attachment

RUNS = Path("runs")


@dataclass(frozen=True)
class BatchOptions:
    """What one call asks for. `backend`, `seed`, `repeat` override the files'."""

    files: tuple[Path, ...]
    backend: str | None = None
    seed: int | None = None
    repeat: int | None = None
    only: tuple[str, ...] = ()
    """The cases that are meant, with or without their repeat (`acks=1#2`, `acks=1`); all when empty."""
    settings: tuple[str, ...] = ()
    """`PATH=VALUE`, over what the files say."""
    attachment: Attachment | None = None
    """Where the cluster is that someone else runs, and what lets us in."""
    out: Path = RUNS
    keep_data: bool = False
    simulate: bool = False
    """Whether simulated runs are made beside each case, for the report."""


def plan_cases(
    options: BatchOptions, warn: Callable[[Problem], None] = lambda _: None
) -> list[tuple[Path, Case]]:
    """All cases of all files, in order, each with its file. Raises `BadInput` before anything is started.

    `warn` is told of what is doubtful.
    """
    found: list[tuple[Path, Case]] = []
    if options.attachment is not None:
        options.attachment.check()
    for file in options.files:
        plan = load(file, options.settings, backend=options.backend)
        if plan.spec.backend == "auto":
            # All that makes clusters takes as long to load as the rest of a plan.
            from ackproof.cluster.backends.choice import resolve

            plan = load(file, options.settings, backend=resolve(plan.spec.backend))
        for warning in plan.warnings:
            warn(warning)
        found += [(file, case) for case in cases(plan, seed=options.seed, repeat=options.repeat)]
    if options.only:
        wanted = set(options.only)
        found = [(file, case) for file, case in found if {case.id, case.id.rpartition("#")[0]} & wanted]
        if not found:
            raise BadInput(f"no case is called {' or '.join(options.only)}; ackproof plan lists them")
    return found


def command_of(options: BatchOptions, seed: int, only: str | None = None, file: Path | None = None) -> str:
    """The one command that repeats this batch, or one case of it."""
    files = [str(file)] if file is not None else [str(path) for path in options.files]
    words = ["ackproof", "run", *files, "--seed", str(seed)]
    if options.repeat is not None:
        words += ["--repeat", str(options.repeat)]
    if options.attachment is not None:
        # Settings that were given one by one may be secret.
        words += ["--bootstrap", options.attachment.bootstrap]
        if options.attachment.file is not None:
            words += ["--client-config", str(options.attachment.file)]
    elif options.backend is not None:
        words += ["--backend", options.backend]
    for setting in options.settings:
        words += ["--set", setting]
    for case in (only,) if only is not None else options.only:
        words += ["--case", case]
    return shlex.join(words)

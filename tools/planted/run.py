"""Measures whether the planted bugs are found: `make planted`.

    python -m tools.planted.run --out runs/planted                     all bugs; results already in DIR are used again
    python -m tools.planted.run --out DIR --only 'batch-*'             some bugs
    python -m tools.planted.run --out DIR --shard 2/7                  a seventh: the night's share
    python -m tools.planted.run --out DIR --update                     and write docs/sensitivity.md
    python -m tools.planted.run --out DIR --before 'nice -n 10'        words before each command

Exit code 0: each bug that was found in the last measurement (`measured.json`) is found; 1: one is not found, or has no
verdict; 254: wrong usage."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Final

from .batches import CONTROL, run_batch
from .bugs import BUGS, Bug
from .page import PAGE, write_page
from .results import (
    Measured,
    Outcome,
    Result,
    Seen,
    Store,
    digest_product,
    read_measured,
    write_measured,
)
from .why import WHY

BATCH: Final = 8
"""Greatest number of bugs that share one `ackproof run`, and so one audit."""
AGAIN: Final = (Outcome.NO_CONTROL, Outcome.NO_VERDICT)
"""Outcomes that do not judge the bug: its run is repeated in the next call."""
NO_RUN: Final = Seen(verdict=None)

RunBatch = Callable[[Sequence[Bug], Path, bool], Mapping[str, Seen]]
"""Function that runs bugs of one experiment in a folder, with the release without a bug if the last argument is True.
It returns the results by name of the bug (`run_batch`)."""


def main(arguments: Sequence[str]) -> int:
    given = _read_arguments(arguments)
    index, _, count = given.shard.partition("/")
    try:
        bugs = choose_bugs(given.only, int(index), int(count))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 254
    before = shlex.split(given.before)
    store = Store(given.out, digest_product(), any_product=given.any_product)
    recorded = read_measured()

    def run(batch: Sequence[Bug], folder: Path, control: bool) -> Mapping[str, Seen]:
        return run_batch(batch, folder, control=control, before=before)

    results: list[Result] = []
    for number, result in enumerate(measure(bugs, store, run), start=1):
        broken = ", ".join(result.planted.breaks) or "; ".join(result.planted.reasons)[:160]
        print(f"[{number}/{len(bugs)}] {result.bug}: {result.outcome.value} ({broken})", flush=True)
        results.append(result)
    if given.update:
        write_measured(results)
        PAGE.write_text(write_page(BUGS, read_measured(), WHY), encoding="utf-8")
    lost = find_regressions(results, recorded)
    for line in lost:
        print(f"not found any more: {line}", file=sys.stderr)
    return 1 if lost else 0


def choose_bugs(only: str, index: int, count: int) -> list[Bug]:
    """Return the bugs of shard `index` (from 1) of `count` whose names match the pattern `only`. Bugs that share a
    control are in the same shard.

    Raises ValueError for a shard that does not exist, and for a pattern that matches no bug."""
    if not 1 <= index <= count:
        raise ValueError(f"shard {index}/{count}: there are shards 1 to {count}")
    chosen = sorted((bug for bug in BUGS if fnmatchcase(bug.name, only)), key=lambda bug: bug.control)
    if not chosen:
        raise ValueError(f"no bug fits {only}")
    groups = [list(group) for _, group in groupby(chosen, lambda bug: bug.control)]
    loads = [0] * count
    mine: list[Bug] = []
    for group in sorted(groups, key=len, reverse=True):
        lightest = loads.index(min(loads))
        loads[lightest] += len(group) + 1
        if lightest == index - 1:
            mine += group
    return mine


def measure(bugs: Sequence[Bug], store: Store, run: RunBatch) -> Iterator[Result]:
    """Yield the result of each bug, from the store or from a new run. Bugs that share a control are run together.
    `run`: see `RunBatch`."""
    for control, group in groupby(bugs, lambda bug: bug.control):
        missing: list[Bug] = []
        for bug in group:
            kept = store.result(bug)
            if kept is None or kept.outcome in AGAIN:
                missing.append(bug)
            else:
                yield kept
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            yield from _measure_batch(batch, store, store.folder / "batches" / f"{control}-{start}", run)


def _measure_batch(batch: Sequence[Bug], store: Store, folder: Path, run: RunBatch) -> Iterator[Result]:
    control = store.control(batch[0])
    seen = run(batch, folder, control is None)
    if control is None:
        control = seen.get(CONTROL, NO_RUN)
        store.keep_control(batch[0], control)
    for bug in batch:
        result = store.keep(bug, control, seen.get(bug.name, NO_RUN))
        if result.outcome in (Outcome.FOUND, Outcome.EQUIVALENT) and result.planted.run:
            shutil.rmtree(result.planted.run, ignore_errors=True)  # nobody asks for it again
        yield result


def find_regressions(results: Sequence[Result], recorded: Mapping[str, Measured]) -> list[str]:
    """Return a line for each bug that was found in the last measurement (`recorded`), and is not found now."""
    return [
        f"{result.bug}: {result.outcome.value}; runs: {result.planted.run or 'none'}, {result.control.run or 'none'}"
        for result in results
        if result.bug in recorded
        and recorded[result.bug].outcome is Outcome.FOUND
        and result.outcome is not Outcome.FOUND
    ]


def _read_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="planted bugs: are they noticed?")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="results and runs")
    parser.add_argument("--only", default="*", metavar="GLOB", help="bugs by name")
    parser.add_argument("--shard", default="1/1", metavar="I/N")
    parser.add_argument("--update", action="store_true", help="write measured.json and the page")
    parser.add_argument(
        "--any-product", action="store_true", help="results of another state of the product count too"
    )
    parser.add_argument("--before", default="", metavar="WORDS", help="words before each command")
    try:
        return parser.parse_args(arguments)
    except SystemExit as end:
        raise SystemExit(254 if end.code else 0) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The commands `ackproof compare` (several batches) and `ackproof trend` (all batches of a folder, by date)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ackproof.base.errors import BadInput
from ackproof.cli.options import FILES, PLACES, examples

if TYPE_CHECKING:
    from ackproof.console import Console
    from ackproof.repeats.demand import Statistic
    from ackproof.rundir.lab import ComparedQuantity, ComparisonFile
    from ackproof_lab.compare.batches import Gate


@click.command(
    epilog=examples(
        "ackproof compare runs/20260101T000000Z-releases runs/latest",
        "ackproof compare baseline runs/latest --fail-on slower:20% --html compared.html",
    )
)
@click.argument("directories", metavar="BATCH...", nargs=-1, required=True, type=PLACES)
@click.option(
    "--statistic",
    "word",
    default="mean",
    show_default=True,
    metavar="mean|median|p95",
    help="Statistic of each quantity over the repeats of a case.",
)
@click.option(
    "--fail-on",
    metavar="slower:20%",
    help="Exit code 1 if a time is longer, or a rate lower, by more than this.",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Show all quantities. Default: those that differ with certainty, and those that the experiment expects.",
)
@click.option("--html", type=FILES, help="Write the comparison as an HTML page.")
@click.option("--json", "json_file", type=FILES, help="Write the comparison as JSON.")
def compare(
    directories: tuple[Path, ...],
    word: str,
    fail_on: str | None,
    every: bool,
    html: Path | None,
    json_file: Path | None,
) -> int:
    """Compare batches with the first: verdicts, quantities over repeats, settings and versions that differ.

    \b
    Exit codes: 0 compared; 2 no case in common; with --fail-on 1 if a whole interval is beyond the limit, 2 if no
    comparison with it was decided; 254 bad input; 255 interrupted.
    """
    from ackproof.console import Console
    from ackproof.rundir.document import write_atomically
    from ackproof_lab.compare.batches import compare as hold

    statistic, gate = _statistic(word), limit_of(fail_on)
    console = Console()
    with console.show_progress("measuring") as tell:
        found = hold(directories, statistic, gate, tell)
    _print_comparison(console, found, every=every)
    if html is not None:
        from ackproof_reports.comparison_pages import comparison_page

        write_atomically(html, comparison_page(found))
    if json_file is not None:
        found.save(json_file)
    if found.nothing_in_common:
        return 2
    if not found.fail_on:
        return 0
    return 1 if found.broken else (2 if not found.told else 0)


@click.command(
    epilog=examples("ackproof trend runs", "ackproof trend nightly --html trend.html --json trend.json")
)
@click.argument("directory", metavar="DIR", type=FILES)
@click.option("--html", type=FILES, help="Path of the page. Default: DIR/trend.html.")
@click.option("--json", "json_file", type=FILES, help="Write the data of the page as JSON, too.")
def trend(directory: Path, html: Path | None, json_file: Path | None) -> int:
    """Write one page over all batches of a folder, by date: verdicts, losses, recovery, throughput, changes."""
    from ackproof.console import Console
    from ackproof.rundir.document import write_atomically
    from ackproof_lab.compare.trend import trend as gather
    from ackproof_reports.comparison_pages import trend_page

    if not directory.is_dir():
        raise BadInput(f"{directory}: no such folder. Give a folder of batches, such as runs")
    console = Console()
    with console.show_progress("measuring") as tell:
        found = gather(directory, tell)
    page = directory / "trend.html" if html is None else html
    write_atomically(page, trend_page(found))
    if json_file is not None:
        found.save(json_file)
    for case in found.cases:
        for point in case.points:
            console.lines(f"{case.case}: {point.batch}: {text}" for text in (*point.apart, *point.changed))
    console.lines(found.unread)
    console.line(f"{len(found.cases)} cases over time: {page}")
    return 0


def _statistic(word: str) -> Statistic:
    from ackproof.experiment.problems import unknown_name
    from ackproof.repeats.demand import STATISTICS, Statistic

    found = Statistic.named(word)
    if found is None or found.is_max:
        others = [one for one in STATISTICS if one != "max"]
        raise BadInput(unknown_name(f"--statistic: '{word}' is unknown", word, others, "expected one of"))
    return found


def limit_of(text: str | None) -> Gate | None:
    """Parse the value of `--fail-on`, such as `slower:20%`; None returns None. Raises `BadInput` for any other text."""
    from ackproof_lab.compare.batches import Gate

    try:
        return None if text is None else Gate.parse(text)
    except ValueError as error:
        raise BadInput(f"--fail-on: {error}") from error


def _print_comparison(console: Console, found: ComparisonFile, *, every: bool) -> None:
    letters = found.letters
    for letter, batch in zip(letters, found.batches, strict=True):
        runs = f"{batch.cases} run{'s' * (batch.cases != 1)}"
        console.line(f"{letter}: {batch.directory} ({runs}, {batch.verdict})")
    if found.nothing_in_common:
        console.line(f"no case in common, so nothing is compared: {found.nothing_in_common}", "bold")
        return
    for case in found.cases:
        if case.verdicts_differ:
            console.line(f"differs: {case.case}: verdict: {_verdicts_text(case.verdicts)}", "bold")
        for count in case.counts:
            console.line(f"differs: {case.case}: {count.anomaly}: {' | '.join(count.texts)}", "bold")
    for name, values in found.environment.items():
        console.line(f"differs: {name}: {' | '.join(value or '-' for value in values)}")
    for case in found.cases:
        console.line("")
        console.line(case.case, "bold")
        console.line(f"  {_verdicts_text(case.verdicts)}")
        for path, values in case.settings.items():
            console.line(f"  differs: {path}: {' | '.join(value[:60] for value in values)}")
        shown = [one for one in case.quantities if every or one.differs or one.expected]
        if shown:
            columns = (
                f"  {found.statistic} of",
                *letters,
                *(f"{letter} to A" for letter in letters[1:]),
                "apart",
            )
            console.table(columns, [tuple(_row(one)) for one in shown])
        if rest := len(case.quantities) - len(shown):
            untold = sum(any(other is None for other in one.beyond) for one in case.quantities)
            console.line(
                f"  {rest} more quantities do not differ with certainty ({untold} cannot be compared); "
                "--all shows them"
            )
    console.line("")
    console.line(_certainty(found))
    console.lines(f"slower: {text}" for text in found.broken)
    if found.fail_on:
        console.line(
            f"{found.fail_on}: {len(found.broken)} of {found.told + found.untold} quantities; undecided: {found.untold}"
        )


def _verdicts_text(verdicts: Sequence[str]) -> str:
    return " | ".join(verdict or "missing" for verdict in verdicts)


def _row(one: ComparedQuantity) -> Iterator[str]:
    yield f"  {one.quantity} {one.window}".rstrip()
    for side in one.sides:
        yield "-" if side is None else (side.why or f"{side.seen} ({side.interval})")
    for other in one.beyond:
        yield "-" if other is None else f"{other.seen} ({other.interval})"
    yield "yes" if one.differs else ""


def _certainty(found: ComparisonFile) -> str:
    differences = [other for case in found.cases for one in case.quantities for other in one.beyond if other]
    apart = sum(other.apart for other in differences)
    sure = f"{found.confidence:.0%}"
    differing = sum(case.differs for case in found.cases)
    return (
        f"verdicts or counts differ in {differing} of {len(found.cases)} cases; "
        f"{apart} of {len(differences)} quantities differ with certainty (all together at {sure}); "
        f"each interval shown is at {sure} for itself"
    )

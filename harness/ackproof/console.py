"""Output of all commands. Results and the progress of a batch go to standard output; with `--json` only JSON does. All
other output goes to standard error.

On a terminal: a bar over the cases and one live line. Elsewhere: plain lines. `NO_COLOR` is honoured (by rich). What
comes from a cluster or a file is untrusted text: control characters are shown, never sent to the terminal.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console as Rich
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ackproof.base.units import rough_duration
from ackproof.rundir.narrator import FOREIGN_PHASES, PHASES, Narrator, first_line
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.timeline import (
    Event,
    PhaseBegan,
)

if TYPE_CHECKING:
    from ackproof.rundir.batch import BatchCase, BatchFile

_STYLE = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    None: "bold magenta",
}


def visible(text: str) -> str:
    """Return the text with its control characters made visible, so that it cannot steer a terminal. Newlines stay, tabs
    become spaces."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text.expandtabs(4))


_WIDE = 240  # columns of a file or a pipe: so wide that no name of a case is folded


_QUIET_S = 10.0


class Console:
    """Output of a command. `machine`: only JSON goes to standard output, all other text to standard error."""

    def __init__(self, *, machine: bool = False) -> None:
        self.machine = machine
        self.rich = Rich(stderr=machine, highlight=False, soft_wrap=True)
        if not self.rich.is_terminal:
            self.rich.width = _WIDE
        self._errors = Rich(stderr=True, highlight=False, soft_wrap=True)

    def line(self, text: str, style: str | None = None) -> None:
        """Print one line, with control characters made visible. `style`: a style of the library rich."""
        self.rich.print(Text(visible(text), style=style or ""))

    def lines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.line(text)

    def error(self, text: str) -> None:
        """Print an error on standard error, each line after the prefix `ackproof: `."""
        for line in text.splitlines():
            self._errors.print(Text.assemble(("ackproof: ", "bold red"), visible(line)))

    def warning(self, text: str) -> None:
        self._errors.print(Text.assemble(("ackproof: warning: ", "bold yellow"), visible(text)))

    def raw(self, text: str) -> None:
        """Write text for other programs to standard output, neither wrapped nor coloured, and end it with a newline."""
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()

    @contextmanager
    def show_progress(self, what: str) -> Iterator[Callable[[str], None]]:
        """Show progress on standard error, beginning with the text `what`. Yield a function that replaces the text:
        shown live on a terminal, else every 10 s.
        """
        console, newest = self._errors, what
        if console.is_terminal:
            with console.status(what) as status:
                yield lambda text: status.update(visible(text))
            return

        def tell(text: str) -> None:
            nonlocal newest
            newest = text

        def repeat() -> None:
            while not done.wait(_QUIET_S):
                console.print(f"… {visible(newest)}")

        done = threading.Event()
        repeating = threading.Thread(target=repeat, name="show-progress", daemon=True)
        repeating.start()
        try:
            yield tell
        finally:
            done.set()
            repeating.join()

    def document(self, value: object) -> None:
        self.raw(json.dumps(value, indent=1))

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int] = ()
    ) -> None:
        """Print a table. `numbers`: indices of the columns that are aligned to the right."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for at, name in enumerate(columns):
            table.add_column(
                Text(visible(name)), justify="right" if at in numbers else "left", overflow="fold"
            )
        for row in rows:
            table.add_row(*(Text(visible(cell)) for cell in row))
        self.rich.print(table)

    def batch(self, batch: BatchFile, where: str) -> None:
        """Print the result of a batch: a row per case; reasons, errors and notes on each case; results over repeats;
        the batch's verdict and exit code. `where`: path of the report, for the last line."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("case", overflow="fold")
        for name in ("acked", "lost", "duplicate", "indet."):
            table.add_column(name, justify="right")
        table.add_column("verdict")
        for case in batch.cases:
            table.add_row(*_row(case))
        self.rich.print(table)
        for case in batch.cases:
            for reason in (*case.reasons, *([case.error] if case.error else [])):
                self.line(f"{case.title}: {reason}")
            if case.starved:
                why = "; ".join(case.starved)
                self.line(
                    f"{case.title}: the machine was starved, so its times say nothing about Kafka: {why}"
                )
            if case.permitted:
                self.line(f"{case.title}: PASS. {case.permitted}")
            if case.deleted_windows:
                gone = "1 window" if case.deleted_windows == 1 else f"{case.deleted_windows} windows"
                self.line(
                    f"{case.title}: {gone} deleted by --keep after an audit without findings; what happened to these "
                    "records later is not known"
                )
        if timings := dict.fromkeys(case.timing for case in batch.cases if case.timing):
            self.line(f"times were measured with the time-outs: {', '.join(timings)}")
        for one in batch.over_repeats:
            word = one.verdict.value if one.verdict is not None else "no verdict"
            self.rich.print(
                Text.assemble(
                    visible(one.title), ": ", (word, _STYLE[one.verdict]), ": ", visible(one.outcome_text)
                )
            )
        word = batch.verdict.value if batch.verdict is not None else "no verdict: the harness failed"
        self.rich.print(Text(f"{word} (exit {batch.exit_code})", style=_STYLE[batch.verdict]))
        self.line(f"report: {where}")

    @contextmanager
    def show(self, cases: int, *, foreign: bool = False) -> Iterator[BatchView]:
        """Yield a view that shows the progress of a batch within the `with` block: a bar on a terminal, else plain
        lines. `cases`: number of cases. `foreign`: True for a cluster that ackproof did not start."""
        view = BatchView(self, cases, FOREIGN_PHASES if foreign else PHASES)
        with view:
            yield view


def _row(case: BatchCase) -> list[RenderableType]:
    counts = case.counts
    cells = [str(counts.get(name, "-")) for name in ("acked", "lost", "duplicate", "indeterminate")]
    word = case.verdict.value if case.verdict is not None else "no verdict"
    return [Text(visible(case.title)), *cells, Text(word, style=_STYLE[case.verdict])]


class BatchView:
    """Shows the progress of a batch, as its `BatchWatcher`: on a terminal a bar and a live line within its `with`
    block, elsewhere plain lines. Safe to use from several threads. `cases`: number of cases. `phases`: phase →
    text shown for it."""

    def __init__(self, console: Console, cases: int, phases: Mapping[str, str] = PHASES) -> None:
        from rich.live import Live as LiveDisplay  # here: most commands show no progress
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._console = console
        self._phases = phases
        self._cases = cases
        self._done = 0
        self._case = ""
        self._terminal = console.rich.is_terminal
        self._lock = threading.Lock()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f} runs"),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=console.rich,
        )
        self._task = self._progress.add_task("running", total=cases)
        self._status = Text("")
        self._display = LiveDisplay(
            Group(self._progress, self._status), console=console.rich, refresh_per_second=8, transient=True
        )
        self._phase = ""
        self._narrator = Narrator(phases)
        self._first: float | None = None
        self._began = time.monotonic()

    def __enter__(self) -> BatchView:
        if self._terminal:
            self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            self._display.stop()

    def case_begins(self, case: str, racks: str = "") -> None:
        """Show that a case starts. `racks`: the racks of its nodes in words; '' for none."""
        with self._lock:
            self._case, self._began, self._narrator = case, time.monotonic(), Narrator(self._phases)
            self._first = self._first or self._began
        self._say(f"[{self._done + 1}/{self._cases}] {case}" + (f"  racks {racks}" if racks else ""))

    def case_ends(self, case: str, error: str | None) -> None:
        """Show that a case has ended, with its duration. `error`: why the harness failed, of which the first line is
        shown; None if the case ran."""
        with self._lock:
            self._done += 1
            self._progress.update(self._task, completed=self._done)
        word = "ran" if error is None else "failed"
        took = time.monotonic() - self._began
        self._say(f"[{self._done}/{self._cases}] {case}: {word} in {took:.1f} s{self._remaining_text()}")
        if error is not None:
            self._say(f"    {first_line(error)}")

    def _remaining_text(self) -> str:
        """Return the estimated time for the remaining cases as text, from the mean duration so far; '' if none
        remains or it is unknown.
        """
        left = self._cases - self._done
        if not left or self._first is None:
            return ""
        seconds = (time.monotonic() - self._first) / self._done * left
        return f"; {left} more: about {rough_duration(seconds)}"

    def add_cases(self, cases: int) -> None:
        """Add `cases` to the number of cases in the batch, such as further repeats of `--until-decided`."""
        with self._lock:
            self._cases += cases
            self._progress.update(self._task, total=self._cases)

    def step(self, text: str) -> None:
        """Show what is being done before, between or after the cases (downloads, the audit, the report)."""
        self._set_status(text)
        if not self._terminal:
            self._say(text)

    def event(self, event: Event) -> None:
        """Show an event of the running case's timeline, if events of its kind are shown (`Narrator.tell`)."""
        line = self._narrator.tell(event)
        if isinstance(event.what, PhaseBegan):
            self._phase = self._phases.get(event.what.phase, event.what.phase)
            self._set_status(f"{self._case}  {self._phase}")
            if self._terminal:
                return
        if line is not None:
            self._say("    " + line)

    def live(self, acked: int, read: int, isr: str) -> None:
        """Show the numbers of acknowledged and of read records of the running case so far, and its ISRs (`isr`, in
        words). Only a terminal shows them."""
        self._set_status(f"{self._case}  {self._phase}  {acked:,} acked  {read:,} read  ISR {isr}")

    def _set_status(self, text: str) -> None:
        with self._lock:
            self._status.plain = visible(text)

    def _say(self, text: str) -> None:
        self._console.line(text)

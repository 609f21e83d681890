"""Measures how the reference's protections hold on real brokers: a table of HAPPENED, or DIVERGED at the step that a
protection forbids.

    PYTHONPATH=tests/support python tools/bench/force_table.py [--kafka 4.4.0] [--row NAME] [--repeat 5] [--out DIR]

Forces each counterexample of `tests/support/forced.py` `--repeat` times. The result for a counterexample and a release
is appended to `figures.jsonl` of the folder as soon as it is known; the next call continues from there. At the end the
table of all results is written into docs/reference-implementation.md."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ackproof.experiment.kafka import NEWEST
from ackproof.run.batch import run_batch
from ackproof.run.options import BatchOptions, plan_batch
from ackproof.run.phases import SilentWatcher
from ackproof_model.force.experiment import ForcedVerdict, Ground, Outcome, file_text, outcome_of
from ackproof_model.force.translate import NotForceable, translated
from forced import ROWS, Row

PAGE = Path(__file__).parents[2] / "docs" / "reference-implementation.md"
BEGIN, END = "<!-- written by tools/bench/force_table.py -->", "<!-- until here -->"
RELEASES = NEWEST[::-1]


@dataclass(frozen=True)
class Figure:
    """Result of one counterexample (`row`) on one release. `said`: number of runs by verdict, or by another result in
    words. `why`: reason of the first run. `seconds`: length of the longest run."""

    row: str
    kafka: str
    said: dict[str, int]
    why: str = ""
    seconds: float = 0.0

    @property
    def cell(self) -> str:
        """The result as a cell of the table: `HAPPENED`, or with several runs `HAPPENED (4 of 5), DIVERGED (1 of
        5)`."""
        times = sum(self.said.values())
        return ", ".join(
            word if count == times == 1 else f"{word} ({count} of {times})"
            for word, count in self.said.items()
        )


def forced(row: Row, kafka: str, out: Path, repeat: int) -> Figure:
    """Force one counterexample `repeat` times on a release, and return the result. Files go below `out`; the runs are
    removed if all of them HAPPENED."""
    story = row.story(kafka)
    if isinstance(story, str):
        return Figure(row.named, kafka, {f"no story: {story}": 1})
    try:
        steps = translated(story)
    except NotForceable as error:
        return Figure(row.named, kafka, {str(ForcedVerdict.NOT_FORCEABLE): 1}, str(error))
    file = out / f"{row.named.replace(' ', '-').replace(',', '')}-{kafka}.yaml"
    file.write_text(file_text(story, steps, Ground(kafka, kafka), repeat=repeat))
    planned = plan_batch(BatchOptions((file,), out=out / "runs"), lambda text: print(text, file=sys.stderr))
    batch = run_batch(planned, SilentWatcher(lambda text: print(text, file=sys.stderr)))
    found = [outcome_of(story, steps, one.run) for one in batch.planned]
    said = Counter(_word(one) for one in found)
    if said.total() == said[str(ForcedVerdict.HAPPENED)]:
        shutil.rmtree(batch.directory.path)
    return Figure(
        row.named, kafka, dict(said), _why(found[0], len(story.way)), max(one.seconds for one in found)
    )


def _word(one: Outcome) -> str:
    return f"{one.verdict} at step {one.number}" if one.number else str(one.verdict)


def _why(one: Outcome, of: int) -> str:
    return one.why if one.verdict is ForcedVerdict.HAPPENED else f"(of {of} steps) {one.why}"


def known(file: Path) -> list[Figure]:
    """Return the results of earlier calls in a `figures.jsonl`; none if the file does not exist."""
    return [Figure(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """Yield the Markdown lines of the table: a row per protection, a column per release, and below it the reasons."""
    by = {(one.row, one.kafka): one for one in figures}
    releases = [one for one in RELEASES if any(one == kafka for _, kafka in by)]
    yield f"| without | {' | '.join(releases)} |"
    yield "|---|" + "---|" * len(releases)
    for row in ROWS:
        cells = [by[row.named, one].cell if (row.named, one) in by else "–" for one in releases]
        yield f"| {row.named} | {' | '.join(cells)} |"
    yield ""
    for row in ROWS:
        whys = {one.why: None for one in figures if one.row == row.named and one.why}
        said = [why for why in whys if not why.endswith("each step was seen on the brokers")]
        if said:
            yield f"* {row.named}: {'; '.join(said)}"


def written(figures: Sequence[Figure]) -> None:
    """Write the table of these results into docs/reference-implementation.md, between its two marks."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text("\n".join([before + BEGIN, "", *table(figures), "", END + after]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kafka", action="append", choices=RELEASES)
    parser.add_argument("--row", action="append", choices=[row.named for row in ROWS])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/forced"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / "figures.jsonl"
    for row in ROWS:
        for kafka in asked.kafka or RELEASES:
            done = {(one.row, one.kafka) for one in known(file)}
            if (row.named, kafka) in done or (asked.row and row.named not in asked.row):
                continue
            figure = forced(row, kafka, asked.out, asked.repeat)
            with file.open("a") as kept:
                kept.write(json.dumps(asdict(figure)) + "\n")
            print(f"{figure.row}, {kafka}: {figure.cell}; {figure.why}", flush=True)
    written(known(file))


if __name__ == "__main__":
    main()

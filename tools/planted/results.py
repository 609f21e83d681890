"""Outcomes of planted bugs, decided from the verdicts of a run with the bug and of the same experiment without it."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from ackproof.rundir.documents import VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict

from .bugs import FOLDER, ROOT, Bug, Sees

MEASURED: Final = FOLDER / "measured.json"
"""File with the last measurement. The page shows it, and a night fails if a bug that was found in it is not found any
more."""
_PRODUCT: Final = ("harness", "reference_impl", "reports")
BITE: Final = "BITE"
"""First word of the line that a rule prints into the output of its node when it first takes effect."""


class Outcome(Enum):
    """Outcome of a planted bug, in the order of the page."""

    FOUND = "found"
    BY_ACCIDENT = "found by accident"
    INCONCLUSIVE = "INCONCLUSIVE"
    MISSED = "missed"
    NOT_REACHED = "not reached"
    EQUIVALENT = "equivalent"
    NO_CONTROL = "control not PASS"
    NO_VERDICT = "no verdict"


class Seen(BaseModel, frozen=True):
    """Result of one run. `verdict` None: the harness failed, or there was no run. `breaks`: classes and checks that
    found a break. `reasons`: the first four of the verdict. `bitten`: True if the bug took effect. `run`: the run
    directory."""

    verdict: Verdict | None
    breaks: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    bitten: bool = False
    run: str = ""


class Result(BaseModel, frozen=True):
    """The outcome of one bug. `planted`, `control`: its runs with and without the bug. `product`, `rules`,
    `experiment`: digests of the product's code, the bug's rule and the experiment file."""

    bug: str
    outcome: Outcome
    planted: Seen
    control: Seen
    product: str
    rules: str
    experiment: str


class Measured(BaseModel, frozen=True):
    """The outcome of one bug as `measured.json` keeps it. `verdict`, `breaks`: of the run with the bug."""

    outcome: Outcome
    verdict: Verdict | None
    breaks: tuple[str, ...] = ()


def classify(bug: Bug, control: Seen, planted: Seen) -> Outcome:
    """Return the outcome of a bug. It is `FOUND` only if the control is PASS, the bug took effect, the verdict is FAIL,
    and a class or check of its row broke."""
    if control.verdict is not Verdict.PASS:
        return Outcome.NO_CONTROL
    if planted.verdict is None:
        return Outcome.NO_VERDICT
    if not planted.bitten:
        return Outcome.NOT_REACHED
    if planted.verdict is Verdict.INCONCLUSIVE:
        return Outcome.INCONCLUSIVE
    if bug.sees is Sees.NOBODY:
        return Outcome.EQUIVALENT if planted.verdict is Verdict.PASS else Outcome.BY_ACCIDENT
    if planted.verdict is Verdict.PASS:
        return Outcome.MISSED
    return Outcome.BY_ACCIDENT if set(bug.finds).isdisjoint(planted.breaks) else Outcome.FOUND


def see_run(run: Path, name: str) -> Seen:
    """Return the result of a run, read from its directory. `name`: the bug whose `BITE` line is looked for; '' for a
    control. Raises `BadInput` for an unreadable `verdict.json`."""
    case = CaseDir(run)
    found = VerdictFile.load(case.verdict_json)
    breaks = dict.fromkeys(
        opinion.subject if opinion.check == "classes" else f"check:{opinion.check.replace(' ', '-')}"
        for opinion in found.opinions
        if opinion.kind == "breaks"
    )
    outputs = (file.read_text(encoding="utf-8", errors="replace") for file in case.nodes.glob("*/stdout.log"))
    bitten = any(f"{BITE} {name}" in output.splitlines() for output in outputs)
    return Seen(
        verdict=found.verdict,
        breaks=tuple(breaks),
        reasons=found.reasons[:4],
        bitten=bool(name) and bitten,
        run=str(run),
    )


def digest(files: Iterable[Path]) -> str:
    """Return a digest of the contents of these files, 12 hex digits."""
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]


def digest_product() -> str:
    """Return a digest of the product's committed code, 12 hex digits; `+` is appended if the working tree has changes
    to it."""
    trees = [_git("rev-parse", f"HEAD:{folder}") for folder in _PRODUCT]
    changed = "+" if _git("status", "--porcelain", "--", *_PRODUCT) else ""
    return hashlib.sha256("".join(trees).encode()).hexdigest()[:12] + changed


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True
    ).stdout.strip()


def read_measured() -> dict[str, Measured]:
    """Return the measurement in the repository, by name of the bug; empty if there is none."""
    if not MEASURED.exists():
        return {}
    raw = json.loads(MEASURED.read_text(encoding="utf-8"))
    return {name: Measured.model_validate(row) for name, row in raw.items()}


def write_measured(results: Iterable[Result]) -> None:
    """Write the outcomes of these results to `measured.json`; the rows of other bugs stay."""
    rows = read_measured()
    for result in results:
        rows[result.bug] = Measured(
            outcome=result.outcome, verdict=result.planted.verdict, breaks=result.planted.breaks
        )
    text = ",\n".join(f' "{name}": {rows[name].model_dump_json()}' for name in sorted(rows))
    MEASURED.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")


class Store:
    """Results in the folder `folder`, one file per bug and one per control. A result counts while the rule, the
    experiment and the product are the same as at its measurement."""

    def __init__(self, folder: Path, product: str, *, any_product: bool = False) -> None:
        """`product`: digest of the present product (`digest_product`). `any_product`: True to accept results of other
        states of the product."""
        self.folder = folder
        self.product = product
        self._any = any_product

    def result(self, bug: Bug) -> Result | None:
        """Return the stored result of a bug with its present rule, experiment and product; None if there is none. Its
        outcome is computed from the present table of bugs."""
        file = self.folder / "results" / f"{bug.name}.json"
        if not file.exists():
            return None
        kept = Result.model_validate_json(file.read_text(encoding="utf-8"))
        same = (kept.rules, kept.experiment) == (digest([bug.rules]), digest([bug.file]))
        if not (same and self._counts(kept.product)):
            return None
        # The table may have changed what counts as found: that needs no run.
        return kept.model_copy(update={"outcome": classify(bug, kept.control, kept.planted)})

    def control(self, bug: Bug) -> Seen | None:
        """Return the stored result of the bug's experiment without the bug. None if there is none of the present
        experiment and product, or if its verdict was not PASS."""
        file = self._control_file(bug)
        if not file.exists():
            return None
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["experiment"] != digest([bug.file]) or not self._counts(kept["product"]):
            return None
        seen = Seen.model_validate(kept["seen"])
        return seen if seen.verdict is Verdict.PASS else None  # one that failed is run again

    def keep(self, bug: Bug, control: Seen, planted: Seen) -> Result:
        """Classify, write and return the result of a bug."""
        result = Result(
            bug=bug.name,
            outcome=classify(bug, control, planted),
            planted=planted,
            control=control,
            product=self.product,
            rules=digest([bug.rules]),
            experiment=digest([bug.file]),
        )
        _write(self.folder / "results" / f"{bug.name}.json", result.model_dump_json(indent=1))
        return result

    def keep_control(self, bug: Bug, seen: Seen) -> None:
        kept = {
            "product": self.product,
            "experiment": digest([bug.file]),
            "seen": seen.model_dump(mode="json"),
        }
        _write(self._control_file(bug), json.dumps(kept, indent=1))

    def _control_file(self, bug: Bug) -> Path:
        return self.folder / "controls" / f"{bug.control}.json"

    def _counts(self, product: str) -> bool:
        return self._any or product == self.product


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")

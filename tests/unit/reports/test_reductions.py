"""Which reductions an "impossible" rests on, in the page and in the summary, and the command that does without them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.documents import VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import PredictedClass, PredictionFile
from ackproof_reports import render_batch

COMMAND = "ackproof predict {} --no-reductions"


@pytest.mark.parametrize("used", [("void", "ranking"), (), None], ids=["reduced", "plain", "older"])
def test_a_case_that_fails_as_impossible_names_the_reductions(
    maker: ModuleType, tmp_path: Path, used: tuple[str, ...] | None
) -> None:
    failed = next(one for one in maker.missing() if one.forbidden)
    folder = maker.make_batch(tmp_path, [failed])
    (verdict_json,) = folder.glob("*/verdict.json")
    run, verdict = CaseDir(verdict_json.parent), VerdictFile.load(verdict_json)
    impossible = {"predicted": Chance.IMPOSSIBLE, "reductions": used}
    classes = [one.model_copy(update=impossible) if one.anomaly == "lost" else one for one in verdict.classes]
    verdict.model_copy(update={"classes": tuple(classes)}).save(run.verdict_json)
    answer = PredictedClass(anomaly="lost", chance=Chance.IMPOSSIBLE, why="w")
    PredictionFile(classes=(answer,), rules="4.1", scope="brokers=3", states=6, reductions=used).save(
        run.prediction_json
    )
    render_batch(folder)
    page, summary = ((folder / name).read_text("utf-8") for name in ("report.html", "summary.md"))
    command, row = COMMAND.format(run.path.name), "impossible <small>(reductions: void, ranking)</small>"
    assert [text in page for text in (command, row)] == [bool(used)] * 2
    assert ("Reductions of the search: void, ranking." in page) is bool(used)
    assert ("Reductions of the search: none;" in page) is (used == ())
    told = "lost is impossible by a search with the reductions void, ranking."
    assert [text in summary for text in (told, f"in the folder of the batch: `{command}`")] == [
        bool(used)
    ] * 2

"""A class that a run shows and that a search leaves unknown is searched for again, with a higher limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.experiment.case import Case
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import PredictedClass, PredictionFile
from ackproof_model.predict import prediction
from ackproof_model.predict.answers import FURTHER_STATES, USUAL_STATES
from ackproof_model.predict.prediction import SearchOptions
from model_cases import case_of


def answer(*, explored: bool = True, **chances: Chance) -> PredictionFile:
    return PredictionFile(
        classes=tuple(
            PredictedClass(anomaly=anomaly, chance=chance, why="as planted", explored=explored)
            for anomaly, chance in chances.items()
        ),
        observed=True,
    )


class Search:
    """Searches with planted answers. `first`: answer of a search up to the usual limit of states; `further`: of one
    with a higher limit (None: `first`). `bounds`: limits of the searches so far."""

    def __init__(self, first: PredictionFile, further: PredictionFile | None = None) -> None:
        self.first, self.further = first, further
        self.bounds: list[int] = []

    def predict(self, folder: Path, *seen: str) -> PredictionFile:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(prediction, "_explored", self._explored)
            return prediction.predict_run(case_of(), CaseDir(folder), seen)

    def _explored(self, _case: Case, _: object, __: object, options: SearchOptions) -> PredictionFile:
        self.bounds.append(options.max_states)
        return self.further if self.further and options.max_states > USUAL_STATES else self.first


@pytest.mark.parametrize("further", [Chance.POSSIBLE, Chance.IMPOSSIBLE, Chance.UNKNOWN])
def test_a_class_that_was_seen_is_searched_for_again(tmp_path: Path, further: Chance) -> None:
    search = Search(answer(lost=Chance.UNKNOWN), answer(lost=further))
    found = search.predict(tmp_path, "lost").find_class("lost", "orders")
    assert found is not None
    assert found.chance is further
    assert search.bounds == [USUAL_STATES, FURTHER_STATES]


@pytest.mark.parametrize(
    ("chance", "seen"), [(Chance.UNKNOWN, ()), (Chance.POSSIBLE, ("lost",)), (Chance.IMPOSSIBLE, ("lost",))]
)
def test_one_search_is_enough_if_nothing_unknown_was_seen(
    tmp_path: Path, chance: Chance, seen: tuple[str, ...]
) -> None:
    search = Search(answer(lost=chance))
    search.predict(tmp_path, *seen)
    assert search.bounds == [USUAL_STATES]


def test_one_unknown_class_among_others_is_searched_for_again(tmp_path: Path) -> None:
    search = Search(answer(overwritten=Chance.POSSIBLE, lost=Chance.UNKNOWN, vanished=Chance.IMPOSSIBLE))
    search.predict(tmp_path, "lost")
    assert search.bounds == [USUAL_STATES, FURTHER_STATES]


def test_a_class_that_no_search_decides_is_not_searched_for_again(tmp_path: Path) -> None:
    search = Search(answer(explored=False, lost=Chance.UNKNOWN))
    search.predict(tmp_path, "lost")
    assert search.bounds == [USUAL_STATES]

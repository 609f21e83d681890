"""The fact and the hint of an error message stay separate, whatever words they have and whatever passes them on."""

from __future__ import annotations

import copy
import pickle

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from ackproof.base.advice import Advice, advice_of, expected
from ackproof.base.errors import BadInput
from ackproof.base.units import wrong
from ackproof.experiment.problems import InvalidExperiment, shorten_advice, unknown_name

from .conftest import Load


def parts(advice: Advice) -> tuple[str, str, str]:
    return advice.fact, advice.hint, advice.suggestion


def test_the_text_joins_the_parts() -> None:
    assert Advice("a fact") == "a fact"
    assert Advice("a; fact", "a hint") == "a; fact; a hint"
    assert Advice("a", suggestion="b") == "a (did you mean 'b'?)"
    assert Advice("a", "do it", suggestion="b") == "a; do it (did you mean 'b'?)"
    assert (Advice("a").remedy, Advice("a", "h").remedy) == (None, "h")
    assert Advice("a", "h", suggestion="b").remedy == "did you mean 'b'?"


@pytest.mark.parametrize(
    "advice",
    [Advice("f; g", "h; i"), Advice("f", suggestion="s"), expected("a number"), Advice("f")],
    ids=str,
)
def test_who_passes_it_on_keeps_the_parts(advice: Advice) -> None:
    class Model(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def _refuse(cls, value: int) -> int:
            raise wrong(advice)

    with pytest.raises(ValidationError) as caught:
        Model(number=1)
    of_pydantic = Advice(caught.value.errors()[0]["ctx"]["text"])
    for one in (
        of_pydantic,
        Advice(advice),
        advice_of(ValueError(advice)),
        advice_of(BadInput(advice)),
        copy.deepcopy(advice),
        pickle.loads(pickle.dumps(advice)),
        advice_of(pickle.loads(pickle.dumps(BadInput(advice)))),
        shorten_advice(advice),
    ):
        assert one == advice and parts(one) == parts(advice)
    assert of_pydantic.is_shape is advice.is_shape
    assert parts(advice.after("x: ")) == (f"x: {advice.fact}", advice.hint, advice.suggestion)


def test_a_long_message_is_cut_at_its_end() -> None:
    advice = shorten_advice(Advice("f" * 400, "h" * 400))
    assert len(advice) == 500 and advice.fact == "f" * 400 and advice.hint.endswith("…")
    assert shorten_advice(Advice("f" * 600, "h")).fact == "f" * 499 + "…"


def test_an_unknown_name_has_the_nearest_or_all_names() -> None:
    assert parts(unknown_name("no 'leder'", "leder", ["leader"], "there is")) == ("no 'leder'", "", "leader")
    assert unknown_name("no 'x'", "x", ["leader", "isr"], "there is") == "no 'x'; there is leader, isr"


@pytest.mark.parametrize("word", ["fetch' 3", "fetch; 3"])
def test_words_of_a_file_do_not_move_the_border(load_text: Load, word: str) -> None:
    """An apostrophe or a semicolon in the file's own text does not count as the end of the fact."""
    with pytest.raises(InvalidExperiment) as caught:
        load_text(f'name: x\ntopics: {{t: {{}}}}\nobserve: {{"{word}": true}}\n')
    (problem,) = caught.value.problems
    told = problem.as_json()
    assert told["message"] == f"unknown field '{word}'"
    assert told["hint"] == "did you mean 'fetch'?" or str(told["hint"]).startswith("expected one of ")

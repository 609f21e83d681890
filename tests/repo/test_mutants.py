"""The list of mutants that are said to change nothing names mutants that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "mutation"


@pytest.mark.parametrize("name", ["judge", "faults", "reference"])
def test_what_is_called_equivalent_is_a_mutant_of_today(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from rooms import ROOMS, jobs_of, known_equivalents

    room = ROOMS[name]
    known = known_equivalents(room)
    assert all(reason.strip() for reason in known.values())
    assert set(known) <= {job.key for job in jobs_of(room)}


def test_a_mutant_is_known_by_its_function_and_what_is_changed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from mutants import mutants, mutated

    source = (
        "TOP = 3\n\n\nclass House:\n    def low(self, a: int = 2) -> bool:\n        return a < 1 or a < 1\n"
    )
    known = {mutant.key: mutant for mutant in mutants(source)}
    assert not known["module: 3 → 4: TOP = 3"].inside
    assert not known["House.low: 2 → 3: def low"].inside
    first, second = known["House.low: Lt → LtE: a < 1"], known["House.low: Lt → LtE: a < 1 #2"]
    assert first.inside
    assert "return a <= 1 or a < 1" in mutated(source, first.number)
    assert "return a < 1 or a <= 1" in mutated(source, second.number)
    assert len(known) == len(mutants(source))
    # A type annotation, a decorator and a union of types have nothing that could be wrong when it runs.
    assert mutants("def f(x: 'int | None' = None) -> 'int | str': ...\n\n\nEither = int | str\n") == []

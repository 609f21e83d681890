"""The mutants: what is changed, how each is known, and that the list of those said to change nothing is of today."""

from __future__ import annotations

import ast

import pytest

from ..mutation.changes import DECIDED
from ..mutation.mutants import Mutant, mutants
from ..mutation.rooms import ROOMS, jobs_of, known_equivalents


@pytest.mark.parametrize("name", ROOMS)
def test_what_is_called_equivalent_is_a_mutant_of_today(name: str) -> None:
    room = ROOMS[name]
    known = known_equivalents(room)
    jobs = jobs_of(room)
    assert all(reason.strip() for reason in known.values())
    assert known.keys() - {job.key for job in jobs} == set()
    assert len({job.key for job in jobs}) == len(jobs)


SOURCE = "TOP = 3\n\n\nclass House:\n    def low(self, a: int = 2) -> bool:\n        return a < 1 or a < 1\n"


def by_key(source: str, **options: object) -> dict[str, Mutant]:
    found = mutants(source, **options)  # type: ignore[arg-type]
    assert len({mutant.key for mutant in found}) == len(found)
    return {mutant.key: mutant for mutant in found}


def test_a_mutant_is_known_by_its_function_and_what_is_changed_there() -> None:
    known = by_key(SOURCE)
    assert known["module: 3 → 4: TOP = 3"].body is None
    assert known["House.low: 2 → 3: def low"].body is None
    first, second = known["House.low: Lt → LtE: a < 1"], known["House.low: Lt → LtE: a < 1 #2"]
    assert first.body is not None
    assert (first.body.qualname, first.body.line, first.lines) == ("House.low", 5, (6, 6))
    assert "return a <= 1 or a < 1" in first.text()
    assert "return a < 1 or a <= 1" in second.text()
    assert first.original_text() == ast.unparse(ast.parse(SOURCE))


def test_types_and_decorators_have_nothing_that_could_be_wrong_when_it_runs() -> None:
    assert mutants("def f(x: 'int | None' = None) -> 'int | str': ...\n\n\nEither = int | str\n") == []
    assert mutants("@d(True)\nclass C:\n    x: int | str\n\n\nT: TypeAlias = int | str\n") == []


@pytest.mark.parametrize(
    ("line", "wide", "decided"),
    [
        ("if a: b", ["if not a:"], ["if True:", "if False:"]),
        ("while a: b", ["while not a:"], []),
        ("x = not a", ["x = a"], ["x = a"]),
        ("x = ~a", ["x = a"], ["x = a"]),
        ("x = a and b", ["x = a or b", "x = b", "x = a"], ["x = a or b"]),
        ("x = a < b", ["x = a <= b", "x = a >= b"], ["x = a <= b"]),
        (
            "x = [a for a in b if a]",
            ["x = [a for a in b]", "x = [a for a in b if not a]"],
            ["x = [a for a in b]"],
        ),
        ("x = 2", ["x = 3", "x = 1"], ["x = 3"]),
        ("x = 7", ["x = 8", "x = 6"], []),
        ("x = True", ["x = False"], []),
        ("x = a // b", ["x = a * b"], []),
        ("x = a['b'] + c", ["x = a['b'] - c"], ["x = a['b'] - c"]),
        ("x = a + 'b'", [], []),
        ("x = f'{a}' + ('s' if b else '')", ["x = f'{a}' + ('s' if not b else '')"], ["True", "False"]),
        ("x = min(a)", ["x = max(a)"], ["x = max(a)"]),
        ("x = np.minimum.at(a)", ["x = np.maximum.at(a)"], ["x = np.maximum.at(a)"]),
        ("x = s.less(a)", ["x = s.less_equal(a)"], []),
        ("x = less", [], []),
        ("x: int | None = a", [], []),
        ("for a in b: continue", [], ["break"]),
    ],
)
def test_what_a_line_is_changed_into(line: str, wide: list[str], decided: list[str]) -> None:
    for options, expected in (({}, wide), ({"changes": DECIDED}, decided)):
        found = [mutant.text() for mutant in by_key(line, **options).values()]
        assert len(found) == len(expected)
        assert all(words in text for words, text in zip(expected, found, strict=True)), found
        assert all(mutant.original_text() == ast.unparse(ast.parse(line)) for mutant in mutants(line))


def test_a_changed_module_keeps_its_lines() -> None:
    source = "def f(a):\n    # nothing\n    if (\n        a\n        and a > 1\n    ):\n        a = 1\n    return a\n"
    mutant = by_key(source)["f: Gt → GtE: a > 1"]
    assert mutant.lines == (3, 6)
    names: dict[str, object] = {}
    exec(mutant.code("x"), names)
    function = names["f"]
    assert function(1.0) == 1  # type: ignore[operator]
    plain: dict[str, object] = {}
    exec(compile(source, "x", "exec"), plain)
    lines = [
        sorted({line for *_, line in each.__code__.co_lines() if line}) for each in (function, plain["f"])
    ]  # type: ignore[attr-defined]
    assert lines[0] == lines[1]


def test_its_digest_is_of_its_function_alone() -> None:
    one, other = by_key(SOURCE), by_key(SOURCE.replace("TOP = 3", "TOP = 3 + x"))
    key = "House.low: Lt → LtE: a < 1"
    assert one[key].digest == other[key].digest
    assert one[key].digest != by_key(SOURCE.replace("or", "and"))[key].digest
    assert one["module: 3 → 4: TOP = 3"].digest != by_key(SOURCE + "x = 1\n")["module: 3 → 4: TOP = 3"].digest

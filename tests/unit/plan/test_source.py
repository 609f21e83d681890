"""YAML as data only: what is refused, with which position, and how quickly."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackproof.base.errors import BadInput
from ackproof.experiment.problems import ListNode, MapNode, Problem, ScalarNode
from ackproof.plan import InvalidExperiment, load
from ackproof.plan.source import MAX_BYTES, MAX_DEPTH, MAX_NODES, parse

from .conftest import Load


def problems(text: str | bytes) -> list[Problem]:
    raw = text.encode() if isinstance(text, str) else text
    with pytest.raises(InvalidExperiment) as caught:
        parse(raw, "e.yaml")
    return list(caught.value.problems)


def only(text: str | bytes) -> tuple[int, int, str]:
    (problem,) = problems(text)
    return problem.line, problem.column, problem.message


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("a: 1\nb: \x07\n", 2, 4, "the character U+0007 is not allowed"),
        ("a: 1\nb: x\x00y\n", 2, 5, "the character U+0000 is not allowed"),
        (b"a: 1\nb: \xff\n", 2, 4, "not UTF-8"),
        ("a: 1\nb: \xe4\n".encode("latin-1"), 2, 4, "not UTF-8"),
        ("a: 1\n".encode("utf-16"), 1, 1, "not UTF-8"),
    ],
)
def test_refused(text: str | bytes, line: int, column: int, message: str) -> None:
    seen = only(text)
    assert seen[:2] == (line, column), seen
    assert message in seen[2]


def test_larger_than_a_mebibyte(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_bytes(b"# " + b"x" * MAX_BYTES)
    with pytest.raises(InvalidExperiment, match="larger than 1 MiB"):
        load(path)


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_not_readable(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        load(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: " + "[" * 500_000, "nested deeper"),
        ("a: " + "{a: " * 100_000, "nested deeper"),
        ("\n".join("  " * i + "a:" for i in range(600)), "nested deeper"),
        ("- " * 100_000, "nested deeper"),
        ("a: [" + "1, " * 300_000 + "1]", "more than 20000 values"),
        ("a:\n" + " - 1\n" * 150_000, "more than 20000 values"),
        (
            "a: &a [x, x, x, x, x, x, x, x, x]\n"
            + "".join(
                f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n"
                for a, b in zip("abcdefghi", "bcdefghij", strict=True)
            ),
            "more than 20000 values",
        ),
        (
            "a: &a0 [x]\n" + "".join(f"b{i}: &a{i + 1} [*a{i}]\n" for i in range(1000)),
            "nested deeper",
        ),
    ],
    ids=["flow", "flow maps", "block", "dashes", "long flow", "long block", "laughs", "chain"],
)
def test_bombs_are_refused_quickly(text: str, message: str) -> None:
    begin = time.process_time()
    assert message in problems(text)[-1].message
    assert time.process_time() - begin < 10, "a file of 1 MiB took too long to refuse"


def test_bounds_are_far_from_what_people_write(good: str) -> None:
    root = parse(good.encode(), "e.yaml")
    assert root.nodes * 50 < MAX_NODES
    assert root.depth * 3 < MAX_DEPTH


def test_core_schema() -> None:
    text = (
        "{a: yes, b: on, c: 010, d: 0o17, e: 0x1F, f: 1.5, g: .5, h: 1e3, i: True, j: ~, k: 'true', l: 1:30, "
        "m: 2020-01-01, n: 1_000, o: !!str 1, p: .inf, q: +3, r: null, s: !!float 3, t: ! 5}"
    )
    root = parse(text.encode(), "e")
    assert {k: v.value for k, v in root.entries.items() if isinstance(v, ScalarNode)} == {
        "a": "yes", "b": "on", "c": 10, "d": 15, "e": 31, "f": 1.5, "g": 0.5, "h": 1000.0, "i": True, "j": None,
        "k": "true", "l": "1:30", "m": "2020-01-01", "n": "1_000", "o": "1", "p": ".inf", "q": 3, "r": None,
        "s": 3, "t": "5",
    }  # fmt: skip


def test_escapes_as_json_writes_them() -> None:
    root = parse(b'{"a": "\\ud83d\\ude00"}', "e")
    assert root.entries["a"] == ScalarNode("\U0001f600", "\U0001f600", root.entries["a"].mark)


def test_aliases_keep_their_place() -> None:
    root = parse(b"a: &x [1, 2]\nb: *x\n", "e")
    alias = root.entries["b"]
    assert isinstance(alias, ListNode)
    assert alias.items[1].mark.line == 1


def test_byte_order_mark_and_windows_line_ends(load_text: Load, good: str) -> None:
    assert load_text("\ufeff" + good) == load_text(good)
    assert load_text(good.replace("\n", "\r\n")) == load_text(good)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.text(alphabet="ab:-?,[]{}&*!|>'\"%@`#~ \n\t<0.\\")))
def test_any_text(text: str) -> None:
    _never_another_exception(text.encode("utf-8", "surrogatepass"))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(raw: bytes) -> None:
    _never_another_exception(raw)


def _never_another_exception(raw: bytes) -> None:
    lines = max(1, len(raw.decode("utf-8", "replace").splitlines()) + 1)
    try:
        root = parse(raw, "e.yaml")
    except InvalidExperiment as error:
        assert error.problems
        for problem in error.problems:
            assert 1 <= problem.line <= lines
            assert problem.column >= 1
            assert "\n" not in str(problem)
    else:
        assert isinstance(root, MapNode)


def test_too_many_combinations(load_text: Load) -> None:
    values = list(range(1, 41))
    text = (
        f"name: n\ntopics: {{t: {{}}}}\nmatrix:\n  topics.t.partitions: {values}\n  cluster.heap: {values}\n"
    )
    with pytest.raises(InvalidExperiment, match="1600 combinations are too many"):
        load_text(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("".join(f"k{i}: 1\n" for i in range(5000)), "only the first 100 problems are shown"),
        ("a: 1\n" * 5000, "only the first 100 problems are shown"),
        ("expect:\n" + "  - {lost: 0}\n" * 201, "expect: expected a list of at most 200, not one of 201"),
        ("faults:\n" + "  - {kill: {target: broker}, at: 1s}\n" * 201, "201 faults are too many"),
        (
            "matrix:\n" + "".join(f"  topics.t.config[a{i}]: [1]\n" for i in range(21)),
            "21 settings are too many",
        ),
    ],
    ids=["unknown fields", "keys twice", "expectations", "faults", "axes"],
)
def test_bounds(load_text: Load, text: str, message: str) -> None:
    """Files with thousands of problems, or with too many entries, are refused in less than 5 s of processor time."""
    begin = time.process_time()
    with pytest.raises(InvalidExperiment, match=message):
        load_text("name: n\ntopics: {t: {}}\n" + text)
    assert time.process_time() - begin < 5

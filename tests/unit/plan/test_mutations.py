"""Mutations of valid experiment files. Some must be refused at the changed line. After the others the file is still
valid, or is refused at a line that it has. No other exception is raised."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackproof.experiment.problems import plain
from ackproof.plan import InvalidExperiment, cases, load
from ackproof.plan.source import parse

from .conftest import SCHEMA, Load

FIELD = re.compile(
    r"(?P<lead>[ -]*)(?P<key>name|cluster|kafka|brokers|controllers|racks|heap|topics|partitions|workload"
    r"|replication_factor|producers|count|acks|idempotence|linger|rate|value_size|consumers|live|duration|matrix"
    r"|faults|pause|kill|restart|target|when|after|at|at_latest|for|restart_after|expect|given|lost|evidence"
    r"|isr_size|repeat|seed|claims|config):(?= |$)"
)
SCALAR = re.compile(r"(?P<lead>[ -]*[\w.]+: )(?P<value>[^\s{\[>&*][^{\[]*)$")


class Mutant(NamedTuple):
    text: str
    line: int
    """Line of the change, from 1."""
    slack: int | None
    """Maximum distance, in lines, of the problem from `line`. None: any distance, and the file may be valid."""


Mutation = Callable[[list[str], random.Random], Mutant | None]


def _join(lines: list[str], line: int, slack: int | None) -> Mutant:
    return Mutant("\n".join(lines) + "\n", line, slack)


def rename_field(lines: list[str], draw: random.Random) -> Mutant | None:
    """Misspell the name of a field. Return None if the result is a valid name."""
    number = draw.choice([n for n, line in enumerate(lines) if FIELD.match(line)])
    match = FIELD.match(lines[number])
    assert match is not None
    key = match["key"]
    at = draw.randrange(len(key))
    typo = draw.choice([key[:at] + key[at + 1 :], key[:at] + "x" + key[at:], key.upper(), key + "_"])
    if typo in ("", key) or (typo == "rate" and key == "rates"):
        return None
    lines[number] = f"{match['lead']}{typo}{lines[number][match.end('key') :]}"
    return _join(lines, number + 1, 0)


def wrong_type(lines: list[str], draw: random.Random) -> Mutant | None:
    """Replace a single value by a list or mapping."""
    number = draw.choice([n for n, line in enumerate(lines) if SCALAR.match(line)])
    match = SCALAR.match(lines[number])
    assert match is not None
    lines[number] = match["lead"] + draw.choice(["{zz: [1]}", "[[zz]]", "{zz: {yy: 1}}"])
    return _join(lines, number + 1, 0)


def duplicate_line(lines: list[str], draw: random.Random) -> Mutant | None:
    """Repeat a line, so that a key occurs twice."""
    number = draw.choice([n for n, line in enumerate(lines) if SCALAR.match(line) and "- " not in line])
    lines.insert(number, lines[number])
    return _join(lines, number + 2, 0)


def insert_garbage(lines: list[str], draw: random.Random) -> Mutant | None:
    """Insert a line that no experiment may have. Return None where a text of several lines could contain it."""
    number = draw.randrange(1, len(lines))
    if (
        lines[number].startswith("  without")
        or ">-" in lines[number - 1]
        or "description" in lines[number - 1]
    ):
        return None
    junk = draw.choice(
        ["*nope", "@garbage", "%%%", "}", "]", "{", "`x`", "\tx: 1", "x: !!python/name:os.system 1"]
    )
    lines.insert(number, junk)
    return _join(lines, number + 1, len(lines))


def alias_as_value(lines: list[str], draw: random.Random) -> Mutant | None:
    number = draw.choice([n for n, line in enumerate(lines) if SCALAR.match(line)])
    match = SCALAR.match(lines[number])
    assert match is not None
    lines[number] = match["lead"] + draw.choice(["*nope", "&a [*a]", "!x 1", "!!python/object:os.system {}"])
    return _join(lines, number + 1, 0)


def tab(lines: list[str], draw: random.Random) -> Mutant | None:
    number = draw.choice([n for n, line in enumerate(lines) if line.startswith("  ") and ":" in line])
    lines[number] = "\t" + lines[number].lstrip()
    return _join(lines, number + 1, None)


def delete_line(lines: list[str], draw: random.Random) -> Mutant | None:
    number = draw.randrange(len(lines))
    del lines[number]
    return _join(lines, number + 1, None)


def indent_line(lines: list[str], draw: random.Random) -> Mutant | None:
    number = draw.randrange(len(lines))
    line = lines[number]
    lines[number] = draw.choice([" " + line, "  " + line, line.removeprefix(" "), line.lstrip()])
    return _join(lines, number + 1, None)


def swap_lines(lines: list[str], draw: random.Random) -> Mutant | None:
    number = draw.randrange(len(lines) - 1)
    lines[number : number + 2] = lines[number + 1], lines[number]
    return _join(lines, number + 1, None)


def cut(lines: list[str], draw: random.Random) -> Mutant | None:
    text = "\n".join(lines)
    at = draw.randrange(len(text))
    return Mutant(text[:at], text[:at].count("\n") + 1, None)


def one_character(lines: list[str], draw: random.Random) -> Mutant | None:
    text = "\n".join(lines) + "\n"
    at = draw.randrange(len(text))
    new = draw.choice(
        ["", ":", "-", "{", "]", "'", '"', "\t", "\n", "#", "&", "*", "!", "|", "0", "x", "\x00", "é"]
    )
    return Mutant(text[:at] + new + text[at + 1 :], text[:at].count("\n") + 1, None)


def other_scalar(lines: list[str], draw: random.Random) -> Mutant | None:
    """Replace a single value by another, which may be valid there."""
    number = draw.choice([n for n, line in enumerate(lines) if SCALAR.match(line)])
    match = SCALAR.match(lines[number])
    assert match is not None
    value = draw.choice(
        ["-1", "0", "yes", "~", '""', "1e3", "5s", "99999999999999999999", "leader(x/0)", "text", "3.5"]
    )
    lines[number] = match["lead"] + value
    return _join(lines, number + 1, None)


MUTATIONS: list[Mutation] = [
    rename_field,
    wrong_type,
    duplicate_line,
    insert_garbage,
    alias_as_value,
    tab,
    delete_line,
    indent_line,
    swap_lines,
    cut,
    one_character,
    other_scalar,
]
PER_KIND = 1
AT_NIGHT = 40


@pytest.mark.parametrize("count", [PER_KIND, pytest.param(AT_NIGHT, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutations(mutation: Mutation, count: int, good_files: dict[str, str], load_text: Load) -> None:
    for name, text in good_files.items():
        draw = random.Random(f"{name}/{mutation.__name__}")
        made = 0
        while made < count:
            mutant = mutation(text.splitlines(), draw)
            if mutant is not None:
                made += 1
                _check(mutant, load_text)


def _check(mutant: Mutant, load_text: Load) -> None:
    try:
        spec = load_text(mutant.text)
    except InvalidExperiment as error:
        lines = mutant.text.count("\n") + 1
        assert error.problems
        assert all(1 <= p.line <= lines and p.column >= 1 for p in error.problems), str(error)
        if mutant.slack is not None:
            near = [p for p in error.problems if abs(p.line - mutant.line) <= mutant.slack]
            assert near, f"{mutant.text}\nexpected line {mutant.line}\n{error}"
        return
    assert mutant.slack is None, f"{mutant.text}\nline {mutant.line} should have been refused"
    assert cases(spec, repeat=1)
    # The schema accepts whatever is accepted.
    SCHEMA.validate(plain(parse(mutant.text.encode(), "e.yaml")))


def test_there_are_enough(good_files: dict[str, str]) -> None:
    assert len(good_files) * len(MUTATIONS) * PER_KIND >= 500


@given(data=st.data())
def test_any_change(data: st.DataObject, good: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Replace up to 10 characters of a valid file by up to 8 others, at any place."""
    text = good
    at = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 10))
    new = data.draw(st.text(st.characters(codec="utf-8"), max_size=8))
    path = Path(tmp_path_factory.getbasetemp()) / "any.yaml"
    path.write_text(text[:at] + new + text[at + length :], encoding="utf-8")
    try:
        load(path)
    except InvalidExperiment as error:
        assert error.problems
        assert all(line.isprintable() for line in str(error).split("\n"))
        assert len(str(error).split("\n")) == sum(1 + 2 * (problem.line > 0) for problem in error.problems)

"""Golden files: each document of `golden/NAME.yaml` has its expected answer in `NAME.expected`.

A document begins with `--- # title`. The title may end with the options of `load`, as JSON. The answer to a refused
file is what the user sees. The answer to a valid file is its cells, with all values that are not defaults.
`UPDATE_GOLDEN=1 pytest -n 0 FILE` rewrites the answers: read the difference before you commit it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.experiment.problems import plain
from ackproof.plan.cases import case_from_json, case_to_json, cases, load
from ackproof.plan.matrix import Cell, Plan
from ackproof.plan.soaking import Soak
from ackproof.plan.source import parse

from .conftest import SCHEMA

GOLDEN = Path(__file__).with_name("golden")
GROUPS = {"backend", "cluster", "topics", "workload", "observe", "evidence"}
BEGIN = re.compile(r"^--- # (.*)\n", re.MULTILINE)


def read_documents(file: Path) -> list[tuple[str, str]]:
    """Return (title, text) of each document of a golden file; empty if there is no such file."""
    parts = BEGIN.split(file.read_text("utf-8") if file.exists() else "")[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


@cache
def read_answers(file: Path) -> list[tuple[str, str]]:
    return read_documents(file)


def answer(text: str, title: str, folder: Path) -> tuple[str, str]:
    """Return the kind of answer to a document (`valid`, `warning` or `refused`), and the answer as text. Options of
    `load` are taken from the end of the title."""
    path = folder / "e.yaml"
    path.write_bytes(text.encode())
    options = json.loads(title[title.index(" {") :]) if title.endswith("}") else {}
    soak = Soak(*options["soak"]) if "soak" in options else None
    try:
        plan = load(
            path,
            options.get("settings", ()),
            backend=options.get("backend"),
            repeat=options.get("repeat"),
            soak=soak,
        )
    except BadInput as error:
        return "refused", str(error).replace(f"{folder}/", "") + "\n"
    if not options:
        SCHEMA.validate(plain(parse(text.encode(), "e.yaml")))
    for case in cases(plan):
        assert case_from_json(json.loads(json.dumps(case_to_json(case)))) == case
    kind = "warning" if plan.warnings else "valid"
    return kind, "\n".join(describe_plan(plan)).replace(f"{folder}/", "") + "\n"


def kind_of(title: str) -> str:
    """Return the kind of answer that a title promises: its first word if that is valid or warning, else refused."""
    word = re.split(r"[ :]", title, maxsplit=1)[0]
    return word if word in ("valid", "warning") else "refused"


def describe_plan(plan: Plan) -> Iterator[str]:
    """Yield lines: warnings, each cell with its differences from the cell before, expectations over repeats."""
    yield from (f"warning: {warning}" for warning in plan.warnings)
    before: set[str] = set()
    for cell in plan.cells:
        lines = list(describe_cell(cell))
        label = f" [{cell.label}]" if cell.label else ""
        yield f"{cell.name}{label}" + (f" {json.dumps(cell.settings)}" if cell.settings else "")
        yield from (f"  {line}" for line in lines if line not in before)
        yield from (f"  no longer {line}" for line in sorted(before.difference(lines)))
        before = set(lines)
    for one in (*plan.over_repeats, *plan.claimed):
        yield f"over repeats: {one.title}: {' beside '.join(one.cells)}"


def describe_cell(cell: Cell) -> Iterator[str]:
    spec = cell.experiment
    for name, value in spec.model_dump(mode="json", exclude_defaults=True, include=GROUPS).items():
        yield f"{name}: {json.dumps(value, ensure_ascii=False)}"
    for fault in spec.faults:
        needs = f"; needs {', '.join(sorted(fault.needs))}" if fault.needs else ""
        yield f"fault {fault.number}: {fault}: {json.dumps(fault.entry())}{needs}"
        yield from (f"  {line}" for line in fault.course)
    yield from (f"expected: {expectation}" for expectation in spec.expect)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(file.stem, number, id=f"{file.stem}-{number}")
        for file in sorted(GOLDEN.glob("*.yaml"))
        for number, _ in enumerate(read_documents(file))
    ],
)
def test_the_answer_is_as_ever(name: str, number: int, tmp_path: Path) -> None:
    title, text = read_documents(GOLDEN / f"{name}.yaml")[number]
    kind, said = answer(text, title, tmp_path)
    assert kind == kind_of(title)
    if os.environ.get("UPDATE_GOLDEN"):
        with (GOLDEN / f"{name}.expected").open("a" if number else "w", encoding="utf-8") as file:
            file.write(f"--- # {title}\n{said}")
        return
    assert read_answers(GOLDEN / f"{name}.expected")[number] == (title, said)


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_answer_has_its_document(file: Path) -> None:
    asked, answered = read_documents(file), read_documents(file.with_suffix(".expected"))
    assert [title for title, _ in asked] == [title for title, _ in answered]


def test_a_short_form_says_the_same_as_the_long_one_behind_it() -> None:
    said = [text for title, text in read_answers(GOLDEN / "short_forms.expected") if title == "valid"]
    assert said and said[::2] == said[1::2]

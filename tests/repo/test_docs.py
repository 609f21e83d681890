"""Tests of the documentation: links, commands, experiments and workflows are right, generated pages are up to date."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import fault_page
from ackproof.cli.main import main, main_code
from ackproof.experiment.roles import RoleKind
from ackproof.experiment.triggers import GAUGES
from ackproof.faults.registry import fault_kinds
from ackproof.quantities.vocabulary import UnknownQuantity, parse_ask
from ackproof.rundir.outcome import ExitCode
from pages import ROOT, Page

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted(DOCS.glob("*.md")),
    ROOT / "experiments" / "README.md",
    ROOT / "experiments" / "reports" / "README.md",
    ROOT / "experiments" / "groups" / "README.md",
    ROOT / "tests" / "README.md",
    *sorted(ROOT.glob("harness/ackproof/*/README.md")),
    *sorted(ROOT.glob("reference_impl/*/README.md")),
]
QUICK = {"validate", "plan", "predict", "explore", "schema", "list", "--version"}
"""Commands that need neither Java, nor a network, nor a run."""
FEW_STATES = 1_000
BAD = """\
# A page

[gone](gone.md), [no such part](#nowhere), `tests/gone.py`, ![](gone.png)

| file | what |
|---|---|
| `bad.py`, `gone/too.py` | the first is there |

```yaml
name: bad
topics: {orders: {}}
faults:
  - tickle: leader(orders/0)
    at: 1s
```

```yaml
name: gone
on: push
jobs:
  gate:
    steps:
      - {uses: OWNER/ackproof@main, with: {failon: "slower:20%"}}
```

```console
$ ackproof run --nope gone.yaml
$ ackproof gone
$ ackproof run gone.yaml
$ make gone
$ rm -rf gone
```

```python
def gone(:
```

```json
{"gone": }
```
"""


def _quick() -> Iterator[tuple[Page, str]]:
    seen = set()
    for path in PAGES:
        for line in (page := Page(path)).commands():
            words = shlex.split(line, comments=True)
            needs_run = any(word.startswith("runs/") for word in words)
            if words[0] == "ackproof" and words[1] in QUICK and not needs_run and tuple(words) not in seen:
                seen.add(tuple(words))
                yield page, line


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_is_right(path: Path, tmp_path: Path) -> None:
    page = Page(path)
    assert [
        *page.broken_links(),
        *page.broken_paths(),
        *(page.broken_rows() if path.name == "README.md" else ()),
        *page.broken_experiments(tmp_path),
        *page.broken_commands(),
        *page.broken_python(),
        *page.broken_json(),
    ] == []


def test_what_is_wrong_with_a_page_is_found(tmp_path: Path) -> None:
    """Each check must find an error that was planted for it."""
    path = tmp_path / "bad.md"
    path.write_text(BAD, "utf-8")
    (tmp_path / "bad.py").touch()
    page = Page(path)
    assert list(page.broken_links()) == [
        "bad.md: gone.md: no such file",
        "bad.md: #nowhere: no such heading",
        "bad.md: gone.png: no such file",
    ]
    assert list(page.broken_paths()) == ["bad.md: `tests/gone.py`: no such path"]
    assert list(page.broken_rows()) == ["bad.md: `gone/too`: no such module"]
    experiment, *workflow = page.broken_experiments(tmp_path)
    assert "tickle" in experiment
    assert [wrong.split(": ", 1)[1] for wrong in workflow] == [
        "no permissions",
        "the action has no input failon",
        "no experiments",
    ]
    assert [said.split(": ", 2)[2] for said in page.broken_commands()] == [
        "No such option '--nope'.",
        "No such command 'gone'.",
        "no such file: gone.yaml",
        "no such target",
        "a command that nobody has taught this test",
    ]
    (python,) = page.broken_python()
    assert python.startswith("bad.md:34")
    (json,) = page.broken_json()
    assert json.startswith("bad.md:38")


@pytest.mark.parametrize(
    ("page", "line"), [pytest.param(page, line, id=f"{page.path.stem}: {line}") for page, line in _quick()]
)
def test_a_command_that_needs_no_cluster_runs(
    page: Page, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command runs in a folder with the catalogue and the files that the page tells a reader to save."""
    for name, text in page.files().items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACKPROOF_CACHE", str(tmp_path / "cache"))
    words = shlex.split(line, comments=True)[1:]
    if words[0] == "predict":
        words += ["--max-states", str(FEW_STATES)]
    assert main_code(words) == 0


def test_the_page_of_faults_is_up_to_date() -> None:
    assert fault_page.PAGE.read_text("utf-8") == fault_page.page()


def test_the_table_of_witnesses_names_every_fault_once() -> None:
    by_hand = fault_page.PAGE.read_text("utf-8").split(fault_page.MARK)[0]
    rows = [line.split("|")[1] for line in by_hand.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`([a-z_]+)[:`]", row)]
    assert sorted(named) == sorted(fault_kinds())


def _rows(page: str, heading: str) -> set[str]:
    """Return the words in the first cells of the first table below a heading."""
    text = (ROOT / page).read_text("utf-8").split(f"\n{heading}\n")[1]
    cells = re.findall(r"^\|([^|]*)\|", text.split("\n## ")[0], re.M)
    return {name for cell in cells[2:] for name in re.findall(r"[\w-]+", cell)}


def test_every_role_room_and_exit_code_has_its_row() -> None:
    assert {kind.value for kind in RoleKind} <= _rows("docs/experiments.md", "## Roles")
    text = (DOCS / "experiments.md").read_text("utf-8")
    assert [gauge for gauge in GAUGES if f"`{gauge}" not in text] == []
    assert _rows("docs/architecture.md", "## Exit codes") == {str(int(code)) for code in ExitCode}
    rooms = {
        path.stem
        for path in (ROOT / "harness" / "ackproof").iterdir()
        if path.name != "__init__.py" and (path.suffix == ".py" or (path / "__init__.py").exists())
    }
    text = (DOCS / "architecture.md").read_text("utf-8")
    assert {room for room in rooms if f"| `{room}` |" not in text} == set()


def test_the_kind_of_fault_that_is_shown_is_one() -> None:
    (block,) = Page(DOCS / "contributing.md").of("python")
    file = ROOT / "harness" / "ackproof" / "faults" / "links" / "groups.py"
    assert block.text.strip() in file.read_text("utf-8")


def test_the_layers_are_those_that_are_held() -> None:
    """The page's row of layers must equal the contract of import-linter."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ][0]
    said = (DOCS / "architecture.md").read_text("utf-8").split("## Layers")[1].split("\n\n")[2]
    layers = [layer.replace("ackproof.", "") for layer in contract["layers"]]
    assert re.findall(r"`([^`]+)`", said) == layers


def _wrong_with_a_question(section: str) -> list[str]:
    """Return what an answer of docs/questions.md lacks: file, command, quantity, or parts of the report that do not
    exist."""
    heads = "".join(path.read_text("utf-8") for path in (ROOT / "reports").rglob("*.html.j2"))
    quantity = section.partition("**Quantity**:")[2].partition("**Read**:")[0]
    read = section.partition("**Read**:")[2]
    wrong = [
        word for word in ("```console\n$ ", "**File**: ", "**Quantity**:", "**Read**:") if word not in section
    ]
    try:
        parse_ask(" ".join(re.findall(r"`([^`]+)`", quantity)[0].split()))
    except (IndexError, ValueError, UnknownQuantity):
        wrong.append("no quantity")
    parts = re.findall(r"(?<!\*)\*([A-Z][^*]+)\*(?!\*)", read)
    return wrong + [part for part in parts if f">{' '.join(part.split())}" not in heads]


def test_each_question_has_file_command_quantity_and_place() -> None:
    sections = re.split(r"^## (.+\?)\n", (DOCS / "questions.md").read_text("utf-8"), flags=re.M)[1:]
    answers = dict(zip(sections[::2], sections[1::2], strict=True))
    assert len(answers) >= 20
    assert {
        question: wrong for question, text in answers.items() if (wrong := _wrong_with_a_question(text))
    } == {}
    planted = "```console\n$ ackproof run x.yaml\n```\n**Quantity**: `loss`. **Read**: *What nobody wrote*; *Recovery*"
    assert _wrong_with_a_question(planted) == ["**File**: ", "no quantity", "What nobody wrote"]


def test_every_command_is_listed() -> None:
    block = next(block.text for block in Page(DOCS / "commands.md").blocks if not block.language)
    assert set(re.findall(r"^ackproof ([\w-]+)", block, re.M)) == set(main.list_commands(click.Context(main)))


def test_every_target_of_make_says_how_long_it_takes() -> None:
    told = re.findall(r"^[a-z-]+:.*## (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert len(told) >= 15
    assert [line for line in told if not re.search(r"\((at once|.*(second|minute|hour).*)\)$", line)] == []


@pytest.mark.parametrize(
    "folder", [ROOT / "experiments", *(ROOT / "experiments" / name for name in ("reports", "groups"))]
)
def test_every_experiment_is_in_the_index(folder: Path) -> None:
    index = {link for link in Page(folder / "README.md").links() if link.endswith(".yaml")}
    assert index == {path.name for path in folder.glob("*.yaml")}


def test_the_changelog_has_one_line_each_under_four_headings() -> None:
    unreleased = (ROOT / "CHANGELOG.md").read_text("utf-8").split("\n## ")[1]
    title, *lines = filter(None, unreleased.splitlines())
    assert title == "Unreleased"
    assert [
        line
        for line in lines
        if line not in {"### Added", "### Changed", "### Fixed verdicts", "### Fixed"}
        and not line.startswith("- ")
    ] == []


def test_every_page_is_named_by_another() -> None:
    linked = {
        (path.parent / link.partition("#")[0]).resolve()
        for path in PAGES
        for link in Page(path).links()
        if ".md" in link
    }
    assert set(DOCS.glob("*.md")) <= linked


def test_the_readme_is_a_screen_and_a_half() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 90
    assert all(path.stat().st_size <= 250_000 for path in (DOCS / "images").iterdir())

"""Parses the pages of the documentation: code blocks, commands, links, paths. Each check yields what is wrong.

A page may have blocks of `yaml` (experiments, and workflows of GitHub) and `properties` (broker files); a file name
after the word is the name under which a reader saves the block. In blocks of `console`, lines that begin with `$ ` are
commands, and a `\\` at the end continues a line. Further blocks are `python` and `json`."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import click
from markdown_it import MarkdownIt
from markdown_it.token import Token
from ruamel.yaml import YAML, YAMLError

from ackproof.base.errors import BadInput
from ackproof.cli.main import main
from ackproof.plan.cases import cases, load
from local_action import document

ROOT = Path(__file__).parents[2]
_PARSER = MarkdownIt("commonmark").enable("table")
_OF_THE_READER = {"mine.yaml", "mine/", "client.properties"}
"""Files and folders in examples that the reader has, and the page does not define."""
_PATH = re.compile(
    r"(?:harness|tests|experiments|docs|reference_impl|reports|requirements|\.github)/[\w./*-]*\Z"
)
_FILES = re.compile(r"^\| file \|[^|\n]+\|\n\|[-|]+\|\n((?:\|.*\n)+)", re.M)
_IMAGE = re.compile(r'<img src="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the name after it, its text, and the line where it begins."""

    language: str
    name: str
    text: str
    line: int


@dataclass(frozen=True)
class Page:
    """One page. Links are looked up from the page's folder; paths, make targets and the files of commands from the
    folder `root`."""

    path: Path
    root: Path = ROOT

    @cached_property
    def _tokens(self) -> list[Token]:
        return _PARSER.parse(self.path.read_text("utf-8"))

    @cached_property
    def blocks(self) -> list[Block]:
        found = []
        for token in self._tokens:
            if token.type == "fence":
                language, _, name = token.info.strip().partition(" ")
                found.append(Block(language, name.strip(), token.content, (token.map or [0])[0] + 1))
        return found

    def of(self, language: str) -> list[Block]:
        """Return the blocks of one language."""
        return [block for block in self.blocks if block.language == language]

    def commands(self) -> list[str]:
        """Return the commands of the page's `console` blocks, without `$ ` and with continued lines joined."""
        lines: list[str] = []
        for block in self.of("console"):
            text = block.text.replace("\\\n", " ")
            lines += [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
        return lines

    def files(self) -> dict[str, str]:
        """Return the files that a reader is to save, by name; files in other folders are left out."""
        every = [*self.of("yaml"), *self.of("properties")]
        found = {block.name: block.text for block in every if block.name}
        return {name: text for name, text in found.items() if "/" not in name}

    def anchors(self) -> set[str]:
        """Return the anchors of the page's headings, as GitHub forms them."""
        titles = [
            after.content
            for token, after in zip(self._tokens, self._tokens[1:], strict=False)
            if token.type == "heading_open"
        ]
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}

    def links(self) -> list[str]:
        """Return the targets of the page's links and images, also of images in HTML."""
        inside = [child for token in self._tokens for child in token.children or ()]
        found = [str(child.attrs["href"]) for child in inside if child.type == "link_open"]
        found += [str(child.attrs["src"]) for child in inside if child.type == "image"]
        return found + _IMAGE.findall(self.path.read_text("utf-8"))

    def code_words(self) -> list[str]:
        """Return the text of each piece of inline code."""
        return [
            child.content
            for token in self._tokens
            for child in token.children or ()
            if child.type == "code_inline"
        ]

    # -- what can be wrong -------------------------------------------------------------------------------------

    def broken_links(self) -> Iterator[str]:
        """Yield each link to a file or heading that does not exist. Links with a scheme, such as `https:`, are not
        checked."""
        for link in self.links():
            where, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", where):
                continue
            target = (self.path.parent / where).resolve() if where else self.path
            if not target.exists():
                yield f"{self.path.name}: {link}: no such file"
            elif anchor and anchor not in Page(target, self.root).anchors():
                yield f"{self.path.name}: {link}: no such heading"

    def broken_paths(self) -> Iterator[str]:
        """Yield each path in inline code that does not exist. Only paths into the repository's folders (`_PATH`) are
        checked; `*` stands for any name."""
        for word in self.code_words():
            if _PATH.match(word) and not list(self.root.glob(word.rstrip("/"))):
                yield f"{self.path.name}: `{word}`: no such path"

    def broken_rows(self) -> Iterator[str]:
        """Yield each module or folder that does not exist below the page's folder. They are looked up in tables with
        the column `file`."""
        for table in _FILES.findall(self.path.read_text("utf-8")):
            for row in table.splitlines():
                for name in re.findall(r"`([\w/]+?)(?:\.py|/)?`", row.split("|")[1]):
                    here = self.path.parent / name
                    if not (here.is_dir() or here.with_suffix(".py").exists()):
                        yield f"{self.path.name}: `{name}`: no such module"

    def broken_experiments(self, folder: Path) -> Iterator[str]:
        """Yield each experiment that does not load. A workflow (with `jobs`) is checked for its keys, and for inputs
        that the action does not have or requires. `folder`: the blocks are written there."""
        for block in self.of("properties"):
            (folder / block.name).write_text(block.text, "utf-8")
        for block in self.of("yaml"):
            if re.search(r"^jobs:", block.text, re.M):
                yield from (
                    f"{self.path.name}:{block.line}: {wrong}" for wrong in _wrong_in_workflow(block.text)
                )
                continue
            file = folder / (block.name or f"block-{block.line}.yaml")
            file.write_text(block.text, "utf-8")
            try:
                cases(load(file))
            except BadInput as error:
                yield f"{self.path.name}:{block.line}: {error}"

    def broken_json(self) -> Iterator[str]:
        """Yield `PAGE:LINE: ERROR` for each JSON block that does not parse."""
        for block in self.of("json"):
            try:
                json.loads(block.text)
            except ValueError as error:
                yield f"{self.path.name}:{block.line}: {error}"

    def broken_python(self) -> Iterator[str]:
        """Yield each block of Python that does not compile."""
        for block in self.of("python"):
            try:
                compile(textwrap.dedent(block.text), f"{self.path.name}:{block.line}", "exec")
            except SyntaxError as error:
                yield f"{self.path.name}:{block.line}: {error}"

    def broken_commands(self) -> Iterator[str]:
        """Yield each command line with an option, file or make target that does not exist. Yield also each command that
        this class cannot check."""
        for line in self.commands():
            try:
                words = shlex.split(line, comments=True)
                said = self._wrong_with(words)
            except ValueError as error:
                said = str(error)
            if said:
                yield f"{self.path.name}: {line}: {said}"

    def _wrong_with(self, words: list[str]) -> str:
        match words:
            case ["ackproof", *arguments]:
                return _usage(arguments) or self._missing(arguments)
            case ["make", target, *_]:
                return (
                    ""
                    if re.search(rf"^{target}:", (self.root / "Makefile").read_text(), re.M)
                    else "no such target"
                )
            case ["pytest", *arguments]:
                return self._missing(arguments)
            case ["export", *_]:
                return ""
            case ["python", file, *_]:
                return "" if (self.root / file).exists() else "no such file"
        return "a command that nobody has taught this test"

    def _missing(self, arguments: list[str]) -> str:
        named = [word for word in arguments if re.search(r"\.(yaml|properties|py)\Z|/\Z", word)]
        theirs = {*self.files(), *_OF_THE_READER}
        lost = [
            word
            for word in named
            if word not in theirs and not word.startswith("runs/") and not (self.root / word).exists()
        ]
        return f"no such file: {', '.join(lost)}" if lost else ""


def _wrong_in_workflow(text: str) -> Iterator[str]:
    try:
        workflow = YAML(typ="safe").load(text)
    except YAMLError as error:
        yield str(error)
        return
    yield from (f"no {key}" for key in ("name", "on", "permissions", "jobs") if key not in workflow)
    taken = document(ROOT)["inputs"]
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    for step in steps:
        if "/ackproof@" in step.get("uses", ""):
            given = step.get("with", {})
            yield from (f"the action has no input {name}" for name in given if name not in taken)
            yield from (
                f"no {name}" for name, one in taken.items() if one.get("required") and name not in given
            )


def _usage(arguments: list[str]) -> str:
    """Return the error message of the command's parser for these arguments; '' if it accepts them."""
    command: click.Command = main
    context: click.Context | None = None
    rest = arguments
    try:
        while isinstance(command, click.Group):
            context = command.make_context(command.name, list(rest), parent=context)
            _, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
            assert found is not None
            command = found
        command.make_context(command.name, list(rest), parent=context)
    except click.exceptions.Exit:
        return ""  # --help, --version
    except click.ClickException as error:
        return error.format_message()
    return ""

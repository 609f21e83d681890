"""YAML as data only: text → nodes with their line and column.

The nodes are built here from the events of ruamel.yaml's pure-Python parser, not by its constructors. So a tag never
creates an object, and every limit is enforced while the text is read. The library's round-trip loader has positions
too. But it drops the text of a scalar (`4.10`), stops at the first duplicate key, and has no limits. Plain scalars
follow the core schema of YAML 1.2 (`yes` and `on` are text, `010` is ten), but `.inf` and `.nan` are text too.

Refused, each with its line:

* files above 1 MiB, encodings other than UTF-8, NUL and other control characters;
* more than one document, tags outside the core schema, merge keys;
* keys that occur twice or are no scalars;
* nesting deeper than `MAX_DEPTH`, and more than `MAX_NODES` nodes after aliases are followed;
* aliases inside their own anchor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StringMark, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from ackproof.base.advice import Advice, advice_of
from ackproof.experiment.problems import (
    START,
    InvalidExperiment,
    ListNode,
    MapNode,
    Mark,
    Node,
    Problem,
    ScalarNode,
    shorten,
    shorten_advice,
)
from ackproof.plan.syntax import explained, strange_blank, wrong_blank
from ackproof.rundir.documents import Scalar

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 32
MAX_NODES: Final = 20_000
MAX_NUMBER: Final = 40
"""Maximum length, in characters, of a plain scalar that is read as a number."""

_CORE_TAG: Final = "tag:yaml.org,2002:"
_SCALARS: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "null": (type(None),),
}
_TAGGED: Final = "put a text that begins with '!' in quotes"
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT: Final = re.compile(r"[-+]?[0-9]+\Z")
_OCTAL: Final = re.compile(r"0o[0-7]+\Z")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")


def read(path: Path) -> tuple[str, bytes]:
    """Return the name to show for a file, and its bytes. Of a file that is too large for `parse`, return only
    one byte more than `parse` accepts. Raises `BadInput` if the file cannot be read."""
    name = str(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidExperiment([Problem(name, 0, 0, "", Advice(f"cannot be read: {why}"))]) from error
    return name, raw


def parse(raw: bytes, file: str) -> MapNode:
    """Return the mapping in a YAML document. `raw`: its bytes. `file`: its name in messages. Raises `InvalidExperiment`
    if it is no YAML, is refused (see the module), or holds no mapping."""
    return _Composer(file, _decode(raw, file)).document()


def plain_scalar(text: str) -> Scalar:
    """Return the value of an unquoted scalar in YAML 1.2's core schema, but `.inf` and `.nan` as text. Raises
    ValueError for a number that is too large or longer than `MAX_NUMBER` characters."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    numeric = _INT.match(text) or _OCTAL.match(text) or _HEX.match(text) or _FLOAT.match(text)
    if not numeric:
        return text
    if len(text) > MAX_NUMBER:
        raise ValueError(f"the number is longer than {MAX_NUMBER} characters")
    if _INT.match(text):
        return int(text)
    if text.startswith(("0o", "0x")):
        return int(text, 0)
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("the number is too large")
    return number


def lines_of(raw: bytes) -> list[str]:
    """Return the lines of a file as an editor shows them, even if the file is invalid."""
    return raw.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").split("\n")


def _decode(raw: bytes, file: str) -> str:
    if len(raw) > MAX_BYTES:
        raise InvalidExperiment([Problem(file, 1, 1, "", Advice("the file is larger than 1 MiB"))])
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8")
        raise InvalidExperiment([_problem_after(before, file, "the file is not UTF-8")]) from error
    return text.removeprefix("\ufeff")


def _problem_after(before: str, file: str, message: str) -> Problem:
    line = before.count("\n") + 1
    return Problem(file, line, len(before) - (before.rfind("\n") + 1) + 1, "", Advice(message))


class _Composer:
    """Builds the nodes of one document. All limits are checked while the parser runs."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._text = text
        self._end = Mark(text.rstrip("\n").count("\n") + 1, len(text.rstrip("\n").rpartition("\n")[2]) + 1)
        self._last = START
        self._nodes = 0
        self._anchors: dict[str, Node | None] = {}
        self._problems: list[Problem] = []

    def document(self) -> MapNode:
        root: Node | None = None
        documents = 0
        try:
            events = self._events()
            for event in events:
                if isinstance(event, DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        raise self._stop(
                            event, Advice("a second document begins", "a file holds one experiment")
                        )
                elif isinstance(event, NodeEvent):
                    root = self._node(event, events, 1)
        except InvalidExperiment:
            raise
        except MarkedYAMLError as error:
            self._report(*explained(error, self._text.split("\n")))
            raise InvalidExperiment(self._problems) from error
        except ReaderError as error:
            raise InvalidExperiment([*self._problems, self._unreadable(error)]) from error
        except (
            YAMLError,
            ValueError,
            ArithmeticError,
            LookupError,
            AttributeError,
            TypeError,
            AssertionError,
        ) as error:
            # The parser may fail in unforeseen ways on arbitrary text: any error means a broken file.
            message = f"not YAML: {type(error).__name__}: {error}"
            self._report(self._last, message)
            raise InvalidExperiment(self._problems) from error
        if not isinstance(root, MapNode):
            mark = root.mark if root is not None else START
            what = "the file is empty" if root is None else "the file is not a mapping"
            message = Advice(what, "an experiment begins with fields such as `name: …`")
            self._report(mark, message)
        if self._problems:
            raise InvalidExperiment(self._problems)
        assert isinstance(root, MapNode)
        return root

    def _events(self) -> Iterator[Event]:
        yaml = YAML(typ="safe", pure=True)
        for event in yaml.parse(self._text):
            self._last = self._mark(event.start_mark)
            yield event

    def _node(self, event: NodeEvent, events: Iterator[Event], depth: int) -> Node:
        mark = self._mark(event.start_mark)
        if depth > MAX_DEPTH:
            raise self._stop(event, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, AliasEvent):
            return self._alias(event, depth)
        self._count(1, event)
        anchor = event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        node: Node
        if isinstance(event, ScalarEvent):
            node = self._scalar(event, mark)
        elif isinstance(event, SequenceStartEvent):
            self._check_tag(event, "seq")
            node = self._list(mark, events, depth)
        else:
            self._check_tag(event, "map")
            node = self._mapping(mark, events, depth)
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _list(self, mark: Mark, events: Iterator[Event], depth: int) -> ListNode:
        node = ListNode(mark)
        for event in events:
            if isinstance(event, SequenceEndEvent):
                break
            assert isinstance(event, NodeEvent)
            item = self._node(event, events, depth + 1)
            node.items.append(item)
            node.nodes += item.nodes
            node.depth = max(node.depth, item.depth + 1)
        return node

    def _mapping(self, mark: Mark, events: Iterator[Event], depth: int) -> MapNode:
        node = MapNode(mark)
        for event in events:
            if isinstance(event, MappingEndEvent):
                break
            assert isinstance(event, NodeEvent)
            key = self._node(event, events, depth + 1)
            value_event = next(events)
            assert isinstance(value_event, NodeEvent)
            value = self._node(value_event, events, depth + 1)
            if isinstance(value_event, ScalarEvent) and value_event.value == "" and not value_event.style:
                assert isinstance(value, ScalarNode)
                # For a missing value the parser reports the position of the next token, lines below.
                value = replace(value, mark=key.mark)
            node.nodes += key.nodes + value.nodes
            node.depth = max(node.depth, value.depth + 1)
            if not isinstance(key, ScalarNode):
                self._report(key.mark, "a key must be a single word, not a list or a mapping")
            elif key.text == "<<" and not isinstance(event, AliasEvent):
                self._report(key.mark, Advice("merge keys (<<) are not understood", "write the fields out"))
            elif not getattr(event, "style", None) and (column := strange_blank(key.text)) is not None:
                self._report(key.mark, wrong_blank(key.text[column - 1]))
            elif key.text in node.entries:
                first = node.keys[key.text].mark.line
                self._report(
                    key.mark,
                    Advice(f"the key '{shorten(key.text)}' was already given in line {first}", "keep one"),
                )
            else:
                node.entries[key.text] = value
                node.keys[key.text] = key
        return node

    def _alias(self, event: AliasEvent, depth: int) -> Node:
        name = event.anchor
        if name not in self._anchors:
            raise self._stop(event, f"the alias *{shorten(str(name))} has no anchor before it")
        node = self._anchors[name]
        if node is None:
            raise self._stop(event, f"the alias *{shorten(str(name))} stands inside its own anchor")
        if depth + node.depth - 1 > MAX_DEPTH:
            raise self._stop(event, f"nested deeper than {MAX_DEPTH} levels")
        self._count(node.nodes, event)
        return node

    def _scalar(self, event: ScalarEvent, mark: Mark) -> ScalarNode:
        text = self._characters(event.value, mark)
        kind = self._check_tag(event, *_SCALARS)
        if kind == "str" or (kind is None and (event.style or not event.implicit[0])):
            return ScalarNode(text, text, mark)
        try:
            value = plain_scalar(text)
        except ValueError as error:
            self._report(mark, advice_of(error))
            return ScalarNode(0, text, mark)
        if kind is not None and type(value) not in _SCALARS[kind]:
            self._report(mark, f"'{shorten(text)}' is not what its tag !!{kind} says")
        return ScalarNode(value, text, mark)

    def _characters(self, text: str, mark: Mark) -> str:
        r"""Return the text with each of JSON's surrogate pairs (`\ud83d\ude00`) as one character. Report an unpaired
        surrogate, and return ''."""
        if not any("\ud800" <= character <= "\udfff" for character in text):
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._report(mark, "an escape stands for half a character")
            return ""

    def _check_tag(self, event: NodeEvent, *kinds: str) -> str | None:
        """Return the kind that an explicit core tag names (`str` for the tag `!` of a scalar); None without a
        tag. A tag of a kind not in `kinds` is reported, and the result is None."""
        tag = getattr(event, "tag", None)
        if tag is None or str(tag) in ("", "!") or getattr(event, "implicit", None) is True:
            return "str" if str(tag) == "!" and "str" in kinds else None
        text = str(tag)
        if text.startswith(_CORE_TAG) and text.removeprefix(_CORE_TAG) in kinds:
            return text.removeprefix(_CORE_TAG)
        fact = f"the tag {shorten(text)} is refused: a file is data only"
        self._report(self._mark(event.start_mark), Advice(fact, _TAGGED))
        return None

    def _count(self, nodes: int, event: Event) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise self._stop(event, f"more than {MAX_NODES} values (aliases count as what they stand for)")

    def _report(self, mark: Mark, message: str) -> None:
        self._problems.append(
            Problem(self._file, mark.line, mark.column, "", shorten_advice(Advice(message)))
        )

    def _stop(self, event: Event, message: str) -> InvalidExperiment:
        self._report(self._mark(event.start_mark), message)
        return InvalidExperiment(self._problems)

    def _mark(self, mark: StringMark | None) -> Mark:
        if mark is None:
            return self._last
        # The parser counts more kinds of line breaks than an editor does: never point outside the file.
        return Mark(mark.line + 1, mark.column + 1) if mark.line < self._end.line else self._end

    def _unreadable(self, error: ReaderError) -> Problem:
        """Return a problem for a character that YAML does not allow. The parser gives only its position in the
        text."""
        position = getattr(error, "position", None)
        character = getattr(error, "character", None)
        before = self._text[:position] if isinstance(position, int) else ""
        code = ord(character) if isinstance(character, str) and len(character) == 1 else character
        shown = f"U+{code:04X}" if isinstance(code, int) else str(character)
        return _problem_after(before, self._file, f"the character {shown} is not allowed in YAML")

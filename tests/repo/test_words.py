"""Tests of the words in the product: field terms, verb phrases, docstrings with a subject. Removed words must stay
away.

A limit is the number of remaining hits. Lower it when you remove some; it is never raised."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("harness", "lab", "reference_impl", "reports")
NAMES = frozenset(
    [
        *(
            "told",
            "said",
            "asked",
            "held",
            "seen",
            "drawn",
            "given",
            "carried",
            "handed",
            "walked",
            "placed",
            "sliced",
        ),
        *(
            "moved",
            "shown",
            "found",
            "kept",
            "counted",
            "decided",
            "left",
            "wanted",
            "known",
            "met",
            "made",
            "taken",
        ),
        *(
            "come",
            "gone",
            "whole",
            "apart",
            "beside",
            "within",
            "of",
            "at",
            "by",
            "on",
            "to",
            "for",
            "with",
            "after",
        ),
        *("before", "one"),
    ]
)
"""Refused names: participles and prepositions do not say what a class is or what a function does."""
ELLIPTIC = re.compile(
    r"(What|Who|Whom|Whose|How|Where|Of|As|Whether|Which|By|In|On|At|For|From|To|With|Behind|Beside)\b"
)
ODD = re.compile(
    r"\b(so-?manieth|how-?manieth|so manyeth|whoever|beside|is told|are told|tells of|told of|in good order|anew|"
    r"thereof|whereof|behind (?:it|them|that))\b",
    re.I,
)
CODE = re.compile(r"```.*?```|\|.*", re.S)
LONGEST_SENTENCE = 30
LIMITS = {"names": 6, "docstrings": 1, "words": 14, "words of pages": 2, "long sentences": 15}


def _sources() -> Iterator[tuple[Path, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path, path.read_text("utf-8")


def _pages() -> Iterator[tuple[Path, str]]:
    patterns = ("*.md", "docs/*.md", "experiments/*/README.md", "tools/*/README.md")
    for path in (path for pattern in patterns for path in ROOT.glob(pattern)):
        yield path, path.read_text("utf-8")
    for package in PACKAGES:
        for path in (ROOT / package).rglob("README.md"):
            yield path, path.read_text("utf-8")


def _hits() -> Iterator[tuple[str, str]]:
    """Yield (kind of the hit, its place) for each forbidden word, name or long sentence."""
    for path, text in _sources():
        where = path.relative_to(ROOT)
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            if node.name.strip("_").lower() in NAMES:
                yield "names", f"{where}:{node.lineno} {node.name}"
            if ELLIPTIC.match(ast.get_docstring(node) or ""):
                yield "docstrings", f"{where}:{node.lineno} {node.name}"
        for number, line in enumerate(text.splitlines(), 1):
            for match in ODD.finditer(line):
                yield "words", f"{where}:{number} {match.group()}"
    for path, text in _pages():
        where = path.relative_to(ROOT)
        for match in ODD.finditer(text):
            yield "words of pages", f"{where} {match.group()}"
        for sentence in re.split(r"(?<=[.!?])\s+", CODE.sub("", text)):
            if len(sentence.split()) > LONGEST_SENTENCE:
                yield "long sentences", f"{where} {sentence[:60]}"


def test_words_that_were_removed_stay_away() -> None:
    found: dict[str, list[str]] = {kind: [] for kind in LIMITS}
    for kind, place in _hits():
        found[kind].append(place)
    assert {kind: places for kind, places in found.items() if len(places) > LIMITS[kind]} == {}


def test_a_planted_word_is_found() -> None:
    assert ODD.search("a reader beside it") and ELLIPTIC.match("How many there are.") and "told" in NAMES
    assert not ELLIPTIC.match("Return the offsets.") and not ODD.search("the reader next to it")

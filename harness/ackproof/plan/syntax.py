"""Explains YAML syntax errors in terms that users know: where the error is, what is there, and what to do.

The parser reports the token at which it gave up. The mistake is mostly in the lines around it, which is where the rules
here look.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from ruamel.yaml.error import MarkedYAMLError, StringMark

from ackproof.base.advice import Advice
from ackproof.experiment.problems import Mark, shorten

_KEY: Final = re.compile(r"\s*(?:- +)*([^\s#'\"{\[][^:#]*):(?=\s|$)")
_GLUED: Final = re.compile(r"\s*(?:- +)*([A-Za-z][\w.-]*):([^\s:/].*)")
_BLANKS: Final = re.compile("[\u00a0\u1680\u2000-\u200b\u202f\u205f\u2060\u3000\ufeff]")
_DIRECTIVE: Final = Advice(
    "a line that begins with '%' speaks to the parser", "begin it with another character"
)
_CLOSING: Final = {"[": "]", "{": "}"}


SyntaxProblem: TypeAlias = tuple[Mark, str]
"""Position, and the message: what is wrong, and after a semicolon what to do."""


class _Place(NamedTuple):
    """Position at which the YAML parser stopped (`at`), and the token there, as the parser's message names it ('': it
    names none). `opened`: beginning of the construct in which the parser stopped: a bracket, a quote, a mapping."""

    lines: Sequence[str]
    at: Mark
    opened: Mark
    token: str

    @property
    def line(self) -> str:
        return self.lines[self.at.line - 1]

    def above(self) -> int:
        """Return the number of the nearest line above the position that has content; 0 if there is none."""
        said = (at for at in range(self.at.line - 1, 0, -1) if _has_content(self.lines[at - 1]))
        return next(said, 0)


def explained(error: MarkedYAMLError, lines: Sequence[str]) -> SyntaxProblem:
    """Return position and message of a YAML parser's error, in ackproof's words; in the parser's own words if no
    rule fits. `lines`: the lines of the file."""
    problem, context = str(error.problem or ""), str(error.context or "")
    found = re.search(r"(?:found|got) (?:character )?'(.+?)'(?: that|$)", problem)
    at = _mark(error.problem_mark or error.context_mark, lines)
    opened = _mark(error.context_mark or error.problem_mark, lines)
    place = _Place(lines, at, opened, found[1] if found else "")
    known = _conflict(lines) or _strange_blank(place)
    if known is not None:
        return known
    for words, rule in _RULES:
        if words in f"{context}, {problem}":
            return rule(place) if callable(rule) else (at, rule)
    return (at, shorten(f"not YAML: {', '.join(part for part in (context, problem) if part)}", 500))


def _mark(mark: StringMark | None, lines: Sequence[str]) -> Mark:
    """Return a position of the parser as a position in the file; the end of the first line if `mark` is None. The
    parser counts more kinds of line breaks than an editor does, so the result is limited to the file."""
    line = min(mark.line if mark is not None else 0, len(lines) - 1)
    column = mark.column if mark is not None and mark.line == line else len(lines[line])
    return Mark(line + 1, min(column, len(lines[line])) + 1)


def _has_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _conflict(lines: Sequence[str]) -> SyntaxProblem | None:
    number = next((at for at, line in enumerate(lines, 1) if line.startswith(("<<<<<<< ", ">>>>>>> "))), None)
    message = Advice("a conflict of two versions that git left", "settle it")
    return None if number is None else (Mark(number, 1), message)


def _strange_blank(place: _Place) -> SyntaxProblem | None:
    """Return the problem of a tab in the indentation, or of a character that only looks blank, such as a no-break
    space. Return None if there is neither. Checks the line where the parser stopped, then the nearest one above that is
    neither empty nor a comment."""
    for number in (place.at.line, place.above()):
        line = place.lines[number - 1] if number else ""
        tab = line[: _indent(line)].find("\t")
        if tab >= 0:
            message = Advice("a tab", "YAML is indented by blanks, so put blanks in its place")
            return (Mark(number, tab + 1), message)
        if (column := strange_blank(line)) is not None:
            return (Mark(number, column), wrong_blank(line[column - 1]))
    return None


def strange_blank(text: str) -> int | None:
    """Return the column, from 1, of the first character in a line that looks blank but is no blank for YAML (a no-break
    space). Return None if the line has none."""
    found = _BLANKS.search(text)
    return None if found is None else found.start() + 1


def wrong_blank(character: str) -> str:
    """Return the message about a character that looks blank and that YAML does not accept as a blank."""
    return Advice(
        f"the blank U+{ord(character):04X}, which is none for YAML", "put an ordinary blank in its place"
    )


def _second_colon(place: _Place) -> SyntaxProblem:
    line, above = place.line, place.above()
    before = _KEY.match(line)
    if before is not None and before.end() < place.at.column:
        return (
            place.at,
            Advice(
                f"a second ': ' after the key '{shorten(before[1])}'",
                "put a text that holds ': ' in quotes, and a mapping in braces or on lines of its own",
            ),
        )
    here = Mark(place.at.line, _indent(line) + 1)
    if not above:
        return (here, Advice("a key is not allowed here", "write one KEY: VALUE in each line"))
    known = _KEY.match(place.lines[above - 1])
    if known is None:
        return _no_colon(place.lines, above)
    return (
        here,
        Advice(
            f"this line is indented deeper than line {above}, where '{shorten(known[1])}' has a value already",
            f"begin it in column {known.start(1) + 1}, or take that value away",
        ),
    )


def _no_colon(lines: Sequence[str], number: int) -> SyntaxProblem:
    line = lines[number - 1]
    mark, text = Mark(number, _indent(line) + 1), line.strip()
    glued = _GLUED.match(line)
    if glued is not None:
        right = f"{glued[1]}: {shorten(glued[2])}"
        return (Mark(number, glued.end(1) + 1), Advice("no blank after the colon", f"write '{right}'"))
    if text.startswith("-") and text[1:2] not in ("", " "):
        return (mark, Advice("no blank after the dash", f"write '- {shorten(text[1:])}'"))
    word, _, rest = text.partition(" ")
    right = f"{word}: {rest}" if rest else f"{word}:"
    return (mark, Advice("this line has no ': '", f"write '{shorten(right)}'"))


def _out_of_place(place: _Place) -> SyntaxProblem:
    if place.token in ("}", "]", ","):
        opening = {"}": "{", "]": "["}.get(place.token)
        message = f"a '{place.token}' without its '{opening}'" if opening else "a ',' outside of brackets"
        return (place.at, Advice(message, "take it away, or open the bracket that it belongs to"))
    if place.line[: place.at.column - 1].strip():
        return _behind_a_value(place)
    if (said := _below_braces(place)) is not None:
        return said
    have, dashes, keys = place.at.column - 1, *_open_indents(place)
    if place.token == "-":
        where = (
            f"indent it by {_or(dashes)} as the items above" if dashes else "indent the list below its key"
        )
        message = Advice("an item of a list among the keys of a mapping", f"take the dash away, or {where}")
        return (place.at, message)
    if have in dashes:
        item = f"or begin an item: '- {shorten(place.line.strip(), 40)}'"
        todo = f"indent it by {have + 2} to go on with the item above, {item}"
        return (place.at, Advice("a key among the items of a list", todo))
    fitting = _or(dashes if place.line.lstrip().startswith("- ") else keys)
    message = Advice(
        f"this line is indented by {have}, and what it could go on with by {fitting}",
        f"indent it by {fitting}",
    )
    return (place.at, message)


def _below_braces(place: _Place) -> SyntaxProblem | None:
    """Return the problem of a line that continues a list item after its braces were closed: `- {kill: {…}}`, then `at:
    5s`. None if this is not the mistake."""
    above = place.lines[: place.above()]
    number = next((at for at in range(len(above), 0, -1) if above[at - 1].lstrip().startswith("- ")), 0)
    item = re.match(r"(\s*)(?:- +)+\{", above[number - 1]) if number else None
    closed = bool(above) and above[-1].partition(" #")[0].rstrip().endswith("}")
    if item is None or not closed or place.at.column - 1 <= len(item[1]):
        return None
    message = Advice(
        f"the braces of line {number} close the item that this line would go on with",
        f"write "
        f"'{shorten(place.line.strip(), 40)}' inside them, behind a comma, or take the outer braces away",
    )
    return (place.at, message)


def _or(numbers: Sequence[int]) -> str:
    return " or ".join(map(str, numbers))


def _open_indents(place: _Place) -> tuple[list[int], list[int]]:
    """Return the indents of the lists and of the mappings that are open at the position, outermost first."""
    dashes: list[int] = []
    keys: list[int] = []
    least = 1 << 20
    for line in filter(_has_content, reversed(place.lines[: place.at.line - 1])):
        inner = re.match(r"(\s*)(- +)+", line)
        for indent, found in (
            ((inner.end(), keys), (_indent(line), dashes)) if inner else ((_indent(line), keys),)
        ):
            if indent < least:
                least = indent
                found.insert(0, indent)
    return dashes, keys


def _behind_a_value(place: _Place) -> SyntaxProblem:
    for number in range(place.at.line, max(0, place.opened.line - 1), -1):
        line = place.lines[number - 1]
        if line.count('"') % 2 or (number < place.at.line and line.count("'") % 2):
            quote = '"' if line.count('"') % 2 else "'"
            opened = line.find(quote) if number < place.at.line else line.rfind(quote)
            return (
                Mark(number, opened + 1),
                Advice(f"the quote {quote} is not closed in its line", "close it"),
            )
    if place.line.count("'") % 2:
        message = Advice(
            "a quote inside quotes ends the text", "double it, or put the whole text in double quotes"
        )
        return (place.at, message)
    rest = shorten(place.line[place.at.column - 1 :].strip())
    message = Advice(
        f"'{rest}' stands behind the end of a value", "put the whole value in quotes, or begin a new line"
    )
    return (place.at, message)


def _unclosed_bracket(place: _Place) -> SyntaxProblem:
    opening = place.lines[place.opened.line - 1][place.opened.column - 1 :][:1]
    closing = _CLOSING.get(opening, "]")
    if place.token in _CLOSING.values():
        message = Advice(
            f"the '{opening}' of line {place.opened.line} is closed by '{place.token}'",
            f"close it with '{closing}'",
        )
        return (place.at, message)
    if place.token == "[" and place.line[place.at.column - 2].isalnum():
        message = Advice(
            "a '[' inside a text",
            "put the text in quotes, or for a role write round brackets: leader(orders/0)",
        )
        return (place.at, message)
    if place.at.line == place.opened.line and place.token != "<stream end>":
        return (
            place.at,
            Advice(
                f"expected ',' or '{closing}' here",
                "put a ',' between two entries, and a text that holds ': ' in quotes",
            ),
        )
    also = f", or put a ',' behind line {place.above()}" if place.token != "<stream end>" else ""
    return (place.opened, Advice(f"this '{opening}' is not closed", f"close it with '{closing}'{also}"))


def _unclosed_quote(place: _Place) -> SyntaxProblem:
    quote = place.lines[place.opened.line - 1][place.opened.column - 1 :][:1]
    return (place.opened, Advice("this quote is never closed", f"close it with {quote}"))


def _unknown_escape(place: _Place) -> SyntaxProblem:
    message = Advice(
        "a backslash begins an escape that YAML does not know", "double the backslash, or use single quotes"
    )
    return (Mark(place.at.line, place.line.rfind("\\", 0, place.at.column) + 1), message)


def _special(place: _Place) -> SyntaxProblem:
    character = place.line[place.at.column - 1 :][:1]
    value = re.split(r"[,\]}#]", place.line[place.at.column - 1 :], maxsplit=1)[0].strip()
    if not character.strip():
        return place.at, Advice("a tab", "put a blank in its place")
    return place.at, Advice(
        f"a value cannot begin with '{character}'", f'put it in quotes: "{shorten(value)}"'
    )


def _began_special(place: _Place) -> SyntaxProblem:
    return _special(place._replace(at=place.opened))


def _below_the_root(place: _Place) -> SyntaxProblem:
    for number, line in enumerate(place.lines, 1):
        if line.startswith("%"):
            return (Mark(number, 1), _DIRECTIVE)
    message = Advice(
        "the experiment has ended above this line", "begin all its fields in one column, the first"
    )
    return (Mark(place.at.line, min(_indent(place.line) + 1, place.at.column)), message)


_Rule: TypeAlias = str | Callable[[_Place], SyntaxProblem]
_RULES: Final[tuple[tuple[str, _Rule], ...]] = (
    ("unexpected end of stream", _unclosed_quote),
    ("unexpected document separator", _unclosed_quote),
    ("mapping values are not allowed here", _second_colon),
    ("could not find expected ':'", lambda place: _no_colon(place.lines, place.opened.line)),
    ("expected <block end>", _out_of_place),
    ("expected ',' or ", _unclosed_bracket),
    ("invalid intendation", _unclosed_bracket),
    ("scanning a block scalar", _began_special),
    ("scanning an alias", _began_special),
    ("scanning an anchor", _began_special),
    ("scanning a tag", _began_special),
    ("parsing a tag", _began_special),
    ("cannot start any token", _special),
    ("scanning a directive", _DIRECTIVE),
    ("incompatible YAML document", Advice("no such version of YAML", "take the line away")),
    (
        "sequence entries are not allowed here",
        Advice(
            "a list does not begin in the line of its key",
            "write [a, b], or each '- item' on a line of its own below it",
        ),
    ),
    ("mapping keys are not allowed here", Advice("a '?' begins a key here", "put the text in quotes")),
    ("scanning a double-quoted scalar", _unknown_escape),
    (
        "expected the node content",
        Advice("a value is missing before this", "write it, or take the character away"),
    ),
    ("unexpected ':'", Advice("a ':' inside brackets", "put the text in quotes")),
    ("expected '<document start>'", _below_the_root),
)
"""Words in the parser's context or problem → our message, or the function that makes it. The first entry that
fits counts."""

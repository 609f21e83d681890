"""Small worlds in words: `brokers=3,kills=1`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ackproof.base.errors import BadInput
from ackproof.experiment.problems import hint


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Each name with its value. Raises `BadInput` for what is no such pair."""
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = (side.strip() for side in part.partition("="))
        if not equals:
            raise BadInput(f"--scope: expected name=value, such as kills=1, not '{part[:60]}'")
        yield name, value


def known(option: str, what: str, name: str, there: Collection[str]) -> str:
    """The name, if it is one of those. Raises `BadInput` with the nearest."""
    if name not in there:
        raise BadInput(f"{option}: unknown {what} '{name[:60]}'{hint(name, list(there), 'there are:')}")
    return name


def whole(name: str, value: str, least: int, most: int) -> int:
    """A whole number within bounds. Raises `BadInput`."""
    if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
        raise BadInput(f"--scope: {name} is a whole number from {least} to {most}, not '{value[:60]}'")
    return int(value)


def counts_in_words(text: str, counts: Mapping[str, tuple[int, int, int]]) -> dict[str, int]:
    """How many of each there are; `counts`: by name the least, the most and the usual number. Raises `BadInput`."""
    given = {name: usual for name, (_, _, usual) in counts.items()}
    for name, value in pairs(text):
        least, most, _ = counts[known("--scope", "name", name, counts)]
        given[name] = whole(name, value, least, most)
    return given

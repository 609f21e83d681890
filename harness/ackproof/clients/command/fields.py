"""Fields of the events that a program prints, read from JSON (docs/clients.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from ackproof.rundir.partition import TopicPartition

_EXCERPT: Final = 60
Fields: TypeAlias = Mapping[str, object]
Position: TypeAlias = tuple[TopicPartition, int]


class WrongField(ValueError):
    """Raised if a field of a line is missing, has another type, or is a number out of range. The text names the
    field."""


def excerpt(raw: bytes) -> str:
    """Return a line, quoted, for a message. Only its first 60 characters are shown; `…` then marks the rest."""
    text = raw.decode(errors="replace").strip()
    return repr(text if len(text) <= _EXCERPT else text[:_EXCERPT] + "…")


def read_number(data: Fields, name: str, default: int | None = None) -> int:
    """Return the whole number in field `name`; `default` if the field is missing or null. Raises `WrongField` for any
    other value, a number below -1 or from 2⁶³ on, and a missing field without default."""
    value = data.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 1 << 63:
        raise WrongField(f"{name} is {_quote(value)}, not a whole number")
    return value


def read_text(data: Fields, name: str, default: str | None = None) -> str:
    """Return the text in field `name`; `default` if the field is missing or null. Raises `WrongField` for another type,
    and for a missing field without default."""
    value = data.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise WrongField(f"{name} is {_quote(value)}, not a text")
    return value


def _quote(value: object) -> str:
    return "missing" if value is None else json.dumps(value)[:_EXCERPT]


def read_place(data: Fields) -> TopicPartition:
    """Return the partition of the record that a line describes (fields `topic` and `p`). Raises `WrongField` if one is
    missing or has another type."""
    return TopicPartition(read_text(data, "topic"), read_number(data, "p"))


def read_places(data: Fields) -> tuple[TopicPartition, ...]:
    """Return the partitions of an assignment (field `ps`: a list of [topic, partition]). Raises `WrongField` if it is
    missing or has another form."""
    rows = _rows(data.get("ps"), "ps", (str, int), "[topic, partition]")
    return tuple(TopicPartition(str(topic), int(str(partition))) for topic, partition in rows)


def read_positions(data: Fields) -> tuple[Position, ...]:
    """Return the positions in the field `os`, each as (partition, offset): to commit, or committed. Raises `WrongField`
    if the field is missing or has another form."""
    return tuple(_positions(data.get("os"), "os"))


def read_origin(data: Fields) -> Position | None:
    """Return (partition, offset) of the input record from which a record was made, from the field `of`; None if it is
    missing. Raises `WrongField` if it has another form."""
    return None if data.get("of") is None else next(_positions([data["of"]], "of"))


def _positions(rows: object, name: str) -> Iterator[Position]:
    for topic, partition, offset in _rows(rows, name, (str, int, int), "[topic, partition, offset]"):
        yield TopicPartition(str(topic), int(str(partition))), int(str(offset))


def read_identity(data: Fields) -> tuple[int, int]:
    """Return producer and seq of a record, from the field `id`: [producer, seq]; (-1, -1) if it is missing. Raises
    `WrongField` if it has another form."""
    if data.get("id") is None:
        return -1, -1
    ((first, second),) = _rows([data["id"]], "id", (int, int), "[producer, seq]")
    return int(str(first)), int(str(second))


def _rows(rows: object, name: str, types: tuple[type, ...], shape: str) -> Iterator[list[object]]:
    every: list[object] = rows if isinstance(rows, list) else [rows]
    for row in every:
        cells: list[object] = row if isinstance(row, list) else []
        if tuple(type(cell) for cell in cells) != types:
            raise WrongField(f"{name} is {_quote(row)}, not {shape}")
        yield cells

"""Fields of the events that a program prints, read from JSON (docs/clients.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from ackproof.rundir.partition import TopicPartition

_EXCERPT: Final = 60
_INT32: Final = 1 << 31
"""Numbers of partitions and producers are below this in a ledger."""
_INT64: Final = 1 << 63
Fields: TypeAlias = Mapping[str, object]
Position: TypeAlias = tuple[TopicPartition, int]


class WrongField(ValueError):
    """Raised if a field of a line is missing, has another type, or is a number out of range. The text names the
    field."""


def excerpt(raw: bytes) -> str:
    """Return a line, quoted, for a message. Only its first 60 characters are shown; `…` then marks the rest."""
    text = raw.decode(errors="replace").strip()
    return repr(text if len(text) <= _EXCERPT else text[:_EXCERPT] + "…")


def read_number(data: Fields, name: str, default: int | None = None, below: int = _INT64) -> int:
    """Return the whole number in field `name`; `default` if the field is missing or null. Raises `WrongField` for any
    other value, a number below -1 or from `below` on, and a missing field without default."""
    value = data.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, int) or not _fits(value, below):
        raise WrongField(f"{name} is {_quote(value)}, not a whole number")
    return value


def _fits(value: object, below: int | None) -> bool:
    """Return True for a whole number from -1 to `below` - 1; if `below` is None, for a text."""
    if below is None:
        return isinstance(value, str)
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value < below


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
    missing, has another type or is out of range."""
    return TopicPartition(read_text(data, "topic"), read_number(data, "p", below=_INT32))


def read_places(data: Fields) -> tuple[TopicPartition, ...]:
    """Return the partitions of an assignment (field `ps`: a list of [topic, partition]). Raises `WrongField` if it is
    missing or has another form."""
    rows = _rows(data.get("ps"), "ps", (None, _INT32), "[topic, partition]")
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
    for topic, partition, offset in _rows(rows, name, (None, _INT32, _INT64), "[topic, partition, offset]"):
        yield TopicPartition(str(topic), int(str(partition))), int(str(offset))


def read_identity(data: Fields) -> tuple[int, int]:
    """Return producer and seq of a record, from the field `id`: [producer, seq]; (-1, -1) if it is missing. Raises
    `WrongField` if it has another form."""
    if data.get("id") is None:
        return -1, -1
    ((first, second),) = _rows([data["id"]], "id", (_INT32, _INT64), "[producer, seq]")
    return int(str(first)), int(str(second))


def _rows(rows: object, name: str, limits: tuple[int | None, ...], shape: str) -> Iterator[list[object]]:
    """Yield the lists in field `name`, of the form `shape`. `limits`: for each element what `_fits` takes as `below`.
    Raises `WrongField` at a list of another form, or with a number out of range."""
    every: list[object] = rows if isinstance(rows, list) else [rows]
    for row in every:
        cells: list[object] = row if isinstance(row, list) else []
        if len(cells) != len(limits) or not all(map(_fits, cells, limits)):
            raise WrongField(f"{name} is {_quote(row)}, not {shape}")
        yield cells

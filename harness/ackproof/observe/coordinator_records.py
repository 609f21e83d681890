"""Decodes the records of `__consumer_offsets` by Kafka's own schemas.

The schemas are in the jar kafka-group-coordinator of each release (`common/message/*.json`); the coordinator's classes
are generated from the same files. A key begins with its kind (int16), a value with its version (int16). Encoding:
KIP-482, and org.apache.kafka.message.MessageDataGenerator for structs that may be null.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import UUID
from zipfile import BadZipFile, ZipFile

from ackproof.cluster.disks.log import unsigned_varint

COMMIT: Final = ("OffsetCommit", "LegacyOffsetCommit")
CLASSIC_GROUP: Final = "GroupMetadata"
CONSUMER_GROUP: Final = "ConsumerGroupMetadata"
MEMBER: Final = "ConsumerGroupCurrentMemberAssignment"
_NAMES: Final = (*COMMIT, CLASSIC_GROUP, CONSUMER_GROUP, MEMBER)
_FILES: Final = frozenset(f"common/message/{name}{part}.json" for name in _NAMES for part in ("Key", "Value"))
_JAR: Final = re.compile(r"kafka-group-coordinator-\d.*\.jar")
_COMMENT: Final = re.compile(r"^\s*//.*$", re.MULTILINE)
_NUMBERS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
"""Letter of `struct` for each type of a fixed length."""

Schema: TypeAlias = Mapping[str, Any]
"""A schema, or a field of one, as in its JSON file."""
Fields: TypeAlias = dict[str, Any]
"""Decoded fields by name. A tagged field that was not written is missing."""
_Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Returns the value at a position, and the position after it. Raises ValueError and `struct.error`."""


class CoordinatorRecords:
    """Decoder of the kinds of records in `_NAMES`. Kinds are called by the names of their schemas, without `Key`."""

    def __init__(self, schemas: Iterable[Schema]) -> None:
        """`schemas`: of keys and values. A later one replaces an earlier one of the same name."""
        self._schemas = {str(schema["name"]): schema for schema in schemas}
        self._keys: dict[int, tuple[str, _Reader]] = {}
        self._values: dict[tuple[str, int], _Reader] = {}
        for name, schema in self._schemas.items():
            if (kind := name.removesuffix("Key")) == name:
                continue
            if "apiKey" in schema:
                self._keys[schema["apiKey"]] = kind, _compile(schema, 0)
                continue
            first, last = _span(schema["validVersions"])  # before Kafka 4.0 the version of a key is its kind
            self._keys |= {number: (kind, _compile(schema, number)) for number in range(first, last + 1)}

    @classmethod
    def load(cls, jars: Iterable[Path]) -> CoordinatorRecords:
        """Return a decoder with the schemas of the newest release among these jars: new releases know the records of
        old ones.

        Raises ValueError if no jar has the schemas, OSError if one cannot be read.
        """
        schemas: list[Schema] = []
        for jar in sorted((jar for jar in jars if _JAR.fullmatch(jar.name)), key=_release):
            try:
                with ZipFile(jar) as file:
                    texts = [
                        file.read(name).decode() for name in sorted(_FILES.intersection(file.namelist()))
                    ]
            except BadZipFile as error:
                raise ValueError(f"{jar}: {error}") from error
            schemas += [json.loads(_COMMENT.sub("", text)) for text in texts]
        if not schemas:
            raise ValueError("no jar of this Kafka has the schemas of its records (kafka-group-coordinator)")
        return cls(schemas)

    def key(self, data: bytes) -> tuple[str, Fields] | None:
        """Return the kind and the fields of a key; None for kinds that are left out. Raises ValueError and
        `struct.error` for invalid bytes."""
        kind, reader = self._keys.get(int.from_bytes(data[:2], "big"), ("", None))
        return None if reader is None else (kind, _whole(kind, reader, data))

    def value(self, kind: str, data: bytes) -> Fields:
        """Return the fields of a value of this kind. Raises ValueError and `struct.error` for invalid bytes, and
        ValueError for a version that the release does not have."""
        version = int.from_bytes(data[:2], "big", signed=True)
        reader = self._values.get((kind, version))
        if reader is None:
            schema = self._schemas[f"{kind}Value"]
            if not _covers(schema["validVersions"], version):
                raise ValueError(f"the schemas of this Kafka have no version {version} of {kind}")
            reader = self._values[kind, version] = _compile(schema, version)
        return _whole(kind, reader, data)


def _release(jar: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", jar.stem)]


def _whole(kind: str, reader: _Reader, data: bytes) -> Fields:
    fields, end = reader(data, 2)
    if end != len(data):
        raise ValueError(f"{kind}: {len(data) - end} bytes behind its last field")
    return fields  # type: ignore[no-any-return]


# -- readers --------------------------------------------------------------------------------------------------------


def _span(versions: str | None) -> tuple[int, int]:
    """Return the first and the last version of a range in a schema: `3+`, `0-4`, `2`, `none`."""
    if versions is None or versions == "none":
        return 0, -1
    first, dash, last = versions.rstrip("+").partition("-")
    return int(first), int(last) if dash else 0x7FFF if versions.endswith("+") else int(first)


def _covers(versions: str | None, version: int) -> bool:
    first, last = _span(versions)
    return first <= version <= last


def _compile(schema: Schema, version: int) -> _Reader:
    """Return a reader of a message in this version, so that no record needs a look into the schema."""
    structs = {common["name"]: common["fields"] for common in schema.get("commonStructs", ())}
    flexible = _covers(schema["flexibleVersions"], version)
    return _struct(schema["fields"], version, flexible, structs)


def _struct(
    fields: Sequence[Schema], version: int, flexible: bool, structs: Mapping[str, Sequence[Schema]]
) -> _Reader:
    plain: list[tuple[str, _Reader]] = []
    tags: dict[int, tuple[str, _Reader]] = {}
    for field in fields:
        if not _covers(field["versions"], version):
            continue
        tagged = _covers(field.get("taggedVersions"), version)
        reader = _field(field, version, flexible, structs, tagged)
        if tagged:
            tags[field["tag"]] = field["name"], reader
        else:
            plain.append((field["name"], reader))

    def read(data: bytes, at: int) -> tuple[Fields, int]:
        found: Fields = {}
        for name, reader in plain:
            found[name], at = reader(data, at)
        if not flexible:
            return found, at
        count, at = unsigned_varint(data, at)
        for _ in range(count):
            tag, at = unsigned_varint(data, at)
            size, at = unsigned_varint(data, at)
            if tag in tags:  # others are of a newer release
                name, reader = tags[tag]
                found[name], _ = reader(data, at)
            at += size
        return found, at

    return read


def _field(
    field: Schema, version: int, flexible: bool, structs: Mapping[str, Sequence[Schema]], tagged: bool
) -> _Reader:
    kind: str = field["type"]
    if kind.startswith("[]"):
        element = _field(
            {**field, "type": kind[2:], "nullableVersions": None}, version, flexible, structs, False
        )
        return _array(element, flexible)
    if kind in _NUMBERS:
        return _number(struct.Struct(f">{_NUMBERS[kind]}"))
    if kind == "uuid":
        return lambda data, at: (UUID(bytes=data[at : at + 16]), at + 16)
    if kind in ("string", "bytes"):
        return _bytes(flexible, "h" if kind == "string" else "i", text=kind == "string")
    reader = _struct(field.get("fields") or structs[kind], version, flexible, structs)
    if _covers(field.get("nullableVersions"), version):
        return _nullable(reader, tagged)
    return reader


def _number(form: struct.Struct) -> _Reader:
    unpack, size = form.unpack_from, form.size
    return lambda data, at: (unpack(data, at)[0], at + size)


def _size(flexible: bool, letter: str) -> _Reader:
    """Return a reader of a size, -1 for null."""
    if not flexible:
        return _number(struct.Struct(f">{letter}"))

    def read(data: bytes, at: int) -> tuple[int, int]:
        size, at = unsigned_varint(data, at)
        return size - 1, at

    return read


def _bytes(flexible: bool, letter: str, *, text: bool) -> _Reader:
    read_size = _size(flexible, letter)

    def read(data: bytes, at: int) -> tuple[str | bytes | None, int]:
        size, at = read_size(data, at)
        end = at + max(size, 0)
        if end > len(data):
            raise ValueError("a field reaches beyond its record")
        found = data[at:end]
        return (None if size < 0 else found.decode() if text else found), end

    return read


def _array(element: _Reader, flexible: bool) -> _Reader:
    read_size = _size(flexible, "i")

    def read(data: bytes, at: int) -> tuple[list[Any] | None, int]:
        size, at = read_size(data, at)
        if size < 0:
            return None, at
        if size > len(data):
            raise ValueError("an array reaches beyond its record")
        found = []
        for _ in range(size):
            value, at = element(data, at)
            found.append(value)
        return found, at

    return read


def _nullable(reader: _Reader, tagged: bool) -> _Reader:
    """Return a reader of a struct that may be null: an int8 is before it, or a varint before a tagged one."""

    def read(data: bytes, at: int) -> tuple[Fields | None, int]:
        if tagged:
            mark, at = unsigned_varint(data, at)
            return reader(data, at) if mark else (None, at)
        return reader(data, at + 1) if data[at] == 1 else (None, at + 1)

    return read

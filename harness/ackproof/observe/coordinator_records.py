"""Decodes the records of `__consumer_offsets` by Kafka's own schemas.

The schemas are in the jar kafka-group-coordinator of each release (`common/message/*.json`); the coordinator's classes
are generated from the same files. A key begins with its kind (int16), a value with its version (int16). Encoding:
KIP-482, and org.apache.kafka.message.MessageDataGenerator for structs that may be null.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Mapping
from functools import cache
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


class CoordinatorRecords:
    """Decoder of records of `__consumer_offsets`: committed offsets, groups and members (`_NAMES`). The kind of a
    record is the name of its schemas without `Key` and `Value`, such as `OffsetCommit`."""

    def __init__(self, schemas: Iterable[Schema]) -> None:
        """`schemas`: schemas of keys and values. A later schema replaces an earlier schema of the same name."""
        self._schemas = {str(schema["name"]): schema for schema in schemas}
        self._kinds: dict[int, tuple[str, int]] = {}
        """Kind and version of a key, by the number that it begins with."""
        for name in [name for name in self._schemas if name.endswith("Key")]:
            kind, schema = name.removesuffix("Key"), self._schemas[name]
            if "apiKey" in schema:
                self._kinds[schema["apiKey"]] = kind, 0
            else:  # before Kafka 4.0 the version of a key is its kind
                first, last = _span(schema["validVersions"])
                self._kinds |= {number: (kind, number) for number in range(first, last + 1)}
        self.key = cache(self._key)
        """`key(data)`: kind and fields of a key, which are not to be changed; None for kinds that are left out.
        Raises ValueError and `struct.error` for invalid bytes."""

    @classmethod
    def load(cls, jars: Iterable[Path]) -> CoordinatorRecords:
        """Return a decoder with the schemas of the newest release among these jars, which knows the records of older
        releases. Raises ValueError if no jar has the schemas or one is no valid jar, OSError if one cannot be read."""
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

    def _key(self, data: bytes) -> tuple[str, Fields] | None:
        kind, version = self._kinds.get(int.from_bytes(data[:2], "big"), ("", 0))
        return (kind, _read(self._schemas[f"{kind}Key"], version, data)) if kind else None

    def value(self, kind: str, data: bytes) -> Fields:
        """Decode a record's value of this kind; return its fields. Raises ValueError and `struct.error` for invalid
        bytes, and ValueError for a version that the release does not have."""
        schema, version = self._schemas[f"{kind}Value"], int.from_bytes(data[:2], "big", signed=True)
        if not _covers(schema["validVersions"], version):
            raise ValueError(f"the schemas of this Kafka have no version {version} of {kind}")
        return _read(schema, version, data)


def _release(jar: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", jar.stem)]


@cache
def _span(versions: str | None) -> tuple[int, int]:
    """Return the first and the last version of a version range in a schema, such as `0-4` or `2`. For `3+` the last
    version is 32767; `none` and None give the empty range (0, -1)."""
    if versions is None or versions == "none":
        return 0, -1
    first, dash, last = versions.rstrip("+").partition("-")
    return int(first), int(last) if dash else 0x7FFF if versions.endswith("+") else int(first)


def _covers(versions: str | None, version: int) -> bool:
    first, last = _span(versions)
    return first <= version <= last


def _read(schema: Schema, version: int, data: bytes) -> Fields:
    message = _Message(schema, version, data)
    fields = message.read_struct(schema["fields"])
    if message.at != len(data):
        raise ValueError(
            f"{schema['name'].removesuffix('Value')}: {len(data) - message.at} bytes behind its last field"
        )
    return fields


class _Message:
    """Reader of an encoded message, which skips its first two bytes (its kind or version). Its methods read on at
    position `at`. They raise ValueError and `struct.error` for invalid bytes."""

    def __init__(self, schema: Schema, version: int, data: bytes) -> None:
        self.version, self.data, self.at = version, data, 2
        self.flexible = _covers(schema["flexibleVersions"], version)
        self.structs = {common["name"]: common["fields"] for common in schema.get("commonStructs", ())}

    def read_struct(self, fields: Iterable[Schema]) -> Fields:
        found: Fields = {}
        tags: dict[int, Schema] = {}
        for field in fields:
            if _covers(field.get("taggedVersions"), self.version):
                tags[field["tag"]] = field
            elif _covers(field["versions"], self.version):
                found[field["name"]] = self._read_field(field, field["type"])
        for _ in range(self._read_varint() if self.flexible else 0):
            tag, size = self._read_varint(), self._read_varint()
            end = self.at + size
            if (tagged := tags.get(tag)) is not None:  # others are of a newer release
                found[tagged["name"]] = self._read_field(tagged, tagged["type"], tagged=True)
            self.at = end
        return found

    def _read_field(self, field: Schema, kind: str, *, element: bool = False, tagged: bool = False) -> object:
        if kind.startswith("[]"):
            size = self._read_size("i")
            return (
                None if size < 0 else [self._read_field(field, kind[2:], element=True) for _ in range(size)]
            )
        if kind in _NUMBERS:
            return self._read_number(_NUMBERS[kind])
        if kind == "uuid":
            return UUID(bytes=self._read_bytes(16))
        if kind in ("string", "bytes"):
            if (size := self._read_size("h" if kind == "string" else "i")) < 0:
                return None
            return self._read_bytes(size).decode() if kind == "string" else self._read_bytes(size)
        # A struct that may be null has a mark before it: an int8, or a varint if it is tagged.
        if not element and _covers(field.get("nullableVersions"), self.version):
            there = self._read_varint() if tagged else self._read_number("b") == 1
            if not there:
                return None
        return self.read_struct(field.get("fields") or self.structs[kind])

    def _read_number(self, letter: str) -> int:
        form = f">{letter}"
        (number,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return number  # type: ignore[no-any-return]

    def _read_varint(self) -> int:
        number, self.at = unsigned_varint(self.data, self.at)
        return number

    def _read_size(self, letter: str) -> int:
        """Return the size of an array or of bytes; -1 for null. `letter`: `struct` format of the size in versions that
        are not flexible. Raises ValueError for a size beyond the record."""
        size = self._read_varint() - 1 if self.flexible else self._read_number(letter)
        if size > len(self.data):
            raise ValueError("a field reaches beyond its record")
        return size

    def _read_bytes(self, size: int) -> bytes:
        begin, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise ValueError("a field reaches beyond its record")
        return self.data[begin : self.at]

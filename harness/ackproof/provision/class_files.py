"""Reads from class files in jars, without a JVM, which classes exist and which methods they declare."""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from ackproof.experiment.problems import nearest

_OURS: Final = ("kafka.", "org.apache.kafka.")
_SUFFIX: Final = ".class"
_SIZES: Final = {
    **dict.fromkeys((7, 8, 16, 19, 20), 2),
    15: 3,
    **dict.fromkeys((3, 4, 9, 10, 11, 12, 17, 18), 4),
    **dict.fromkeys((5, 6), 8),
}
"""Number of bytes after the tag in an entry of the constant pool, by the tag (JVM specification, 4.4). Tag 1, a
text, is missing: such an entry holds its length."""
_TYPE: Final = re.compile(r"(\[*)(?:L([^;]+);|([BCDFIJSZ]))")
_PRIMITIVES: Final = {
    "B": "byte",
    "C": "char",
    "D": "double",
    "F": "float",
    "I": "int",
    "J": "long",
    "S": "short",
    "Z": "boolean",
}


@dataclass(frozen=True)
class MissingName:
    """A class that is missing in some jars, or a method that it does not declare there. `method`: None if the class is
    missing. `nearest`: the name of a class or method that was probably meant; None: no name is similar."""

    class_name: str
    method: str | None
    nearest: str | None

    def describe(self, kafka: str) -> str:
        """Return a sentence about the missing class or method, without the nearest name. `kafka`: name of the
        release or build that lacks it."""
        if self.method is None:
            return f"Kafka {kafka} has no class {self.class_name}"
        return f"{self.class_name} declares no method {self.method} in Kafka {kafka}"


def find_missing_name(class_name: str, method: str, jars: Sequence[Path]) -> MissingName | None:
    """Return the class that these jars lack, or the method that the class itself does not declare; None if both exist.

    `class_name`: with its package; a nested class as `Outer$Inner`. `method`: a name, or a name with parameter types
    such as `roll(java.util.Optional)`; packages of types may be left out. Raises OSError or `zipfile.BadZipFile` for a
    jar that cannot be read.
    """
    there = _classes(tuple(jars))
    if class_name not in there:
        return MissingName(class_name, None, _nearest_class(class_name, there))
    declared = _methods_of(there[class_name], class_name)
    if any(_fits(method, name, types) for name, types in declared):
        return None
    named = method.partition("(")[0]
    overloads = [f"{name}({', '.join(types)})" for name, types in declared if name == named]
    others = {name for name, _ in declared if "$" not in name or "$" in named}
    return MissingName(class_name, method, nearest(method, overloads or others, cutoff=0.0))


@lru_cache(maxsize=4)
def _classes(jars: tuple[Path, ...]) -> Mapping[str, Path]:
    """Return, by the full name of each class, the first of the jars that has it."""
    found: dict[str, Path] = {}
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if entry.endswith(_SUFFIX) and not entry.startswith("META-INF/"):
                    found.setdefault(entry.removesuffix(_SUFFIX).replace("/", "."), jar)
    return found


def _nearest_class(name: str, there: Mapping[str, Path]) -> str | None:
    """Return the full name of Kafka's class with the simple name of `name`, in any package. Without one, return that of
    the class with the most similar simple name; None if none is similar. `there`: classes by full name."""
    by_simple: dict[str, str] = {}
    for full in there:
        if full.startswith(_OURS):
            by_simple.setdefault(full.rpartition(".")[2], full)
    simple = nearest(name.rpartition(".")[2], by_simple)
    return None if simple is None else by_simple[simple]


def _fits(method: str, name: str, types: Sequence[str]) -> bool:
    named, bracket, rest = method.partition("(")
    if named != name or not bracket:
        return named == name
    given = [part.strip() for part in rest.rstrip(")").split(",") if part.strip()]
    return len(given) == len(types) and all(
        full == short or full.endswith((f".{short}", f"${short}"))
        for short, full in zip(given, types, strict=True)
    )


def _methods_of(jar: Path, class_name: str) -> list[tuple[str, tuple[str, ...]]]:
    with zipfile.ZipFile(jar) as archive:
        data = archive.read(class_name.replace(".", "/") + _SUFFIX)
    return [
        (name, tuple(_type_text(found) for found in _TYPE.finditer(descriptor[1 : descriptor.index(")")])))
        for name, descriptor in _read_methods(data)
    ]


def _type_text(found: re.Match[str]) -> str:
    name = found[2].replace("/", ".") if found[2] else _PRIMITIVES[found[3]]
    return name + "[]" * len(found[1])


def _read_methods(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield name and descriptor of each method of a class file (JVM specification, 4.1)."""

    def number(at: int) -> int:
        return int(struct.unpack_from(">H", data, at)[0])

    texts: dict[int, str] = {}
    at, index, count = 10, 1, number(8)
    while index < count:
        tag = data[at]
        if tag == 1:
            size = 2 + number(at + 1)
            texts[index] = data[at + 3 : at + 1 + size].decode("utf-8", "replace")
        else:
            size = _SIZES[tag]
        at += 1 + size
        index += 2 if tag in (5, 6) else 1  # a long or a double takes two places
    at += 6
    at += 2 + 2 * number(at)
    for is_method in (False, True):
        members, at = number(at), at + 2
        for _ in range(members):
            if is_method:
                yield texts[number(at + 2)], texts[number(at + 4)]
            attributes, at = number(at + 6), at + 8
            for _ in range(attributes):
                at += 6 + int(struct.unpack_from(">I", data, at + 2)[0])

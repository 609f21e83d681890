"""Makes a jar of class files with methods but without code, for tests of class-file readers."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_class_jar(path: Path, classes: Mapping[str, Sequence[tuple[str, str]]]) -> Path:
    """Write a jar at `path` and return the path. `classes`: by full name of a class (`a.b.C`), name and descriptor of
    each method."""
    with zipfile.ZipFile(path, "w") as jar:
        for name, methods in classes.items():
            jar.writestr(name.replace(".", "/") + ".class", _class_file(methods))
    return path


def _class_file(methods: Sequence[tuple[str, str]]) -> bytes:
    """Return a class file with these methods, and with constants of every length, an interface and a field, which a
    reader must skip."""
    texts = ["aField", "I", "Attribute", *(text for method in methods for text in method)]
    # a long and a double take two places each
    pool = struct.pack(">BqBdBiBH", 5, 1, 6, 1.0, 3, 7, 7, 7) + struct.pack(">BHHBBH", 12, 1, 1, 15, 6, 1)
    first = 9
    for text in texts:
        pool += struct.pack(">BH", 1, len(text.encode())) + text.encode()
    attribute = struct.pack(">HI", first + 2, 3) + b"\0\0\0"
    body = struct.pack(">HHH", 1, 6, 6) + struct.pack(">HH", 1, 6)
    body += struct.pack(">H", 1) + struct.pack(">HHHH", 2, first, first + 1, 1) + attribute
    body += struct.pack(">H", len(methods))
    for index in range(len(methods)):
        at = first + 3 + 2 * index
        body += struct.pack(">HHHH", 1, at, at + 1, 2) + attribute * 2
    return struct.pack(">IHHH", 0xCAFEBABE, 0, 61, first + len(texts)) + pool + body + struct.pack(">H", 0)

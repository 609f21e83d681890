"""Whether a YAML file is an experiment, by a look at its text: other people's YAML is left alone.

Only the standard library: this looks at every YAML file that pytest comes by.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_MOST_BYTES: Final = 1 << 20
"""A larger file is no experiment that somebody wrote."""
_TOP_LEVEL: Final = re.compile(rb"""^["']?([A-Za-z_][\w.-]*)["']?[ \t]*:(?=[ \t\r\n]|$)""", re.MULTILINE)
_SCHEMA: Final = re.compile(rb"^#[^\n]*\$schema=\S*experiment\.schema\.json", re.MULTILINE)
_FIELDS: Final = frozenset(
    b"name description claims backend cluster topics workload matrix faults expect evidence repeat seed".split()
)
_TELLING: Final = frozenset({b"workload", b"faults"})


def is_experiment(path: Path) -> bool:
    """Whether the file means to be an experiment, broken or not. A file that cannot be read is none.

    It has `topics` and one of `cluster`, `workload`, `faults` at its top level, and more of an experiment's fields
    than of others (`cluster` and `topics` alone are those of any service that talks to Kafka: a third is asked for);
    or it names the schema of experiments.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            return False
        text = path.read_bytes()
    except OSError:
        return False
    if _SCHEMA.search(text):
        return True
    if b"topics" not in text:
        return False
    keys = set(_TOP_LEVEL.findall(text))
    known = keys & _FIELDS
    if b"topics" not in keys or len(known) <= len(keys - _FIELDS):
        return False
    return bool(keys & _TELLING) or (b"cluster" in keys and len(known) > 2)

"""A version of Kafka as a file names it: a text, in quotes."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, WithJsonSchema

from ackproof.experiment.quantities import wrong

_VERSION: Final = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\Z")


def _read_version(value: object) -> object:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise wrong(f'a version is a text: without quotes this is the number {value}; write it as "4.3.1"')
    if not isinstance(value, str) or not _VERSION.match(value):
        raise wrong('expected a full version in quotes, such as "4.3.1"')
    return value


Version: TypeAlias = Annotated[
    str,
    BeforeValidator(_read_version),
    WithJsonSchema(
        {"type": "string", "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+$", "examples": ["4.3.1", "3.9.2"]}
    ),
]

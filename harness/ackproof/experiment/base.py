"""The base class of all parts of an experiment, and field types that several of them use."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Final, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from ackproof.base.advice import expected
from ackproof.base.units import wrong
from ackproof.rundir.partition import TopicPartition

T = TypeVar("T")

SETTING_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


class Spec(BaseModel):
    """Base class of the parts of an experiment. Instances are immutable, and unknown fields are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=False, str_max_length=10_000, defer_build=True
    )


def _config_text(value: object) -> str:
    """Return a setting's value as the text that Kafka and librdkafka parse, such as `true` for True.

    Raises `PydanticCustomError` for None, for a list or mapping, and for a text with control characters or line breaks.
    """
    if value is None:
        raise wrong("expected a value", "an empty one is written ''")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        text = str(value)
        if not text.isprintable():
            raise wrong(expected("a value of one line, without control characters"))
        return text
    raise wrong(expected("a single value (text, a number, true or false)"))


def matching(pattern: re.Pattern[str], what: str) -> BeforeValidator:
    """Return a pydantic validator for a text that must match `pattern`. `what` names the expected text in its
    error."""

    def read(value: object) -> object:
        if not isinstance(value, str) or not pattern.match(value):
            raise wrong(expected(what))
        return value

    return BeforeValidator(read)


Config: TypeAlias = dict[
    Annotated[
        str,
        matching(SETTING_NAME, "the name of a setting: letters, digits, '.', '_' and '-'"),
        WithJsonSchema({"type": "string", "pattern": "^[A-Za-z0-9._-]{1,249}$"}),
    ],
    Annotated[
        str,
        BeforeValidator(_config_text),
        WithJsonSchema({"type": ["string", "number", "boolean"], "title": "Value of the setting"}),
    ],
]
"""Settings by name. A file may have texts, numbers, true and false; the values here are always texts."""

Whole: TypeAlias = Annotated[int, Field(strict=True)]
Flag: TypeAlias = Annotated[bool, Field(strict=True)]
Text: TypeAlias = Annotated[str, Field(strict=True)]


def text_field(
    parse: Callable[[str], T], kind: type[T], what: str
) -> tuple[BeforeValidator, PlainSerializer]:
    """Return a pydantic validator and serializer for values of the type `kind`, which a file writes as text.

    `parse` raises ValueError with the message to show. `what` names the expected value in the error for a value that is
    neither a text nor a `kind`.
    """

    def read(value: object) -> object:
        if isinstance(value, kind):
            return value
        if not isinstance(value, str):
            raise wrong(expected(what))
        try:
            return parse(value)
        except ValueError as error:
            raise wrong(error) from error

    return BeforeValidator(read), PlainSerializer(str, return_type=str)


PartitionField: TypeAlias = Annotated[
    TopicPartition,
    *text_field(TopicPartition.parse, TopicPartition, "a partition such as orders/0"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^[A-Za-z0-9._-]+/[0-9]+$",
            "title": "Partition",
            "description": "One partition, such as orders/0.",
        }
    ),
]

"""A service under test, as an experiment defines it: `workload.service`. It is a program of the user that copies
records from one topic to another, or into a store of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, JsonValue, PlainSerializer, WithJsonSchema

from ackproof.base.units import Duration, wrong
from ackproof.experiment.base import Spec, Text, Whole
from ackproof.experiment.client import read_command

Promise: TypeAlias = Literal["at-least-once", "exactly-once", "at-most-once"]
_JSON: Final = "json"
_WORDS: Final = ("value", "header", "key")
_TEXTS: Final[dict[str, JsonValue]] = {
    "type": "array",
    "items": {"type": "string"},
    "minItems": 1,
    "title": "Command",
}


def _read_identity(value: object) -> str:
    """Parse where a service keeps the identity of a record. Return `value`, `header` or `key` as written, and for a
    mapping `{json: POINTER}` the JSON pointer (RFC 6901). A text that begins with `/` is returned as a pointer, too.

    Raises `PydanticCustomError` for any other value, and for a POINTER that contains `~` or `"`.
    """
    pointer = value[_JSON] if isinstance(value, Mapping) and list(value) == [_JSON] else value
    if isinstance(pointer, str) and pointer.startswith("/") and "~" not in pointer and '"' not in pointer:
        return pointer
    if isinstance(value, Mapping) and list(value) == [_JSON]:
        raise wrong("a pointer into a JSON value begins with a slash, such as {json: /order/id}")
    if isinstance(value, str) and value in _WORDS:
        return value
    raise wrong("expected value, header, key or {json: /order/id}")


def _identity_data(identity: str) -> JsonValue:
    return {_JSON: identity} if identity.startswith("/") else identity


IdentityField: TypeAlias = Annotated[
    str,
    BeforeValidator(_read_identity),
    PlainSerializer(_identity_data, return_type=JsonValue),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(_WORDS)},
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": [_JSON],
                    "properties": {_JSON: {"type": "string", "pattern": "^/"}},
                },
            ],
            "title": "Identity",
        }
    ),
]
Command: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(read_command), WithJsonSchema(_TEXTS)]


class ServiceSpec(Spec):
    """A service under test: the user's command, its input and output, and the guarantee that it promises."""

    command: Command = Field(description="Its command line; {settings}, {bootstrap}, {group} are filled in.")
    count: Whole = Field(1, ge=1, le=20, description="How many instances run.")
    input: Text = Field(description="Topic that it reads. The producers write to it.")
    output: Text | None = Field(
        None,
        description="Topic that it writes to. It is created with partitions, replicas and settings of the input.",
    )
    sink: Command | None = Field(
        None,
        title="Sink",
        description="In place of an output topic: a command that prints the identities in the service's store, one "
        "a line.",
    )
    identity: IdentityField = Field(
        "value",
        description="Where the service keeps a record's identity: value, header, key, or {json: POINTER}.",
    )
    group: Text = Field("ackproof-service", description="Its consumer group, whose commits are looked up.")
    promise: Promise = Field("at-least-once", description="What the service promises for each input record.")
    level: Whole = Field(
        0,
        ge=0,
        le=3,
        description="What it tells (docs/clients.md): 0 nothing, 1 deliveries, 2 commits too, 3 sends too.",
    )
    settle: Duration = Field(
        30.0, gt=0, description="How long it may take to catch up once the producers have stopped."
    )

"""The client library of producers, readers or group members, as an experiment names it (`workload.producers.client`).

A file writes `librdkafka` (the default), `java`, `{java: "4.1.2"}`, or `{command: [./my-service, "{settings}"]}`.
`java` alone means the Java client of the cluster's own release; with a release, clients and brokers may differ. A
command is a program of the user that keeps to docs/clients.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, JsonValue, PlainSerializer, WithJsonSchema

from ackproof.base.advice import expected
from ackproof.base.units import wrong
from ackproof.experiment.kafka import DEFAULT, KafkaBuild, line_of, not_a_version
from ackproof.rundir.guarantees import LIBRDKAFKA

JAVA: Final = "java"
COMMAND: Final = "command"
_LIBRARIES: Final = (LIBRDKAFKA, JAVA)


@dataclass(frozen=True)
class ClientChoice:
    """A client library, by its name: `librdkafka`, `java`, or `command` for a program of the user. `release`: release
    of kafka-clients; '' if none is named. `command`: command line of the user's program."""

    library: str = LIBRDKAFKA
    release: str = ""
    command: tuple[str, ...] = ()

    def release_for(self, kafka: KafkaBuild) -> str:
        """Return the release of the Java client for a cluster that runs `kafka`: the client's own `release`, or else
        the cluster's.

        A cluster that runs a build of sources or an image counts as the newest known release of its line. Return '' for
        librdkafka, and the file name of the program for a command.
        """
        if self.command:
            return PurePath(self.command[0]).name
        if self.library != JAVA or self.release:
            return self.release
        return kafka.version if kafka.is_release or kafka.patch else line_of(kafka.version).releases[-1]

    def data(self) -> JsonValue:
        """Return the value of `client` as a file writes it: the library's name, `{java: RELEASE}`, or `{command:
        [PROGRAM, …]}`."""
        if self.command:
            return {self.library: list(self.command)}
        return {self.library: self.release} if self.release else self.library

    def __str__(self) -> str:
        return " ".join(filter(None, (self.library, self.release, *self.command)))


def _read_client(value: object) -> ClientChoice:
    """Return the client of a `client` value: the name of a library, `{java: RELEASE}`, or `{command: [PROGRAM, …]}`.
    Raises `PydanticCustomError`, with the message to show, for any other value."""
    match value:
        case ClientChoice():
            return value
        case str() if value in _LIBRARIES:
            return ClientChoice(value)
        case Mapping() if list(value) == [JAVA]:
            release = value[JAVA]
            if not isinstance(release, str):
                raise wrong(f'a release is a text in quotes, such as {{java: "{DEFAULT}"}}')
            if (why := not_a_version(release)) is not None:
                raise wrong(why)
            return ClientChoice(JAVA, release)
        case Mapping() if list(value) == [COMMAND]:
            return ClientChoice(COMMAND, command=read_command(value[COMMAND]))
        case Mapping() if list(value) == [LIBRDKAFKA]:
            raise wrong("librdkafka comes with the installed confluent-kafka: write client: librdkafka")
    raise wrong(expected(f'librdkafka, java, {{java: "{DEFAULT}"}} or {{command: [PROGRAM, ...]}}'))


def read_command(value: object) -> tuple[str, ...]:
    """Parse a command line: a list of texts, of which the first is a program. Raises `PydanticCustomError` for any
    other value."""
    words = value if isinstance(value, (list, tuple)) else ()
    if not words or not words[0] or not all(isinstance(word, str) for word in words):
        raise wrong('a command is a list of texts, such as [./my-service, "{settings}"]')
    return tuple(words)


ClientField: TypeAlias = Annotated[
    ClientChoice,
    BeforeValidator(_read_client),
    PlainSerializer(ClientChoice.data, return_type=JsonValue),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(_LIBRARIES)},
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": [JAVA],
                    "properties": {JAVA: {"type": "string", "examples": [DEFAULT]}},
                },
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": [COMMAND],
                    "properties": {COMMAND: {"type": "array", "items": {"type": "string"}, "minItems": 1}},
                },
            ],
            "title": "Client",
        }
    ),
]
"""The value of `client` in a file, read as a `ClientChoice`."""

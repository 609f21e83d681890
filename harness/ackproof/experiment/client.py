"""The client library of producers or readers, as an experiment names it: `workload.producers.client`.

A file writes `librdkafka` (the default), `java`, or `{java: "4.1.2"}`. `java` alone means the Java client of the
cluster's own release; with a release, clients and brokers may differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, JsonValue, PlainSerializer, WithJsonSchema

from ackproof.base.units import wrong
from ackproof.experiment.kafka import DEFAULT, KafkaBuild, line_of, not_a_version
from ackproof.rundir.guarantees import LIBRDKAFKA

JAVA: Final = "java"
_LIBRARIES: Final = (LIBRDKAFKA, JAVA)


@dataclass(frozen=True)
class ClientChoice:
    """A client library, by its name in `rundir.guarantees`. `release`: that of kafka-clients; '' if none is named."""

    library: str = LIBRDKAFKA
    release: str = ""

    def release_for(self, kafka: KafkaBuild) -> str:
        """Return the release of the Java client for a cluster that runs `kafka`; '' for librdkafka.

        It is the client's own `release`; without one, the cluster's. A build that is no release gets the newest known
        one of its line.
        """
        if self.library != JAVA or self.release:
            return self.release
        return kafka.version if kafka.is_release or kafka.patch else line_of(kafka.version).releases[-1]

    def data(self) -> JsonValue:
        """Return the value of `client` in the grammar of a file."""
        return {self.library: self.release} if self.release else self.library

    def __str__(self) -> str:
        return f"{self.library} {self.release}".strip()


def read_client(value: object) -> ClientChoice:
    """Parse the value of `client`. Raises `PydanticCustomError` with the message to show."""
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
        case Mapping() if list(value) == [LIBRDKAFKA]:
            raise wrong("librdkafka comes with the installed confluent-kafka: write client: librdkafka")
    raise wrong(f'expected librdkafka, java or {{java: "{DEFAULT}"}}')


ClientField: TypeAlias = Annotated[
    ClientChoice,
    BeforeValidator(read_client),
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
            ],
            "title": "Client",
        }
    ),
]
"""The value of `client` in a file."""

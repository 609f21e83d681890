"""Feature levels of a running cluster: what the nodes support, what is finalised, and how that is raised.

Finalised levels are read with ApiVersions at a broker: each broker answers from its own copy of the metadata, so
another broker than the one that was asked for a change can be the witness of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ackproof.cluster.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ackproof.cluster.wire import Connection, Question, Refused

_VERSIONS, _UPDATE = 4, 1
_UPGRADE: Final = 1


@dataclass(frozen=True)
class Features:
    """`supported`: lowest and highest level by feature. `finalised`: the level in force; one at 0 is missing."""

    supported: Mapping[str, tuple[int, int]]
    finalised: Mapping[str, int]


class _PlainHeader:
    """ApiVersions is answered with a header without tagged fields, whatever its version (KIP-511)."""

    @staticmethod
    def flexible_version_q(_: int) -> bool:
        return False

    @staticmethod
    def decode(data: memoryview, *, version: int) -> Any:  # noqa: ANN401 — kafka-python's messages are untyped
        return ApiVersionsResponse.decode(data, version=version)


def features(connection: Connection, timeout_s: float | None = None) -> Features:
    """What this node says. Raises `WireError`."""
    request = ApiVersionsRequest(
        client_software_name="ackproof", client_software_version="1", version=_VERSIONS
    )
    answer = connection.ask(Question(request, _PlainHeader, _VERSIONS), timeout_s=timeout_s)
    if answer.error_code:
        raise Refused("ApiVersions", answer.error_code)
    return Features(
        supported={row.name: (row.min_version, row.max_version) for row in answer.supported_features or ()},
        finalised={row.name: row.max_version_level for row in answer.finalized_features or ()},
    )


def raise_features(connection: Connection, levels: Mapping[str, int], timeout_s: float = 10.0) -> None:
    """Finalise these levels; none may be lower than now. Raises `Refused` in Kafka's words, `Unreachable`."""
    row = UpdateFeaturesRequest.FeatureUpdateKey
    request = UpdateFeaturesRequest(
        timeout_ms=int(timeout_s * 1000),
        feature_updates=[
            row(feature=name, max_version_level=level, upgrade_type=_UPGRADE, version=_UPDATE)
            for name, level in levels.items()
        ],
        validate_only=False,
        version=_UPDATE,
    )
    question = Question(request, UpdateFeaturesResponse, _UPDATE)
    answer = connection.ask(question, timeout_s=timeout_s + 1.0)
    asked = "levels " + ", ".join(f"{name}={level}" for name, level in levels.items())
    if answer.error_code:
        raise Refused(asked, answer.error_code, answer.error_message)
    for result in answer.results or ():
        if result.error_code:
            raise Refused(f"{result.feature} of {asked}", result.error_code, result.error_message)

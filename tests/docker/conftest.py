"""Fixtures with a container engine and an image. Without these a test is skipped, with the reason; in CI it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackproof.base.errors import BadInput
from ackproof.cluster.containers.engine import Engine, connect
from ackproof.cluster.containers.images import image_for
from ackproof.cluster.install import Installation, install
from ackproof.experiment.kafka import KafkaBuild

from ..cluster.conftest import audits_without_spark as audits_without_spark

KAFKA = "4.4.0"


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The container engine of this machine, with an image of the release `KAFKA`."""
    try:
        found = connect()
        image_for(found, KAFKA)
    except BadInput as error:
        pytest.skip(str(error))
    yield found
    found.close()


@pytest.fixture(scope="session")
def installed(engine: Engine) -> Callable[[], Installation]:
    """Function that provisions the Kafka with which nodes are formatted; skips without an engine."""
    del engine
    return lambda: install(KafkaBuild(KAFKA))

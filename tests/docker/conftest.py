"""An engine and an image for tests. A user without either skips, with the way to get it; in CI nobody does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackproof.base.errors import BadInput
from ackproof.cluster.containers.engine import Engine, connect
from ackproof.cluster.containers.images import image_for
from ackproof.cluster.install import Installation, install
from ackproof.experiment.kafka import KafkaBuild

KAFKA = "4.4.0"


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine of this machine, with an image of `KAFKA`."""
    try:
        found = connect()
        image_for(found, KAFKA)
    except BadInput as error:
        pytest.skip(str(error))
    yield found
    found.close()


@pytest.fixture(scope="session")
def installed(engine: Engine) -> Callable[[], Installation]:
    """What nodes are formatted with, once there is an engine at all."""
    del engine
    return lambda: install(KafkaBuild(KAFKA))

"""Fixtures for tests of clients: librdkafka's mock cluster, and loads on it (`support/mock_kafka.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ackproof.experiment.spec import TopicSpec
from mock_kafka import Loads, MockKafka, mock_kafka, stored


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    """Yield a mock cluster of one broker."""
    with mock_kafka() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shared_kafka() -> Iterator[MockKafka]:
    """Yield a mock cluster of one broker, shared by all tests of a file."""
    with mock_kafka() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shared_load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loads]:
    """Yield the same as `load`, shared by all tests of a file."""
    loads = Loads(tmp_path_factory.mktemp("loads"))
    with loads.stack:
        yield loads


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Loads]:
    """Yield a function that makes a load. Call: `load(kafka, topics={name: partitions}, live=readers, **fields of
    ProducerSpec)`."""
    loads = Loads(tmp_path)
    with loads.stack:
        yield loads


@pytest.fixture
def log_of() -> Callable[[MockKafka, dict[str, TopicSpec]], dict[tuple[str, int, int], bytes]]:
    """Return `mock_kafka.stored`, which reads all values of a mock cluster by (topic, partition, offset)."""
    return stored

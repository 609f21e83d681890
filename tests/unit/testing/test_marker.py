from __future__ import annotations

import pytest

from ackproof.base.errors import BadInput
from ackproof.testing.marker import read_marker, read_topic


def test_defaults() -> None:
    wanted = read_marker((), {})
    assert (wanted.cluster.brokers, wanted.cluster.controllers, wanted.topics) == (3, 1, {})


def test_all_of_it() -> None:
    wanted = read_marker(
        (),
        {
            "brokers": 2,
            "controllers": 3,
            "kafka": "3.9.2",
            "config": {"broker.session.timeout.ms": 3000},
            "topics": {
                "a": {"partitions": 2, "config": {"min.insync.replicas": 1}},
                "b": {"replication_factor": 1},
            },
        },
    )
    assert wanted.cluster.kafka == "3.9.2"
    assert wanted.cluster.config == {"broker.session.timeout.ms": "3000"}
    assert (wanted.topics["a"].replication_factor, wanted.topics["b"].replication_factor) == (2, 1)
    assert read_topic(wanted.cluster, "c", {"partitions": 4}).replication_factor == 2
    assert read_marker((), {"topics": ["x", "y"], "brokers": 1}).topics["y"].replication_factor == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"borkers": 3}, "did you mean 'brokers'"),
        ({"brokers": "three"}, "brokers"),
        ({"brokers": 1, "topics": {"a": {"replication_factor": 3}}}, "replication_factor"),
        ({"topics": {"a": {"partition": 1}}}, "did you mean 'partitions'"),
        ({"topics": 5}, "expected names"),
        ({"kafka": 4.3}, "version"),
        ({"config": {"a": object()}}, "expected text"),
    ],
)
def test_what_is_wrong_is_told(options: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read_marker((), options)


def test_positional_arguments_mean_nothing() -> None:
    with pytest.raises(BadInput, match="named arguments"):
        read_marker((3,), {})

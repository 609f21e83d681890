"""Settings of the command line over what a file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.plan.cases import cases, load

TEXT = """\
name: t
topics: {orders: {config: {min.insync.replicas: 2}}}
workload: {duration: 1s}
matrix:
  workload.producers.acks: [0, 1, all]
faults:
  - kill: {target: leader(orders/0)}
    at: 1s
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "e.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_setting_takes_its_place(file: Path) -> None:
    plan = load(
        file, ["cluster.kafka=4.2.1", "topics.orders.config[min.insync.replicas]=1", "faults[1].at=2s"]
    )
    spec = plan.spec
    assert spec.cluster.kafka.version == "4.2.1"
    assert spec.topics["orders"].config["min.insync.replicas"] == "1"
    assert str(spec.faults[0].trigger).startswith("2s")
    assert len(cases(plan)) == 3


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("cluster.kafka", "expected PATH=VALUE"),
        ("cluster.kafak=4.2.1", "did you mean 'cluster.kafka'"),
        ("clutser.kafka=4.2.1", "did you mean 'cluster'"),
        ("workload.producers.acks=all", "choose among its cases with --case"),
        ("faults[2].at=1s", "there is no such fault"),
        ("cluster.kafka=4.10", "expected a full version"),
        ("cluster.brokers=0", "1"),
        ("=1", "expected a path"),
        ("cluster=1", "group of settings"),
    ],
)
def test_what_cannot_be_is_said(file: Path, setting: str, words: str) -> None:
    with pytest.raises(BadInput, match=words.replace("(", r"\(")):
        load(file, [setting])

"""Texts of valid experiments, the schema, and a fixture that loads an experiment from its text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from ackproof.plan import Plan, load

collect_ignore_glob = ["golden/*"]
"""Files that pytest must not collect: the plugin would run their documents as experiments."""

GOOD = """\
# every group of fields once
name: good-one
description: all there is
claims: {C09: {says: acks are enough, fails: [{vanished: "> 0"}]}}
cluster:
  kafka: "4.3.1"
  brokers: 3
  controllers: 1
  racks: [a, b]
  config:
    broker.session.timeout.ms: 6000
  broker_config:
    2: {num.io.threads: 3}
  heap: 256MB
topics:
  orders:
    partitions: 3
    replication_factor: 3
    config:
      min.insync.replicas: 2
  audit.log: {assignment: [[1, 2], [2, 3]]}
workload:
  producers:
    count: 2
    acks: all
    idempotence: false
    linger: 5ms
    rate: 5000/s
    value_size: 100B
    topics: [orders]
  consumers:
    live: 1
  duration: 15s
matrix:
  workload.producers.acks: [0, 1, all]
  topics.orders.config[min.insync.replicas]:
    - 1
    - 2
faults:
  - pause: {target: followers(orders/0)}
    when: acked >= 2000
    at_latest: 8s
    for: 2s
  - kill:
      target: leader(orders/0)
    after: {fault: 1, by: 1s}
    restart_after: 5s
  - restart: {target: broker}
    at: 20s
expect:
  - given: {acks: all}
    lost: 0
  - given: {acks: 1}
    lost: "> 0"
evidence:
  isr_size: 2
  max_indeterminate: 0.5
repeat: 2
seed: 7
"""

ROOT = Path(__file__).parents[3]
EXPERIMENTS = ROOT / "experiments"
SCHEMA = Draft202012Validator(json.loads((EXPERIMENTS / "experiment.schema.json").read_text("utf-8")))
"""Validator of the committed schema, which equals the generated one (`test_schema.py`)."""

Load = Callable[[str], Plan]


@pytest.fixture(scope="session")
def good() -> str:
    return GOOD


@pytest.fixture(scope="session")
def good_files() -> dict[str, str]:
    """Valid experiments as text by name: `GOOD`, the example of docs/experiments.md, and the whole catalogue."""
    # Paths in a file are relative to it, and the tests write its text elsewhere.
    catalogue = {
        path.name: path.read_text("utf-8").replace("patch: patches", f"patch: {EXPERIMENTS}/patches")
        for path in sorted(EXPERIMENTS.glob("*.yaml"))
    }
    documented = (ROOT / "docs" / "experiments.md").read_text("utf-8").split("```yaml\n")[1].split("```")[0]
    return {"good": GOOD, "documented": documented, **catalogue}


@pytest.fixture
def load_text(tmp_path: Path) -> Load:
    """Return a function that returns the plan of an experiment given as text."""

    def load_it(text: str) -> Plan:
        path = tmp_path / "e.yaml"
        path.write_text(text, encoding="utf-8")
        return load(path)

    return load_it

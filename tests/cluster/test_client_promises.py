"""Tests of the guarantees of client libraries (docs/clients.md) under attacks on real brokers: what each sends again.

Covers each row of a table that names an attack with faults. Single errors of a produce request are tested in
`tests/unit/clients/test_outcomes.py` (librdkafka) and `test_java_outcomes.py`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ackproof.rundir.batch import BatchFile
from ackproof.rundir.documents import VerdictFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.ledger import read_parts
from ackproof.rundir.outcome import Outcome, Verdict
from ackproof.rundir.schema import PRODUCED

from .helpers import run_experiment

pytestmark = pytest.mark.cluster

HEAD = """\
cluster: {brokers: 3, controllers: 1}
topics: {orders: {assignment: [[1, 2, 3]], config: {min.insync.replicas: 2}}}
evidence: {max_indeterminate: 0.95}
seed: 3
"""
LEADER_MOVES = f"""\
name: leader-moves-while-requests-wait
{HEAD}
workload:
  producers: {{count: 1, acks: all, retries: 0, rate: 300/s, delivery_timeout: 20s}}
  duration: 3s
faults:
  - reassign: {{partition: orders/0, to: [2, 3, 1]}}
    when: acked >= 300
  - hold_request: {{link: "followers(orders/0) -> leader(orders/0)", api: Fetch}}
    after: {{fault: 1, by: 500ms}}
    for: 3s
  - elect_preferred: {{partition: orders/0}}
    after: {{fault: 2, by: 1s}}
expect:
  - {{lost: 0}}
"""
PRODUCE_IS_HELD = """\
  - hold_request: {link: "clients -> leader(orders/0)", api: Produce}
    after: {fault: 2, by: 200ms}
    for: 3s
expect:
"""
ANSWERS_ARE_LOST = f"""\
name: answers-are-lost
{HEAD}
workload:
  producers:
    {{count: 1, acks: all, retries: 0, rate: 300/s, delivery_timeout: 20s, config: {{socket.timeout.ms: 1000}}}}
  duration: 3s
matrix:
  workload.producers.acks: [1, all]
faults:
  - lose_request: {{link: "clients -> leader(orders/0)", api: Produce, side: response, times: 2}}
    when: acked >= 300
    for: 4s
expect:
  - {{lost: 0, duplicate: 0, displaced: 0}}
"""
REQUESTS_ARE_LOST = f"""\
name: requests-are-lost
{HEAD}
workload:
  producers: {{count: 1, acks: 0, retries: 0, rate: 300/s, config: {{socket.timeout.ms: 1000}}}}
  duration: 3s
faults:
  - lose_request: {{link: "clients -> leader(orders/0)", api: Produce, times: 2}}
    when: acked >= 300
    for: 4s
expect:
  - {{duplicate: 0}}
"""

JAVA = {"client": "java", "count": 1, "acks": "all", "retries": 0, "rate": "300/s", "delivery_timeout": "20s"}
"""Settings of the Java producers; each attack changes some."""
BY_THE_FIRST = "clients -> leader(orders/0)"


@dataclass(frozen=True)
class Attack:
    """An attack on the Java client. `shows`: classes that it must show; no other class of `PROMISED` may be found.

    `rows`: changes of the settings `JAVA`, one case each. `faults`: faults of the run. `topic`, `brokers`: further
    settings."""

    rows: tuple[dict[str, object], ...]
    faults: tuple[dict[str, object], ...]
    shows: frozenset[str] = frozenset()
    topic: dict[str, object] = field(default_factory=dict)
    brokers: dict[str, object] = field(default_factory=dict)


PROMISED = ("lost", "duplicate", "displaced", "reordered", "resurrected")
LEADER_CHANGES = (
    {"reassign": {"partition": "orders/0", "to": [2, 3, 1]}, "when": "acked >= 300"},
    {
        "hold_request": {"link": "followers(orders/0) -> leader(orders/0)", "api": "Fetch"},
        "after": {"fault": 1, "by": "500ms"},
        "for": "3s",
    },
    {"elect_preferred": {"partition": "orders/0"}, "after": {"fault": 2, "by": "1s"}},
)


def lose(when: str = "acked >= 300", length: str = "4s", **more: object) -> dict[str, object]:
    return {"lose_request": {"link": BY_THE_FIRST, "api": "Produce", **more}, "when": when, "for": length}


REFUSED = {
    "answer_request": {
        "link": "clients -> brokers",
        "api": "Produce",
        "error": "NOT_ENOUGH_REPLICAS",
        "every": 3,
    },
    "when": "acked >= 300",
    "for": "2s",
}
OUT_OF_SEQUENCE: dict[str, object] = {
    "answer_request": {
        "link": "clients -> brokers",
        "api": "Produce",
        "error": "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "side": "response",
        "every": 5,
    },
    "when": "acked >= 300",
    "for": "2s",
}
ONCE: dict[str, object] = {}
IDEMPOTENT: dict[str, object] = {"idempotence": True, "retries": None}
AGAIN: dict[str, object] = {"retries": 20}
QUICK: dict[str, object] = {"request_timeout": "1s"}
ATTACKS = {
    "the leader changes while requests wait": Attack((ONCE, IDEMPOTENT), LEADER_CHANGES),
    "answers are lost": Attack(
        ({**QUICK, "acks": "1"}, QUICK, {**QUICK, **IDEMPOTENT}), (lose(side="response", times=2),)
    ),
    "answers are lost, and sends repeated": Attack(
        ({**QUICK, **AGAIN},), (lose(side="response", times=2),), frozenset({"duplicate"})
    ),
    "requests are lost": Attack(({"acks": "0"},), (lose(times=2),)),
    "producer ids are forgotten": Attack(
        ({**IDEMPOTENT, "in_flight": 1, "request_timeout": "3s"},),
        (lose(side="response", times=1, length="5s"),),
        frozenset({"duplicate"}),
        brokers={"producer.id.expiration.ms": 1000, "producer.id.expiration.check.interval.ms": 200},
    ),
    "batches are called out of sequence": Attack(
        ({**IDEMPOTENT, "rate": "500/s"},), (OUT_OF_SEQUENCE,), frozenset({"duplicate"})
    ),
    "records outlive their delivery time-out": Attack(
        ({**QUICK, **IDEMPOTENT, "linger": "400ms", "delivery_timeout": "3s"},),
        (lose(side="response", length="3500ms"),),
    ),
    "requests are refused": Attack((ONCE, {**AGAIN, "in_flight": 1, "linger": "0s"}), (REFUSED,)),
    "requests are refused, and sends repeated": Attack(
        ({**AGAIN, "linger": "0s", "rate": "1000/s"},), (REFUSED,), frozenset({"reordered"})
    ),
    "batches are too large": Attack(
        ({"rate": "2000/s", "linger": "20ms"},),
        (),
        frozenset({"reordered"}),
        topic={"max.message.bytes": 3000},
    ),
}


def run(folder: Path, text: str) -> dict[str, tuple[dict[str, int], VerdictFile]]:
    """Run an experiment; return counts and verdict of each case, by its name without the repeat. Assert that each
    passes."""
    batch, printed = run_experiment(folder, text)
    found = {}
    for case in BatchFile.load(batch.batch_json).cases:
        verdict = VerdictFile.load(batch.path / case.run / "verdict.json")
        assert case.verdict is Verdict.PASS, printed
        found[case.case.partition("#")[0]] = (dict(case.counts), verdict)
    return found


def why(verdict: VerdictFile, anomaly: str) -> str:
    return next(one.why for one in verdict.classes if one.anomaly == anomaly)


@pytest.mark.nightly  # tests/unit/clients/test_outcomes.py has re-sends
def test_without_retries_a_new_leader_is_sent_records_again(tmp_path: Path) -> None:
    """The guarantee is refuted: records that followers already have are appended again."""
    counts, verdict = run(tmp_path, LEADER_MOVES)["case"]
    assert counts["duplicate"] > 0
    assert "were appended in one leader epoch and again in a later one" in why(verdict, "duplicate")


@pytest.mark.nightly
def test_without_retries_what_was_held_comes_behind_later_records(tmp_path: Path) -> None:
    counts, verdict = run(tmp_path, LEADER_MOVES.replace("expect:\n", PRODUCE_IS_HELD))["case"]
    assert counts["reordered"] > 0
    assert "sent again after later ones" in why(verdict, "reordered")


@pytest.mark.nightly
@pytest.mark.parametrize("text", [ANSWERS_ARE_LOST, REQUESTS_ARE_LOST])
def test_without_retries_nothing_is_sent_again_to_the_same_leader(tmp_path: Path, text: str) -> None:
    run(tmp_path, text)


@pytest.mark.nightly  # test_workload.py has Java clients with every push
@pytest.mark.parametrize(
    ("name", "number"),
    [(name, number) for name, attack in ATTACKS.items() for number in range(len(attack.rows))],
)
def test_java_keeps_what_the_table_says_of_it(tmp_path: Path, name: str, number: int) -> None:
    attack = ATTACKS[name]
    topic = {"assignment": [[1, 2, 3]], "config": {"min.insync.replicas": 2, **attack.topic}}
    text = {
        "name": name.replace(",", "").replace(" ", "-"),
        "cluster": {"brokers": 3, "controllers": 1, "config": attack.brokers},
        "topics": {"orders": topic},
        "evidence": {"max_indeterminate": 0.95},
        "seed": 3,
        "workload": {"producers": {**JAVA, **attack.rows[number]}, "duration": "3s"},
        "faults": attack.faults,
    }
    counts, _ = run(tmp_path, json.dumps(text))["case"]
    assert {anomaly for anomaly in PROMISED if counts.get(anomaly)} == attack.shows


@pytest.mark.nightly  # tests/unit/network/test_request_relay.py has the proxy with every push
@pytest.mark.parametrize("client", ["java", "librdkafka"])
def test_the_requests_of_one_client_alone_are_hit(tmp_path: Path, client: str) -> None:
    closes = {"link": "clients -> brokers", "api": "Produce", "every": 3, "client_id": "ackproof-p0"}
    text = {
        "name": "one-client",
        "cluster": {"brokers": 3, "controllers": 1},
        "topics": {"orders": {"config": {"min.insync.replicas": 2}}},
        "evidence": {"max_indeterminate": 0.95},
        "seed": 3,
        "workload": {"producers": {**JAVA, "client": client, "count": 2}, "duration": "3s"},
        "faults": [{"close_at_request": closes, "when": "acked >= 300", "for": "2s"}],
    }
    run(tmp_path, json.dumps(text))
    (case,) = BatchFile.load(BatchDir((tmp_path / "runs" / "latest").resolve()).batch_json).cases
    produced = CaseDir((tmp_path / "runs" / "latest").resolve() / case.run).produced
    rows = read_parts(produced, PRODUCED).to_pylist()
    assert {row["producer"] for row in rows} == {0, 1}
    assert {row["producer"] for row in rows if row["outcome"] != Outcome.ACKED} == {0}

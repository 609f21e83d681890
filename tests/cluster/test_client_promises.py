"""The guarantees of librdkafka, attacked with real brokers: what it sends again, and what never."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.rundir.batch import BatchFile
from ackproof.rundir.documents import VerdictFile
from ackproof.rundir.outcome import Verdict

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


def run(folder: Path, text: str) -> dict[str, tuple[dict[str, int], VerdictFile]]:
    """Counts and verdict of each case that ran, by its name without the repeat."""
    batch, printed = run_experiment(folder, text)
    found = {}
    for case in BatchFile.load(batch.batch_json).cases:
        verdict = VerdictFile.load(batch.path / case.run / "verdict.json")
        assert case.verdict is Verdict.PASS, printed
        found[case.case.partition("#")[0]] = (dict(case.counts), verdict)
    return found


def why(verdict: VerdictFile, anomaly: str) -> str:
    return next(one.why for one in verdict.classes if one.anomaly == anomaly)


def test_without_retries_a_new_leader_is_sent_records_again(tmp_path: Path) -> None:
    """A refuted row: what followers have is appended again."""
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

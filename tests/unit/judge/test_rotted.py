"""What is lost where a fault took from a log, beside what is lost elsewhere."""

from __future__ import annotations

import pytest

from ackproof.judge import judge_case
from ackproof.rundir.model import Chance, ClassExplained, ConformanceFile, PredictedClass
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.partition import TopicPartition

from .conftest import MakeRun, Predicted, Replayed, finding

ROTTED = """\
name: t
topics:
  orders: {partitions: 2, replication_factor: 3, config: {min.insync.replicas: 2}}
workload:
  producers: {acks: all}
  duration: 1s
faults:
  - truncate_segment: {target: leader(orders/0)}
    at: 1s
    restart_after: 1s
"""


@pytest.mark.parametrize(
    ("chance", "explained", "sound", "expected"),
    [
        (Chance.POSSIBLE, 2, 0, Verdict.PASS),
        (Chance.POSSIBLE, 1, 0, Verdict.INCONCLUSIVE),
        (Chance.UNKNOWN, 2, 0, Verdict.INCONCLUSIVE),
        (Chance.POSSIBLE, 3, 1, Verdict.FAIL),
    ],
)
def test_a_loss_where_a_log_rotted_is_permitted_if_it_is_possible_and_traced(
    make_run: MakeRun,
    prediction: Predicted,
    replay: Replayed,
    chance: Chance,
    explained: int,
    sound: int,
    expected: Verdict,
) -> None:
    """`sound`: how many are lost on the partition that did not rot."""
    prediction.says(lost=Chance.IMPOSSIBLE)
    apart = PredictedClass(anomaly="lost", chance=chance, why="as planted there", partitions=("orders/0",))
    prediction.file = prediction.file.model_copy(update={"classes": (*prediction.file.classes, apart)})
    lost = 2 + sound
    replay.file = ConformanceFile(
        classes=(
            ClassExplained(anomaly="lost", count=lost, explained=explained, not_replayed=lost - explained),
        )
    )
    findings = [finding("lost")] * 2 + [{**finding("lost"), "partition": 1}] * sound
    bins = {TopicPartition("orders", number): (0, 30) for number in (0, 1)}
    run = make_run(experiment=ROTTED, acked_bins=bins, findings=findings, lost=lost)
    verdict = judge_case(run)
    assert verdict.verdict is expected, verdict.reasons
    (said,) = [one for one in verdict.classes if one.anomaly == "lost"]
    assert said.count == lost
    assert "2 of" in said.why and "orders/0" in said.why


@pytest.mark.parametrize("first", [Chance.POSSIBLE, Chance.UNKNOWN])
def test_one_partition_of_which_nothing_can_be_said_leaves_the_class_open(
    make_run: MakeRun, prediction: Predicted, replay: Replayed, first: Chance
) -> None:
    """Whichever is told first."""
    prediction.says(lost=Chance.IMPOSSIBLE)
    chances = sorted((Chance.POSSIBLE, Chance.UNKNOWN), key=lambda chance: chance is not first)
    apart = [
        PredictedClass(
            anomaly="lost", chance=chance, why=f"planted {number}", partitions=(f"orders/{number}",)
        )
        for number, chance in enumerate(chances)
    ]
    prediction.file = prediction.file.model_copy(update={"classes": (*prediction.file.classes, *apart)})
    replay.file = ConformanceFile(classes=(ClassExplained(anomaly="lost", count=2, explained=2),))
    findings = [finding("lost"), {**finding("lost"), "partition": 1}]
    bins = {TopicPartition("orders", number): (0, 30) for number in (0, 1)}
    verdict = judge_case(make_run(experiment=ROTTED, acked_bins=bins, findings=findings, lost=2))
    assert verdict.verdict is Verdict.INCONCLUSIVE
    (said,) = [one for one in verdict.classes if one.anomaly == "lost"]
    assert (said.forbidden, said.predicted) == (None, Chance.UNKNOWN)
    words = {Chance.POSSIBLE: "predicted possible", Chance.UNKNOWN: "of which nothing can be said"}
    assert said.why == "; ".join(
        f"1 of 2 are on orders/{number}, {words[chance]}: planted {number}"
        for number, chance in enumerate(chances)
    )


@pytest.mark.parametrize(("elsewhere", "expected"), [(1, Verdict.INCONCLUSIVE), (0, Verdict.PASS)])
def test_what_is_unknown_elsewhere_leaves_the_class_open_if_it_was_seen_there(
    make_run: MakeRun, prediction: Predicted, replay: Replayed, elsewhere: int, expected: Verdict
) -> None:
    prediction.says(lost=Chance.UNKNOWN)
    apart = PredictedClass(anomaly="lost", chance=Chance.POSSIBLE, why="planted", partitions=("orders/0",))
    prediction.file = prediction.file.model_copy(update={"classes": (*prediction.file.classes, apart)})
    count = 1 + elsewhere
    replay.file = ConformanceFile(classes=(ClassExplained(anomaly="lost", count=count, explained=count),))
    findings = [finding("lost"), *([{**finding("lost"), "partition": 1}] * elsewhere)]
    bins = {TopicPartition("orders", number): (0, 30) for number in (0, 1)}
    weak = ROTTED.replace("acks: all", "acks: 1")
    verdict = judge_case(make_run(experiment=weak, acked_bins=bins, findings=findings, lost=count))
    assert verdict.verdict is expected, verdict.reasons
    (said,) = [one for one in verdict.classes if one.anomaly == "lost"]
    own = f"1 of {count} are on orders/0, predicted possible: planted"
    assert said.forbidden is (None if elsewhere else False)
    assert said.predicted == (Chance.UNKNOWN if elsewhere else Chance.POSSIBLE)
    assert said.why == own if not elsewhere else said.why.endswith(f"; {own}")

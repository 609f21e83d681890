"""Tests of replicas that left the ISR, and of losses where a fault damaged a log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ackproof.judge import judge_case
from ackproof.observe.replica_logs import LogDir, collect_replica_logs
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.documents import VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import ClassExplained, ConformanceFile, PredictedClass, Truncation
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.partition import TopicPartition
from broker_files import batch
from judged_run import EXPERIMENT, MakeRun, Predicted, Replayed, finding, in_sync

END = 100
FIRST, SECOND, THIRD = batch(0, [b"x"] * 40), batch(40, [b"y"] * 20), batch(60, [b"z"] * 40)
OTHER = batch(40, [b"Y"] * 20)
Left = Callable[..., VerdictFile]


@pytest.fixture
def left(make_run: Callable[..., CaseDir], tmp_path: Path) -> Left:
    """Return a function that judges a run in which `node` left the ISR at high watermark 60. `log`: its batches at the
    end, from offset `base` on; the other nodes have offsets 0 to 99. `replicas`: assigned nodes after it left."""

    def judged(
        *log: bytes,
        fault: str = "kill: {target: leader(orders/0)}",
        replicas: Sequence[int] = (1, 2, 3),
        node: int = 3,
        base: int = 0,
    ) -> VerdictFile:
        run = make_run(
            experiment=EXPERIMENT.format(min_insync=2, producers="acks: all", expect="").replace(
                "kill: {target: leader(orders/0)}", fault
            )
        )
        for each in (1, 2, 3):
            data = log if each == node else (FIRST, SECOND, THIRD)
            folder = tmp_path / str(each) / "orders-0"
            folder.mkdir(parents=True)
            (folder / f"{base if each == node else 0:020d}.log").write_bytes(b"".join(data))
        collect_replica_logs(
            [LogDir(each, tmp_path / str(each)) for each in (1, 2, 3)], ["orders"], run, "ab" * 8
        )
        last, stayed = in_sync("orders", 0), tuple(each for each in (1, 2, 3) if each != node)
        samples = [
            replace(last, t_ns=1, high_watermark=60),
            replace(last, t_ns=2, isr=stayed, high_watermark=60, replicas=tuple(replicas)),
            replace(last, isr=stayed, high_watermark=END),
        ]
        run.samples.write_text("".join(f"{one.line()}\n" for one in samples), encoding="utf-8")
        return judge_case(run)

    return judged


def _odd(said: VerdictFile) -> list[str]:
    return [reason for reason in said.reasons if "was in the ISR when" in reason]


@pytest.mark.parametrize(
    "log",
    [
        pytest.param((FIRST, SECOND), id="it stopped there"),
        pytest.param((FIRST, SECOND, batch(60, [b"?"] * 5)), id="it differs behind"),
        pytest.param((FIRST, SECOND, batch(60, [b"?"])), id="it differs right behind"),
        pytest.param((FIRST, SECOND, THIRD), id="it has all"),
    ],
)
def test_what_it_holds_beyond_is_its_own(left: Left, log: tuple[bytes, ...]) -> None:
    assert _odd(left(*log)) == []


@pytest.mark.parametrize(
    ("log", "first"),
    [
        pytest.param((FIRST,), 40, id="it lacks some"),
        pytest.param((FIRST, OTHER), 40, id="it has another"),
        pytest.param((), 0, id="it has none"),
    ],
)
def test_below_it_holds_the_same(left: Left, log: tuple[bytes, ...], first: int) -> None:
    said = left(*log)
    assert said.verdict is Verdict.INCONCLUSIVE
    assert _odd(said) == [
        "orders/0: node 3 was in the ISR when the high watermark was 60, and below that its log differs from that of "
        f"node 1 from offset {first} on"
    ]


def test_not_of_what_its_log_has_deleted_already(left: Left) -> None:
    assert _odd(left(SECOND, base=40)) == []


def test_but_of_what_it_still_has(left: Left) -> None:
    assert _odd(left(OTHER, base=40))


def test_not_where_a_fault_was_at_its_disk(left: Left) -> None:
    """The fault of the run, which empties a disk, is aimed at node 2."""
    assert _odd(left(FIRST, node=2, fault="empty_disk: {target: leader(orders/0)}")) == []


def test_but_where_it_was_at_anothers(left: Left) -> None:
    assert _odd(left(FIRST, node=3, fault="empty_disk: {target: leader(orders/0)}"))


def test_or_was_none_of_disks(left: Left) -> None:
    assert _odd(left(FIRST, node=2))


def test_not_of_what_a_later_leader_did_not_have(left: Left, replay: Replayed) -> None:
    cut = Truncation(
        topic="orders",
        partition=0,
        from_offset=40,
        to_offset=60,
        old_epoch=0,
        new_epoch=1,
        new_leader=2,
        why="",
    )
    replay.file = ConformanceFile(truncations=(cut,))
    assert _odd(left(FIRST, OTHER)) == []


def test_not_of_who_was_no_replica_meanwhile(left: Left) -> None:
    assert _odd(left(FIRST, replicas=(1, 2))) == []


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
    """Two records are lost on orders/0, whose log a fault damaged. `sound`: number of losses on orders/1."""
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
    """The class is undecided, whichever of the two partitions the prediction names first."""
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


def test_a_possible_loss_that_is_not_traced_names_what_was_not_replayed(
    make_run: MakeRun, prediction: Predicted
) -> None:
    prediction.says(lost=Chance.IMPOSSIBLE)
    apart = PredictedClass(anomaly="lost", chance=Chance.POSSIBLE, why="planted", partitions=("orders/0",))
    prediction.file = prediction.file.model_copy(update={"classes": (*prediction.file.classes, apart)})
    verdict = judge_case(make_run(experiment=ROTTED, findings=[finding("lost")], lost=1))
    assert verdict.verdict is Verdict.INCONCLUSIVE
    (said,) = [one for one in verdict.classes if one.anomaly == "lost"]
    untraced = "not traced to the step that removed them (nothing in this test)"
    assert said.why == f"1 of 1 are on orders/0, {untraced}: planted"


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

"""Tests of whole runs with one planted lie each: the harness must find it, name its class, and exit with its code.

There are eight runs on real brokers, and copies of the honest one with lies in their ledgers; one audit covers all."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ackproof.base.processes import find_children
from ackproof.cli.main import main_code
from ackproof.clients.librdkafka import adapter
from ackproof.cluster.install import Installation
from ackproof.faults import processes as faults
from ackproof.run.phases import Phase
from ackproof.rundir.batch import BatchCase, BatchFile
from ackproof.rundir.documents import FinalReadFile, VerdictFile
from ackproof.rundir.layout import BatchDir
from ackproof.rundir.outcome import Verdict, batch_exit_code
from ackproof.rundir.timeline import EventKind

from .conftest import NEWEST
from .lies import ledger_files as lies
from .lies import on_brokers as planted
from .lies import told_files
from .lies.stage import Judged, Stage, Watching

pytestmark = pytest.mark.cluster

DURABLE = """\
cluster: {brokers: 2, combined: true}
topics: {orders: {partitions: 2, replication_factor: 2, config: {min.insync.replicas: 2}}}
workload:
  producers: {acks: all, idempotence: true, rate: 400/s}
  consumers: {live: 1}
  duration: 1s
"""
# Idempotent: without it, a batch refused while its leader is new may be overtaken, and Kafka reorders by itself.
SMALL = """\
cluster: {brokers: 1, combined: true}
topics: {orders: {partitions: 2, replication_factor: 1}}
workload:
  producers: {count: 2, acks: all, idempotence: true, rate: 400/s, delivery_timeout: 5s}
  consumers: {live: 1}
  duration: 1s
"""
FOLLOWER_GONE = (
    DURABLE.replace("combined: true", "controllers: 1").replace(
        "min.insync.replicas: 2", "min.insync.replicas: 1"
    )
    + "evidence: {settle_timeout: 3s}\n"
)
MISSES = """\
cluster: {brokers: 2, controllers: 1}
topics: {orders: {assignment: [[1]]}}
workload:
  producers: {acks: 1, rate: 400/s}
  duration: 1s
faults:
  - pause: {target: broker(2)}
    at: 200ms
    for: 200ms
  - kill: {target: broker(1)}
    at: 400ms
    restart_after: 200ms
"""
DIES = SMALL.replace("duration: 1s", "duration: 60s") + "evidence: {settle_timeout: 2s}\n"


@pytest.fixture(scope="module")
def stage(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("lies"), installs(NEWEST))
    yield made
    left = [child for child in find_children() if made.folder in child.directory.parents]
    assert not left, f"left behind: {left}"


@pytest.fixture(scope="module")
def killer(stage: Stage) -> Killer:
    return Killer(stage.folder / "broker-dies")


@pytest.fixture(scope="module")
def died(killer: Killer) -> Watching:
    return Watching(on_live=killer.look)


@pytest.fixture(scope="module")
def judged(stage: Stage, died: Watching) -> dict[str, Judged]:
    """All runs, and all changed copies of the honest run, audited as one job and judged; by name."""
    honest = stage.play("honest", DURABLE)
    stage.play("cut", DURABLE, {Phase.READ: planted.cut_all_replicas})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(lies.__file__).parent))
        stage.play(
            "misread",
            SMALL,
            {Phase.READ: lambda _: patch.setattr(adapter, "READER_MODULE", "flipping_reader")},
        )
    stage.play("sent-again", SMALL, {Phase.HEAL: planted.send_once_more})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faults.KillInjection, "inject", lambda injection: "SIGKILL to nobody")
        patch.setattr(faults, "GONE_WITHIN_S", 0.5)
        stage.play("misses", MISSES, {Phase.LOAD: planted.kill_node_2})
    stage.play("follower-gone", FOLLOWER_GONE, {Phase.DRAIN: planted.kill_the_follower})
    stage.play("producer-killed", SMALL, {Phase.HEAL: planted.kill_a_producer_between_send_and_outcome})
    stage.play("broker-dies", DIES, watcher=died)
    for name, (client, change) in TOLD_AFTERWARDS.items():
        copy = stage.runs[name] = lies.copy_of(honest, stage.folder / name)
        lies.rewrite(copy.ledger / client, change)
    copy = stage.runs["no-end"] = lies.copy_of(honest, stage.folder / "no-end")
    (copy.produced / "client=p0" / "_END").unlink()
    lies.rewrite(copy.produced / "client=p0", lambda rows: rows[:-5])
    return stage.judge()


# -- the lies --------------------------------------------------------------------------------------------------------

TOLD_AFTERWARDS: dict[str, tuple[str, Callable[[lies.Rows], lies.Rows]]] = {
    "phantom": ("produced/client=p0", lies.without_last),
    "final-gap": ("consumed/client=f0", lambda rows: lies.without_one(rows, 10)),
    "final-tail": (
        "consumed/client=f0",
        lambda rows: [r for r in rows if r not in lies.in_order(rows, 0)[-3:]],
    ),
    "duplicate": ("consumed/client=f0", lies.twice),
    "conflict": ("consumed/client=r0", lies.other_record),
    "resurrected": ("produced/client=p0", lies.one_failed),
    "skipped": ("consumed/client=r0", lies.skipping),
    "rewound": ("consumed/client=r0", lies.going_back),
}


@dataclass
class Killer:
    """Kills the only broker of a run, without the harness's knowledge, once records are acknowledged."""

    run: Path
    killed_at: float | None = None
    """Time of the kill by `time.monotonic()`; None: not killed yet."""

    def look(self, acked: int) -> None:
        if acked >= 100 and self.killed_at is None:
            (child,) = [c for c in find_children() if c.directory == self.run and c.role == "broker-1"]
            self.killed_at = time.monotonic()
            os.kill(child.pid, signal.SIGKILL)


# -- what is said of them --------------------------------------------------------------------------------------------


def exit_code_of(one: Judged, capsys: pytest.CaptureFixture[str]) -> int:
    """Return the exit code of a batch with this run alone. Assert that `ackproof judge` exits with the same code."""
    code = int(batch_exit_code([one.verdict.verdict]))
    assert main_code(["judge", str(one.run.path)]) == code
    capsys.readouterr()
    return code


def fails(one: Judged, anomaly: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert one.verdict.verdict is Verdict.FAIL, one.reasons
    assert any(reason.startswith(f"{anomaly}: ") for reason in one.verdict.reasons), one.reasons
    assert exit_code_of(one, capsys) == 1


def inconclusive(one: Judged, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert one.verdict.verdict is Verdict.INCONCLUSIVE, one.reasons
    assert said in one.reasons
    assert exit_code_of(one, capsys) == 2


def found(one: Judged) -> dict[str, int]:
    return {name: count for name, count in one.audit.counts.items() if count}


def test_the_honest_run_passes(judged: dict[str, Judged], capsys: pytest.CaptureFixture[str]) -> None:
    one = judged["honest"]
    assert (one.verdict.verdict, one.verdict.reasons, found(one)) == (Verdict.PASS, (), {})
    assert exit_code_of(one, capsys) == 0


@pytest.mark.parametrize("lie", told_files.TOLD)
def test_what_another_file_denies(
    judged: dict[str, Judged], lie: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file of a passing run is changed and sealed again; another file contradicts it."""
    run = lies.copy_of(judged["honest"].run, tmp_path / lie)
    told_files.tell(run, lie)
    assert main_code(["judge", str(run.path)]) == 2
    capsys.readouterr()
    verdict = VerdictFile.load(run.verdict_json)
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert told_files.TOLD[lie][2] in "\n".join(verdict.reasons), verdict.reasons


def test_a_tail_cut_off_on_all_replicas(
    judged: dict[str, Judged], capsys: pytest.CaptureFixture[str]
) -> None:
    one = judged["cut"]
    end, count = map(int, (one.run.path / "cut").read_text().split())
    final = FinalReadFile.load(one.run.final_read)
    assert final.complete
    assert {p.partition: p.end for p in final.partitions}[0] == end
    assert found(one) == {"lost": count, "vanished": count}
    fails(one, "lost", capsys)


def test_a_record_that_lies_there_twice_with_a_byte_flipped_and_in_another_partition(
    judged: dict[str, Judged], capsys: pytest.CaptureFixture[str]
) -> None:
    one = judged["sent-again"]
    assert found(one) == {"corrupted": 2, "duplicate": 2, "misrouted": 1}  # one has another timestamp
    fails(one, "corrupted", capsys)
    fails(one, "duplicate", capsys)
    fails(one, "misrouted", capsys)


@pytest.mark.parametrize(
    ("lie", "counts"),
    [("misread", {"corrupted": 1, "lost": 1}), ("duplicate", {"duplicate": 1})],
)
def test_what_only_the_reader_saw_is_not_held_against_kafka(
    judged: dict[str, Judged], lie: str, counts: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the final read was falsified: a record has a flipped byte, or is there once more beyond the end of the log.
    The logs on disk differ from it, so the verdict is INCONCLUSIVE."""
    one = judged[lie]
    assert found(one) == counts
    inconclusive(one, "the final reader read other records than the log of node", capsys)


@pytest.mark.parametrize(
    ("lie", "counts"),
    [
        ("phantom", {"phantom": 1}),
        ("conflict", {"conflict": 1, "vanished": 1}),
        ("resurrected", {"resurrected": 1}),
        ("skipped", {"skipped": 3}),
        ("rewound", {"rewound": 1, "skipped": 2}),
    ],
)
def test_a_lie_in_a_ledger(
    judged: dict[str, Judged], lie: str, counts: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert found(judged[lie]) == counts
    fails(judged[lie], lie, capsys)


def test_a_final_reader_that_passed_over_a_record_proves_no_loss(
    judged: dict[str, Judged], capsys: pytest.CaptureFixture[str]
) -> None:
    one = judged["final-gap"]
    assert found(one) == {"lost": 1, "vanished": 1}
    inconclusive(one, "the final reader went back, or passed over offsets", capsys)


def test_a_final_ledger_without_its_end_proves_no_loss(
    judged: dict[str, Judged], capsys: pytest.CaptureFixture[str]
) -> None:
    one = judged["final-tail"]
    assert found(one) == {"lost": 3, "vanished": 3}
    there = one.audit.records.consumed_final
    inconclusive(one, f"the final reader read {there + 3} records, and its ledger has {there}", capsys)


def test_a_pause_of_the_dead_and_a_kill_that_misses(
    judged: dict[str, Judged], capsys: pytest.CaptureFixture[str]
) -> None:
    one = judged["misses"]
    inconclusive(one, "fault 1 (pause broker(2)): pause is aimed at node 2, which is gone", capsys)
    inconclusive(one, "fault 2 (kill broker(1)): ", capsys)
    assert {event.fault for event in one.events(EventKind.FAULT_FAILED)} == {1, 2}
    assert one.events(EventKind.FAULT_CONFIRMED) == []
    assert all(reason.startswith(("fault 1 ", "fault 2 ")) for reason in one.verdict.reasons), one.reasons


def test_a_follower_that_never_comes_back(
    judged: dict[str, Judged], capsys: pytest.CaptureFixture[str]
) -> None:
    one = judged["follower-gone"]
    assert not FinalReadFile.load(one.run.final_read).complete
    inconclusive(one, "the final read is incomplete", capsys)
    assert "2 replicas are awaited" in one.reasons


def test_a_producer_killed_between_send_and_outcome(
    judged: dict[str, Judged], capsys: pytest.CaptureFixture[str]
) -> None:
    one = judged["producer-killed"]
    assert one.audit.records.indeterminate >= planted.FROZEN
    assert set(found(one)) <= {"surfaced"}
    assert one.audit.unledgered == 0
    inconclusive(one, "client p0 ended by itself (-9)", capsys)
    assert "client=p0: no _END" in one.reasons


def test_a_producer_without_end_leaves_unledgered_records_and_no_phantom(
    judged: dict[str, Judged], capsys: pytest.CaptureFixture[str]
) -> None:
    one = judged["no-end"]
    assert (one.audit.unledgered, found(one)) == (5, {})
    inconclusive(one, "client=p0: no _END", capsys)


def test_a_broker_that_dies_by_itself(
    judged: dict[str, Judged], died: Watching, killer: Killer, capsys: pytest.CaptureFixture[str]
) -> None:
    one = judged["broker-dies"]
    told, event = died.first(EventKind.NODE_DIED)
    assert killer.killed_at is not None
    assert event.node == 1
    assert told - killer.killed_at < 0.5
    heal = next(at for at, e in died.told if e.kind is EventKind.PHASE and e.detail["phase"] == "heal")
    assert heal - told < 1.0  # the load, a minute long, ended at once
    inconclusive(one, "node 1 ended by itself (SIGKILL)", capsys)


def test_all_of_them_in_one_batch_fail(
    judged: dict[str, Judged], stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command judges each run of the batch as it does alone; FAIL outweighs the other verdicts."""
    batch = BatchDir(stage.folder)

    BatchFile(
        verdict=None,
        exit_code=255,
        seed=0,
        name="lies",
        cases=tuple(BatchCase(case=f"{name}#1", settings={}, repeat=1, run=name) for name in judged),
    ).save(batch.batch_json)
    assert main_code(["judge", str(batch.path)]) == 1
    capsys.readouterr()
    verdicts = {case.case: case.verdict for case in BatchFile.load(batch.batch_json).cases}
    assert verdicts == {f"{name}#1": one.verdict.verdict for name, one in judged.items()}

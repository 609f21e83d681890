"""Tests of the final read: it waits until partitions are at rest, reads to the end, and says why it is incomplete."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import ackproof.clients.final_read as module
import ackproof.clients.final_readers as readers
from ackproof.base.errors import Interrupted
from ackproof.base.processes import RunTag, find_children
from ackproof.clients.contract import ReaderSettings
from ackproof.clients.final_read import End, Read, final_read
from ackproof.clients.final_readers import FinalReadOrder, ReadOutcome
from ackproof.clients.launch import Handle, start_client
from ackproof.clients.workload import Workload
from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import FinalReadFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import read_parts
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import CONSUMED
from mock_kafka import RUN_ID


@pytest.mark.parametrize(
    ("isr", "replicas", "words"),
    [
        ((1, 2, 3), (1, 2, 3), ""),
        ((1, 2), (1, 2, 3), "ISR is [1, 2], 3 replicas are awaited"),
        ((1, 2), (2, 1), ""),
        ((1,), (2, 1), "ISR is [1], 2 replicas are awaited"),
        ((1, 2), (), "ISR is [1, 2], 3 replicas are awaited"),
        ((1, 2, 3), (1, 2, 3, 4), ""),
    ],
)
def test_no_more_replicas_are_awaited_than_there_are(
    isr: tuple[int, ...], replicas: tuple[int, ...], words: str
) -> None:
    """A reassignment may have left fewer replicas than the awaited ISR size."""
    assert replace(REST, isr=isr, replicas=replicas).unrest(3) == words


REST = End(leader=1, epoch=4, isr=(1, 2, 3), start=0, high_watermark=0, last_stable=0, log_end=0)


class Scripted:
    """Fake `Ends`: `say(n)` gives the state of partitions at call number n, from 1. Only requested partitions are
    returned."""

    def __init__(self, say: Callable[[int], Mapping[TopicPartition, End]]) -> None:
        self.say = say
        self.looks = 0

    def __call__(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, End]:
        self.looks += 1
        return {place: end for place, end in self.say(self.looks).items() if place in places}


@dataclass
class Written:
    """Records that a load wrote to a cluster (`produced`: its ledger rows), and a separate run that reads them back."""

    workload: Workload
    produced: list[dict]
    clock: RunClock
    run: CaseDir

    @property
    def tag(self) -> RunTag:
        return RunTag(RUN_ID, self.run.path, self.run.path)


def filled(kafka, load):
    """Return a load that has written at least 500 records to orders/0 and orders/1, and none to empty/0."""
    made = load(kafka, topics={"orders": 2}, rate="20000/s")
    kafka.create_topic("empty", 1)
    made.workload.start()
    made.until(lambda: made.workload.acked() >= 500, "acks")
    made.workload.stop()
    return made


@pytest.fixture(scope="module")
def source(shared_kafka, shared_load):
    return filled(shared_kafka, shared_load)


@pytest.fixture
def written(source, tmp_path: Path) -> Written:
    return Written(source.workload, source.produced().to_pylist(), source.clock, CaseDir(tmp_path))


@pytest.fixture(autouse=True)
def soon_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a partition count as settled after 0.1 s of rest instead of `REST_S`."""
    monkeypatch.setattr(module, "REST_S", 0.1)


def here(starts: tuple[int, ...], goals: tuple[int, ...]) -> ReadOutcome:
    """Return the outcome of a reader that reached every end offset, without starting a process."""
    return ReadOutcome(goals, {}, [])


def ends_of(load) -> dict[TopicPartition, End]:
    ends = {TopicPartition("empty", 0): REST}
    for number in (0, 1):
        count = load.workload.acked("orders", number)
        ends[TopicPartition("orders", number)] = replace(
            REST, high_watermark=count, last_stable=count, log_end=count
        )
    return ends


def read(
    load, ends, *, stop: threading.Event | None = None, by: Read | None = None, **order: object
) -> FinalReadFile:
    places = (TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("empty", 0))
    settings: dict[str, object] = {"settle_s": 5.0, "idle_s": 3.0, **order}
    file = final_read(
        FinalReadOrder(
            places=places,
            isr_sizes={"orders": 3, "empty": 3},
            reader=9,
            bootstrap=load.workload.bootstrap,
            **settings,
        ),
        ends,
        load.clock,
        load.tag,
        stop=stop,
        read=by,
    )
    assert FinalReadFile.load(load.run.final_read) == file
    assert not [child for child in find_children() if child.directory == load.run.path]
    return file


def rows(load) -> list[dict]:
    return read_parts(load.run.consumed / "client=f0", CONSUMED).sort_by("read_seq").to_pylist()


def test_complete(written) -> None:
    ends = ends_of(written)
    scripted = Scripted(lambda look: ends)
    file = read(written, scripted)
    assert file.complete
    assert file.reasons == ()
    assert scripted.looks >= 3, "two looks a second apart, and one after the read"
    for partition in file.partitions:
        end = ends[TopicPartition(partition.topic, partition.partition)]
        assert (partition.start, partition.end, partition.position) == (0, end.log_end, end.log_end)
        assert (partition.epoch, partition.epoch_after, partition.complete) == (4, 4, True)
    found = rows(written)
    assert {(row["producer"], row["seq"]) for row in found} == {
        (row["producer"], row["seq"]) for row in written.produced
    }
    assert len(found) == written.workload.acked()
    assert {(row["reader"], row["phase"], row["assignment"], row["intact"]) for row in found} == {
        (9, 1, 0, True)
    }
    assert (written.run.consumed / "client=f0" / "_END").exists()


def test_a_second_reader_reads_transactions_at_read_committed(written) -> None:
    ends = ends_of(written)
    file = read(written, Scripted(lambda look: ends), transactions=True)
    assert file.complete
    assert [(one.topic, one.partition) for one in file.committed] == [
        (one.topic, one.partition) for one in file.partitions
    ]
    assert all(one.complete and one.position == one.end for one in file.committed)
    assert sum(one.records for one in file.committed) == written.workload.acked()
    found = read_parts(written.run.consumed / "client=f1", CONSUMED).to_pylist()
    assert {(row["reader"], row["phase"]) for row in found} == {(10, 3)}
    assert {row["phase"] for row in rows(written)} == {1}
    settings = json.loads((written.run.clients / "f1" / "settings.json").read_text())
    assert settings["config"]["isolation.level"] == "read_committed"


def test_a_partition_that_was_read_with_holes_is_read_again_by_a_second_reader(
    written, monkeypatch: pytest.MonkeyPatch
) -> None:
    def passing_over(order: FinalReadOrder, *given) -> list[ReadOutcome]:
        (found,) = readers.read_by_processes(order, *given)
        first, *others = found.records
        return [found if order.second else replace(found, records=(first - 3, *others))]

    monkeypatch.setattr(module, "read_by_processes", passing_over)
    ends = ends_of(written)
    file = read(written, Scripted(lambda look: ends))
    count, other = (written.workload.acked("orders", number) for number in (0, 1))
    assert [(one.records, one.again) for one in file.partitions[:2]] == [(count - 3, count), (other, -1)]
    assert len(read_parts(written.run.second_read / "ledger/consumed/client=s0", CONSUMED)) == count


def test_it_waits_for_two_looks_a_second_apart_in_one_epoch(written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    good = ends_of(written)
    first = TopicPartition("orders", 0)
    unrest: list[dict[TopicPartition, End]] = [
        {**good, first: replace(good[first], isr=(1, 2))},
        {**good, first: replace(good[first], high_watermark=good[first].log_end - 1)},
        {place: end for place, end in good.items() if place != first},
        {**good, first: replace(good[first], last_stable=1)},
        {**good, first: replace(good[first], log_end=-1)},
        {**good, first: replace(good[first], leader=-1)},
        good,
        {**good, first: replace(good[first], epoch=5)},
        good,
    ]
    seen: list[float] = []

    def say(look: int) -> Mapping[TopicPartition, End]:
        seen.append(written.clock.now() / 1e9)
        return unrest[look - 1] if look <= len(unrest) else good

    assert read(written, Scripted(say), by=here).complete
    # the looks from the ninth on agree: at least a second passes from it to the last one before the read
    assert seen[-2] - seen[8] >= 1.0


def test_without_rest_it_is_not_complete_and_says_what_is_missing_but_reads(written) -> None:
    good = ends_of(written)
    place = TopicPartition("orders", 1)
    ends = {**good, place: replace(good[place], isr=(1,))}
    file = read(written, Scripted(lambda look: ends), settle_s=1.5)
    assert not file.complete
    assert file.reasons == (
        "the cluster did not settle within 1.5 s",
        "orders/1: ISR is [1], 3 replicas are awaited",
    )
    assert [partition.complete for partition in file.partitions] == [True, False, True]
    assert len(rows(written)) == written.workload.acked()


def test_a_partition_without_a_leader_is_named(written) -> None:
    good = ends_of(written)
    ends = {place: end for place, end in good.items() if place != TopicPartition("orders", 0)}
    file = read(written, Scripted(lambda look: ends), settle_s=1.5)
    assert "orders/0: no answer" in file.reasons
    assert {row["partition"] for row in rows(written)} == {1}


def test_what_changes_during_the_read_makes_it_incomplete(written) -> None:
    """A changed leader epoch is the example; `test_rest` has the other changes."""
    good = ends_of(written)
    place = TopicPartition("orders", 0)
    now = [good]

    def read_and_change(starts: tuple[int, ...], goals: tuple[int, ...]) -> ReadOutcome:
        now[0] = {**good, place: replace(good[place], epoch=5)}
        return here(starts, goals)

    file = read(written, Scripted(lambda look: now[0]), by=read_and_change)
    assert not file.complete
    assert file.reasons == ("orders/0: the leader epoch was 4 before the read and 5 after it",)


@pytest.mark.parametrize("silent", [1, 3, 10**6])
def test_leaders_are_asked_again_after_the_read(
    written, monkeypatch: pytest.MonkeyPatch, silent: int
) -> None:
    monkeypatch.setattr(module, "_AFTER_S", 1.0)
    good, first = ends_of(written), TopicPartition("orders", 0)
    before = [0]

    def read_and_note(starts: tuple[int, ...], goals: tuple[int, ...]) -> ReadOutcome:
        before[0] = scripted.looks
        return here(starts, goals)

    def say(look: int) -> Mapping[TopicPartition, End]:
        late = before[0] and look - before[0] <= silent
        # half of an answer, and none
        return (
            {**good, first: replace(good[first], log_end=-1)} if late and look % 2 else {} if late else good
        )

    scripted = Scripted(say)
    file = read(written, scripted, by=read_and_note)
    if silent < 10**6:
        assert file.complete
        assert scripted.looks == before[0] + silent + 1
        return
    assert "orders/0: no answer from a leader in 1 s after the read" in file.reasons
    (partition,) = [one for one in file.partitions if (one.topic, one.partition) == ("orders", 0)]
    assert (partition.complete, partition.epoch_after) == (False, -1)


def test_a_partition_that_does_not_get_on_is_named_with_its_position(written) -> None:
    good = ends_of(written)
    place = TopicPartition("orders", 1)
    count = good[place].log_end
    beyond = {
        **good,
        place: replace(good[place], log_end=count + 5, high_watermark=count + 5, last_stable=count + 5),
    }
    file = read(written, Scripted(lambda look: beyond), idle_s=1.0)
    assert file.reasons == (f"orders/1: the reader came to {count} of {count + 5}",)
    assert [partition.complete for partition in file.partitions] == [True, False, True]
    assert len(rows(written)) == written.workload.acked(), "what could be read is there"


def test_a_read_that_takes_too_long_is_ended(written, shared_kafka) -> None:
    ends = ends_of(written)
    shared_kafka.down()
    try:
        file = read(written, Scripted(lambda look: ends), idle_s=60.0, read_s=1.0)
    finally:
        shared_kafka.up()
    assert file.reasons[0].startswith("waited 1 s for the final read to end")


def test_a_start_that_the_log_has_left_is_a_reason(kafka, load, tmp_path: Path) -> None:
    other = filled(kafka, load)
    written = Written(other.workload, other.produced().to_pylist(), other.clock, CaseDir(tmp_path / "read"))
    ends = ends_of(written)
    kafka.delete_records("orders", 0, 20)
    file = read(written, Scripted(lambda look: ends), idle_s=1.0)
    assert not file.complete
    assert [reason for reason in file.reasons if reason.startswith("orders/0: the reader came to 0 of")]
    assert {row["partition"] for row in rows(written)} == {1}


def test_a_reader_that_cannot_work_is_a_reason(written) -> None:
    ends = ends_of(written)
    file = read(written, Scripted(lambda look: ends), hidden={"no.such.setting": "1"})
    assert not file.complete
    assert "no.such.setting" in file.reasons[0]


def test_stop_ends_the_reader(written) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Interrupted):
        read(written, Scripted(lambda look: ends_of(written)), stop=stop)
    assert not Path(written.run.final_read).exists()


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that this machine has two processors, and that a single record is worth a process."""
    monkeypatch.setattr(readers, "_WORTH_A_PROCESS", 1)
    monkeypatch.setattr(readers.os, "sched_getaffinity", lambda pid: {0, 1})


def test_processes_share_the_partitions_of_a_reader(written, two_processes: None) -> None:
    ends = ends_of(written)
    file = read(written, Scripted(lambda look: ends))
    assert file.complete, file.reasons
    assert [one.position for one in file.partitions] == [one.end for one in file.partitions]
    assert [one.records for one in file.partitions] == [one.end for one in file.partitions]
    found = rows(written)
    assert len(found) == written.workload.acked()
    assert {(row["producer"], row["seq"]) for row in found} == {
        (row["producer"], row["seq"]) for row in written.produced
    }
    assert len({row["read_seq"] for row in found}) == len(found)
    assert {row["reader"] for row in found} == {9}
    assert {(row["partition"], row["assignment"]) for row in found} in ({(0, 0), (1, 1)}, {(0, 1), (1, 0)})
    assert {path.name for path in written.run.clients.glob("f0*")} == {"f0.0", "f0.1"}
    assert [path.name for path in written.run.consumed.iterdir()] == ["client=f0"]
    assert (written.run.consumed / "client=f0" / "_END").exists()


def test_a_process_that_dies_leaves_the_read_incomplete(
    written, two_processes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(settings: ReaderSettings, tag: RunTag, hidden: dict[str, str]) -> Handle:
        handle = start_client(settings, tag, hidden)
        if settings.process == "f0.1":
            handle.child.kill()
        return handle

    monkeypatch.setattr("ackproof.clients.final_readers.start_client", start)
    ends = ends_of(written)
    file = read(written, Scripted(lambda look: ends))
    assert not file.complete
    assert [reason for reason in file.reasons if "ended with status -9" in reason]
    whole = [one for one in file.partitions if one.complete and one.topic == "orders"]
    assert len(whole) == 1, "the other process read its own"
    assert {row["partition"] for row in rows(written)} == {whole[0].partition}
    assert not (written.run.consumed / "client=f0" / "_END").exists()


def test_readers_of_both_isolation_levels_have_the_processors_between_them(
    written, two_processes: None
) -> None:
    ends = ends_of(written)
    file = read(written, Scripted(lambda look: ends), transactions=True)
    assert file.complete, file.reasons
    assert {path.name for path in written.run.clients.glob("f*")} == {"f0", "f1"}

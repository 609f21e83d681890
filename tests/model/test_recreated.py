"""Tests of a topic that was deleted and created again under load: each incarnation is replayed as a log of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ackproof.plan.cases import case_from_json
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import read_metadata
from ackproof.rundir.model import ConformanceFile
from ackproof_model.predict.incidents import happened
from observed_run import Ack, broker, event, partition
from recreated_run import FIRST, OFFSETS, SECOND, RecreatedRun, acks, old_log, records, told, topic


def forbidden(file: ConformanceFile) -> str:
    return "" if file.forbidden is None else file.forbidden.rule


def test_what_an_earlier_incarnation_acknowledged_went_with_it(tmp_path: Path) -> None:
    file, lost = told(RecreatedRun(), tmp_path)
    assert (forbidden(file), file.not_replayed, file.unexplained, file.present) == ("", (), (), 0)
    assert (lost.count, lost.explained, lost.deleted, lost.unexplained) == (OFFSETS, OFFSETS, OFFSETS, 0)
    (gone,) = file.deletions
    assert (gone.topic_id, gone.incarnation, gone.by, gone.offset) == (FIRST, 1, "fault 1 (recreate)", 30)
    assert (gone.acked, gone.either, gone.log_end) == (OFFSETS, 0, OFFSETS)
    assert gone.why == "the topic was deleted by fault 1 (recreate) at 4.000 s"
    assert gone.removed_ns < gone.until_ns < gone.again_ns
    assert (file.must_be_gone, file.either_way, file.truncations) == (OFFSETS, 0, ())


@pytest.mark.parametrize("logs", [(), (old_log(node=2),), (old_log(topic_id=SECOND),), (old_log(),) * 2])
def test_without_the_leaders_old_log_it_is_seen_by_the_next_samples(tmp_path: Path, logs: tuple) -> None:
    """Without the deleted log, the first sample with a shorter log shows when the leader knew of the deletion."""
    file, lost = told(RecreatedRun(deleted=logs), tmp_path)
    assert (lost.explained, lost.unexplained, forbidden(file)) == (OFFSETS, 0, "")
    (gone,) = file.deletions
    assert (gone.until_ns, gone.log_end, gone.either) == (4_250_000_000, -1, 0)


def test_what_can_be_of_either_incarnation_is_said_as_an_interval(tmp_path: Path) -> None:
    """No later sample shows the old leader. So it may have appended for two broker sessions more, far above the end of
    the present log."""
    late = [Ack(400, 130, 4400, lost=True), Ack(401, 79, 5095)]
    run = RecreatedRun(samples=[], deleted=(), acks=[*acks(79), *late])
    file, lost = told(run, tmp_path)
    (gone,) = file.deletions
    assert gone.until_ns == 10_000_000_000 > gone.again_ns
    assert (lost.count, lost.unexplained, gone.either) == (OFFSETS + 1, 0, 0)
    # The first had acknowledged 79 before that was sent; and the second log does not reach 130.
    assert (gone.acked, file.either_way) == (OFFSETS + 1, 0)


def test_of_either_are_offsets_that_both_logs_reach(tmp_path: Path) -> None:
    """The second log reaches offsets of the first one, while the first leader may not know of the deletion yet: these
    are undecided."""
    more = [*acks(), *(Ack(300 + n, 80 + n, 5200 + n) for n in range(100))]
    run = RecreatedRun(samples=[], deleted=(), acks=more, log=((0, 179, 0),))
    file, lost = told(run, tmp_path)
    (gone,) = file.deletions
    assert (gone.first_either, gone.last_either, gone.either) == (OFFSETS, 179, 55)
    assert (file.either_way, lost.unexplained, file.present) == (55, 0, 0)
    run.stamps = {80 + n: 5200 + n for n in range(100)}
    file, _ = told(run, tmp_path / "stamped")
    assert (file.deletions[0].either, file.either_way) == (0, 0)


def test_an_old_run_directory_without_ids_is_replayed_too(tmp_path: Path) -> None:
    file, lost = told(RecreatedRun(topic_id="", deleted=()), tmp_path)
    assert (forbidden(file), lost.explained, lost.unexplained) == ("", OFFSETS, 0)


def test_a_loss_of_the_second_incarnation_is_not_excused_by_the_deletion(tmp_path: Path) -> None:
    rows = acks()
    rows[-1].lost = True
    file, lost = told(RecreatedRun(acks=rows), tmp_path)
    assert (lost.count, lost.unexplained) == (OFFSETS + 1, 1)
    assert file.unexplained[0].offset == 79


def test_an_ack_of_the_second_incarnation_above_what_it_kept_is_found(tmp_path: Path) -> None:
    """The first incarnation had such an offset, but this acknowledgement came too late for it."""
    rows = [*acks(), Ack(300, 110, 5200, lost=True)]
    file, lost = told(RecreatedRun(acks=rows), tmp_path)
    assert forbidden(file) == "ack above what its epoch kept"
    assert file.forbidden is not None and "110 of producer 0, seq 300" in file.forbidden.text
    assert lost.unexplained == 1


@pytest.mark.parametrize("end", [0, 60, 120])
def test_an_ack_that_the_deleted_log_never_held_is_found(tmp_path: Path, end: int) -> None:
    """The result is the same if the present log has such an offset and if it has not."""
    file, lost = told(RecreatedRun(deleted=(old_log(end=end),)), tmp_path)
    assert forbidden(file) == "ack above what its epoch kept"
    assert file.forbidden is not None
    assert f"incarnation 1: {OFFSETS - end} acknowledged" in file.forbidden.text
    assert (lost.explained, lost.unexplained) == (end, OFFSETS - end)


def test_a_record_that_went_with_its_topic_cannot_be_there(tmp_path: Path) -> None:
    rows = acks()
    rows[3].lost = False
    file, lost = told(RecreatedRun(acks=rows), tmp_path)
    assert (file.present, file.unexplained[0].offset) == (1, 3)
    assert "was deleted" in file.unexplained[0].why
    assert lost.unexplained == 0


def test_a_truncation_within_the_first_incarnation_is_told_as_one(tmp_path: Path) -> None:
    """Broker 1 dies with the last twenty records; broker 2 leads epoch 1 from offset 100 on; then the topic is
    deleted."""
    log = [
        *records()[:8],
        partition(25, 3590, 2, (1, 1), [2, 3], "isr", "leader"),
        broker(26, 3590, 1, 1, fenced=True),
        topic(30, 4000, FIRST, "topic-removed"),
        topic(40, 4200, SECOND),
        partition(41, 4200, 2, (0, 0), [2, 3], "created") | {"replicas": [2, 3, 1]},
    ]
    first = [Ack(seq, seq, 2000 + 10 * seq, lost=True) for seq in range(120)]
    second = [Ack(1000 + n, 100 + n, 3620 + n, lost=True) for n in range(10)]
    old = old_log(node=2, end=110, newest_ms=3800).model_copy(
        update={
            "epochs": (old_log().epochs[0], old_log().epochs[0].model_copy(update={"epoch": 1, "start": 100}))
        }
    )
    run = RecreatedRun(records=log, acks=[*first, *second, *acks()[OFFSETS:]], deleted=(old,), samples=[])
    run.events = [event("node-ended", 3300, node=1), *run.events]
    file, lost = told(run, tmp_path)
    assert (forbidden(file), lost.count, lost.explained, lost.deleted) == ("", 130, 130, 110)
    (cut,) = file.truncations
    assert (cut.from_offset, cut.to_offset, cut.old_epoch, cut.new_epoch, cut.acked) == (100, 120, 0, 1, 20)
    strict = RecreatedRun(**{**vars(run), "acks_setting": "all"})
    assert forbidden(told(strict, tmp_path / "all")[0]) == "ack above what its epoch kept"


def test_in_epochs_that_one_broker_led_without_a_break_nothing_was_cut(tmp_path: Path) -> None:
    """In ZooKeeper mode a deletion takes replicas offline one by one, and each step raises the leader epoch."""
    log = records()
    log.insert(8, partition(29, 3995, 1, (1, 1), [1], "isr") | {"replicas": [1, 2, 3]})
    rows = [*acks(), *(Ack(300 + n, 80 + n, 5200 + n) for n in range(100))]
    run = RecreatedRun(records=log, samples=[], acks=rows, log=((0, 179, 0),))
    file, lost = told(run, tmp_path)
    (gone,) = file.deletions
    assert (gone.acked, gone.either, file.either_way) == (OFFSETS, 0, 0)
    assert (lost.explained, lost.unexplained, gone.log_end) == (OFFSETS, 0, OFFSETS)
    run.deleted = ()
    file, lost = told(run, tmp_path / "unseen")
    assert (file.deletions[0].first_either, file.deletions[0].either, lost.unexplained) == (OFFSETS, 55, 0)


def test_acks_without_an_offset_are_explained_by_the_deletion(tmp_path: Path) -> None:
    rows = [Ack(ack.seq, -1, ack.sent_ms, ack.lost) for ack in acks()]
    file, lost = told(RecreatedRun(acks=rows, acks_setting="0"), tmp_path)
    assert (lost.by_interval, lost.unexplained) == (OFFSETS, 0)
    (one,) = file.intervals
    assert one.why.startswith("the topic was deleted by fault 1 (recreate)")


def test_a_topic_that_never_came_back_took_all_with_it(tmp_path: Path) -> None:
    run = RecreatedRun(records=records()[:9], acks=acks(0), samples=[])
    file, lost = told(run, tmp_path)
    assert (forbidden(file), lost.explained, file.deletions[0].again_ns) == ("", OFFSETS, -1)
    run.acks = [*run.acks, Ack(300, 4, 9000, lost=True)]
    file, lost = told(run, tmp_path / "later")
    assert (forbidden(file), lost.unexplained) == ("ack above what its epoch kept", 1)


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        (partition(50, 4500, 3, (1, 2), [3], "isr", "leader"), "election out of the ISR"),
        (partition(50, 4500, 2, (0, 0), [1, 2, 3], "created"), "creation of what is there"),
    ],
)
def test_a_forbidden_step_of_the_second_incarnation_is_named(
    tmp_path: Path, step: dict[str, object], rule: str
) -> None:
    alone = partition(49, 4400, 2, (0, 1), [2], "isr") | {"replicas": [2, 3, 1]}
    file, _ = told(RecreatedRun(records=[*records(), alone, step | {"replicas": [2, 3, 1]}]), tmp_path)
    assert forbidden(file) == rule
    assert file.forbidden is not None and file.forbidden.offset == 50


def test_an_incarnation_counts_its_epochs_from_the_beginning(tmp_path: Path) -> None:
    log = [*records()[:-1], partition(41, 4200, 2, (1, 0), [1, 2, 3], "created") | {"replicas": [2, 3, 1]}]
    file, _ = told(RecreatedRun(records=log), tmp_path)
    assert forbidden(file) == "creation"
    assert file.forbidden is not None and "begin at 0" in file.forbidden.text


@pytest.mark.parametrize(
    "run",
    [
        RecreatedRun(faults=""),
        RecreatedRun(events=[]),
        RecreatedRun(events=[event("fault-asked", 4500, fault=1, detail={"kind": "recreate"})]),
    ],
    ids=["no such fault", "not asked", "asked later"],
)
def test_a_deletion_that_nobody_asked_for_is_forbidden(tmp_path: Path, run: RecreatedRun) -> None:
    file, _ = told(run, tmp_path)
    assert forbidden(file) == "deletion that nobody asked for"
    assert file.deletions[0].by == ""


def test_a_high_watermark_that_goes_back_within_the_second_incarnation_is_found(tmp_path: Path) -> None:
    run = RecreatedRun()
    assert forbidden(told(run, tmp_path)[0]) == ""
    run.samples[-1] = replace(run.samples[-1], high_watermark=3)
    file, _ = told(run, tmp_path / "back")
    assert forbidden(file) == "high watermark went back"


def test_a_setting_of_the_first_incarnation_ends_with_it(tmp_path: Path) -> None:
    """Unclean elections were allowed on the first topic, and are not on the second."""
    unclean = {"kind": "config", "resource": 2, "name": "orders", "key": "unclean.leader.election.enable"}
    setting = topic(21, 1100, "") | unclean | {"value": "true"}
    del setting["topic"], setting["topic_id"]
    alone = partition(49, 4400, 2, (0, 1), [2], "isr") | {"replicas": [2, 3, 1]}
    lost = partition(50, 4500, 3, (1, 2), [3], "isr", "leader") | {"replicas": [2, 3, 1], "recovering": True}
    log = records()
    log.insert(8, setting)
    file, _ = told(RecreatedRun(records=[*log, alone, lost, broker(51, 4500, 2, 2, fenced=True)]), tmp_path)
    assert forbidden(file) == "election out of the ISR"


def test_a_topic_that_is_made_anew_under_another_leader_was_not_moved(tmp_path: Path) -> None:
    told(RecreatedRun(), tmp_path)
    run = CaseDir(tmp_path)
    case = case_from_json(CaseFile.load(run.case_json).resolved)
    assert list(happened(case, "orders", (), tuple(read_metadata(run.metadata_log)))) == []

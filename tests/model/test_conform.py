"""Tests of the replay: changes that Kafka allows pass, and each planted error is found and named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ackproof.experiment.kafka import ELR
from ackproof.experiment.spec import ClusterSpec
from ackproof.rundir.model import ConformanceFile
from ackproof_model.replay.observed import learns_ns
from observed_run import (
    LOST,
    Ack,
    ObservedRun,
    acks,
    beginning,
    broker,
    event,
    metadata,
    partition,
    registered,
    sample,
    samples,
)


def _forbidden(file: ConformanceFile) -> str:
    assert file.forbidden is not None
    assert file.forbidden.state_before
    assert file.forbidden.source
    return file.forbidden.rule


def test_steps_that_the_protocol_allows_are_replayed_and_every_loss_is_explained(tmp_path: Path) -> None:
    file = ObservedRun().conformed(tmp_path)
    assert file.forbidden is None
    assert [(one.observed, one.reference) for one in file.elections] == [(2, 2)]
    (lost,) = [one for one in file.classes if one.anomaly == "lost"]
    assert (lost.count, lost.explained, lost.unexplained) == (20, 20, 0)
    assert (file.must_be_gone, file.either_way, file.present) == (20, 0, 0)
    (cut,) = file.truncations
    assert (cut.from_offset, cut.to_offset, cut.old_epoch, cut.new_epoch, cut.new_leader, cut.acked) == (
        100,
        120,
        0,
        1,
        2,
        20,
    )
    assert file.steps["broker N fenced"] == 1
    assert file.steps["ISR grown by its leader"] == 1


def test_an_election_out_of_the_isr_is_named_with_its_offset_and_the_state_before(tmp_path: Path) -> None:
    records = [
        *beginning(),
        partition(25, 4000, 1, (0, 1), [1, 2]),
        partition(30, 5000, 3, (1, 2), [3], "isr", "leader"),
        broker(31, 5000, 1, 1, fenced=True),
    ]
    file = ObservedRun(records=records).conformed(tmp_path)
    assert _forbidden(file) == "election out of the ISR"
    assert file.forbidden is not None
    assert file.forbidden.offset == 30
    assert "ISR {1, 2}" in file.forbidden.state_before
    assert "KIP-106" in file.forbidden.source
    assert [(one.observed, one.reference) for one in file.elections] == [(3, 2)]


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        (partition(30, 5000, 3, (1, 1), [2, 3], "leader"), "another leader than the reference names"),
        (partition(30, 5000, 2, (3, 1), [2, 3], "leader"), "leader epoch"),
        (partition(30, 5000, 2, (1, 4), [2, 3], "leader"), "partition epoch"),
        (partition(30, 5000, 1, (1, 1), [1, 2], "leader"), "no such step"),
        (partition(30, 5000, 2, (1, 1), [2, 3, 4], "leader"), "ISR beyond the replicas"),
    ],
)
def test_a_change_that_no_step_makes_is_named_by_the_rule_that_it_breaks(
    tmp_path: Path, step: dict[str, object], rule: str
) -> None:
    records = [*beginning(), step, broker(31, 5000, 1, 1, fenced=True)]
    file = ObservedRun(records=records).conformed(tmp_path)
    assert _forbidden(file) == rule
    assert file.forbidden is not None
    assert file.forbidden.certain is (rule == "ISR beyond the replicas")


def test_a_fenced_broker_may_not_join_the_isr(tmp_path: Path) -> None:
    records = [record for record in metadata() if record["offset"] != 41]
    assert _forbidden(ObservedRun(records=records).conformed(tmp_path)) == "fenced broker joined the ISR"


def test_an_incarnation_may_not_come_back_with_an_older_broker_epoch(tmp_path: Path) -> None:
    records = [*metadata()[:9], {**registered(40, 7000, 1), "broker_epoch": 1}]
    assert _forbidden(ObservedRun(records=records).conformed(tmp_path)) == "broker epoch"


def test_an_isr_expansion_below_the_high_watermark_is_found_in_the_logs_ends(tmp_path: Path) -> None:
    told = [*samples()[:10], *(sample(7900 + 300 * n, 2, 1, 170, n1=104 + n, n2=180) for n in range(5))]
    file = ObservedRun(samples=told).conformed(tmp_path)
    assert _forbidden(file) == "ISR expansion below the high watermark"
    assert file.forbidden is not None
    assert (file.forbidden.offset, file.forbidden_steps) == (42, 1)
    assert "high watermark 140" in file.forbidden.state_before


def test_the_first_answer_after_it_joined_may_be_an_old_one(tmp_path: Path) -> None:
    told = samples()
    told[9] = replace(told[9], log_ends={1: 100, 2: 180})
    told[10] = replace(told[10], log_ends={1: 104, 2: 180})
    assert ObservedRun(samples=told).conformed(tmp_path).forbidden is None


def test_a_high_watermark_that_goes_back_on_a_leader_within_its_epoch_is_found(tmp_path: Path) -> None:
    told = samples()
    told[8] = replace(told[8], high_watermark=119)
    file = ObservedRun(samples=told).conformed(tmp_path)
    assert _forbidden(file) == "high watermark went back"
    assert file.forbidden is not None
    assert "from 120 back to 119" in file.forbidden.text


def test_a_new_leader_may_have_an_older_high_watermark(tmp_path: Path) -> None:
    told = [replace(one, high_watermark=90) if one.leader_epoch == 1 else one for one in samples()]
    assert ObservedRun(samples=told).conformed(tmp_path).forbidden is None


def test_acks_all_above_what_its_epoch_kept_is_forbidden_after_a_clean_election(tmp_path: Path) -> None:
    file = ObservedRun(acks_setting="all").conformed(tmp_path)
    assert _forbidden(file) == "ack above what its epoch kept"
    assert file.forbidden is not None
    assert file.forbidden.offset == 30
    assert "20 records" in file.forbidden.text


def test_acks_all_may_lose_what_a_power_loss_took(tmp_path: Path) -> None:
    cut = event("fault-asked", 4000, fault=1, detail={"kind": "power_loss", "nodes": [2]})
    run = ObservedRun(acks_setting="all")
    run.events.append(cut)
    assert run.conformed(tmp_path).forbidden is None


def test_an_ack_above_the_end_of_the_last_epoch_is_forbidden(tmp_path: Path) -> None:
    file = ObservedRun(acks=[*acks(), Ack(200, 500, 9000, lost=True)]).conformed(tmp_path)
    assert _forbidden(file) == "ack above what its epoch kept"
    assert file.unexplained_records == 1
    assert (file.unexplained[0].seq, file.unexplained[0].offset) == (200, 500)


def test_a_lost_record_that_no_truncation_explains_is_named(tmp_path: Path) -> None:
    rows = acks()
    rows[150] = replace(rows[150], lost=True)
    file = ObservedRun(acks=rows).conformed(tmp_path)
    assert file.unexplained_records == 1
    (named,) = file.unexplained
    assert (named.anomaly, named.producer, named.seq, named.offset) == ("lost", 0, 150, 130)


def test_a_record_that_must_be_gone_and_is_there_is_named(tmp_path: Path) -> None:
    rows = [replace(row, lost=row.lost and row.seq != LOST[3]) for row in acks()]
    file = ObservedRun(acks=rows).conformed(tmp_path)
    assert file.present == 1
    assert [(named.anomaly, named.seq) for named in file.unexplained] == [("present", LOST[3])]


def test_without_offsets_a_loss_is_explained_by_what_happened_in_between(tmp_path: Path) -> None:
    rows = [replace(row, offset=-1) for row in acks()]
    run = ObservedRun(acks_setting="0", acks=rows)
    file = run.conformed(tmp_path)
    (lost,) = [one for one in file.classes if one.anomaly == "lost"]
    assert (lost.count, lost.by_interval, lost.unexplained) == (20, 20, 0)
    (missing,) = file.intervals
    assert (missing.first_seq, missing.last_seq, missing.records) == (100, 119, 20)
    assert "node 1 ended" in missing.why or "leader 2" in missing.why


def test_without_offsets_a_loss_in_quiet_times_is_not_explained(tmp_path: Path) -> None:
    rows = [replace(row, offset=-1, lost=row.seq == 10) for row in acks()]
    file = ObservedRun(acks_setting="0", acks=rows).conformed(tmp_path)
    assert file.unexplained_records == 1
    assert file.unexplained[0].seq == 10


@pytest.mark.parametrize(
    ("producer", "seqs", "unexplained"),
    [
        pytest.param(0, range(190, 200), 0, id="its last ones"),
        pytest.param(0, range(180, 190), 10, id="some before them"),
        pytest.param(1, range(190, 200), 10, id="of another producer"),
    ],
)
def test_what_a_producer_sent_last_and_nobody_read_before_it_closed_may_be_gone(
    tmp_path: Path, producer: int, seqs: range, unexplained: int
) -> None:
    rows = [replace(row, offset=-1, lost=row.seq in seqs) for row in acks()]
    run = ObservedRun(acks_setting="0", acks=rows)
    run.events.append(event("note", 9000, client="p0", detail={"unread_bytes": 1000, "producer": producer}))
    file = run.conformed(tmp_path)
    assert file.unexplained_records == unexplained
    if not unexplained:
        assert "p0 closed with 1000 bytes" in file.intervals[-1].why


def test_a_run_without_a_metadata_log_is_not_replayed_and_says_so(tmp_path: Path) -> None:
    run = ObservedRun(records=[])
    file = run.conformed(tmp_path)
    (lost,) = [one for one in file.classes if one.anomaly == "lost"]
    assert (lost.not_replayed, lost.explained) == (20, 0)
    said = "no election: they are replayed from the controllers' metadata log, which was out of reach"
    assert file.not_replayed.count(said) == 1


def test_where_the_controllers_clocks_jumped_nothing_that_needs_their_times_is_said(tmp_path: Path) -> None:
    run = ObservedRun(acks_setting="all")
    run.samples[8] = replace(run.samples[8], high_watermark=119)
    run.events.append(event("fault-asked", 4000, fault=1, detail={"kind": "clock_jump", "nodes": [101]}))
    file = run.conformed(tmp_path)
    assert file.forbidden is None
    assert any("clocks of [101] jumped" in reason for reason in file.not_replayed)


@pytest.mark.parametrize("ahead_s", [3600, -2, 0.2])
def test_where_the_machines_clock_was_set_nothing_that_needs_controllers_times_is_said(
    tmp_path: Path, ahead_s: float
) -> None:
    run = ObservedRun(acks_setting="all")
    run.samples[8] = replace(run.samples[8], high_watermark=119)
    late = event("note", 9000)
    run.events.append({**late, "wall_ns": late["wall_ns"] + round(ahead_s * 1e9)})
    file = run.conformed(tmp_path)
    assert file.forbidden is None
    assert f"the clock of the machine was set by {abs(ahead_s):.1f} s" in " ".join(file.not_replayed)


@pytest.mark.parametrize(("stamped_ms", "present"), [(4000, 0), (5900, 0), (6499, 0), (6600, 1)])
def test_a_producer_that_was_held_up_stamps_late_but_never_after_the_answer(
    tmp_path: Path, stamped_ms: int, present: int
) -> None:
    """The record was sent under the old leader and acknowledged under the new one. The record at its offset can be its
    own only if that was stamped before the acknowledgement."""
    held_up = Ack(200, 180, 4000, taken_ms=2500)
    run = ObservedRun(
        acks=[*acks(), held_up],
        log=((0, 99, 0), (100, 180, 1)),
        stamps={**dict.fromkeys(range(180), 0), 180: stamped_ms},
    )
    file = run.conformed(tmp_path)
    assert file.present == present


@pytest.mark.parametrize(("set_back_ms", "present"), [(0, 1), (5, 0)])
def test_a_wall_clock_that_was_set_back_stamps_early(tmp_path: Path, set_back_ms: int, present: int) -> None:
    """The record at offset 180 was stamped 5 ms before its send. It is another record, unless the clock was set back:
    then the stamps of other records are early, too."""
    sent = {row.offset: row.sent_ms for row in acks() if row.offset < 100}
    file = ObservedRun(
        acks=[*acks(), Ack(200, 180, 4000, taken_ms=2500)],
        log=((0, 99, 0), (100, 180, 1)),
        stamps={**{offset: ms - set_back_ms for offset, ms in sent.items()}, 180: 3995},
    ).conformed(tmp_path)
    assert file.present == present


@pytest.mark.parametrize(
    ("cluster", "seconds"),
    [
        ({}, 6),
        ({"timing": "kafka"}, 18),
        ({"config": {"broker.session.timeout.ms": "7000"}}, 14),
        ({"broker_config": {2: {"broker.session.timeout.ms": "8000"}}}, 16),
        ({"mode": "zookeeper", "kafka": "3.9.2", "timing": "kafka"}, 36),
    ],
)
def test_a_deposed_leader_has_heard_of_it_within_two_sessions(
    cluster: dict[str, object], seconds: int
) -> None:
    assert learns_ns(ClusterSpec(**cluster)) == seconds * 10**9  # type: ignore[arg-type]
    # or later, by two times in which its disk stood still
    assert learns_ns(ClusterSpec(**cluster), 9 * 10**9) == (seconds + 18) * 10**9  # type: ignore[arg-type]


DIRS = {1: ("a1", "b1"), 2: ("a2", "b2"), 3: ("a3", "b3")}


def _with_log_dirs(*, holds: str) -> list[dict[str, object]]:
    """Return the metadata log of a cluster with two log dirs per broker, in which broker 1 loses `a1` at 5 s and the
    partition gets another leader at once. `holds`: log dir of the partition on broker 1."""
    found: list[dict[str, object]] = []
    for record in beginning():
        if record["kind"] == "broker-registered":
            record["log_dirs"] = DIRS[record["node"]]
        if record["kind"] == "partition":
            record["directories"] = [holds, "a2", "a3"]
        found.append(record)
    failed = {**broker(31, 5000, 1, 1, fenced=False), "fenced": None, "log_dirs": ["b1"]}
    return [*found, partition(30, 5000, 2, (1, 1), [2, 3], "isr", "leader"), failed]


def test_a_failed_log_dir_moves_the_leadership_of_what_lies_in_it_and_of_nothing_else(tmp_path: Path) -> None:
    lies, stands = tmp_path / "lies", tmp_path / "stands"
    for folder in (lies, stands):
        folder.mkdir()
    told = ObservedRun(records=_with_log_dirs(holds="a1")).conformed(lies)
    assert told.forbidden is None
    assert told.steps["log dir of broker N failed"] == 1
    assert [(one.observed, one.reference) for one in told.elections] == [(2, 2)]
    elsewhere = ObservedRun(records=_with_log_dirs(holds="b1")).conformed(stands)
    assert _forbidden(elsewhere) == "another leader than the reference names"


@pytest.mark.parametrize(
    ("named", "later", "forbidden"),
    [
        ("new", 0, False),  # it has not registered yet with that one
        ("new", 1, True),  # not in the same append: no step of that request
        ("b1", 0, True),  # registered
        ("00000000-0000-0000-0000-000000000001", 0, True),  # in none yet: counts as online
    ],
)
def test_a_replica_in_a_log_dir_that_its_broker_has_not_registered_leads_no_more(
    tmp_path: Path, named: str, later: int, forbidden: bool
) -> None:
    """Source: handleAssignReplicasToDirs (offline-dir-assignment). It happens when a broker starts with an empty
    disk."""
    records = _with_log_dirs(holds="a1")[:-2]
    moved = {**partition(30, 5000, 1, (0, 1), [1, 2, 3], "directories"), "directories": [named, "a2", "a3"]}
    elected = partition(31, 5000 + later, 2, (1, 2), [2, 3], "isr", "leader")
    told = ObservedRun(records=[*records, moved, elected]).conformed(tmp_path)
    assert (told.forbidden is not None) is forbidden
    assert told.steps["log dirs of replicas"] == 1


@pytest.mark.parametrize(("kafka", "forbidden"), [("4.2.1", False), ("4.3.1", True)])
@pytest.mark.parametrize("named", [True, False])
def test_before_4_3_another_log_dir_of_a_replica_empties_the_elr(
    tmp_path: Path, kafka: str, forbidden: bool, named: bool
) -> None:
    """handleAssignReplicasToDirs of 4.2 builds its change as if eligible leader replicas were off (observed on
    4.2.1)."""
    setting = {"kind": "config", "resource": 2, "name": "orders", "key": "min.insync.replicas", "value": "2"}
    records = [
        {"offset": 0, "epoch": 1, "timestamp_ms": 1, "kind": "feature", "feature": ELR, "level": 1},
        {"offset": 1, "epoch": 1, "timestamp_ms": 2, **setting},
        *beginning(),
        partition(30, 5000, 2, (1, 1), [2, 3], "isr", "leader"),
        broker(31, 5000, 1, 1, fenced=True),
        {**partition(32, 5500, 2, (1, 2), [2], "isr", "elr"), "elr": [3]},
        broker(33, 5500, 3, 3, fenced=True),
        partition(34, 6000, 2, (1, 3), [2], "elr", *(["directories"] if named else [])),
    ]
    told = ObservedRun(records=records, kafka=kafka).conformed(tmp_path)
    assert (told.forbidden is not None) is (forbidden or not named)
    assert told.forbidden is None or told.forbidden.offset == 34


@pytest.mark.parametrize("cleared", [True, False])
def test_who_was_eligible_may_not_lead_once_that_was_forgotten(tmp_path: Path, cleared: bool) -> None:
    """4.3.1 clears the ELR if min.insync.replicas is set without a leader: the partition then stays without one."""
    setting = {"kind": "config", "resource": 2, "name": "orders", "key": "min.insync.replicas", "value": "2"}
    forgotten = {
        "offset": 36,
        "epoch": 1,
        "timestamp_ms": 9000,
        "kind": "eligible-cleared",
        "topic": "orders",
    }
    records = [
        {"offset": 0, "epoch": 1, "timestamp_ms": 1, "kind": "feature", "feature": ELR, "level": 1},
        {"offset": 1, "epoch": 1, "timestamp_ms": 2, **setting},
        *beginning(),
        partition(30, 5000, 2, (1, 1), [2, 3], "isr", "leader"),
        broker(31, 5000, 1, 1, fenced=True),
        {**partition(32, 5500, 2, (1, 2), [2], "isr", "elr"), "elr": [3]},
        broker(33, 5500, 3, 3, fenced=True),
        {**partition(34, 6000, -1, (2, 3), [], "isr", "leader", "elr"), "elr": [2, 3], "last_known_elr": [2]},
        broker(35, 6000, 2, 2, fenced=True),
        *([forgotten] if cleared else []),
        {**partition(38, 9500, 3, (3, 4 + cleared), [3], "isr", "leader", "elr"), "elr": [2] * (not cleared)},
        broker(39, 9500, 3, 3, fenced=False),
    ]
    told = ObservedRun(records=records).conformed(tmp_path)
    assert (told.forbidden is not None) is cleared

"""Tests of liveness classes: when a client or partition that does not recover is forbidden, and its excuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ackproof.base.errors import BadInput
from ackproof.judge import judge_case
from ackproof.judge.facts import Facts
from ackproof.judge.liveness import blocked, excuse, judge_liveness, machine_is_starved
from ackproof.quantities.metadata_log import MetadataLog
from ackproof.rundir.anomalies import LIVENESS, Anomaly
from ackproof.rundir.documents import FinalReadFile, QuietSeconds, VerdictFile
from ackproof.rundir.metadata import LogEnded, write_metadata
from ackproof.rundir.observed import Pulse, RecoveryFile, Unrecovered
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Event, EventKind
from ackproof_reports.recovery import tell_unrecovered
from judged_run import EXPERIMENT, WHOLE, MakeRun, decided

BOUNDS = dict.fromkeys((name.value for name in LIVENESS), 10.0)
UNCLEAN = "{min.insync.replicas: 2, unclean.leader.election.enable: 'true'}"


def stuck(anomaly: str, **more: Any) -> Unrecovered:
    fields = {"topic": "orders", "partition": 0, "seen": "as planted", "for_s": 11.0, "isr": (1, 2), **more}
    return Unrecovered(anomaly=anomaly, **{"replicas": (1, 2, 3), **fields})


def judged(
    make_run: MakeRun, *found: Unrecovered, running: tuple[int, ...] = (1, 2, 3), **more: Any
) -> VerdictFile:
    counts = {name: sum(one.anomaly == name for one in found) for name in {one.anomaly for one in found}}
    run = make_run(**{**more, **counts})
    undecided = tuple(more.pop("undecided", ()))
    RecoveryFile(bounds=BOUNDS, waited_s=11, running=running, unrecovered=found, undecided=undecided).save(
        run.recovery
    )
    return judge_case(run)


def of(verdict: VerdictFile, anomaly: str) -> Any:
    return next(one for one in verdict.classes if one.anomaly == anomaly)


@pytest.mark.parametrize("anomaly", LIVENESS)
def test_what_never_comes_back_is_a_fail_with_its_reason(make_run: MakeRun, anomaly: Anomaly) -> None:
    verdict = judged(make_run, stuck(anomaly.value))
    assert verdict.verdict is Verdict.FAIL
    assert "within 10 s: as planted" in verdict.reasons[0]


def test_it_is_a_fail_where_evidence_lacks_beside(make_run: MakeRun) -> None:
    final = FinalReadFile(complete=False, reasons=("orders/0: no answer",))
    assert judged(make_run, stuck("leaderless"), final=final).verdict is Verdict.FAIL


def test_nothing_is_awaited_of_a_partition_that_a_class_names(make_run: MakeRun) -> None:
    throttled = stuck("stuck-replica", throttled=True)
    assert judged(make_run, throttled, acked_bins=(0,)).verdict is Verdict.PASS


def test_an_acknowledgement_is_owed_where_no_class_says_why_not(make_run: MakeRun) -> None:
    assert judged(make_run, acked_bins=(0,)).verdict is Verdict.INCONCLUSIVE


def test_a_throttle_in_force_excuses_a_replica(make_run: MakeRun) -> None:
    verdict = judged(make_run, stuck("stuck-replica", throttled=True))
    assert verdict.verdict is Verdict.PASS
    assert of(verdict, "stuck-replica").forbidden is False
    assert "a replication throttle is in force" in of(verdict, "stuck-replica").why


def test_an_excuse_for_one_is_none_for_another(make_run: MakeRun) -> None:
    verdict = judged(make_run, stuck("stuck-replica", throttled=True), stuck("stuck-replica", node=2))
    assert verdict.verdict is Verdict.FAIL
    assert "(1 of 2 stand against that)" in of(verdict, "stuck-replica").why


@pytest.mark.parametrize(
    ("running", "more", "config", "excused"),
    [
        ((1, 2, 3), {}, "", False),
        ((3,), {}, "", True),
        ((2, 3), {}, "", False),
        ((1, 2, 3), {"offline": (1, 2)}, "", False),
        ((1, 2, 3), {"isr": ()}, "", False),
        ((3,), {}, UNCLEAN, False),
        ((), {}, UNCLEAN, True),
    ],
    ids=[
        "all run",
        "none in sync runs",
        "one in sync runs",
        "no fault took the disks",
        "nobody in sync",
        "any may lead",
        "none runs",
    ],
)
def test_a_partition_without_a_leader_is_excused_where_nobody_may_lead(
    make_run: MakeRun, running: tuple[int, ...], more: dict[str, Any], config: str, *, excused: bool
) -> None:
    experiment = EXPERIMENT.format(min_insync=2, producers="acks: all", expect="")
    if config:
        experiment = experiment.replace("{min.insync.replicas: 2}", config)
    verdict = judged(make_run, stuck("leaderless", **more), running=running, experiment=experiment)
    assert of(verdict, "leaderless").forbidden is not excused


def test_a_log_dir_that_a_fault_took_excuses_only_where_its_broker_does_not_serve_it(
    make_run: MakeRun,
) -> None:
    experiment = EXPERIMENT.format(min_insync=2, producers="acks: all", expect="").replace(
        "kill: {target: leader(orders/0)}", "empty_disk: {target: leader(orders/0)}"
    )
    gone = stuck("leaderless", isr=(2,), offline=(2,))
    assert of(judged(make_run, gone, experiment=experiment), "leaderless").forbidden is False


@pytest.mark.parametrize(
    ("killed", "elr", "excused"),
    [((3,), (), True), ((), (), False), ((3,), (3,), False), ((1,), (), False)],
    ids=["killed", "nobody was killed", "still eligible", "another was killed"],
)
def test_an_empty_isr_and_elr_excuse_only_where_the_last_of_them_were_killed(
    make_run: MakeRun, killed: tuple[int, ...], elr: tuple[int, ...], *, excused: bool
) -> None:
    last = decided(1).model_copy(update={"isr": (3,)})
    empty = last.model_copy(update={"offset": 51, "partition_epoch": 2, "leader": -1, "isr": (), "elr": elr})
    run = make_run()
    RecoveryFile(bounds=BOUNDS, waited_s=11, running=(1, 2, 3)).save(run.recovery)
    ends = [
        Event(
            t_ns=5, wall_ns=5, node=node, kind=EventKind.NODE_ENDED, detail={"pid": node, "status": "SIGKILL"}
        )
        for node in killed
    ]
    facts = replace(Facts.read(run), events=(*Facts.read(run).events, *ends))
    facts.__dict__["metadata_log"] = MetadataLog.from_records((last, empty), simulated=True, kraft=True)
    why = excuse(facts, stuck("leaderless", isr=()), (1, 2, 3))
    assert ("KIP-966" in why) is excused


EMPTIED = "empty_disk: {target: leader(orders/0)}"


@pytest.mark.parametrize(
    ("disk_fault", "config", "cluster", "recovered", "excused"),
    [
        (EMPTIED, "", "", None, True),
        (EMPTIED, "", "", 1_300_000_000, False),
        (EMPTIED, UNCLEAN, "", None, False),
        (EMPTIED, "", "features: {metadata.version: 16}, ", None, False),
        ("empty_disk: {target: leader(orders/0), restore: live}", "", "", None, False),
        ("truncate_segment: {target: leader(orders/0)}", "", "", None, False),
    ],
    ids=["a new one", "in sync again", "any may lead", "not assigned", "a copy", "the same one"],
)
def test_a_log_dir_that_is_served_excuses_only_if_it_is_a_new_one(
    make_run: MakeRun, disk_fault: str, config: str, cluster: str, recovered: int | None, *, excused: bool
) -> None:
    experiment = EXPERIMENT.format(min_insync=2, producers="acks: all", expect="").replace(
        "kill: {target: leader(orders/0)}", disk_fault
    )
    if config:
        experiment = experiment.replace("{min.insync.replicas: 2}", config)
    if cluster:
        experiment = f"cluster: {{kafka: 3.9.2, brokers: 3, {cluster}}}\n{experiment}"
    run = make_run(experiment=experiment)
    RecoveryFile(bounds=BOUNDS, waited_s=11, running=(1, 2, 3)).save(run.recovery)
    facts = Facts.read(run)
    facts.__dict__["faults"] = {1: replace(facts.faults[1], recovered=recovered)}
    why = excuse(facts, stuck("leaderless", isr=(2,)), (1, 2, 3))
    assert ("replaced the disk" in why) is excused


def test_a_reassignment_to_a_broker_that_is_down_is_excused(make_run: MakeRun) -> None:
    verdict = judged(make_run, stuck("stuck-reassignment", adding=(3,)), running=(1, 2))
    assert of(verdict, "stuck-reassignment").forbidden is False


@pytest.mark.parametrize("leader", [1, 3])
def test_a_transaction_may_hang_behind_an_unclean_election_alone(make_run: MakeRun, leader: int) -> None:
    run = make_run(**{"hanging-transaction": 1})
    first = decided(1).model_copy(update={"isr": (1, 2)})
    then = decided(2, offset=51).model_copy(update={"leader": leader, "isr": (leader,)})
    ended = LogEnded(offset=52, epoch=1, timestamp_ms=0, records=2)
    write_metadata(run.metadata_log, [first, then, ended])
    assert bool(excuse(Facts.read(run), stuck("hanging-transaction"), ())) is (leader == 3)


def test_nothing_is_called_stuck_on_a_starved_machine(make_run: MakeRun) -> None:
    run = make_run(**{"stuck-replica": 1})
    RecoveryFile(bounds=BOUNDS, waited_s=11, unrecovered=(stuck("stuck-replica"),)).save(run.recovery)
    facts = Facts.read(run)
    assert judge_liveness(facts, "stuck-replica", 1).forbidden is True
    shares = dict.fromkeys(("busy", "stolen", "cpu_pressure", "io_pressure", "memory_pressure"), 0.0)
    late = Pulse(t_ns=10**15, late_ms=3000.0, sent=0, acked=0, looks=10, **shares)
    run.pulse.write_text(late.model_dump_json() + "\n")
    said = judge_liveness(Facts.read(run), "stuck-replica", 1)
    assert said.forbidden is None
    assert said.why.startswith("nothing is called stuck: the machine was starved")


@pytest.mark.parametrize(("busy", "excused"), [(0.3, False), (0.9, True), (-1.0, True)])
def test_a_machine_that_had_room_after_the_load_excuses_nothing(
    make_run: MakeRun, busy: float, excused: bool
) -> None:
    run = make_run(**{"stuck-replica": 1})
    RecoveryFile(bounds=BOUNDS, waited_s=11, unrecovered=(stuck("stuck-replica"),)).save(run.recovery)
    shares = dict.fromkeys(("stolen", "cpu_pressure", "io_pressure", "memory_pressure"), 0.0)
    room = [
        Pulse(t_ns=10**15 + second * 10**9, late_ms=1.0, sent=0, acked=0, looks=10, busy=busy, **shares)
        for second in range(5)
    ]
    run.pulse.write_text("".join(f"{one.model_dump_json()}\n" for one in room))
    facts = Facts.read(run)
    load = QuietSeconds(
        seconds=9, asked_rate=1, sent_rate=1, median_ms=900, late_ms=1, looks_per_s=10, busy=1,
        starved=("late",), **shares,
    )  # fmt: skip
    vars(facts)["calm"] = load
    assert judge_liveness(facts, "stuck-replica", 1).forbidden is (None if excused else True)
    assert machine_is_starved(facts, "stuck-producer"), "clients are watched under load"


def test_what_is_slow_is_no_pass_and_no_fail(make_run: MakeRun) -> None:
    run = make_run()
    undecided = ("orders/0 moves on",)
    RecoveryFile(bounds=BOUNDS, waited_s=60, running=(1, 2, 3), undecided=undecided).save(run.recovery)
    verdict = judge_case(run)
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert verdict.reasons == ("it has not recovered, and is not stuck: orders/0 moves on",)


def test_a_partition_whose_minimum_is_not_reached_by_the_living_owes_no_acknowledgement(
    make_run: MakeRun,
) -> None:
    run = make_run()
    RecoveryFile(bounds=BOUNDS, waited_s=0, running=(1,)).save(run.recovery)
    assert dict(blocked(Facts.read(run))) == {
        TopicPartition("orders", 0): "min.insync.replicas is 2, and 1 of its replicas are on brokers that run"
    }
    RecoveryFile(bounds=BOUNDS, waited_s=0, running=(1, 3)).save(run.recovery)
    assert dict(blocked(Facts.read(run))) == {}


def test_a_run_that_nobody_watched_is_judged_as_before(make_run: MakeRun) -> None:
    run = make_run(audit={"counts": {name: 0 for name in Anomaly if name not in LIVENESS}})
    verdict = judge_case(run)
    assert verdict.verdict is Verdict.PASS
    assert not {one.anomaly for one in verdict.classes} & set(LIVENESS)


def test_an_expectation_bounds_it_and_holds_nothing_against_a_run_that_nobody_watched(
    make_run: MakeRun,
) -> None:
    throttled = stuck("stuck-replica", throttled=True)
    verdict = judged(make_run, throttled, expect="expect: [{stuck-replica: 0}]")
    assert verdict.reasons == ("expected stuck-replica 0, counted 1",)


def test_an_expectation_on_a_run_that_nobody_watched_stays_open(make_run: MakeRun) -> None:
    counts = {name: 0 for name in Anomaly if name not in LIVENESS}
    verdict = judge_case(make_run(audit={"counts": counts}, expect="expect: [{stuck-replica: 0}]"))
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert verdict.reasons == ("expected something of stuck-replica, and nobody watched this run recover",)


def test_the_story_of_what_did_not_recover(make_run: MakeRun) -> None:
    run = make_run(**{"stuck-replica": 1})
    RecoveryFile(bounds=BOUNDS, waited_s=11, unrecovered=(stuck("stuck-replica"),)).save(run.recovery)
    lines = list(tell_unrecovered(run, "stuck-replica"))
    assert lines[0] == "stuck-replica (its broker runs unfenced, and it does not return to the ISR)"
    assert any("fault 1 healed" in line for line in lines)
    assert lines[-2:] == ["  as planted", "  nothing of it moved for 11.0 s; its bound is 10 s"]
    with pytest.raises(BadInput, match="no finding of class leaderless"):
        list(tell_unrecovered(run, "leaderless"))


@pytest.mark.parametrize(("stable", "coherent"), [(40, True), (50, False), (None, False)])
def test_readers_at_read_committed_stop_where_a_transaction_hangs_and_nowhere_else(
    make_run: MakeRun, stable: int | None, *, coherent: bool
) -> None:
    (whole,) = WHOLE.partitions
    final = FinalReadFile(
        complete=True,
        partitions=(whole,),
        committed=(whole.model_copy(update={"end": 40, "position": 40}),),
    )
    run = make_run(producers="acks: all, idempotence: true, transaction_size: 10", final=final)
    found = () if stable is None else (stuck("hanging-transaction", last_stable=stable),)
    RecoveryFile(bounds=BOUNDS, waited_s=11, running=(1, 2, 3), unrecovered=found).save(run.recovery)
    said = "the final read of orders/0 goes from 0 to 100, and at read_committed from 0 to 40"
    assert (said in judge_case(run).reasons) is not coherent

"""Tests that no explanation covers more than its step: a loss within the step is explained, the same loss outside is
not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ackproof.rundir.clock import WallClock
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import ConformanceFile
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Event, FaultAsked, ScriptStep
from ackproof_model.replay.observed import Observed
from observed_run import Ack, ObservedRun, beginning, broker, event, partition, sample, samples
from recreated_run import SECOND, RecreatedRun, records, told, topic
from run_directory import read_case

KILL_MS, ELECTED_MS, STARTS_AT = 4500, 5000, 200


def forbidden(file: ConformanceFile) -> str:
    return "" if file.forbidden is None else file.forbidden.rule


def unanswered(lost: range, **run: object) -> ObservedRun:
    """Return a run with acks=0: a record every 10 ms until the leader dies at 4.5 s, and again from 6 s on. The leader
    appends until 4 s.

    Broker 2 leads from offset 200 on, so the last fifty records before the kill are gone. The log is sampled every 100
    ms. `lost`: seqs that the audit counts as lost."""
    sent = [*range(2000, KILL_MS, 10), *range(6000, 8000, 10)]
    ends = [min(STARTS_AT, (ms - 2000) // 10) for ms in range(2000, KILL_MS, 100)]
    return ObservedRun(
        acks_setting="0",
        acks=[Ack(seq, -1, ms, lost=seq in lost) for seq, ms in enumerate(sent)],
        samples=[sample(2000 + 100 * n, 1, 0, end, n1=end) for n, end in enumerate(ends)],
        log=((0, STARTS_AT - 1, 0), (STARTS_AT, 399, 1)),
        **run,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("lost", "unexplained"),
    [
        pytest.param(range(200, 250), 0, id="what it had not appended"),
        pytest.param(range(200, 300), 0, id="and until its successor was known"),
        pytest.param(range(100, 250), 30, id="what it had appended below its successor's first offset"),
        pytest.param(range(100, 110), 10, id="long before it died, and later ones are there"),
        pytest.param(range(260, 270), 10, id="after its producer had reached the successor"),
        pytest.param(range(440, 450), 10, id="the last ones"),
    ],
)
def test_a_leaders_end_takes_what_it_had_not_appended_and_nothing_else(
    tmp_path: Path, lost: range, unexplained: int
) -> None:
    file = unanswered(lost).conformed(tmp_path)
    assert file.unexplained_records == unexplained
    assert sum(one.records for one in file.intervals) == len(lost)
    assert sum(one.records for one in file.intervals if not one.why) == unexplained


def test_an_election_does_not_last_for_ever(tmp_path: Path) -> None:
    """Two sessions after an election every broker knows the new leader: a record that is sent later and lost is not
    explained."""
    run = unanswered(range(250, 451))
    run.acks.append(Ack(450, -1, 12_100, lost=True))
    assert run.conformed(tmp_path).unexplained_records == 1


FAULT = "faults: [{{{fault}, at: 1s}}]"


@pytest.mark.parametrize(
    ("fault", "nodes", "unexplained"),
    [
        ("pause: {target: leader(orders/0)}, for: 1s", [1], 0),
        ("pause: {target: follower(orders/0)}, for: 1s", [3], 10),
        ("pause: {target: controller}, for: 1s", [101], 10),
        ("cut: {link: clients -> leader(orders/0)}, for: 1s", [1], 0),
        ("kill_client: {client: producer(0)}", [], 0),
        ("kill_client: {client: producer}", [], 0),
        ("kill_client: {client: producer(1)}", [], 10),
        ("pause_client: {client: readers}, for: 1s", [], 10),
    ],
)
def test_a_fault_takes_what_goes_through_it(
    tmp_path: Path, fault: str, nodes: list[int], unexplained: int
) -> None:
    run = unanswered(range(120, 130), faults=FAULT.format(fault=fault))
    kind = fault.partition(":")[0]
    run.events[:0] = [
        event("fault-asked", 3150, fault=1, detail={"kind": kind, "nodes": nodes}),
        event("fault-recovered", 3400, fault=1),
    ]
    assert run.conformed(tmp_path).unexplained_records == unexplained


@pytest.mark.parametrize(("lost", "unexplained"), [(range(120, 130), 0), (range(330, 340), 10)])
@pytest.mark.parametrize("end", ["fault-recovered", "fault-failed", "fault-missed"])
def test_a_fault_that_is_over_takes_nothing(tmp_path: Path, lost: range, unexplained: int, end: str) -> None:
    run = unanswered(lost, faults=FAULT.format(fault="pause: {target: leader(orders/0)}, for: 1s"))
    run.events[:0] = [
        event("fault-asked", 3150, fault=1, detail={"kind": "pause", "nodes": [1, 2]}),
        event(end, 3400, fault=1, detail={"reason": "it did not bite"} if end != "fault-recovered" else {}),
    ]
    assert run.conformed(tmp_path).unexplained_records == unexplained


# -- committed is committed at any acks -------------------------------------------------------------------------------


def committed(**run: object) -> ObservedRun:
    """Return a run in which broker 1 showed a high watermark of 120 in epoch 0, and broker 2 began epoch 1 at offset
    100."""
    seen = samples()
    seen[4] = replace(seen[4], high_watermark=120)
    return ObservedRun(samples=seen, **run)  # type: ignore[arg-type]


@pytest.mark.parametrize("acks", ["0", "1"])
def test_what_was_below_a_high_watermark_stays_whatever_acks(tmp_path: Path, acks: str) -> None:
    file = committed(acks_setting=acks).conformed(tmp_path)
    assert forbidden(file) == "committed records cut"
    assert file.forbidden is not None
    assert "high watermark was 120 in epoch 0" in file.forbidden.text
    assert "broker 2, elected cleanly (broker 1 fenced), began epoch 1 at 100" in file.forbidden.text
    assert (file.forbidden.offset, file.forbidden.partition) == (30, 0)


def test_a_high_watermark_at_which_the_successor_began_is_kept(tmp_path: Path) -> None:
    run = committed()
    run.samples[4] = replace(run.samples[4], high_watermark=100)
    assert forbidden(run.conformed(tmp_path)) == ""


def test_a_look_from_before_the_partition_was_created_is_of_none_of_its_epochs(tmp_path: Path) -> None:
    """The sample is from an earlier topic of the same name: its higher high watermark is no forbidden step."""
    run = ObservedRun()
    run.samples.insert(0, sample(900, 1, 0, 50, n1=50))
    assert forbidden(run.conformed(tmp_path)) == ""


@pytest.mark.parametrize(("node", "rule"), [(2, ""), (3, "committed records cut")])
def test_only_a_leader_whose_disk_lost_something_may_lack_it(tmp_path: Path, node: int, rule: str) -> None:
    run = committed()
    run.events.insert(0, event("fault-asked", 4000, fault=1, detail={"kind": "power_loss", "nodes": [node]}))
    assert forbidden(run.conformed(tmp_path)) == rule


def test_a_power_loss_after_the_election_explains_nothing_of_it(tmp_path: Path) -> None:
    run = committed()
    run.events.append(event("fault-asked", 5600, fault=1, detail={"kind": "power_loss", "nodes": [2]}))
    assert forbidden(run.conformed(tmp_path)) == "committed records cut"


def rules(file: ConformanceFile) -> list[str]:
    return [one.rule for one in (file.forbidden, *file.more_forbidden) if one is not None]


def test_a_forbidden_step_may_be_clean_all_the_same(tmp_path: Path) -> None:
    """The election of broker 2 has a wrong partition epoch, but is clean. So it does not explain that committed records
    are missing."""
    run = committed()
    (at,) = (n for n, record in enumerate(run.records) if record["offset"] == 30)
    run.records[at] |= {"partition_epoch": 2}
    found = rules(run.conformed(tmp_path))
    assert found[0] == "partition epoch"
    assert "committed records cut" in found


@pytest.mark.parametrize(
    ("node", "ms", "rule"),
    [
        (2, 7500, ""),
        (2, 7200, ""),
        (2, 7900, ""),
        (3, 7500, "high watermark went back"),
        (2, 7199, "high watermark went back"),
        (2, 7901, "high watermark went back"),
    ],
)
def test_a_leader_that_began_anew_may_show_a_lower_high_watermark(
    tmp_path: Path, node: int, ms: int, rule: str
) -> None:
    """Broker 2 showed a high watermark of 140 at 7.2 s and shows 120 at 7.9 s. That is allowed only after a restart."""
    later = [sample(7900 + 300 * n, 2, 1, 120 + n, n1=170 + n, n2=180, n3=175) for n in range(5)]
    run = ObservedRun(samples=[*samples()[:10], *later])
    run.events.append(event("node-started", ms, node=node, detail={"pid": 1}))
    assert forbidden(run.conformed(tmp_path)) == rule


@pytest.mark.parametrize(
    ("ms", "rule"),
    [
        (7199, "ISR expansion below the high watermark"),
        (7200, "ISR expansion below the high watermark"),
        (7201, ""),
    ],
)
def test_what_was_committed_when_a_broker_joined_it_holds(tmp_path: Path, ms: int, rule: str) -> None:
    """Broker 1 joins the ISR at 7.5 s (± 0.3 s) with 171 records. Only high watermarks sampled before that are
    compared."""
    later = [sample(7900 + 300 * n, 2, 1, 175 + n, n1=161 + 10 * n, n2=185, n3=180) for n in range(5)]
    told = [*samples()[:9], sample(ms, 2, 1, 175, n2=185, n3=180), *later]
    assert forbidden(ObservedRun(samples=told).conformed(tmp_path)) == rule


# -- unclean elections and deletions that somebody asked for ----------------------------------------------------------

UNCLEAN = "faults: [{elect_unclean: {partition: orders/0}, at: 1s}]"


def elected(asked_ms: int, until_ms: int) -> ObservedRun:
    """Return a run in which no broker of the ISR lives from 5 s on, and broker 2, which was not in sync, is elected at
    6 s. `asked_ms`, `until_ms`: begin and end of an `elect_unclean` fault."""
    log = [
        *beginning(),
        partition(25, 4000, 1, (0, 1), [1]),
        partition(30, 5000, -1, (1, 2), [1], "leader"),
        broker(31, 5000, 1, 1, fenced=True),
        partition(32, 6000, 2, (2, 3), [2], "isr", "leader") | {"recovering": True},
    ]
    events = [
        event("node-ended", 4500, node=1),
        event("fault-asked", asked_ms, fault=1, detail={"kind": "elect_unclean", "nodes": [1]}),
        event("fault-recovered", until_ms, fault=1),
    ]
    batches = ((0, 99, 0), (100, 179, 2))
    return ObservedRun(records=log, events=events, faults=UNCLEAN, kafka="3.9.2", samples=[], log=batches)


@pytest.mark.parametrize(
    ("asked_ms", "until_ms", "rule"),
    [
        (5900, 6100, ""),
        (6100, 6500, "election out of the ISR"),
        (5000, 5900, "election out of the ISR"),
    ],
)
def test_an_unclean_election_is_excused_while_somebody_asks_for_it(
    tmp_path: Path, asked_ms: int, until_ms: int, rule: str
) -> None:
    assert forbidden(elected(asked_ms, until_ms).conformed(tmp_path)) == rule


def test_a_forbidden_election_lost_what_it_lost_once(tmp_path: Path) -> None:
    """Broker 2 was not in sync: the records that it lacked are no second forbidden step."""
    run = elected(6100, 6500)
    run.samples = [sample(2000, 1, 0, 120, n1=120)]
    assert rules(run.conformed(tmp_path)) == ["election out of the ISR"]


def test_an_unclean_election_of_another_partition_excuses_nothing(tmp_path: Path) -> None:
    run = elected(5900, 6100)
    run.faults = UNCLEAN.replace("orders/0", "orders/1")
    run.partitions = 2
    assert forbidden(run.conformed(tmp_path)) == "election out of the ISR"


def test_one_recreate_deletes_a_topic_once(tmp_path: Path) -> None:
    again = [*records(), topic(50, 6000, SECOND, "topic-removed")]
    file, _ = told(RecreatedRun(records=again), tmp_path)
    assert forbidden(file) == "deletion that nobody asked for"
    assert [one.by for one in file.deletions] == ["fault 1 (recreate)", ""]


SCRIPT = """\
name: script
cluster: {controllers: 1, timing: script}
topics: {orders: {assignment: [[1, 2, 3]]}}
workload: {duration: 1s}
faults:
  - script: {steps: [{send: 0}, {power_loss: 1}, {elect: unclean}, {kill: 2}]}
    at: 0s
"""


def test_a_script_excuses_what_its_steps_took_and_when(tmp_path: Path) -> None:
    case, place = read_case(SCRIPT), TopicPartition("orders", 0)
    whats = [FaultAsked(kind="script", nodes=(1,)), *(ScriptStep(number=number) for number in (1, 2, 3, 4))]
    events = tuple(
        Event(
            t_ns=second * 1_000_000_000,
            wall_ns=0,
            kind=what.KIND,
            detail=what.model_dump(mode="json"),
            fault=1,
            topic="orders",
            partition=0,
        )
        for second, what in enumerate(whats)
    )
    run = CaseDir(tmp_path)
    observed = Observed(run, case, WallClock(0, 0), 0, (), {}, {}, {}, events, ())
    assert [observed.cut_before({node}, 9_000_000_000) for node in (1, 2)] == [True, False]
    assert [observed.cut_before({1}, t * 100_000_000) for t in (9, 11)] == [False, True]
    asked = [observed.unclean_asked(place, t * 100) for t in (19, 21, 29, 31)]
    assert asked == [False, True, True, False]
    assert not observed.unclean_asked(TopicPartition("other", 0), 2_500)
    set_ahead = replace(observed, wall=WallClock(0, 3_600e9))
    assert set_ahead.unclean_asked(place, 1_900)
    assert not set_ahead.unclean_asked(TopicPartition("other", 0), 2_500)

"""Tests of removals: a record that retention deletes is not lost, and one that no setting explains is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackproof.experiment.case import Case
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.promises import settings_in_force
from ackproof.experiment.roles import Role, RoleKind
from ackproof.experiment.triggers import ChainTrigger
from ackproof.faults.clocks import ClockJump
from ackproof.faults.planned.topics import Recreate, SetConfig
from ackproof.judge import judge_case
from ackproof.judge.facts import Facts
from ackproof.judge.removal import removals
from ackproof.judge.retention import Retention, may_remove, retention
from ackproof.observe.replica_logs import LogDir, collect_replica_logs
from ackproof.rundir.anomalies import REMOVED, TABLE
from ackproof.rundir.documents import FinalReadFile, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.lifelines import FaultLife
from ackproof.rundir.removals import EVER, Removal
from broker_files import batch
from judged_run import EXPERIMENT, SECOND, WHOLE, attempt, finding

WEEK_MS = 604_800_000
LOG, LESS = (batch(40, [b"x" * size] * 60) for size in (50, 49))
Judged = Callable[..., VerdictFile]


@pytest.fixture
def judged(make_run: Callable[..., CaseDir], tmp_path: Path) -> Judged:
    """Return a function that judges a run whose log of 60 records begins at offset `start`, and whose records at the
    offsets `lost` are missing.

    All records were sent at 0 s, except seq `late` at 1 s; the run ended after about 1.5 s. `config`: further topic
    settings. `logs`: whether logs on disk were read. `short`: the log of broker 2 has fewer bytes.
    """

    def judge(
        config: str, *, start: int = 40, lost: tuple[int, ...] = (3, 39), logs: bool = True, expect: str = "",
        anomaly: str = "lost", short: bool = False, late: int | None = None,
    ) -> VerdictFile:  # fmt: skip
        (one,) = WHOLE.partitions
        keys = ", keys: 5" if "compact" in config else ""
        run = make_run(
            experiment=EXPERIMENT.format(min_insync=2, producers=f"acks: all{keys}", expect=expect).replace(
                "{min.insync.replicas: 2}", "{min.insync.replicas: 2, " + config + "}"
            ),
            final=FinalReadFile(
                complete=True, partitions=(one.model_copy(update={"start": start, "records": -1}),)
            ),
            findings=[{**finding(anomaly), "offset": at, "seq": at} for at in lost],
            attempts=[attempt(seq, 0.1) | {"sent_ns": SECOND * (seq == late)} for seq in range(100)],
            audit={"counts": {name: len(lost) * (name == anomaly) for name in TABLE.keys() - set(REMOVED)}},
        )
        if logs:
            for node in (1, 2, 3):
                folder = tmp_path / str(node) / "orders-0"
                folder.mkdir(parents=True)
                (folder / f"{start:020d}.log").write_bytes(LESS if short and node == 2 else LOG)
            collect_replica_logs(
                [LogDir(node, tmp_path / str(node)) for node in (1, 2, 3)], ["orders"], run, "ab" * 8
            )
        return judge_case(run)

    return judge


def _count(said: VerdictFile, anomaly: str = "lost") -> int:
    return next((one.count for one in said.classes if one.anomaly == anomaly), 0)


def test_an_older_audit_is_told_what_expired_by_its_size(judged: Judged) -> None:
    said = judged(f"retention.bytes: {len(LOG)}")
    (expired,) = (one for one in said.classes if one.anomaly == "expired")
    assert (_count(said), expired.count, expired.forbidden) == (0, 2, False)
    assert expired.why == (
        f"orders/0 begins at offset 40: it has {len(LOG):,} bytes, at retention.bytes {len(LOG):,}"
    )
    assert not [reason for reason in said.reasons if reason.startswith(("lost", "expected"))]


def test_what_a_reader_had_and_expired_has_not_vanished(judged: Judged) -> None:
    said = judged(f"retention.bytes: {len(LOG)}", anomaly="vanished")
    assert (_count(said, "vanished"), _count(said, "expired")) == (0, 0)


def test_by_its_age(judged: Judged) -> None:
    said = judged("retention.ms: 1000")
    assert (_count(said), _count(said, "expired")) == (0, 2)
    assert next(one.why for one in said.classes if one.anomaly == "expired") == (
        "orders/0 begins at offset 40: what was sent before that is older than retention.ms 1,000"
    )


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        pytest.param(f"retention.bytes: {len(LOG) + 1}", {}, id="less is left than it keeps"),
        pytest.param(f"retention.bytes: {len(LOG)}", {"logs": False}, id="no log was seen"),
        pytest.param(f"retention.bytes: {len(LOG)}", {"short": True}, id="less is left on one broker"),
        pytest.param("retention.ms: 1000", {"late": 39}, id="the youngest is not old enough"),
        pytest.param("retention.ms: 100000", {}, id="not old enough"),
        pytest.param("segment.ms: 1000", {}, id="no retention but Kafka's own"),
        pytest.param("cleanup.policy: compact, retention.ms: 1000", {}, id="compacted, not deleted"),
    ],
)
def test_what_no_setting_explains_is_lost(judged: Judged, config: str, changes: dict[str, Any]) -> None:
    said = judged(config, **changes)
    (lost,) = (one for one in said.classes if one.anomaly == "lost")
    assert (lost.count, lost.forbidden, _count(said, "expired")) == (2, True, 0)


def test_how_young_the_next_one_is_says_nothing_of_those_before(judged: Judged) -> None:
    assert _count(judged("retention.ms: 1000", late=40)) == 0


def test_what_the_log_could_still_hold_is_lost(judged: Judged) -> None:
    said = judged("retention.ms: 1000", lost=(39, 40))
    assert (_count(said), _count(said, "expired")) == (1, 1)


def test_a_log_that_begins_at_0_has_deleted_nothing(judged: Judged) -> None:
    assert _count(judged("retention.ms: 1000", start=0)) == 2


@pytest.mark.parametrize(("lost", "broken"), [((3, 39), False), ((3, 40), True)])
def test_an_expectation_does_not_mean_the_expired(
    judged: Judged, lost: tuple[int, ...], broken: bool
) -> None:
    said = judged("retention.ms: 1000", lost=lost, expect="expect: [{lost: 0}]")
    assert any(reason.startswith("expected lost 0, counted 1") for reason in said.reasons) is broken


def _spec(facts: Facts, topic: dict[str, str], cluster: dict[str, str] | None = None) -> ExperimentSpec:
    spec = facts.case.experiment
    orders = spec.topics["orders"].model_copy(update={"config": topic})
    own = spec.cluster.model_copy(update={"config": cluster or {}})
    return spec.model_copy(update={"topics": {"orders": orders}, "cluster": own})


@pytest.mark.parametrize(
    ("topic", "cluster", "expected"),
    [
        pytest.param({}, {}, (WEEK_MS, math.inf), id="Kafka's own"),
        pytest.param(
            {"retention.ms": "5"}, {"log.retention.ms": "3"}, (5, math.inf), id="the topic's goes first"
        ),
        pytest.param(
            {}, {"log.retention.ms": "3", "log.retention.hours": "1"}, (3, math.inf), id="the finer unit"
        ),
        pytest.param(
            {}, {"log.retention.minutes": "2", "log.retention.hours": "1"}, (120_000, math.inf), id="minutes"
        ),
        pytest.param({}, {"log.retention.hours": "2"}, (7_200_000, math.inf), id="hours"),
        pytest.param({"retention.ms": "-1"}, {}, (math.inf, math.inf), id="for ever"),
        pytest.param({"retention.bytes": "7"}, {"log.retention.bytes": "9"}, (WEEK_MS, 7), id="bytes"),
        pytest.param({}, {"log.retention.bytes": "9"}, (WEEK_MS, 9), id="the broker's bytes"),
        pytest.param({"retention.bytes": "-1"}, {}, (WEEK_MS, math.inf), id="any size"),
        pytest.param(
            {"retention.ms": "1"}, {"log.cleanup.policy": "compact"}, (math.inf, math.inf), id="compact"
        ),
        pytest.param({"cleanup.policy": "compact,delete", "retention.ms": "1"}, {}, (1, math.inf), id="both"),
    ],
)
def test_the_retention_in_force(
    facts: Facts, topic: dict[str, str], cluster: dict[str, str], expected: tuple[float, float]
) -> None:
    found = {retention(one) for one in settings_in_force(_spec(facts, topic, cluster), "orders")}
    assert found == {Retention(*expected)}


def _faulty(case: Case, *faults: FaultSpec, **topic: str) -> Case:
    orders = case.experiment.topics["orders"].model_copy(update={"config": topic})
    changed = case.experiment.model_copy(update={"topics": {"orders": orders}, "faults": faults})
    return replace(case, experiment=changed)


def _life(facts: Facts, asked: float, over: float | None, *nodes: int) -> Facts:
    """Return the run with one fault, number 1, which was active on these nodes from `asked` to `over` (seconds; None:
    to the end). The run ends at 100 s."""
    life = FaultLife(round(asked * SECOND), "", nodes, over=None if over is None else round(over * SECOND))
    end = (facts.events[-1].model_copy(update={"t_ns": 100 * SECOND}),)
    changed = replace(facts, events=end)
    changed.__dict__["faults"] = {1: life}
    return changed


def _one(facts: Facts, case: Case, start: int = 40) -> Removal:
    (read,) = WHOLE.partitions
    final = FinalReadFile(complete=True, partitions=(read.model_copy(update={"start": start}),))
    (removal,) = removals(facts, case, final).values()
    return removal


def _jump(by: float) -> ClockJump:
    trigger, target = ChainTrigger(0), Role(RoleKind.BROKER, node=1)
    return ClockJump.model_construct(number=1, trigger=trigger, target=target, by=by, hold=6.0)


@pytest.mark.parametrize(
    ("by", "topic", "until"),
    [
        pytest.param(
            7200.0, {"retention.ms": "3600000"}, 16, id="by more than it keeps: until the clock is right"
        ),
        pytest.param(3590.0, {"retention.ms": "3600000"}, 6, id="by nearly as much: what was older"),
        pytest.param(600.0, {"retention.ms": "3600000"}, None, id="by less than it keeps"),
        pytest.param(8 * 86400.0, {}, 16, id="by 8 days, at Kafka's own week"),
        pytest.param(6 * 86400.0, {}, None, id="by 6 days, at Kafka's own week"),
        pytest.param(-7200.0, {"retention.ms": "3600000"}, None, id="back"),
        pytest.param(
            -7200.0,
            {"retention.ms": "3600000", "message.timestamp.type": "LogAppendTime"},
            100,
            id="back, and brokers stamp records: they are old when the clock is right",
        ),
    ],
)
def test_a_clock_that_jumps(facts: Facts, by: float, topic: dict[str, str], until: int | None) -> None:
    found = _one(_life(facts, 10, 16, 1), _faulty(facts.case, _jump(by), **topic))
    assert found.expired_until_ns == (-1 if until is None else until * SECOND)
    assert (found.log_start, found.may_expire) == ((0, False) if until is None else (40, True))
    assert ("by the clock of broker 1 (fault 1)" in found.expired_why) is (until is not None and by > 0)


@pytest.mark.parametrize(
    ("ahead_s", "topic", "until"),
    [
        pytest.param(8 * 86_400, {}, 100, id="by 8 days, at Kafka's own week"),
        pytest.param(6 * 86_400, {}, None, id="by 6 days, at Kafka's own week"),
        pytest.param(3_590, {"retention.ms": "3600000"}, 90, id="by nearly what it keeps"),
        pytest.param(
            0.09, {"retention.ms": "100050"}, None, id="not set: the clocks were read one after the other"
        ),
    ],
)
def test_a_clock_of_the_machine_that_was_set(
    facts: Facts, ahead_s: float, topic: dict[str, str], until: int | None
) -> None:
    wall_ns = 1_700_000_000 * SECOND
    times = ((0, 0), (100 * SECOND, round(ahead_s * SECOND)))
    events = tuple(
        facts.events[0].model_copy(update={"t_ns": t_ns, "wall_ns": wall_ns + t_ns + ahead})
        for t_ns, ahead in times
    )
    found = _one(replace(facts, events=events, wall_ns=wall_ns), _faulty(facts.case, **topic))
    assert found.expired_until_ns == (-1 if until is None else until * SECOND)
    assert found.may_expire is (until is not None)


def test_policies_that_change(facts: Facts) -> None:
    change = SetConfig.model_construct(
        number=1,
        trigger=ChainTrigger(0),
        topic="orders",
        broker=None,
        config={"cleanup.policy": "compact"},
        hold=None,
    )
    for over, until in ((16, 16 * SECOND), (None, EVER)):
        found = _one(_life(facts, 10, over), _faulty(facts.case, change))
        assert found.compacted_until_ns == until
        assert "as fault 1 set it" in found.compacted_why
    assert _one(facts, _faulty(facts.case)).compacted_until_ns == -1
    always = _faulty(facts.case, **{"cleanup.policy": "compact"})
    assert _one(facts, always).compacted_until_ns == EVER
    off = _faulty(facts.case, **{"cleanup.policy": "compact", "log.cleaner.enable": "false"})
    assert _one(facts, off).compacted_until_ns == -1


def test_a_policy_of_the_file_that_is_taken_away(facts: Facts) -> None:
    """The experiment file's policy is not in force once a fault has set another."""
    change = SetConfig.model_construct(
        number=1,
        trigger=ChainTrigger(0),
        topic="orders",
        broker=None,
        config={"cleanup.policy": "delete"},
        hold=None,
    )
    case = _faulty(facts.case, change, **{"cleanup.policy": "compact"})
    changed = _life(facts, 10, None)
    changed.__dict__["faults"] = {1: replace(changed.faults[1], confirmed=11 * SECOND)}
    assert _one(changed, case).compacted_until_ns == 11 * SECOND


def test_a_deleted_topic(facts: Facts) -> None:
    again = Recreate.model_construct(number=1, trigger=ChainTrigger(0), topic="orders", hold=None)
    found = _one(_life(facts, 10, 16), _faulty(facts.case, again))
    assert (found.deleted_ns, found.deleted_until_ns) == (10 * SECOND, 16 * SECOND)
    assert found.deleted_why == "fault 1 deleted the topic orders"


def test_which_cases_may_remove_records(facts: Facts) -> None:
    kept, jumps = {"retention.ms": "3600000"}, _jump(7200.0)
    assert may_remove(_faulty(facts.case, jumps, **kept))
    assert not may_remove(_faulty(facts.case, _jump(600.0), **kept))
    assert not may_remove(_faulty(facts.case))
    assert may_remove(_faulty(facts.case, **{"retention.bytes": "1000"}))
    assert may_remove(_faulty(facts.case, **{"cleanup.policy": "compact,delete"}))

"""Tests of the timestamps that records may have under given settings, faults and clocks, and of runs without such
rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import ArrowException

from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import Role, RoleKind
from ackproof.experiment.triggers import ChainTrigger
from ackproof.faults.clocks import ClockJump
from ackproof.faults.command import CommandFault
from ackproof.faults.disks.flip_bits import FlipBits
from ackproof.faults.planned.topics import SetConfig
from ackproof.judge import prepare_audit
from ackproof.judge.facts import Facts
from ackproof.judge.removal import timestamp_rules
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.removals import TimestampRule, read_by_partition
from ackproof.rundir.timeline import Event, EventKind
from judged_run import SECOND

WALL_NS = 1_700_000_000 * SECOND
RUN_MS = (1_700_000_000_000, 1_700_000_030_000)
PLACE = TopicPartition("orders", 0)
TRIGGER = ChainTrigger(0)
APPENDED = {"message.timestamp.type": "LogAppendTime"}


def _case(case: Case, *faults: FaultSpec, topic: dict[str, str], cluster: dict[str, str]) -> Case:
    spec = case.experiment
    orders = spec.topics["orders"].model_copy(update={"config": topic})
    own = spec.cluster.model_copy(update={"config": cluster})
    update = {"topics": {"orders": orders}, "cluster": own, "faults": faults}
    return replace(case, experiment=spec.model_copy(update=update))


@pytest.fixture
def rule(facts: Facts) -> Callable[..., Any]:
    """Return a function that returns the rule for orders/0 of a run of 30 s: (`sent_from_ns`, `appended_ms`), with
    `exact` False also `unsure_ns`; None if there is no rule. `moved_s`: by how much the machine's clock was set."""

    def ask(
        *faults: FaultSpec,
        exact: bool = True,
        topic: dict[str, str] | None = None,
        cluster: dict[str, str] | None = None,
        moved_s: float = 0,
        **changes: Any,
    ) -> Any:
        readings = ((0, 0.0), (30 * SECOND, moved_s * SECOND))
        events = tuple(
            Event(t_ns=t_ns, wall_ns=WALL_NS + t_ns + round(moved), kind=EventKind.NOTE)
            for t_ns, moved in readings
        )
        mine = replace(facts, **{"events": events, "wall_ns": WALL_NS, **changes})
        case = _case(facts.case, *faults, topic=topic or {}, cluster=cluster or {})
        for one in timestamp_rules(mine, case, exact=exact):
            both = one.sent_from_ns, one.appended_ms
            return both if exact else (*both, one.unsure_ns)
        return None

    return ask


def _wider(by_ms: int) -> tuple[int, int]:
    return RUN_MS[0] - by_ms, RUN_MS[1] + by_ms


def _set(config: dict[str, str]) -> SetConfig:
    return SetConfig.model_construct(
        number=1, trigger=TRIGGER, topic="orders", broker=None, config=config, hold=None
    )


def _jump(by: float) -> ClockJump:
    target = Role(RoleKind.BROKER, node=1)
    return ClockJump.model_construct(number=1, trigger=TRIGGER, target=target, by=by, hold=6.0)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, (WALL_NS, None), id="Kafka's default: the producer's"),
        pytest.param({"topic": APPENDED}, (None, _wider(100)), id="the leader's"),
        pytest.param(
            {"cluster": {"log.message.timestamp.type": "LogAppendTime"}},
            (None, _wider(100)),
            id="the leader's by the brokers' default",
        ),
        pytest.param(
            {
                "cluster": {"log.message.timestamp.type": "LogAppendTime"},
                "topic": {"message.timestamp.type": "CreateTime"},
            },
            (WALL_NS, None),
            id="the topic's setting goes first",
        ),
        pytest.param(
            {"moved_s": 3600}, (WALL_NS, None), id="the machine's clock is nothing to the producer's"
        ),
        pytest.param(
            {"topic": APPENDED, "moved_s": -3600}, (None, _wider(3_600_100)), id="the clock was set"
        ),
        pytest.param({"exact": False}, (WALL_NS, None, 100_000_000), id="the library's"),
        pytest.param(
            {"exact": False, "moved_s": -2}, (WALL_NS, None, 2_100_000_000), id="the library's clock"
        ),
        pytest.param({"wall_ns": 0}, None, id="when the run began is not known"),
        pytest.param({"backend": "attach"}, None, id="a cluster of others"),
        pytest.param({"backend": "model"}, None, id="simulated"),
    ],
)
def test_the_rule_of_a_partition(rule: Callable[..., Any], changes: dict[str, Any], expected: Any) -> None:
    assert rule(**changes) == expected


def test_a_type_that_a_fault_sets_is_in_force_as_well(rule: Callable[..., Any]) -> None:
    assert rule(_set(APPENDED)) == (WALL_NS, _wider(100))
    back = _set({"message.timestamp.type": "CreateTime"})
    assert rule(back, topic=APPENDED) == (WALL_NS, _wider(100))


@pytest.mark.parametrize("by", [7200.0, -7200.0])
def test_a_broker_whose_clock_jumps_stamps_by_it(rule: Callable[..., Any], by: float) -> None:
    assert rule(_jump(by), topic=APPENDED) == (None, _wider(7_200_100))
    assert rule(_jump(by)) == (WALL_NS, None)


def test_nothing_is_said_where_a_fault_may_have_changed_what_is_stored(rule: Callable[..., Any]) -> None:
    target = Role(RoleKind.BROKER, node=1)
    flip = FlipBits.model_construct(number=1, trigger=TRIGGER, target=target, partition=PLACE, hold=None)
    assert rule(flip) is None
    assert rule(CommandFault.model_construct(number=1, trigger=TRIGGER, hold=None)) is None


def _stamped(run: CaseDir, stamps: bool | None) -> None:
    file = CaseFile.load(run.case_json)
    clients = [
        one.model_copy(update={"stamps": stamps if one.kind == "producer" else None}) for one in file.clients
    ]
    file.model_copy(update={"clients": tuple(clients), "wall_ns": WALL_NS}).save(run.case_json)


def test_runs_of_older_versions_have_no_rules(make_run: Callable[..., CaseDir]) -> None:
    run = make_run()
    for exact in (True, False):
        _stamped(run, exact)
        prepare_audit([run.path])
        (rule,) = (read_by_partition(run.timestamps_json, TimestampRule) or {}).values()
        assert (rule.sent_from_ns, rule.unsure_ns is None) == (WALL_NS, exact)
    _stamped(run, None)
    prepare_audit([run.path])
    assert read_by_partition(run.timestamps_json, TimestampRule) is None


def test_a_folder_of_another_tool_has_no_rules(tmp_path: Path) -> None:
    prepare_audit([tmp_path])
    assert list(tmp_path.iterdir()) == []


def test_a_broken_file_of_arrow_is_left_to_the_audit(
    make_run: Callable[..., CaseDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(run: CaseDir) -> None:
        raise ArrowException("no Parquet")

    monkeypatch.setattr("ackproof.judge.removal.work_out_removals", fail)
    prepare_audit([make_run().path])

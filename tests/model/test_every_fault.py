"""Tests that every kind of fault is predicted, simulated and run with `backend: model`, or is in a table of
exceptions."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from ackproof.experiment.case import Case
from ackproof.experiment.problems import InvalidExperiment
from ackproof.faults.registry import fault_kinds
from ackproof.plan import load
from ackproof.plan.cases import cases
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import EventKind, read_timeline
from ackproof_model.predict.cases import counted_for
from ackproof_model.replay.metadata import conform
from simulated_run import simulated

REQUESTS: Final = (
    *("hold_request", "lose_request", "close_at_request", "repeat_request"),
    *("late_request", "answer_request"),
)
NOT_SIMULATED: Final = {
    "at_code": "are no JVMs",
    "command": "act on this machine",
    "flip_bits": "protocol does not say",
    **dict.fromkeys((*REQUESTS, "script"), "has no proxy"),
}
NO_GROUPS: Final = "has no groups"
NOT_PREDICTED: Final = {
    "command": "is unknown",
}
OF_GROUPS: Final = {
    **dict.fromkeys(("join_group", "leave_group"), "{group: billing, count: 1}"),
    "bounce_members": "{group: billing}",
    "migrate_group": "{group: billing, to: consumer}",
    "reset_offsets": "{group: billing, to: earliest, stop_members: true}",
    "slow_member": "{client: member(billing), record_time: 1s}",
}
LINK: Final = "link: follower(t/0) -> leader(t/0)"
ONE_OF_EACH: Final = {
    **dict.fromkeys(("kill", "stop", "pause", "kill_starting", "out_of_memory"), "{target: leader(t/0)}"),
    **dict.fromkeys(("power_loss", "empty_disk", "full_disk", "fail_log_dir"), "{target: leader(t/0)}"),
    **dict.fromkeys(("cut", "reset", "black_hole"), f"{{{LINK}}}"),
    **dict.fromkeys(("kill_client", "pause_client"), "{client: producer(0)}"),
    **dict.fromkeys(REQUESTS[:-2], f"{{{LINK}, api: Fetch}}"),
    "answer_request": f"{{{LINK}, api: Fetch, error: FETCH_SESSION_ID_NOT_FOUND}}",
    "late_request": f"{{{LINK}, api: Fetch, by: 200ms}}",
    "detach": "{target: leader(t/0)}",
    "restart": "{target: follower(t/0)}",
    "crash_loop": "{target: follower(t/0), times: 2, up: 300ms}",
    "starve": "{target: leader(t/0), share: 0.1}",
    "lose_quorum": "{}",
    "remove_controller": "{target: controller}",
    "slow_disk": "{target: leader(t/0)}",
    "flip_bits": "{target: follower(t/0)}",
    "truncate_segment": "{target: leader(t/0)}",
    "delete_checkpoint": "{target: follower(t/0), file: replication-offset}",
    "elect_preferred": "{partition: t/0}",
    "elect_unclean": "{partition: t/0}",
    "reassign": "{partition: t/0, to: [4, 2, 3]}",
    "cancel_reassign": "{partition: t/0, to: [4, 2, 3]}",
    "decommission": "{target: broker(1)}",
    "set": "{topic: t, config: {min.insync.replicas: 1}}",
    "move_log_dir": "{partition: t/0, target: followers(t/0)}",
    "recreate": "{topic: t}",
    "rolling_restart": "{target: brokers}",
    "upgrade": '{to: "4.3.1"}',
    "expire_session": "{target: leader(t/0)}",
    "fence_producer": "{client: producer(0)}",
    "throttle": f"{{{LINK}, rate: 50KB/s}}",
    "delay": f"{{{LINK}, latency: 100ms}}",
    "loss": f"{{{LINK}, share: 50%}}",
    "drop_large": f"{{{LINK}, above: 1KB}}",
    "slow_close": f"{{{LINK}, delay: 500ms}}",
    "flap": f"{{{LINK}, down: 100ms, up: 100ms}}",
    "isolate": "{target: leader(t/0), from: peers}",
    "split": "{groups: [[1], [2, 3, 4]]}",
    "bridge": "{groups: [[1, 2], [4]], over: broker(3)}",
    "clock_jump": "{target: leader(t/0), by: 1h}",
    "command": "{inject: ['true'], check: ['true'], heal: ['true']}",
    "at_code": "{point: leader-appended, do: halt, target: leader(t/0)}",
    "script": "{steps: [{kill: 1}, {end_session: 1}]}",
    "storm": "{count: 2, menu: {pause: 1, kill: 1}}",
    **OF_GROUPS,
}
FILE: Final = """\
name: every
cluster: {{kafka: "{kafka}", brokers: 4, {cluster}}}
topics:
  t: {{assignment: [[1, 2, 3]], config: {{min.insync.replicas: 2}}}}
workload:
  producers: {{acks: all, rate: 100/s, count: 2{producers}}}
{groups}  duration: 2s
faults:
{before}  - {kind}: {body}
    {when}
{more}"""
_DIES: Final = "  - kill: {target: broker(%d)}\n    at: %dms\n"


def text_of(kind: str) -> str:
    lasts = {"for": "    for: 1s\n", "restart_after": "    restart_after: 1s\n"}
    zookeeper, before, when = kind == "expire_session", "", "at: 1s"
    if kind == "elect_preferred":  # there must be another leader first
        before = "  - restart: {target: broker(1)}\n    at: 500ms\n"
        when = "after: {fault: 1, by: 4s}"
    if kind == "elect_unclean":  # nobody of the ISR lives, and somebody else does
        before = _DIES % (3, 300) + "    restart_after: 11s\n" + _DIES % (2, 4500) + _DIES % (1, 9000)
        when = "after: {fault: 3, by: 7s}"
    return FILE.format(
        kafka="3.9.2" if zookeeper else "4.2.1",
        cluster="mode: zookeeper"
        if zookeeper
        else f"controllers: {1 if kind == 'script' else 3}, log_dirs: {2 if kind == 'move_log_dir' else 1}",
        producers=", idempotence: true, transaction_size: 20" if kind == "fence_producer" else "",
        groups="  groups: {billing: {members: 2}}\n" if kind in OF_GROUPS else "",
        before=before,
        kind=kind,
        body=ONE_OF_EACH[kind],
        when=when,
        more=lasts.get(fault_kinds()[kind].HOLD_KEY or "", ""),
    )


def case_of(tmp_path: Path, kind: str, backend: str | None = None) -> Case:
    path = tmp_path / "every.yaml"
    path.write_text(text_of(kind))
    return cases(load(path, backend=backend))[0]


def test_each_kind_is_here_once() -> None:
    assert set(ONE_OF_EACH) == set(fault_kinds())


@pytest.mark.parametrize("kind", sorted(fault_kinds()))
def test_prediction_takes_it_or_says_why_not(tmp_path: Path, kind: str) -> None:
    case = case_of(tmp_path, kind)
    told = [said for fault in case.faults if (said := fault.unpredictable())]
    if kind in NOT_PREDICTED:
        assert len(told) == 1 and NOT_PREDICTED[kind] in told[0]
    else:
        assert told == []
        counted_for(case, "t")


@pytest.mark.parametrize("kind", sorted(fault_kinds()))
def test_the_model_does_it_or_says_why_not(tmp_path: Path, kind: str) -> None:
    if kind in OF_GROUPS:
        assert NO_GROUPS in str(fault_kinds()[kind].not_on("model"))
        with pytest.raises(InvalidExperiment, match=NO_GROUPS):
            case_of(tmp_path, kind, "model")
        return
    if kind in NOT_SIMULATED:
        assert NOT_SIMULATED[kind] in str(fault_kinds()[kind].not_on("model"))
        with pytest.raises(InvalidExperiment, match=NOT_SIMULATED[kind]):
            case_of(tmp_path, kind, "model")
        return
    simulation = simulated(case_of(tmp_path, kind, "model"), tmp_path / "run", seed=3, batches=40)
    assert [life.reason for life in simulation.lives if life.stage.name not in ("RECOVERED", "MISSED")] == []
    assert simulation.complete, simulation.reasons
    run = CaseDir(tmp_path / "run")
    assert conform(run, simulation.case).forbidden is None
    events, _ = read_timeline(run.timeline)
    number = len(simulation.case.experiment.faults)
    told = [event.kind for event in events if event.fault == number]
    assert told[0] is EventKind.FAULT_ASKED and told[-1] is EventKind.FAULT_RECOVERED
    assert EventKind.FAULT_CONFIRMED in told and EventKind.FAULT_HEALED in told

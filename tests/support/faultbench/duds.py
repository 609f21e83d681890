"""Duds on real brokers: for every kind of fault one without effect, and the message with which it must fail.

One call of the harness is replaced by a lie; nodes, brokers and witnesses are real. The duds are grouped by the cluster
on which they run. `tests/repo/test_duds.py` checks that no kind lacks a dud."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.disks import file_systems
from ackproof.faults.context import Clients
from ackproof.faults.injection import SEEN_WITHIN_S, Injection
from faultbench.bench import Bench
from faultbench.code import CODE_DUDS
from faultbench.dud import Dud as Dud
from faultbench.planned import leaderless
from faultbench.request_duds import REQUEST_DUDS
from faultbench.spoilt import (
    astray,
    nothing,
    once,
    says,
    spared,
    synced_first,
    wrong_password,
)

IN_VAIN_S: Final = 1.5
"""Seconds that are waited for an effect that never comes."""
AFTER_S: Final = 10.0
"""Seconds that are waited for each later step: an effect that never came may never be healed, either."""


def no_bite(bench: Bench, dud: Dud, clients: Clients | None = None) -> None:
    """Inject a dud, and assert that it fails with its message: not confirmed, or (`Dud.bites`) not healed. Assert that
    all ISRs are full afterwards."""
    wait_for = Injection.wait_for
    found_out = False

    def hasty(
        self: Injection[Any], look: Any, what: str, within_s: float = SEEN_WITHIN_S, **more: Any
    ) -> Any:
        nonlocal found_out
        most = IN_VAIN_S if dud.said in what else AFTER_S if found_out else within_s
        try:
            return wait_for(self, look, what, min(within_s, most), **more)
        except FaultNotConfirmed:
            found_out = True
            raise

    bench.await_full_isr()
    with dud.stage(bench), pytest.MonkeyPatch.context() as patch:
        for call, spoilt in dud.spoilt.items():
            patch.setattr(call, spoilt(pkgutil.resolve_name(call)))
        patch.setattr(Injection, "wait_for", hasty)

        def mend() -> None:
            patch.undo()
            bench.mend()

        bite = bench.bite(dud.fault, record=False, settled=False, then=mend, clients=clients)
    assert bite.bit is dud.bites, bite
    assert bite.failures and dud.said in bite.failures[0], bite
    assert bite.isr_back, bite


def duds_on(where: str, *, nightly: bool = False) -> list[Any]:
    """Return the duds of one cluster for `pytest.mark.parametrize`. `nightly`: True to run all of them at night
    only."""
    refusal = file_systems.refusal()
    marks = {
        name: [
            *([pytest.mark.nightly] if nightly or dud.nightly else []),
            *([pytest.mark.skipif(refusal is not None, reason=refusal or "")] if dud.needs_root else []),
        ]
        for name, dud in DUDS[where].items()
    }
    return [pytest.param(dud, id=name, marks=marks[name]) for name, dud in DUDS[where].items()]


# -- on which stage -----------------------------------------------------------------------------------------------


@contextmanager
def another_leads(bench: Bench) -> Iterator[None]:
    """Before the block, restart the leader of t/0, so that another broker leads. The preferred leader must lead before.
    Nothing is undone afterwards."""
    bench.bite("restart: {target: leader(t/0)}", record=False)
    yield


@contextmanager
def replicas_put_back(bench: Bench) -> Iterator[None]:
    """After the block, reassign t/0 to brokers 1, 2 and 3."""
    yield
    bench.bite("reassign: {partition: t/0, to: [3, 2, 1]}", record=False)
    bench.bite("reassign: {partition: t/0, to: [1, 2, 3]}", record=False)


@contextmanager
def without_broker_4(bench: Bench) -> Iterator[None]:
    """Before the block, stop broker 4, so that a replica on it is never in sync. Afterwards t/0 is reassigned to
    brokers 1 to 3. Broker 4 is not started again here, but by `no_bite`."""
    with replicas_put_back(bench):
        bench.await_full_isr()
        bench.cluster.node(4).stop()
        yield


# -- the table ----------------------------------------------------------------------------------------------------

_NODE: Final = "ackproof.cluster.node.ProcessNode"
_FILE_SYSTEM: Final = "ackproof.cluster.disks.file_systems.FileSystem"
_PACKETS: Final = "ackproof.network.kernel.PacketRules"
_ADMIN: Final = "ackproof.cluster.admin"
_WORKLOAD: Final = "ackproof.clients.workload.Workload"
_LINK: Final = "link: follower(t/0) -> leader(t/0)"


def _unused(fault: str, said: str = "to show on", *, nightly: bool = False) -> dict[str, Dud]:
    """Return a dud, by its kind, for a cluster whose links carry no traffic through the proxies."""
    return {fault.partition(":")[0]: Dud(fault, said, nightly=nightly)}


_TO_THE_END: Final = "waited"
"""Word in the messages of duds for which a busy machine could be the cause: these get the full waiting time of a
run."""

DUDS: Final[Mapping[str, Mapping[str, Dud]]] = {
    "processes": {
        "kill": Dud("kill: {target: leader(t/0)}", "to be gone", {f"{_NODE}.kill": nothing}),
        "stop": Dud("stop: {target: leader(t/0)}", "to be gone", {f"{_NODE}.terminate": nothing}),
        "restart": Dud("restart: {target: leader(t/0)}", "to shut down", {f"{_NODE}.terminate": nothing}),
        "pause": Dud("pause: {target: follower(t/0)}", "to be stopped", {f"{_NODE}.pause": nothing}),
        "a node that is not started again": Dud(
            "kill: {target: follower(t/0)}", "to be running", {f"{_NODE}.start": nothing}, bites=True
        ),
        "a node that does not go on": Dud(
            "pause: {target: follower(t/0)}",
            "to be running",
            {f"{_NODE}.resume": nothing},
            bites=True,
            nightly=False,
        ),
        "command": Dud(
            "command: {inject: ['true'], check: ['false'], heal: ['true'], timeout: 1s}",
            "check to say yes",
        ),
    },
    "code": CODE_DUDS,
    "crashes": {
        "crash_loop": Dud(
            "crash_loop: {target: follower(t/0), times: 3, up: 200ms}",
            "1 processes crashed, not 3",
            {"ackproof.faults.crashes.CrashLoopInjection._crash_again": says(True)},
            bites=True,
        ),
        "kill_starting": Dud(
            "kill_starting: {target: broker(1), up: 25s}", "had started before it was killed"
        ),
        "out_of_memory": Dud(
            "out_of_memory: {target: broker(1)}",
            "to be gone",
            {"ackproof.faults.crashes.OutOfMemoryInjection._fill": nothing},
            nightly=False,
        ),
        "starve": Dud(
            "starve: {target: broker(1)}",
            "stood still for 0%",
            {"ackproof.faults.crashes.StarveInjection._cycle": nothing},
        ),
        "lose_quorum": Dud("lose_quorum: {by: pause}", "to be stopped", {f"{_NODE}.pause": nothing}),
        "remove_controller": Dud(
            "remove_controller: {target: controller(102)}",
            "no longer among the voters",
            {f"{_ADMIN}.remove_voter": nothing},
        ),
        "a controller that is not taken in again": Dud(
            "remove_controller: {target: controller(102)}",
            "to list controller 102 among the voters",
            {f"{_ADMIN}.add_voter": nothing},
            bites=True,
        ),
    },
    "disks": {
        "full_disk": Dud(
            "full_disk: {target: leader(t/0)}",
            "are free",
            {f"{_FILE_SYSTEM}.fill": nothing},
            nightly=False,
            needs_root=True,
        ),
        "fail_log_dir": Dud(
            "fail_log_dir: {target: leader(t/0), how: read_only}",
            "still takes",
            {"ackproof.faults.disks.log_dirs.set_immutable": nothing, "pathlib.Path.chmod": nothing},
            nightly=False,
        ),
        "slow_disk": Dud(
            "slow_disk: {target: leader(t/0)}",
            "to wait",
            {f"{_FILE_SYSTEM}.freeze": nothing},
            nightly=False,
            needs_root=True,
        ),
        "flip_bits": Dud(
            "flip_bits: {target: follower(t/0)}",
            "still holds",
            {"ackproof.faults.disks.flip_bits.flip": nothing},
            nightly=False,
        ),
        "empty_disk": Dud(
            "empty_disk: {target: follower(t/0)}",
            "still has",
            {"ackproof.faults.disks.disk.empty_folder": nothing},
        ),
        "power_loss": Dud(
            "power_loss: {target: follower(t/0), how: device}",
            "is still there",
            {f"{_FILE_SYSTEM}.lose_power": synced_first},
            needs_root=True,
        ),
        "a cut that takes nothing": Dud(
            "power_loss: {target: follower(t/0), how: cut, keep: 999999999}",
            "nothing was lost",
            nightly=False,
        ),
        "truncate_segment": Dud(
            "truncate_segment: {target: follower(t/0)}", "no record is gone", {"os.truncate": nothing}
        ),
        "delete_checkpoint": Dud(
            "delete_checkpoint: {target: follower(t/0), file: replication-offset}",
            "still has",
            {"pathlib.Path.unlink": spared("replication-offset-checkpoint")},
        ),
        "move_log_dir": Dud(
            "move_log_dir: {partition: t/0, target: leader(t/0)}",
            "to be in another log dir",
            {f"{_ADMIN}.move_log_dir": nothing},
        ),
    },
    "unused proxies": {
        **_unused(f"cut: {{{_LINK}}}"),
        **_unused("isolate: {target: leader(t/0), from: peers, silent: true}"),
        **_unused(f"reset: {{{_LINK}}}"),
        **_unused(f"throttle: {{{_LINK}, rate: 50KB/s}}", _TO_THE_END),
        **_unused(f"delay: {{{_LINK}, latency: 100ms}}", _TO_THE_END),
        **_unused(f"slow_close: {{{_LINK}, delay: 500ms}}"),
        **_unused(f"flap: {{{_LINK}, down: 100ms, up: 100ms}}", "to be seen down"),
        **_unused(f"black_hole: {{{_LINK}}}"),
        **_unused("split: {groups: [minority, majority]}"),
        **_unused("bridge: {groups: [[1], [2]], over: broker(3)}"),
    },
    "links": {
        "detach": Dud(
            "detach: {target: follower(t/0)}",
            "to show on",
            {"ackproof.network.meshes.ProxyMesh.impose": nothing},
            nightly=False,
        ),
    },
    "requests": REQUEST_DUDS,
    "packets": {
        "loss": Dud(
            f"loss: {{{_LINK}, share: 50%}}",
            "to show on",
            {f"{_PACKETS}.lay": astray("127.0.0.77")},
            nightly=False,
        ),
        "drop_large": Dud(
            f"drop_large: {{{_LINK}, above: 600B}}", "to show on", {f"{_PACKETS}.lay": astray("127.0.0.77")}
        ),
        "loss that is not lifted": Dud(
            f"loss: {{{_LINK}, share: 60%}}", "to be whole", {f"{_PACKETS}.remove": nothing}, bites=True
        ),
    },
    "packets of containers": {
        "cut": Dud(
            f"cut: {{{_LINK}}}", "to show on", {f"{_PACKETS}.lay": astray("10.255.255.1")}, nightly=False
        ),
        "loss": Dud(
            f"loss: {{{_LINK}, share: 50%}}", "to show on", {f"{_PACKETS}.lay": astray("10.255.255.1")}
        ),
    },
    "clocks": {
        "clock_jump": Dud(
            "clock_jump: {target: broker(1), by: 1h}",
            "off by +3600 s",
            {"ackproof.faults.clocks.ClockJumpInjection._shift": nothing},
        ),
    },
    "planned": {
        "elect_preferred": Dud(
            "elect_preferred: {partition: t/0}",
            "to show a new leader of t/0",
            {f"{_ADMIN}.elect": nothing},
            stage=another_leads,
        ),
        "elect_unclean": Dud(
            "elect_unclean: {partition: t/0}",
            "to show a new leader of t/0",
            {f"{_ADMIN}.elect": nothing},
            stage=leaderless,
        ),
        "reassign": Dud(
            "reassign: {partition: t/0, to: [2, 3, 1]}",
            "to show other replicas",
            {f"{_ADMIN}.reassign": nothing},
        ),
        "a replica that never comes into sync": Dud(
            "reassign: {partition: t/0, to: [1, 2, 3, 4]}",
            "that were asked for, all in sync",
            {"ackproof.faults.planned.reassignments.MoveInjection._goes_on": says(False)},
            bites=True,
            stage=without_broker_4,
        ),
        "cancel_reassign": Dud(
            "cancel_reassign: {partition: t/0, to: [2, 4], throttle: 100B}",
            "that were asked for, all in sync",
            {f"{_ADMIN}.reassign": once},
            bites=True,
            stage=replicas_put_back,
        ),
        "set": Dud(
            "set: {topic: t, config: {min.insync.replicas: 2}}",
            "every broker to say",
            {f"{_ADMIN}.alter_config": nothing},
            nightly=False,
        ),
        "settings that are not put back": Dud(
            "set: {topic: t, config: {min.insync.replicas: 2}}",
            "what was in force before",
            {f"{_ADMIN}.alter_config": once},
            bites=True,
        ),
        "recreate": Dud(
            "recreate: {topic: t}", "to show no topic t", {"ackproof.cluster.queries.delete_topics": nothing}
        ),
    },
    "rollouts": {
        "rolling_restart": Dud(
            "rolling_restart: {target: brokers}", "to shut down", {f"{_NODE}.terminate": nothing}
        ),
        "decommission": Dud(
            "decommission: {target: leader(t/0)}", "to be elsewhere, in sync", {f"{_ADMIN}.reassign": nothing}
        ),
    },
    "an older release": {
        "upgrade": Dud(
            "upgrade: {to: '4.4.0'}",
            "to log that it is of release 4.4.0",
            {"ackproof.cluster.backends.process.ProcessCluster.use_build": nothing},
        ),
    },
    "clients": {
        "kill_client": Dud(
            "kill_client: {client: producer(0)}", "to be gone", {f"{_WORKLOAD}.kill": says(0)}
        ),
        "pause_client": Dud(
            "pause_client: {client: producer(0)}",
            "to be stopped",
            {f"{_WORKLOAD}.signal": nothing},
            nightly=False,
        ),
        "a client that does not go on": Dud(
            "pause_client: {client: producer(0)}", "to run again", {f"{_WORKLOAD}.signal": once}, bites=True
        ),
        "fence_producer": Dud(
            "fence_producer: {client: producer(0)}",
            "another epoch than",
            {f"{_WORKLOAD}.take_over": says("p0")},
        ),
    },
    "zookeeper": {
        "expire_session": Dud(
            "expire_session: {target: leader(t/0)}",
            "to end with its session",
            {"ackproof.cluster.metadata.zookeeper.session_password": wrong_password},
            nightly=False,
        ),
    },
}
"""By cluster: its duds, each by the name of its kind or of its error."""
_GROUPS: Final = "the bench has no consumer groups: tests/unit/faults/test_groups.py plants its duds"
NO_DUD: Final = {
    "storm": "does nothing itself: each of its faults is one of the others",
    "script": "it drives the load, which the bench does not have: tests/cluster/test_scripts.py plants its duds",
    **dict.fromkeys(
        ("join_group", "leave_group", "bounce_members", "migrate_group", "reset_offsets", "slow_member"),
        _GROUPS,
    ),
}

"""What the backend `model` can do, and why it cannot do the rest: said when a file is checked, never passed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.problems import Path
from ackproof.experiment.releases import numbers
from ackproof.faults.clocks.specification import ClockJump
from ackproof.faults.disks.specification import FailLogDir, FullDisk, TruncateSegment
from ackproof.faults.planned.specification import SetConfig
from ackproof.faults.storm.specification import Storm
from ackproof.plan.diagnostics import Problems

MODEL: Final = "model"

POSSIBLE: Final = frozenset(
    {
        "kill",
        "stop",
        "pause",
        "restart",
        "crash_loop",
        "kill_starting",
        "out_of_memory",
        "starve",
        "lose_quorum",
        "remove_controller",
        "power_loss",
        "empty_disk",
        "full_disk",
        "fail_log_dir",
        "slow_disk",
        "truncate_segment",
        "delete_checkpoint",
        "move_log_dir",
        "elect_preferred",
        "elect_unclean",
        "reassign",
        "cancel_reassign",
        "decommission",
        "set",
        "recreate",
        "rolling_restart",
        "upgrade",
        "expire_session",
        "clock_jump",
        "kill_client",
        "pause_client",
        "fence_producer",
        "cut",
        "reset",
        "black_hole",
        "throttle",
        "delay",
        "loss",
        "drop_large",
        "slow_close",
        "flap",
        "isolate",
        "split",
        "bridge",
        "storm",
    }
)
"""The kinds of faults that the model can do."""

SETTINGS: Final = frozenset(
    {
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "flush.messages",
        "log.flush.interval.messages",
    }
)
"""What may be set while brokers run: any other setting would change nothing in the model, and seem to."""
_KRAFT_ONLY: Final = frozenset({"reassign", "cancel_reassign", "decommission"})
_BYTES: Final = "it knows batches and offsets, no files and no bytes"
_WHY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "flip_bits": "what a broker does about a batch whose checksum is wrong is no part of the protocol",
        "command": "your commands would act on this machine, not on virtual brokers",
    }
)
_STAMPS_AHEAD_S: Final = 3600.0
"""message.timestamp.after.max.ms since 4.0 (KIP-937)."""


def why_not(kind: str) -> str | None:
    """Why the model cannot do a kind of fault; None if it can."""
    if kind in POSSIBLE:
        return None
    return _WHY.get(kind, "the model has no such thing yet")


def check_on_model(spec: ExperimentSpec, found: Problems) -> None:
    """Report what an experiment with `backend: model` asks for and the model does not have."""
    if spec.backend != MODEL or not found.sound(("backend",)):
        return
    for lack in _lacking(spec):
        if found.sound(lack.path):
            said = f"{lack.what} is not possible" if lack.drawn else "not possible"
            found.report(lack.path, f"{said} on the backend model, because {lack.why}", key=lack.key)


def lacks(spec: ExperimentSpec) -> str | None:
    """Why the model cannot run an experiment of another backend; None if it can."""
    return next((f"{lack.what}: {lack.why}" for lack in _lacking(spec)), None)


class _Lack(NamedTuple):
    """What the model lacks: where the file asks for it, by what name, why it cannot; whether a key is to blame."""

    path: Path
    what: str
    why: str
    key: bool = False
    drawn: bool = False


def _lacking(spec: ExperimentSpec) -> Iterator[_Lack]:
    for fault in spec.faults:
        body: Path = ("faults", fault.number - 1, fault.kind)
        if isinstance(fault, Storm):
            for kind, dish in (fault.menu or {}).items():
                config = dish.fields.get("config")
                if why := why_not(kind) or _of_mode(kind, spec) or _of_settings(kind, config):
                    yield _Lack(body, kind, why, key=True, drawn=True)
        elif why := why_not(fault.kind) or _of_mode(fault.kind, spec):
            yield _Lack(body, fault.kind, why, key=True)
        elif isinstance(fault, FullDisk) and fault.leave:
            yield _Lack((*body, "leave"), fault.kind, _BYTES, key=True)
        elif isinstance(fault, FailLogDir) and fault.how == "read_only":
            yield _Lack((*body, "how"), fault.kind, _BYTES, key=True)
        elif isinstance(fault, TruncateSegment) and fault.segment == "closed":
            yield _Lack((*body, "segment"), fault.kind, "its logs are one segment each", key=True)
        elif isinstance(fault, ClockJump) and (why := _of_clocks(fault.by, spec)):
            yield _Lack((*body, "by"), fault.kind, why, key=True)
        elif isinstance(fault, SetConfig) and (why := _of_settings(fault.kind, fault.config)):
            yield _Lack((*body, "config"), fault.kind, why, key=True)
    for name, topic in spec.topics.items():
        if "compact" in topic.config.get("cleanup.policy", "delete"):
            policy: Path = ("topics", name, "config", "cleanup.policy")
            yield _Lack(policy, "cleanup.policy", "its records have no keys")


def _of_clocks(by: float, spec: ExperimentSpec) -> str:
    if spec.workload.producers.transaction_size is not None:
        return "its transaction coordinator does not look at the wall clock"
    if by <= -_STAMPS_AHEAD_S and numbers(spec.cluster.kafka) >= (4, 0):
        return "its brokers take records that are stamped an hour ahead, which Kafka refuses from 4.0 on"
    return ""


def _of_mode(kind: str, spec: ExperimentSpec) -> str:
    if spec.cluster.mode == "zookeeper" and kind in _KRAFT_ONLY:
        return "it knows reassignments as KRaft makes them, not as ZooKeeper's controller does"
    return ""


def _of_settings(kind: str, config: object) -> str:
    if kind != SetConfig.KIND or not isinstance(config, Mapping):
        return ""
    unknown = sorted(set(config) - SETTINGS)
    return (
        f"it does not know the setting '{unknown[0]}': it knows {', '.join(sorted(SETTINGS))}"
        if unknown
        else ""
    )

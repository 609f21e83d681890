"""What the backend `model` can do, and why it cannot do the rest: said when a file is checked, never passed over."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ackproof.plan.findings import Findings
from ackproof.plan.problems import Path
from ackproof.plan.spec import ExperimentSpec
from ackproof.plan.storm import Storm

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
        "power_loss",
        "empty_disk",
        "elect_preferred",
        "elect_unclean",
        "rolling_restart",
        "expire_session",
        "kill_client",
        "pause_client",
        "cut",
        "reset",
        "black_hole",
        "throttle",
        "delay",
        "loss",
        "flap",
        "isolate",
        "split",
        "bridge",
        "storm",
    }
)
"""The kinds of faults that the model can do."""

_BYTES: Final = "it knows batches and offsets, no files and no bytes"
_WHY: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "full_disk", "fail_log_dir", "slow_disk", "flip_bits", "truncate_segment", "delete_checkpoint",
                "move_log_dir",
            ),
            _BYTES,
        ),
        "drop_large": "it knows no packets",
        "slow_close": "its connections end at once",
        "command": "your commands would act on this machine, not on virtual brokers",
        "upgrade": "all its brokers follow the rules of one release",
        "remove_controller": "it takes the quorum of controllers as given",
        "set": "its settings stay as they are",
        "recreate": "its topics stay as they are",
    }
)  # fmt: skip


def why_not(kind: str) -> str | None:
    """Why the model cannot do a kind of fault; None if it can."""
    if kind in POSSIBLE:
        return None
    return _WHY.get(kind, "the model has no such thing yet")


def check_on_model(spec: ExperimentSpec, found: Findings) -> None:
    """Report what an experiment with `backend: model` asks for and the model does not have."""
    if spec.backend != MODEL or not found.sound(("backend",)):
        return
    for fault in spec.faults:
        body: Path = ("faults", fault.number - 1, fault.kind)
        kinds = dict.fromkeys((fault.kind, *(fault.menu if isinstance(fault, Storm) else ())))
        for kind in kinds:
            why = why_not(kind)
            if why is not None:
                what = "" if kind == fault.kind else f"{kind} is "
                found.report(body, f"{what}not possible on the backend model, because {why}", key=True)
    size: Path = ("workload", "producers", "transaction_size")
    if spec.workload.producers.transaction_size is not None and found.sound(size):
        found.report(size, "not possible on the backend model, because its clients have no transactions yet")
    for name, topic in spec.topics.items():
        policy: Path = ("topics", name, "config", "cleanup.policy")
        if "compact" in topic.config.get("cleanup.policy", "delete") and found.sound(policy):
            found.report(policy, "not possible on the backend model, because its records have no keys")


def lacks(spec: ExperimentSpec) -> str | None:
    """Why the model cannot run an experiment of another backend; None if it can."""
    for fault in spec.faults:
        for kind in (fault.kind, *(fault.menu if isinstance(fault, Storm) else ())):
            if (why := why_not(kind)) is not None:
                return f"{kind}: {why}"
    if spec.workload.producers.transaction_size is not None:
        return "its clients have no transactions yet"
    if any("compact" in topic.config.get("cleanup.policy", "delete") for topic in spec.topics.values()):
        return "its records have no keys"
    return None

"""Racks of an experiment, and faults that are aimed at one."""

from __future__ import annotations

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.problems import Path
from ackproof.experiment.roles import SEVERAL, Role
from ackproof.plan.diagnostics import Problems

_RACKS: Path = ("cluster", "racks")
_OWN: Path = ("cluster", "controller_racks")


def check_racks(spec: ExperimentSpec, found: Problems) -> None:
    """Report racks of controllers that are not their own, or without racks of brokers."""
    if not spec.cluster.controller_racks or not found.sound(_OWN, _RACKS, ("cluster", "combined")):
        return
    if spec.cluster.combined:
        found.report(_OWN, "each controller is a broker, too, and has its rack; leave this out", key=True)
    elif not spec.cluster.racks:
        found.report(_OWN, "the brokers need racks, too: add racks: [a, b]", key=True)


def check_rack(spec: ExperimentSpec, role: Role, path: Path, found: Problems) -> None:
    """Report a rack that no node is in."""
    racks = spec.cluster.members.nodes_by_rack
    if not found.sound(_OWN, _RACKS, ("cluster", "brokers"), ("cluster", "controllers")):
        return
    if spec.ground.foreign:
        found.report(path, f"racks of a cluster that someone else runs are not known; list nodes: {SEVERAL}")
    elif not racks:
        found.report(path, f"{role} is nobody: no node has a rack; write cluster: {{racks: [a, b, c]}}")
    elif role.rack is not None and role.rack not in racks:
        found.report(path, f"{role} does not exist; the racks are {spec.cluster.members.rack_text}")

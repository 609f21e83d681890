"""Checks before a cluster starts whether the points of code in a case exist in the jars of the Kafka that it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ackproof.base.errors import BadInput
from ackproof.cluster.install import Installation
from ackproof.experiment.case import Case
from ackproof.experiment.kafka import KafkaBuild
from ackproof.faults.code.at_code import AtCode, rule_text
from ackproof.faults.code.points import FreePoint
from ackproof.provision.byteman import check_rules
from ackproof.provision.class_files import find_missing_name
from ackproof.rundir.timeline import fault_name


def require_points(cases: Iterable[Case], ready: Mapping[KafkaBuild, Installation]) -> None:
    """Raise `BadInput` for a point of the code that fits none of the builds of Kafka that its case runs.
    `ready`: installations by build.

    Named points of known releases are not checked: a test compares them with the jars. Raises also
    `MissingTool`, `ProvisionFailed`, `WaitTimeout` (Byteman's checker), OSError, `zipfile.BadZipFile` (jars).
    """
    asked = {
        (fault.point, fault.does, fault.exception, case.builds, case.experiment.cluster.mode): fault
        for case in cases
        for fault in case.faults
        if isinstance(fault, AtCode)
    }
    for (*_, builds, mode), fault in asked.items():
        lacks = [_find_lack(fault, build, mode, ready[build]) for build in builds]
        if all(lacks):
            raise BadInput(f"fault {fault_name(fault.number)} ({fault.kind}): {lacks[0]}")


def _find_lack(fault: AtCode, build: KafkaBuild, mode: str, installed: Installation) -> str:
    """Return why the fault's point does not fit these jars; '' if it does. A named point of a known release fits: a
    test checks that."""
    free, jars = isinstance(fault.point, FreePoint), installed.jars
    if build.is_known and not free:
        return ""
    place = fault.place(jars.version, mode)
    if place is None:
        return f"Kafka {build.label} has no point {fault.title}"
    missing = find_missing_name(place.class_name, place.method, jars.classpath)
    if missing is not None:
        hint = f" (did you mean '{missing.nearest}'?)" if missing.nearest else ""
        return missing.describe(build.label) + hint
    wrong = check_rules(rule_text(fault, place, "point"), jars.classpath) if free else ()
    return f"the point does not fit Kafka {build.label}: {wrong[0]}" if wrong else ""

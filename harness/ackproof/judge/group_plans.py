"""Facts of a case's consumer groups that the audit needs (`groups-plan.json`), written before it."""

from __future__ import annotations

from typing import Final

from ackproof.experiment.case import Case
from ackproof.experiment.kafka import line_of
from ackproof.plan.cases import case_from_json
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.groups import GroupPlan, GroupsPlanFile
from ackproof.rundir.layout import CaseDir

_ASSIGNMENT_EPOCHS: Final = (4, 3)
"""First release line that compares a commit with the epoch of the partition's assignment: class ConsumerGroup,
`createAssignmentEpochValidator`."""


def work_out_group_plans(run: CaseDir) -> None:
    """Write `groups-plan.json` of a run before its audit: the settings of each consumer group that the audit needs
    (`GroupPlan`). An older file is removed first. Writes none if the run has no case, or the case has no consumer
    groups. Raises `BadInput` for facts of a run that cannot be read, OSError if the file cannot be written."""
    run.groups_plan.unlink(missing_ok=True)
    if not run.case_json.exists():
        return
    case = case_from_json(CaseFile.load(run.case_json).resolved)
    if case.planned.workload.groups:
        plans = tuple(_plan_group(case, name) for name in case.planned.workload.groups)
        GroupsPlanFile(groups=plans).save(run.groups_plan)


def _plan_group(case: Case, name: str) -> GroupPlan:
    workload = case.planned.workload
    spec = workload.groups[name]
    return GroupPlan(
        group=name,
        topics=case.planned.input_of(name),
        commit=spec.commit,
        isolation=spec.isolation,
        output=spec.output or "",
        committed_read=spec.isolation == "read_committed" and workload.producers.transaction_size is not None,
        assignment_epochs=any(line_of(build.version).number >= _ASSIGNMENT_EPOCHS for build in case.builds),
    )

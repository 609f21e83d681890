"""An `ExperimentSpec` back in the words of a file: what is written here can be read again."""

from __future__ import annotations

from ackproof.experiment.expectations import ExpectSpec
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import COMMON, FaultSpec
from ackproof.experiment.nodes import Data
from ackproof.experiment.quantities import duration_text
from ackproof.experiment.triggers import After, At, Trigger

_BY_HAND = {"matrix", "faults", "expect"}


def experiment_data(spec: ExperimentSpec) -> dict[str, Data]:
    """The whole experiment with every default filled in, as JSON data in the grammar of a file.

    Fields that are unset (None) are left out.
    """
    data: dict[str, Data] = spec.model_dump(mode="json", exclude_none=True, exclude=_BY_HAND)
    data["matrix"] = {path: list(values) for path, values in spec.matrix.items()}
    data["faults"] = [fault_data(fault) for fault in spec.faults]
    data["expect"] = [expectation_data(expectation) for expectation in spec.expect]
    return data


def fault_data(fault: FaultSpec) -> dict[str, Data]:
    """One entry of `faults:`."""
    body: Data = fault.model_dump(mode="json", exclude_none=True, exclude=set(COMMON), by_alias=True)
    data: dict[str, Data] = {fault.KIND: body, **trigger_data(fault.trigger)}
    if fault.hold is not None and fault.HOLD_KEY is not None:
        data[fault.HOLD_KEY] = duration_text(fault.hold)
    return data


def trigger_data(trigger: Trigger) -> dict[str, Data]:
    """The keys of a trigger, as they stand beside the kind of a fault."""
    if isinstance(trigger, At):
        return {"at": duration_text(trigger.at)}
    if isinstance(trigger, After):
        return {"after": {"fault": trigger.fault, "by": duration_text(trigger.by)}}
    data: dict[str, Data] = {"when": str(trigger.condition)}
    if trigger.at_latest is not None:
        data["at_latest"] = duration_text(trigger.at_latest)
    return data


def expectation_data(expectation: ExpectSpec) -> dict[str, Data]:
    """One entry of `expect:`."""
    given: dict[str, Data] = dict(expectation.given)
    data: dict[str, Data] = {"given": given} if given else {}
    for name, bound in expectation.bounds.items():
        data[name] = bound.value if bound.op == "==" else str(bound)
    return data

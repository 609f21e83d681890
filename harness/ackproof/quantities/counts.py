"""What the audit counted: each class of anomalies is a quantity."""

from __future__ import annotations

from typing import Final

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Ask, Quantity
from ackproof.quantities.value import Value
from ackproof.rundir.anomalies import TABLE
from ackproof.rundir.bounds import Unit, Window


def _count(evidence: Evidence, ask: Ask, _: Window) -> Value:
    counts = {} if evidence.audit is None else evidence.audit.counts
    if ask.quantity.name not in counts:
        return Value.unknown("it was not counted")
    return Value.exactly(counts[ask.quantity.name])


QUANTITIES: Final = tuple(
    Quantity(
        name=row.name.value,
        variant="",
        unit=Unit.COUNT,
        definition=row.wording,
        source="audit.json",
        unknown="Unknown where no audit counted it.",
        takes_time=False,
        measure=_count,
    )
    for row in TABLE.values()
)

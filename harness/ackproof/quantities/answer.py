"""One expectation on one quantity of one run, held against the evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ackproof.base.errors import BadInput
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.over_time import over_time
from ackproof.quantities.quantity import Ask
from ackproof.quantities.value import Value
from ackproof.quantities.vocabulary import is_count
from ackproof.rundir.bounds import Bound, Window
from ackproof.rundir.parts import DELETED


@dataclass(frozen=True)
class Answer:
    """`holds` None: it cannot be told, and `why` says what is cut or missing. `broken`: it was demanded that there be
    no more, or a state be so, and it is not; else what does not hold is merely not shown. `value`: the number; None of
    a state."""

    seen: str
    holds: bool | None
    broken: bool = False
    why: str = ""
    value: Value | None = field(default=None, compare=False)


def measured(evidence: Evidence, ask: Ask, window: Window) -> Value:
    """The number of a quantity that is no state. What cannot be read makes it unknown."""
    import pyarrow as pa

    assert ask.quantity.measure is not None
    if not is_count(str(ask)) and any(evidence.run.produced.glob(f"client=*/{DELETED}")):
        return Value.unknown("ledgers of it were deleted while it went on (--keep)")
    try:
        return ask.quantity.measure(evidence, ask, window)
    except (BadInput, OSError, pa.ArrowException) as error:
        return Value.unknown(f"its files cannot be read: {error}")


def answered(
    evidence: Evidence, ask: Ask, bound: Bound, known: Callable[[Value], Value] = lambda value: value
) -> Answer:
    """What became of it. `known`: what a number that was measured shows."""
    if ask.quantity.state is not None:
        state = over_time(evidence, ask, bound)
        return Answer(state.text, state.holds, state.holds is False, state.why)
    value = known(measured(evidence, ask, bound.window))
    holds = bound.within(value.low, value.high)
    why = (value.why or "it is not known more closely") if holds is None else ""
    return Answer(value.text(bound.unit), holds, bound.broken(value.low, value.high), why, value)

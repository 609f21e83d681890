"""The definition of a dud: a fault that does not do what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from faultbench.bench import Bench
from faultbench.spoilt import Spoilt


@dataclass(frozen=True)
class Dud:
    """A fault, as in a file, that has no effect. `said`: part of the message with which it must fail. `stage`: context
    in which the bench must be. `nightly`: True to run it at night only. `needs_root`: True to skip it where no file
    systems can be made."""

    fault: str
    said: str
    spoilt: Mapping[str, Spoilt] = field(default_factory=dict)
    """By name of a function below `ackproof`: the replacement that takes away its effect."""
    bites: bool = False
    """True if the fault takes effect, and its healing does nothing."""
    stage: Callable[[Bench], AbstractContextManager[object]] = nullcontext
    nightly: bool = True
    needs_root: bool = False

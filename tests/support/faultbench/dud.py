"""A fault that does not do what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from faultbench.bench import Bench
from faultbench.spoilt import Spoilt


@dataclass(frozen=True)
class Dud:
    """A fault as in a file, which calls are spoilt, and a part of what is said then."""

    fault: str
    said: str
    spoilt: Mapping[str, Spoilt] = field(default_factory=dict)
    """By the call's name, from its package on."""
    bites: bool = False
    """It bites, and its healing is what does nothing."""
    stage: Callable[[Bench], AbstractContextManager[object]] = nullcontext
    nightly: bool = True
    needs_root: bool = False

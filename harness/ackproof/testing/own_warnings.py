"""What goes on around a run inside somebody else's process: its warnings."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_warnings() -> Iterator[None]:
    """What libraries of the harness warn of is not about the tests, which may hold every warning for an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield

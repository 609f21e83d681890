"""Fixtures: `explore` searches scopes of the reference implementation, `make_run` writes runs to be judged."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from exploration import Explorer
from judged_run import make_run, prediction, replay

__all__ = ["make_run", "prediction", "replay"]


@pytest.fixture(scope="module", autouse=True)
def fewer_collections() -> Iterator[None]:
    """Collect garbage less often: a search makes many objects that stay, and no reference cycles."""
    kept = gc.get_threshold()
    gc.set_threshold(50_000, *kept[1:])
    yield
    gc.set_threshold(*kept)


@pytest.fixture(scope="session")
def explore() -> Explorer:
    return Explorer()

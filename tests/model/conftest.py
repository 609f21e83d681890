"""Fixtures: `explore` searches scopes of the reference implementation, `make_run` writes runs to be judged."""

from __future__ import annotations

import pytest

from exploration import Explorer
from judged_run import make_run, prediction, replay

__all__ = ["make_run", "prediction", "replay"]


@pytest.fixture(scope="session")
def explore() -> Explorer:
    return Explorer()

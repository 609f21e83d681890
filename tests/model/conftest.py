"""Fixture `explore`: searches scopes of the reference implementation."""

from __future__ import annotations

import pytest

from exploration import Explorer


@pytest.fixture(scope="session")
def explore() -> Explorer:
    return Explorer()

"""Fixture with the maker of synthetic batches, for the tests of the reports."""

from __future__ import annotations

from types import ModuleType

import pytest

import synthetic_batch


@pytest.fixture(scope="session")
def maker() -> ModuleType:
    return synthetic_batch

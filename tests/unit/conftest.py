"""Fixture `system` for the unit tests of several packages: a small mounted file system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from ackproof.cluster.disks import file_systems as disks
from ackproof.cluster.disks.file_systems import SMALLEST, FileSystem

# That a mutant is noticed is all that is asked: its example need not be made small.
settings.register_profile("mutants", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate])


@pytest.fixture
def system(tmp_path: Path) -> Iterator[FileSystem]:
    """A small ext4 file system, mounted in the test's folder. The test is skipped if it cannot be mounted."""
    if (why := disks.refusal()) is not None:
        pytest.skip(why)
    made = FileSystem(tmp_path / "data.ext4", tmp_path / "data")
    made.make(SMALLEST)
    yield made
    made.unmount()

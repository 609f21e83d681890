"""What the tests of several rooms need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ackproof.cluster.disks import file_systems as disks
from ackproof.cluster.disks.file_systems import SMALLEST, FileSystem


@pytest.fixture
def system(tmp_path: Path) -> Iterator[FileSystem]:
    """A small file system of its own, mounted (root)."""
    if (why := disks.refusal()) is not None:
        pytest.skip(why)
    made = FileSystem(tmp_path / "data.ext4", tmp_path / "data")
    made.make(SMALLEST)
    yield made
    made.unmount()

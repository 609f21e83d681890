"""A finished batch into a store. It is run on this machine, where clients, brokers and disks are."""

from __future__ import annotations

import shutil
from pathlib import Path

from ackproof.base.errors import AckproofError
from ackproof.rundir.layout import BatchDir
from ackproof.rundir.parts import digest


def upload(batch: BatchDir, out: Path) -> BatchDir:
    """Copy it to `out`, read every file back there, and remove it here; `batch.json` comes last.

    Raises `AckproofError` where that fails: then all of it is still here.
    """
    there = BatchDir(out / batch.path.name)
    files = sorted(path for path in batch.path.rglob("*") if path.is_file() and path != batch.batch_json)
    try:
        for path in [*files, batch.batch_json]:
            copy = there.path / path.relative_to(batch.path).as_posix()
            with path.open("rb") as file, copy.open("wb") as into:
                shutil.copyfileobj(file, into, 1 << 22)
            if digest(copy) != digest(path):
                raise OSError(f"{copy}: not what was written")
    except OSError as error:
        why = str(error).splitlines()[0]
        raise AckproofError(
            f"{out}: the batch could not be kept there ({why}); it is in {batch.path}"
        ) from error
    shutil.rmtree(batch.path)
    return there

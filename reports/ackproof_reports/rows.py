"""Reads rows of a run's Parquet files that match a condition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.base.errors import BadInput
from ackproof.rundir import storage


def read_matching(
    files: Sequence[Path], schema: pa.Schema, which: pc.Expression | None, columns: list[str] | None = None
) -> pa.Table:
    """Return the rows of these files that match `which` (None: all). A column that a file lacks is null. Raises
    `BadInput` for an unreadable file.
    """
    if not files:
        return schema.empty_table()
    try:
        return storage.open_dataset(files, schema).to_table(filter=which, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise BadInput(f"{files[0].parent}: cannot be read: {str(error).splitlines()[0]}") from error

"""Conversions between Arrow and numpy, without a copy where possible, and the limit on Arrow's threads.

`pa.array`, `pa.scalar` and `Array.to_numpy` import pandas if it is installed: 0.5 s in each Spark worker and
at the end of each client. The functions here do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array: TypeAlias = npt.NDArray[Any]


def to_numpy(column: pa.Array) -> Array:
    """Return the values of an Arrow column of numbers or bools as a numpy array. The column must have no
    nulls. The array of a column of numbers is a read-only view of it.
    """
    length, start = len(column), column.offset
    raw = column.buffers()[1]
    if pa.types.is_boolean(column.type):
        bits = np.frombuffer(raw, np.uint8, count=-(-(start + length) // 8))
        flags: Array = np.unpackbits(bits, bitorder="little")[start : start + length].view(np.bool_)
        return flags
    type_ = np.dtype(column.type.to_pandas_dtype())
    return np.frombuffer(raw, type_, count=length, offset=start * type_.itemsize)


def to_arrow(values: Array, type_: pa.DataType | None = None) -> pa.Array:
    """Return an Arrow array of `type_`, by default the Arrow type that matches the values. Bools become Arrow
    bools, whatever `type_` is."""
    if values.dtype == np.bool_:
        packed = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])
    type_ = type_ or pa.from_numpy_dtype(values.dtype)
    wanted = np.ascontiguousarray(values, dtype=type_.to_pandas_dtype())
    return pa.Array.from_buffers(type_, len(wanted), [None, pa.py_buffer(wanted)])


def repeat_text(text: str, length: int) -> pa.Array:
    """Return an Arrow array of `length` copies of one string."""
    raw = text.encode()
    ends = np.arange(length + 1, dtype=np.int32) * np.int32(len(raw))
    return pa.Array.from_buffers(pa.string(), length, [None, pa.py_buffer(ends), pa.py_buffer(raw * length)])


def append_numbers(before: str, values: Array) -> pa.Array:
    """Return an Arrow array of strings, one per number: the text `before`, followed by the number in decimal."""
    import pyarrow.compute as pc

    length = len(values)
    words = to_arrow(values, pa.int64()).cast(pa.string())
    return pc.binary_join_element_wise(repeat_text(before, length), words, repeat_text("", length))


def text_array(words: Sequence[str]) -> pa.Array:
    """Return an Arrow array of these strings, with 32-bit offsets (`pa.string()`)."""
    raw = [word.encode() for word in words]
    ends = np.cumsum([0, *map(len, raw)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(raw), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(raw))]
    )


def rows_of(table: pa.Table | pa.RecordBatch, *columns: str) -> Iterator[tuple[Any, ...]]:
    """Return an iterator over the rows of a table. Each row is a tuple of Python values: those of `columns`, in their
    order."""
    return zip(*(table[name].to_pylist() for name in columns), strict=True)


def group_rows(table: pa.Table, columns: Sequence[str]) -> dict[tuple[object, ...], pa.Table]:
    """Return the rows of each combination of values in these columns, as a dictionary. A key has the values in the
    order of `columns`. Its rows keep the order of the table.

    The table is sorted once, and the results are views of the sorted copy: filtering once per partition would take too
    long for thousands of partitions.
    """
    code = np.zeros(table.num_rows, np.int64)
    for name in columns:
        encoded = table[name].unify_dictionaries().combine_chunks().dictionary_encode()
        code = code * max(1, len(encoded.dictionary)) + to_numpy(encoded.indices)
    order = np.argsort(code, kind="stable")
    code = code[order]
    ordered = table.take(to_arrow(order)).combine_chunks()
    bounds = [*np.flatnonzero(np.diff(code, prepend=-1)).tolist(), len(code)]
    keys = ordered.select(list(columns)).take(to_arrow(np.array(bounds[:-1], np.int64)))
    return {
        key: ordered.slice(begin, end - begin)
        for key, (begin, end) in zip(rows_of(keys, *columns), pairwise(bounds), strict=True)
    }


def limit_arrow_threads() -> None:
    """Limit Arrow to one CPU thread and one I/O thread in this process. Call it in processes that run side by side, one
    per core."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)

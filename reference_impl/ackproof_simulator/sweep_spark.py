"""Seeds over Spark: the only file of the model that starts it. Workers get the case as JSON and their seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydantic import JsonValue

from ackproof.spark.session import Where, spark_context
from ackproof_simulator.counts import Counts
from ackproof_simulator.sweep import Mapper, chunk_of

if TYPE_CHECKING:
    from pyspark import SparkContext


@contextmanager
def over_spark(master: str | None) -> Iterator[Mapper]:
    """A mapper over a Spark context that lives as long as the block; `ackproof` must be installed at its workers."""
    with spark_context(Where(master), lambda _: None) as context:

        def mapper(resolved: JsonValue, chunks: Sequence[Sequence[int]]) -> Iterator[Sequence[Counts]]:
            return _mapped(context, resolved, chunks)

        yield mapper


def _mapped(
    context: SparkContext, resolved: JsonValue, chunks: Sequence[Sequence[int]]
) -> Iterator[Sequence[Counts]]:
    # One round of as many chunks as there are cores at a time: progress can be shown, and Ctrl-C ends it soon.
    width = max(1, context.defaultParallelism) * 4
    for at in range(0, len(chunks), width):
        some = chunks[at : at + width]
        yield from context.parallelize(some, len(some)).map(lambda seeds: chunk_of(resolved, seeds)).collect()

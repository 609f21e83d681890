"""The audit counts what became of every record, from the ledgers, by Spark jobs over all directories together.

Words of this package: a *bucket* is all ledger rows of one partition. An *identity* is (producer, seq), which
one produced record has. A *final row* is a record that the final read got; a *live row* is one that a reader
got during the load. A *copy* is a distinct final row; an identity may have several. A *walk* follows each
reader's rows in the order of reading.

Importing this package loads neither Spark nor Arrow; `run` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ackproof.audit.results import AuditResult
    from ackproof.audit.units import Limits
    from ackproof.spark.job import Edge

__all__ = ["exit_code", "run"]


def run(
    directories: Sequence[Path],
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
    spark: SparkSession | None = None,
    limits: Limits | None = None,
) -> list[AuditResult]:
    """Audit directories that hold `ledger/produced` and `ledger/consumed`. Return one result per directory, in order.

    Writes `audit.json`, `findings/` and `series.parquet` into each directory that could be counted. `spark`: a session,
    classic or Connect, to use and leave running; by default the active session of this thread. Without a session Spark
    is started: at a `master`, at a `remote` server of Spark Connect, or on all local cores. `conf`: Spark settings,
    which override those of spark-defaults.conf. `progress` is called with messages. `limits` is for tests. Raises
    `MissingTool` if Spark needs Java and there is none. Errors of a directory, and of a Spark that does not start or
    dies, are in the results. A directory that cannot be audited loses the results of an older audit, unless Spark is
    the reason.
    """
    from ackproof.spark import session

    tell = progress or (lambda _: None)
    where = session.SparkTarget(master, remote, conf or {})
    with ExitStack() as stack:
        starting: session.SparkStart | None = None
        if any((directory / "ledger").is_dir() for directory in directories):
            starting = session.SparkStart(where, tell, spark or session.active_session())
            stack.push(starting.close)  # started early, while modules are imported and footers are read
        from ackproof.audit import pipeline
        from ackproof.audit.units import Limits

        def edge() -> Edge:
            assert starting is not None, "directories without a ledger need no Spark"
            return starting.edge()

        return pipeline.audit_all(directories, edge, tell, limits or Limits())


def exit_code(results: Iterable[AuditResult]) -> int:
    """Return the exit code for several results: 254 if any directory is not a valid ledger, else 2 if any audit is
    incomplete or failed, else 0."""
    return max((result.code for result in results), default=0)

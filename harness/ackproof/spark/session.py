"""Choose and open Spark: an active session, a server of Spark Connect, or a JVM that ackproof starts.

Such a JVM runs its first task after about 3 s with the class-data archive, 5 s without.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, cast

from ackproof.provision.java import find_java
from ackproof.spark.job import CANCEL_S, Progress, run_in_background
from ackproof.spark.workers import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from ackproof.spark.job import Edge

_TRAINED_WITHIN_S: Final = 120.0


@dataclass(frozen=True)
class SparkTarget:
    """The Spark that the user chose: `master` (`spark://host:port`), or `remote`, a Spark Connect server
    (`sc://host:port`). Both None: the server in SPARK_REMOTE, else the master in `conf`, in spark-defaults.conf or in
    MASTER, else a local master. `conf`: settings of Spark by name."""

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_connect(self) -> bool:
        return self.remote is not None or (self.master is None and "SPARK_REMOTE" in os.environ)


@contextmanager
def open_spark(
    where: SparkTarget, progress: Progress, given: SparkSession | None
) -> Iterator[SparkContext | SparkSession]:
    """Open Spark for the `with` block. Yield its SparkContext, or the session of Spark Connect, which has no
    context.

    A session in `given` is used and not closed. Raises `MissingTool` without Java, `AuditFailed` (code 2) if
    Spark does not start.
    """
    with contextlib.ExitStack() as ours:
        if given is None and not where.is_connect:
            yield ours.enter_context(spark_context(where, progress))
        else:
            session = given or ours.enter_context(_connect_session(where))
            yield classic_context(session) or session


@contextmanager
def sql_session(where: SparkTarget, progress: Progress) -> Iterator[SparkSession]:
    """Open a session for SQL queries for the `with` block. Raises `MissingTool` without Java, `AuditFailed`
    (code 2) if Spark does not start.
    """
    if where.is_connect:
        with _connect_session(where) as session:
            yield session
    else:
        with spark_context(where, progress, sql=True):
            from pyspark.sql import SparkSession

            yield SparkSession.builder.getOrCreate()


def classic_context(session: SparkSession) -> SparkContext | None:
    """Return the SparkContext of a classic session; None for a Spark Connect session."""
    return session.sparkContext if hasattr(session, "sparkContext") else None


def active_session() -> SparkSession | None:
    """Return the active session of this thread, classic or Connect, as spark-submit or a notebook made it. None if
    there is none, or if this process has not imported pyspark."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


@contextmanager
def _connect_session(where: SparkTarget) -> Iterator[SparkSession]:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from ackproof.spark.workers import audit_failure

    try:
        url = where.remote or os.environ.get("SPARK_REMOTE", "")
        builder = SparkSession.builder.config(map=dict(where.conf)).remote(url)
        # `create` opens a session of its own, so that stopping it stops no other; it cannot start a local server
        session = builder.getOrCreate() if url.startswith("local") else builder.create()
    except (PySparkException, ImportError, OSError) as error:
        raise audit_failure(error, "no Spark Connect") from error
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def spark_context(
    where: SparkTarget, progress: Progress, java_options: str | None = None, *, sql: bool = False
) -> Iterator[SparkContext]:
    """Open a classic SparkContext for the `with` block. An existing context of this process is used and not
    stopped.

    The JVM serves later contexts, and ends with this process. `java_options`: options of the JVM, by default
    those for the class-data archive. `sql`: remote JVMs run SQL operators, not only Python tasks. Raises `MissingTool`
    without Java, `AuditFailed` (code 2) if Spark does not start.
    """
    began_ms, patience = time.time_ns() // 1_000_000, None
    with _without_numpy():
        context = _start_context(where, progress, java_options, sql=sql)
        try:
            yield context
        except KeyboardInterrupt:
            patience = CANCEL_S
            raise
        finally:
            if context.startTime >= began_ms:
                wait_for([run_in_background(context.stop, "spark-stop")], patience)


@contextmanager
def _without_numpy() -> Iterator[None]:
    """Within the `with` block, keep py4j from checking each argument for numpy types, as no argument has one.

    For this check pyspark's two converters would import pandas and its testing tools: one second of processor time.
    """
    import pyspark.sql.types  # noqa: F401 - which registers them
    from py4j.protocol import INPUT_CONVERTER

    kept = list(INPUT_CONVERTER)
    INPUT_CONVERTER[:] = [converter for converter in kept if not type(converter).__name__.startswith("Numpy")]
    try:
        yield
    finally:
        INPUT_CONVERTER[:] = kept


def _start_context(
    where: SparkTarget, progress: Progress, java_options: str | None, *, sql: bool
) -> SparkContext:
    from ackproof.spark import driver

    def options() -> str:
        return driver.archive_options(java, progress) if java_options is None else java_options

    given = {**where.conf, **({"spark.master": where.master} if where.master else {})}
    driver.await_master(given.get("spark.master", ""))
    java, folder = find_java(), driver.own_folder()
    settings = driver.spark_settings(given, folder, options, sql=sql)
    local = is_local(settings.get("spark.master"))
    again = False
    with driver.driver_environment(java, folder, local=local) as log:
        from py4j.protocol import Py4JError
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException

        from ackproof.spark.workers import audit_failure

        try:
            context = SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
        except (PySparkException, Py4JError, OSError) as error:
            again = isinstance(error, PySparkException) and driver.discard_archive(settings, progress)
            if not again:
                output = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
                raise audit_failure(
                    RuntimeError(f"{error}\n{output[-4000:]}"), "Spark did not start"
                ) from error
    if again:
        return _start_context(where, progress, "", sql=sql)
    if python := context.getConf().get("spark.pyspark.python", os.environ.get("PYSPARK_PYTHON")):
        context.pythonExec = python
    elif is_local(context.master):
        context.pythonExec = sys.executable
    return context


class SparkStart:
    """Starts Spark in another thread while the calling thread imports the audit.

    `given`: a session to use and not to close; None: a new session. The other thread imports nothing of the audit: two
    threads that import one package from different ends can meet a half-loaded module.
    """

    def __init__(self, where: SparkTarget, progress: Progress, given: SparkSession | None) -> None:
        # The future keeps the result, and raises a stored error at each call.
        java = run_in_background(find_java, "java")
        import pyspark.sql.types  # noqa: F401 - alone first: a JVM cannot begin before it is there

        wait_for([java])
        self._stack = contextlib.ExitStack()
        self._progress = progress
        manager = open_spark(where, progress, given)
        self._spark = run_in_background(lambda: self._stack.enter_context(manager), "spark-start")

    def edge(self) -> Edge:
        """Wait until Spark has started, and return the `Edge` that runs jobs on it. Raises the error of the start."""
        spark = self._spark.result()
        from pyspark import SparkContext

        from ackproof.spark.edges import FrameEdge, RddEdge

        if isinstance(spark, SparkContext):
            return RddEdge(spark, self._progress)
        return FrameEdge(spark, self._progress)

    def close(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close Spark with the arguments of `__exit__`. A Spark that is still starting is closed once it has started,
        or with this process."""
        self._spark.add_done_callback(lambda _: self._stack.__exit__(kind, error, trace))


def train_archive(archive: str) -> None:
    """Run a small job in a JVM that writes its class-data archive to the path `archive` at exit.

    Call it in a separate process.
    """
    import psutil

    from ackproof.spark.edges import RddEdge
    from ackproof.spark.job import Job

    options = f"-XX:ArchiveClassesAtExit={archive}"
    with spark_context(SparkTarget("local[1]"), lambda _: None, options) as context:
        messages, hand_on = [((number, 0), "a message") for number in range(2)], cast("Any", iter)
        RddEdge(context, lambda _: None)(Job("training", messages, hand_on, hand_on, 2))
        (jvm,) = psutil.Process().children()
    jvm.terminate()
    jvm.wait(_TRAINED_WITHIN_S)

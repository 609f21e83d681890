"""Spark for one audit: a context in a JVM of our own, gone with this process.

From a start with the archive to the first task it takes about 3 s, without it 5 s.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ackproof.audit.archive import Archive
from ackproof.audit.jvm import Jvm, Progress, jars, start
from ackproof.base import processes
from ackproof.provision.java import find_java

if TYPE_CHECKING:
    from pyspark import SparkContext

_END_TIMEOUT_S = 60.0

_IMPORTS = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*",
    "org.apache.spark.mllib.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "org.apache.spark.sql.hive.*",
    "scala.Tuple2",
)
"""What pyspark.java_gateway.launch_gateway imports into the gateway."""


def default_master() -> str:
    """All cores that this process may use."""
    return f"local[{len(os.sched_getaffinity(0))}]"


@contextmanager
def spark_context(master: str | None, progress: Progress) -> Iterator[SparkContext]:
    """A context that lives as long as the block; one that this process has already is used and left alone.

    Raises `MissingTool` without Java, `AuditFailed` (code 2) if Spark does not start.
    """
    if "pyspark" in sys.modules:
        from pyspark import SparkContext

        if (active := SparkContext._active_spark_context) is not None:
            yield active
            return
    folder = _own_folder()
    quiet = _Quiet()
    try:
        java = find_java()
        archive = Archive.of(java, jars())
        jvm = start(java, master or default_master(), archive, folder, progress)
        try:
            context = _connect(jvm)
            try:
                yield context
            finally:
                _disconnect(context, jvm, archive, progress)
        finally:
            jvm.end()
    finally:
        quiet.end()
        shutil.rmtree(folder, ignore_errors=True)


_FOLDER = "ackproof-spark-"


def _own_folder() -> Path:
    """A folder for Spark's files; those of audits that were killed are removed."""
    for left in processes.left_behind(Path(tempfile.gettempdir()), _FOLDER):
        shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{processes.mark()}-"))


class _Quiet(logging.NullHandler):
    """While this is in force, py4j cannot write its traces of a JVM that is gone through the root logger.

    It calls `logging.exception`, which would even give the root logger a handler of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        logging.getLogger().addHandler(self)
        logging.getLogger().addFilter(self._keep)

    @staticmethod
    def _keep(record: logging.LogRecord) -> bool:
        return "py4j" not in record.pathname

    def end(self) -> None:
        """Leave the root logger as it was."""
        logging.getLogger().removeFilter(self._keep)
        logging.getLogger().removeHandler(self)


def _connect(jvm: Jvm) -> SparkContext:
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
    from py4j.java_gateway import java_import
    from pyspark import SparkContext

    gateway = ClientServer(
        java_parameters=JavaParameters(port=jvm.port, auth_token=jvm.secret, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    # pyspark's two numpy converters import pandas (0.5 s and a warning) at the first call, and nothing here needs them.
    client = gateway._gateway_client
    client.converters = [one for one in client.converters if not type(one).__name__.startswith("Numpy")]
    for name in _IMPORTS:
        java_import(gateway.jvm, name)
    context = SparkContext(gateway=gateway)
    context.pythonExec = os.environ.get("PYSPARK_PYTHON") or sys.executable
    return context


def _disconnect(context: SparkContext, jvm: Jvm, archive: Archive, progress: Progress) -> None:
    """Leave pyspark as it was before, so that another context can be made in this process."""
    from pyspark import SparkContext

    recording = archive.recording and jvm.process.poll() is None
    if recording:
        progress("writing Spark's class-data archive")
        with contextlib.suppress(Exception):  # the audit is done; without an archive the next start is slower
            context.stop()
    else:
        _silence(context)
        jvm.end()
    with SparkContext._lock:
        gateway = SparkContext._gateway
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
    if gateway is not None:
        with contextlib.suppress(Exception):  # its JVM may be dead already
            gateway.close()
    if recording and jvm.process.stdin is not None:
        jvm.process.stdin.close()
        try:
            jvm.process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return
        archive.keep()


def _silence(context: SparkContext) -> None:
    """End pyspark's accumulator server, which would print a trace when the JVM hangs up on it."""
    server = context._accumulatorServer
    if server is not None:
        setattr(server, "handle_error", lambda *_: None)  # noqa: B010 - mypy allows no assignment to a method
        server.server_shutdown = True
        # It looks up from its socket twice a second; nobody has to wait for that.
        threading.Thread(target=server.shutdown, name="spark-accumulators-end", daemon=True).start()


class Starting:
    """A context that is being started by another thread, while this one does something else."""

    def __init__(self, master: str | None, progress: Progress) -> None:
        self._stack = contextlib.ExitStack()
        self._manager = spark_context(master, progress)
        self._context: SparkContext | None = None
        self._error: BaseException | None = None
        # Not Thread.join: once interrupted by Ctrl-C, that takes a thread for ended that is not (CPython 3.11).
        self._through = threading.Event()
        threading.Thread(target=self._enter, name="spark-start", daemon=True).start()

    def _enter(self) -> None:
        try:
            self._context = self._stack.enter_context(self._manager)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            self._error = error
        finally:
            self._through.set()

    def context(self) -> SparkContext:
        """Wait for it. Raises what its start raised."""
        self._through.wait()
        if self._error is not None:
            raise self._error
        assert self._context is not None
        return self._context

    def close(self) -> None:
        self._through.wait()
        self._stack.close()

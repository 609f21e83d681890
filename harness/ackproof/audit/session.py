"""Spark for one audit: a JVM of our own, started lean, from a class-data archive, gone with this process.

pyspark's own launcher runs two shell scripts, a JVM that composes the command and SparkSubmit before Spark starts.
Here the JVM is started straight with `PythonGatewayServer` (what SparkSubmit would run in the end) and its settings
as system properties, which takes 1.5 s less and keeps its output out of ours. Start of the context with the archive
about 2 s, without 4 s.

The JVM ends when its standard input does, so it survives neither a kill -9 of this process nor its regular end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ackproof.audit.archive import Archive
from ackproof.errors import AuditFailed, WaitTimeout
from ackproof.processes import RunTag
from ackproof.provision.java import Java, find_java
from ackproof.wait import wait_until

if TYPE_CHECKING:
    from pyspark import SparkContext

Progress = Callable[[str], None]

_GATEWAY = "org.apache.spark.api.python.PythonGatewayServer"
_START_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 60.0
_HEAP = "1g"
"""Records never enter the JVM; what it shuffles are a few bits an identity."""

_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
"""What Spark 4.3 opens (org.apache.spark.launcher.JavaModuleOptions)."""

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
    folder = Path(tempfile.mkdtemp(prefix="ackproof-spark-"))
    try:
        java = find_java()
        archive = Archive.of(java, _jars())
        jvm = _start(java, master or default_master(), archive, folder, progress)
        try:
            context = _connect(jvm)
            try:
                yield context
            finally:
                _disconnect(context, jvm, archive, progress)
        finally:
            jvm.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class _Jvm:
    process: subprocess.Popen[bytes]
    log: Path
    port: int
    secret: str

    def end(self) -> None:
        """It holds nothing worth a tidy shutdown, which takes Spark a second."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        self.process.kill()
        self.process.wait()


def _home() -> Path:
    """The folder of pyspark, without importing it: the JVM starts meanwhile."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def _jars() -> list[Path]:
    return sorted((_home() / "jars").glob("*.jar"))


def _start(java: Java, master: str, archive: Archive, folder: Path, progress: Progress) -> _Jvm:
    if archive.ready():
        try:
            return _launch(java, master, archive.use(), folder)
        except _EndedEarly:
            progress("Spark's class-data archive does not fit this JVM any more: it is made anew")
            archive.discard()
    elif java.sharing:
        progress(
            "the first audit on this machine makes a class-data archive for Spark (later ones start faster)"
        )
    try:
        return _launch(java, master, archive.record() if java.sharing else (), folder)
    except _EndedEarly as error:
        raise AuditFailed(f"Spark did not start: {error}", code=2) from error


class _EndedEarly(Exception):
    """The JVM ended before it listened; the text is the end of what it said."""


def _launch(java: Java, master: str, sharing: tuple[str, ...], folder: Path) -> _Jvm:
    log, connection = folder / "jvm.log", folder / "connection"
    connection.unlink(missing_ok=True)
    settings = _settings(master, folder)
    command = [
        str(java.path),
        f"-Xmx{_HEAP}",
        "-Xms128m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        *sharing,
        "-XX:+IgnoreUnrecognizedVMOptions",
        "--add-modules=jdk.incubator.vector",
        *(f"--add-opens={opened}=ALL-UNNAMED" for opened in _OPENED),
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        *(f"-D{name}={value}" for name, value in settings.items()),
        "-cp",
        os.pathsep.join(map(str, _jars())),
        _GATEWAY,
    ]
    here = Path(tempfile.gettempdir())
    tag = RunTag("audit", here, folder)
    environment = {
        **os.environ,
        **tag.environment("spark"),
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection),
        "SPARK_HOME": str(_home()),
        "SPARK_CONNECT_MODE": "0",
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        ),
        "PYTHONWARNINGS": "ignore",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )

    def told() -> tuple[int, str] | None:
        if process.poll() is not None:
            raise _EndedEarly(_tail(log) or f"the JVM ended with {process.returncode}")
        return _connection(connection)

    try:
        port, secret = wait_until(
            told, what="Spark's JVM", timeout_s=_START_TIMEOUT_S, interval_s=0.01, logs=lambda: _tail(log)
        )
    except WaitTimeout as error:
        process.kill()
        process.wait()
        raise AuditFailed(f"Spark did not start: {error}", code=2) from error
    except BaseException:
        process.kill()
        process.wait()
        raise
    return _Jvm(process, log, port, secret)


def _settings(master: str, folder: Path) -> dict[str, str]:
    logging = resources.files("ackproof.audit") / "log4j2.properties"
    settings = {
        "spark.master": master,
        "spark.app.name": "ackproof audit",
        "spark.submit.deployMode": "client",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
        "spark.sql.session.timeZone": "UTC",
        "log4j2.configurationFile": Path(str(logging)).as_uri(),
        "java.io.tmpdir": str(folder),
    }
    if master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder),
        }
    return settings


def _connection(path: Path) -> tuple[int, str] | None:
    """Port and secret, as PythonGatewayServer writes them (the file appears whole, by a rename)."""
    if not path.exists():
        return None
    raw = path.read_bytes()
    port, length = struct.unpack_from(">ii", raw)
    return port, raw[8 : 8 + length].decode()


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(line for line in lines if "incubator" not in line)[-1500:]


def _connect(jvm: _Jvm) -> SparkContext:
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


def _disconnect(context: SparkContext, jvm: _Jvm, archive: Archive, progress: Progress) -> None:
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
            gateway.shutdown()
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
        self._thread = threading.Thread(target=self._enter, name="spark-start", daemon=True)
        self._thread.start()

    def _enter(self) -> None:
        try:
            self._context = self._stack.enter_context(self._manager)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            self._error = error

    def context(self) -> SparkContext:
        """Wait for it. Raises what its start raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._context is not None
        return self._context

    def close(self) -> None:
        """End it."""
        self._thread.join()
        self._stack.close()

"""Spark's JVM, started lean: from a class-data archive, straight with the class that SparkSubmit would run in the end.

pyspark's own launcher runs two shell scripts, a JVM that composes the command and SparkSubmit before Spark starts;
without them it takes 1.5 s less, and what the JVM says stays out of our output. It ends when its standard input does,
so it survives neither a kill -9 of this process nor its regular end.
"""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from ackproof.audit.archive import Archive
from ackproof.base.errors import AuditFailed, WaitTimeout
from ackproof.base.processes import RunTag
from ackproof.base.wait import wait_until
from ackproof.provision.java import Java

Progress = Callable[[str], None]

_GATEWAY = "org.apache.spark.api.python.PythonGatewayServer"
_START_TIMEOUT_S = 120.0
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


@dataclass(frozen=True)
class Jvm:
    """A running one, and how to talk to its py4j gateway."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int
    secret: str

    def end(self) -> None:
        """It holds nothing worth a tidy shutdown, which takes Spark a second."""
        _end(self.process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    process.kill()
    process.wait()


def _home() -> Path:
    """The folder of pyspark, without importing it: the JVM starts meanwhile."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def jars() -> list[Path]:
    """Spark's jars, in an order that does not change (the archive depends on it)."""
    return sorted((_home() / "jars").glob("*.jar"))


def start(java: Java, master: str, archive: Archive, folder: Path, progress: Progress) -> Jvm:
    """Start it, with everything that it writes in `folder`. Raises `AuditFailed` (code 2)."""
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


def _launch(java: Java, master: str, sharing: tuple[str, ...], folder: Path) -> Jvm:
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
        f"-XX:ErrorFile={folder}/crash.log",
        *sharing,
        "-XX:+IgnoreUnrecognizedVMOptions",
        "--add-modules=jdk.incubator.vector",
        *(f"--add-opens={opened}=ALL-UNNAMED" for opened in _OPENED),
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        *(f"-D{name}={value}" for name, value in settings.items()),
        "-cp",
        os.pathsep.join(map(str, jars())),
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
    if master.startswith("local"):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"  # whatever the name of this machine resolves to
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
        _end(process)
        raise AuditFailed(f"Spark did not start: {error}", code=2) from error
    except BaseException:
        _end(process)
        raise
    return Jvm(process, log, port, secret)


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

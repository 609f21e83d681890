"""The JVM that ackproof starts for Spark: settings that the user left open, `spark-env.sh`, and the class-data archive.

A setting of the user (`--conf`, spark-defaults.conf) replaces ackproof's setting of that name as a whole.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from ackproof.base import processes
from ackproof.base.environment import cache_root
from ackproof.base.errors import AuditFailed
from ackproof.provision.java import Java
from ackproof.spark.job import Progress
from ackproof.spark.workers import code_archive, is_local

_FOLDER = "ackproof-spark-"
_LEAN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
_SILENT = "-Xlog:disable -Xlog:all=off"
_TRAIN_TIMEOUT_S = 300.0
_MASTER_TIMEOUT_S = 10.0
_PYTHONPATH = "spark.executorEnv.PYTHONPATH"
_DAEMON = {"spark.python.daemon.module": "ackproof.spark.daemon"}
_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""Environment variables of the workers: numpy and Arrow share one heap in huge pages that keeps freed memory. Otherwise
the kernel would take back the memory of each large array, and clear its pages for the next one."""


def spark_home() -> Path:
    """Return `$SPARK_HOME`, else the folder of pyspark, without importing it."""
    if named := os.environ.get("SPARK_HOME"):
        return Path(named)
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def _conf_dir() -> Path:
    return Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf")


def _defaults() -> dict[str, str]:
    """Return the settings of spark-defaults.conf. A line has a key, then blanks, `=` or `:`, then the value."""
    file = _conf_dir() / "spark-defaults.conf"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    found = (re.match(r"\s*([^\s#!=:][^\s=:]*)[\s=:]+(.*)", line) for line in lines)
    return {match[1]: match[2].strip() for match in found if match is not None}


def spark_settings(
    given: Mapping[str, str], folder: Path, java_options: Callable[[], str], *, sql: bool = False
) -> dict[str, str]:
    """Return the settings for Spark: the given ones, and ackproof's where neither they nor spark-defaults.conf set a
    value.

    `folder`: folder for Spark's temporary files. `java_options` returns further options of the driver's JVM; it is
    called only if the user set none. `sql`: True if executors run SQL operators in their JVMs; these then keep Spark's
    own JVM options. If `sql` is False, they get options for JVMs that only start Python tasks. Within spark-submit, or
    with PYSPARK_SUBMIT_ARGS, only the given settings are returned.
    """
    if {"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"} & os.environ.keys():
        return dict(given)
    known = _defaults() | dict(given)
    master = known.get("spark.master") or os.environ.get("MASTER") or default_master()
    options = "spark.driver.extraJavaOptions"
    logging = Path(str(resources.files("ackproof.spark") / "log4j2.properties")).as_uri()
    ours = {
        "spark.master": master,
        "spark.app.name": "ackproof audit",
        "spark.driver.memory": "1g",  # records never enter the JVM, which shuffles only a few bits per identity
        options: ""
        if options in known
        else " ".join(
            [
                f"{_LEAN} {_SILENT}",
                f'"-Djava.io.tmpdir={folder}" "-XX:ErrorFile={folder}/crash.log"',
                f"-Dlog4j2.configurationFile={logging} {java_options()}",
            ]
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **({} if sql else {"spark.executor.extraJavaOptions": _LEAN}),
        **{f"spark.executorEnv.{name}": value for name, value in _MEMORY.items()},
    }
    if is_local(master):
        ours |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            _PYTHONPATH: os.pathsep.join(
                filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
            ),
            "spark.executorEnv.PYTHONWARNINGS": "ignore",
            **_DAEMON,
        }
    elif master.startswith("spark://") and _PYTHONPATH not in known:
        # Spark puts files that a job sends into the executor's folder before it starts Python there.
        ours |= {_PYTHONPATH: code_archive().name, **_DAEMON}
    return {name: value for name, value in ours.items() if name not in known} | dict(given)


def await_master(master: str) -> None:
    """Check that the master of a standalone cluster accepts connections. Does nothing for a URL of another kind.

    Raises `AuditFailed` (code 2) if none of its addresses accepts one: Spark would try for a minute, and its jobs would
    fail with another error.
    """
    addresses = re.fullmatch(r"spark://(.+:\d+)", master)
    reasons: list[str] = []
    for address in addresses[1].split(",") if addresses else ():
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _MASTER_TIMEOUT_S).close()
        except (OSError, ValueError, OverflowError) as error:
            reasons.append(f"{address}: {getattr(error, 'strerror', None) or error}")
        else:
            return
    if reasons:
        raise AuditFailed(f"no Spark master accepts connections at {master} ({'; '.join(reasons)})", code=2)


def default_master() -> str:
    """Return the master URL `local[N]`, with N the number of cores that this process may use."""
    return f"local[{len(os.sched_getaffinity(0))}]"


@cache
def own_folder() -> Path:
    """Return a temporary folder for Spark's files, made at the first call and removed at exit.

    The first call also removes such folders that killed audits left.
    """
    for left in processes.left_behind(Path(tempfile.gettempdir()), _FOLDER):
        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{processes.mark()}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def driver_environment(java: Java, folder: Path, *, local: bool) -> Iterator[Path]:
    """Make spark-submit use a spark-env.sh in `folder`, which sources the user's file. Yield the path of the JVM's log.

    Within the `with` block, SPARK_HOME and SPARK_CONF_DIR of this process are set so that spark-submit finds that
    script. The script marks the JVM so that `ackproof clean` finds it, selects the Java that was found, and keeps the
    JVM's output out of ackproof's. `local`: True for a local master.
    """
    log, theirs = folder / "spark.log", _conf_dir()
    exported = processes.RunTag("audit", Path(tempfile.gettempdir()), folder).environment("spark") | {
        "JAVA_HOME": str(java.path.resolve().parents[1]),
        "SPARK_CONF_DIR": str(theirs),
        "SPARK_LAUNCHER_OPTS": _LEAN,
        **(
            {"SPARK_LOCAL_IP": "127.0.0.1"} if local else {}
        ),  # do not depend on how this machine's name resolves
    }
    lines = [f"export {name}={shlex.quote(value)}" for name, value in exported.items()]
    script = shlex.quote(str(theirs / "spark-env.sh"))
    lines += [f"if [ -f {script} ]; then . {script}; fi", f"exec >>{shlex.quote(str(log))} 2>&1"]
    (folder / "spark-env.sh").write_text("\n".join(lines) + "\n", encoding="utf-8")
    before = {name: os.environ.get(name) for name in ("SPARK_HOME", "SPARK_CONF_DIR")}
    os.environ |= {"SPARK_HOME": str(spark_home()), "SPARK_CONF_DIR": str(folder)}
    try:
        yield log
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def archive_options(java: Java, progress: Progress) -> str:
    """Return JVM options for a class-data archive (AppCDS), which a separate process makes once per pyspark and Java.

    The archive holds parsed and linked classes and halves the start time. Return '' if the JVM cannot use one, for
    example because files in Spark's folder of settings put that folder on the class path, or if it could not be made.
    The JVM ignores an archive that does not fit.
    """
    if not java.sharing or any(_conf_dir().glob("*")):
        return ""
    archive = archive_path(java)
    if not archive.exists():
        progress("making a class-data archive for Spark, once on this machine (audits start faster with it)")
        archive.parent.mkdir(exist_ok=True)
        _train(archive)
    return (
        f"-XX:SharedArchiveFile={archive} -Xshare:auto" if archive.exists() and archive.stat().st_size else ""
    )


def archive_path(java: Java) -> Path:
    """Return the path of the class-data archive for this Java and pyspark. The file need not exist."""
    stamp = hashlib.sha256(f"{_conf_dir()}\0".encode())
    for jar in sorted((spark_home() / "jars").glob("*.jar")):
        status = jar.stat()
        stamp.update(f"{jar}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return cache_root() / "spark" / f"{java.identity}-{stamp.hexdigest()[:16]}.jsa"


def discard_archive(settings: Mapping[str, str], progress: Progress) -> bool:
    """Remove the class-data archive that the settings name, because a JVM failed to start from it, and return True.
    Return False if they name no archive of ackproof."""
    found = re.search(r"-XX:SharedArchiveFile=(\S+)", settings.get("spark.driver.extraJavaOptions", ""))
    if found is None or not found[1].startswith(str(cache_root())):
        return False
    progress(
        "Spark did not start from its class-data archive: the archive is removed, and the next audit makes a new one"
    )
    Path(found[1]).unlink(missing_ok=True)
    return True


def _train(archive: Path) -> None:
    """Make the class-data archive, and rename it into place. On failure leave an empty file, so that it is not tried
    again. After a time-out leave none, so that a later audit tries again."""
    for left in processes.left_behind(archive.parent, f".{archive.name}."):
        left.unlink(missing_ok=True)
    unfinished = archive.with_name(f".{archive.name}.{processes.mark()}")
    program = f"from ackproof.spark.session import train_archive; train_archive({str(unfinished)!r})"
    command = [sys.executable, "-W", "ignore", "-c", program]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TRAIN_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return  # the machine is busy: a later audit will try again
    if done.returncode or not unfinished.exists():
        unfinished.unlink(missing_ok=True)
        unfinished.write_bytes(b"")
    unfinished.replace(archive)

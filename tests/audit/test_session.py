"""Tests of Spark's session and its JVM: how they start and end, and the message when the JVM dies."""

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from py4j.protocol import Py4JNetworkError

import ackproof_lab.sql
from ackproof import audit as room
from ackproof.audit.pipeline import audit_all
from ackproof.audit.units import Limits
from ackproof.base import processes
from ackproof.base.errors import AuditFailed
from ackproof.base.wait import wait_until
from ackproof.spark import driver, job, session, workers
from ackproof.spark.edges import RddEdge

from .ledgers import findings_of, write_ledger
from .local import audited
from .rows import read, sent

SENT, READ = [sent(n) for n in range(4)], [read(n) for n in range(3)]


def test_the_package_is_light() -> None:
    heavy = ("pyspark", "pyarrow", "numpy", "pydantic")
    code = f"import sys, ackproof.audit; print([name for name in {heavy} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


HOUSE = Path(room.__file__).parents[1]
SQL = Path(ackproof_lab.sql.__file__).parent
FILES = [
    *(path for folder in (HOUSE / "audit", HOUSE / "spark", SQL) for path in folder.glob("*.py")),
    HOUSE / "testing" / "items.py",
]


def test_no_private_name_of_spark_is_used() -> None:
    """Attributes with a leading `_` must belong to `self` or be defined in the same file."""
    found = []
    for path in FILES:
        tree = ast.parse(path.read_text("utf-8"))
        own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        own |= {
            node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and of_self(node.value)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and private(node.attr) and not of_self(node.value):
                if node.attr not in own:
                    found.append(f"{path.name}:{node.lineno} {node.attr}")
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("pyspark", "py4j")):
                names = [*(node.module or "").split("."), *(name.name for name in node.names)]
                found += [f"{path.name}:{node.lineno} {name}" for name in names if private(name)]
    assert found == []


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def of_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


class Dead:
    """Stand-in for a SparkContext whose JVM is gone: it raises `error` when a job group is set."""

    master = "local[1]"

    def __init__(self, error: Exception) -> None:
        self._error = error

    def setJobGroup(self, *_, **__):  # noqa: N802 - pyspark's name
        raise self._error


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111), EOFError()]
)
def test_spark_died(tmp_path, error) -> None:
    ledger = write_ledger(tmp_path / "case", SENT, READ)
    (result,) = audited([ledger])
    assert result.code == 0
    before = {path: path.stat().st_mtime_ns for path in ledger.rglob("*")}
    (result,) = audit_all([ledger], lambda: RddEdge(Dead(error), print), lambda _: None, Limits())
    assert (result.code, result.file) == (2, None)
    assert "Spark died" in result.reasons[0]
    after = {path: path.stat().st_mtime_ns for path in ledger.rglob("*") if path.is_file()}
    assert after == {path: before[path] for path in before if path.is_file()}, (
        "the older audit is of the same ledgers"
    )


def test_settings_of_the_user_count_whole_and_ours_where_there_are_none(monkeypatch, tmp_path) -> None:
    for name in ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "MASTER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    ours = driver.spark_settings({}, tmp_path, lambda: "-XX:+Archived")
    assert ours["spark.master"] == driver.default_master()
    assert ours["spark.driver.extraJavaOptions"].endswith("-XX:+Archived")
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.ui.enabled no\nspark.master  spark://there:7077\nspark.driver.extraJavaOptions=-XX:+UseG1GC -Da=b\n"
    )
    theirs = {"spark.driver.memory": "9g", "spark.executorEnv.GLIBC_TUNABLES": "glibc.malloc.check=3"}
    given = driver.spark_settings(theirs, tmp_path, lambda: "")
    assert given["spark.driver.memory"] == "9g"
    assert given["spark.executorEnv.GLIBC_TUNABLES"] == "glibc.malloc.check=3"
    executor = "spark.executor.extraJavaOptions"
    assert "TieredStopAtLevel=1" in given[executor]
    assert driver.spark_settings({executor: "-Dc=d"}, tmp_path, lambda: "")[executor] == "-Dc=d"
    assert executor not in driver.spark_settings({}, tmp_path, lambda: "", sql=True), (
        "rows go through that JVM"
    )
    assert given["spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL"] == "system"
    assert given["spark.ui.enabled"] == "false"
    assert not {"spark.master", "spark.driver.extraJavaOptions", "spark.driver.host"} & given.keys()
    path, module = "spark.executorEnv.PYTHONPATH", "spark.python.daemon.module"
    assert (given[path], given[module]) == (workers.code_archive().name, "ackproof.spark.daemon"), (
        "it is sent along"
    )
    assert not {path, module} & driver.spark_settings({"spark.master": "yarn"}, tmp_path, lambda: "").keys()
    assert module not in driver.spark_settings({path: "/theirs"}, tmp_path, lambda: ""), (
        "it may not be found there"
    )
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    assert driver.spark_settings({"spark.a": "b"}, tmp_path, lambda: "") == {"spark.a": "b"}


def test_a_master_that_is_not_there_is_one_line_before_spark_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        driver.await_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    for master in ("local[2]", "yarn", "k8s://https://127.0.0.1:1", "spark://nobody"):
        driver.await_master(master)  # that is Spark's to say
    with pytest.raises(
        AuditFailed, match=r"no Spark master accepts connections at spark://\S+ \(127\S+ Connection refused"
    ):
        driver.await_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")


def test_a_job_is_cancelled_by_ctrl_c_and_told_of_until_then(monkeypatch) -> None:
    """Ctrl-C cancels the job and ends the wait in bounded time, even if Spark does not answer."""
    goes_on, said, cancelled, asked = threading.Event(), [], [], set()
    monkeypatch.setattr(job, "_LOOK_S", 0.01)
    monkeypatch.setattr(job, "_TELL_EVERY_S", 0.05)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    main = threading.get_ident()
    threading.Timer(0.5, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            job.await_job(
                lambda: goes_on.wait(60),
                lambda: cancelled.append(1) or goes_on.wait(60),
                lambda: asked.add(threading.get_ident()) or (1, 3),
                "counting",
                said.append,
            )
    finally:
        signal.signal(signal.SIGINT, before)
        goes_on.set()
    assert time.monotonic() - began < 0.5 + 2 * job.CANCEL_S + 1
    assert (cancelled, said) == ([1], ["counting: 1 of 3 tasks done"])
    assert asked
    assert main not in asked, "py4j tells of an interrupt within a call by a traceback"


def test_ctrl_c_while_spark_starts_waits_for_nothing_and_what_was_started_ends(monkeypatch) -> None:
    waits, ended, said = threading.Event(), threading.Event(), []

    @contextmanager
    def starts_slowly(*_):
        waits.wait(60)
        said.append("started")
        yield None
        said.append("ended")
        ended.set()

    monkeypatch.setattr(session, "open_spark", starts_slowly)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    starting = session.SparkStart(session.SparkTarget(), lambda _: None, None)
    main = threading.get_ident()
    threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            starting.edge()
    finally:
        signal.signal(signal.SIGINT, before)
    starting.close(None, None, None)
    assert said == []
    waits.set()
    assert ended.wait(60)
    assert said == ["started", "ended"]


AUDIT = """
import json, sys
from pathlib import Path
from ackproof import audit
said = []
(result,) = audit.run([Path(sys.argv[1])], progress=said.append)
print(json.dumps([result.code, result.file.counts["lost"], said]))
"""


def start(ledger: Path, cache: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", "-c", AUDIT, str(ledger)],
        env={**os.environ, "ACKPROOF_CACHE": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(ledger: Path, cache: Path) -> list[str]:
    process = start(ledger, cache)
    out, err = process.communicate(timeout=180)
    assert (process.returncode, err) == (0, ""), err
    code, lost, said = json.loads(out)
    assert (code, lost) == (0, 1)
    return said


@pytest.mark.audit
@pytest.mark.nightly
def test_the_class_data_archive_is_made_once_and_used(tmp_path) -> None:
    ledger = write_ledger(tmp_path / "case", SENT, READ)
    made = run(ledger, tmp_path / "cache")
    assert any("making a class-data archive" in line for line in made)
    (archive,) = (tmp_path / "cache" / "spark").glob("*.jsa")
    changed = archive.stat().st_mtime_ns
    process = start(ledger, tmp_path / "cache")
    jvm = wait_until(lambda: jvm_of(process.pid), what="the JVM", timeout_s=60)
    assert {"-Xshare:auto", f"-XX:SharedArchiveFile={archive}"} <= set(jvm.cmdline())
    mapped = wait_until(
        lambda: archive.name in {Path(one.path).name for one in jvm.memory_maps()}, what="it", timeout_s=9
    )
    assert mapped
    process.communicate(timeout=180)
    assert archive.stat().st_mtime_ns == changed
    assert [row["class"] for row in findings_of(ledger)] == ["lost"]
    with archive.open("r+b") as file:
        file.truncate(5000)
    assert any("is removed" in line for line in run(ledger, tmp_path / "cache"))
    assert not archive.exists()


def jvm_of(pid: int) -> psutil.Process | None:
    """Return the JVM of the Spark that process `pid` started. None: it has not started yet, or is gone."""
    try:
        children = psutil.Process(pid).children()
        found = (one for one in children if "org.apache.spark.deploy.SparkSubmit" in one.cmdline())
        return next((one for one in found if Path(one.cmdline()[0]).name == "java"), None)
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return None


@pytest.mark.audit
def test_the_jvm_carries_the_marks_and_ends_with_a_killed_harness(context, tmp_path) -> None:
    ledger = write_ledger(tmp_path / "case", SENT, READ)
    cache = Path(os.environ.get("ACKPROOF_CACHE") or Path.home() / ".cache" / "ackproof")
    process = start(ledger, cache)
    jvm = wait_until(lambda: jvm_of(process.pid), what="the JVM", timeout_s=60)
    found = wait_until(
        lambda: [one for one in processes.find_children() if one.pid == jvm.pid],
        what="the marks",
        timeout_s=10,
    )
    assert (found[0].role, found[0].owner_pid) == ("spark", process.pid)
    wait_until(
        lambda: "python" in [child.name().partition("3")[0] for child in jvm.children(recursive=True)],
        what="Spark's Python workers",
        timeout_s=60,
    )
    workers = jvm.children(recursive=True)
    process.kill()
    process.communicate()
    gone, alive = psutil.wait_procs([jvm, *workers], timeout=30)
    assert not alive
    assert {one.pid for one in gone} >= {jvm.pid}

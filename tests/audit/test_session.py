"""Spark's JVM: what starts it, what ends it, and what is said when it dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from py4j.protocol import Py4JNetworkError

from ackproof import audit as room
from ackproof.audit import session
from ackproof.audit.archive import Archive
from ackproof.audit.jvm import start as start_jvm
from ackproof.audit.pipeline import audit_all
from ackproof.audit.units import Limits
from ackproof.base import processes
from ackproof.base.wait import wait_until
from ackproof.provision.java import find_java

from .ledgers import findings_of, write_ledger
from .local import LocalContext
from .rows import read, sent

SENT, READ = [sent(n) for n in range(4)], [read(n) for n in range(3)]


def test_the_package_is_light() -> None:
    heavy = ("pyspark", "pyarrow", "numpy", "pydantic")
    code = f"import sys, ackproof.audit; print([name for name in {heavy} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111), EOFError()]
)
def test_spark_died(tmp_path, error) -> None:
    class Dying(LocalContext):
        def parallelize(self, *_):
            raise error

    ledger = write_ledger(tmp_path / "case", SENT, READ)
    (result,) = audit_all([ledger], LocalContext, lambda _: None, Limits())
    assert result.code == 0
    (result,) = audit_all([ledger], Dying, lambda _: None, Limits())
    assert (result.code, result.file) == (2, None)
    assert "Spark died" in result.reasons[0]
    assert sorted(path.name for path in ledger.iterdir()) == ["ledger"]


def test_ctrl_c_while_spark_starts_ends_it_all_the_same(monkeypatch) -> None:
    """An interrupted wait must not take the start for done: the JVM's folder would be left."""
    waits, started, said = threading.Event(), threading.Event(), []

    @contextmanager
    def starts_slowly(*_):
        waits.wait(60)
        said.append("started")
        started.set()
        yield None
        said.append("ended")

    monkeypatch.setattr(session, "spark_context", starts_slowly)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    starting = session.Starting(None, lambda _: None)
    main = threading.get_ident()
    threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            starting.context()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not started.is_set()
    threading.Timer(0.2, waits.set).start()
    starting.close()
    assert said == ["started", "ended"]


@pytest.mark.audit
def test_findings_as_a_data_frame(audit, tmp_path) -> None:
    from pyspark.sql import SparkSession

    ledgers = [write_ledger(tmp_path / name, SENT, READ) for name in ("one", "two")]
    audit(*ledgers)
    spark = SparkSession.builder.getOrCreate()
    rows = room.findings(spark, ledgers).orderBy("directory").collect()
    assert [(row["directory"], row["class"], row["seq"]) for row in rows] == [
        (str(ledger), "lost", 3) for ledger in ledgers
    ]
    assert room.findings(spark, []).collect() == []
    (result,) = room.run([ledgers[0]], spark=spark)
    assert result.code == 0
    assert not spark.sparkContext._jsc.sc().isStopped()


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
        [sys.executable, "-W", "error", "-c", AUDIT, str(ledger)],
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
    assert any("makes a class-data archive" in line for line in made)
    (archive,) = (tmp_path / "cache" / "spark").iterdir()
    changed = archive.stat().st_mtime_ns
    process = start(ledger, tmp_path / "cache")
    jvm = wait_until(lambda: jvm_of(process.pid), what="the JVM", timeout_s=60)
    assert {"-Xshare:on", f"-XX:SharedArchiveFile={archive}"} <= set(jvm.cmdline())
    process.communicate(timeout=180)
    assert archive.stat().st_mtime_ns == changed
    assert [row["class"] for row in findings_of(ledger)] == ["lost"]
    with archive.open("r+b") as file:
        file.truncate(changed % 7 * 1000)
    said: list[str] = []
    found = Archive(archive)
    started = start_jvm(find_java(), "local[1]", found, tmp_path, said.append)
    started.end()
    assert "made anew" in said[0]
    assert found.recording
    assert not archive.exists()


def jvm_of(pid: int) -> psutil.Process | None:
    try:
        children = psutil.Process(pid).children()
        return next(
            (one for one in children if any("PythonGatewayServer" in word for word in one.cmdline())), None
        )
    except psutil.NoSuchProcess:
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


def test_neither_driver_nor_tasks_import_pandas(tmp_path) -> None:
    """It takes 0.5 s in each process, and pyarrow does it unasked."""
    ledger = write_ledger(tmp_path / "case", SENT, [*READ[:-1], read(2, 5)])
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\n"
        "from tests.audit.local import LocalContext\n"
        "from ackproof.audit.pipeline import audit_all\n"
        "from ackproof.audit.units import Limits\n"
        "(result,) = audit_all([Path(sys.argv[1])], LocalContext, print, Limits(whole_rows=0))\n"
        "print(sum(result.file.counts.values()), 'pandas' in sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(ledger), str(Path(__file__).parents[2])],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.splitlines()[-1] == "2 False"

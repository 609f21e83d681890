"""Tests of Spark's workers: how the code gets there, what it imports, and the error of a worker that cannot run it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ackproof.spark import daemon, driver, workers
from ackproof.spark.workers import audit_failure, wrap_task

from .ledgers import write_ledger
from .rows import read, sent

SENT, READ = [sent(n) for n in range(4)], [read(n) for n in range(3)]


@pytest.mark.parametrize(
    ("trace", "line"),
    [
        (
            "E\nModuleNotFoundError: No module named 'pyarrow'\n at x",
            "a Spark worker has no pyarrow: its Python needs",
        ),
        (
            "x: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, y",
            "a Spark worker runs Python 3.12, and this is 3.11",
        ),
        (
            "RuntimeError: <ackproof 0.0.9 at a worker, 0.1.0 here>",
            "a Spark worker has ackproof 0.0.9, and this is 0.1.0",
        ),
    ],
    ids=["no pyarrow", "another Python", "another ackproof"],
)
def test_a_worker_that_cannot_do_it_is_one_line(trace, line) -> None:
    told = audit_failure(RuntimeError(trace))
    assert str(told).startswith(line)
    assert "PYSPARK_PYTHON" in str(told)
    assert "\n" not in str(told)


def test_a_task_says_that_it_came_to_another_version(monkeypatch) -> None:
    task = wrap_task(iter)
    assert list(task([1, 2])) == [1, 2]
    monkeypatch.setattr("ackproof.__version__", "0.0.9")
    with pytest.raises(RuntimeError, match="at a worker"):
        task([1, 2])


def test_the_tasks_need_of_ours_what_the_zip_holds_and_of_others_numpy_and_arrow(tmp_path) -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[1:2]\n"
        "class Refuses:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name in ('pydantic', 'pyspark', 'psutil', 'pandas'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuses())\n"
        "import ackproof.audit.stages as stages, ackproof_lab.sql.scan as scan\n"
        "print(stages.__file__, scan.__file__, sep='\\n')"
    )
    archive = workers.code_archive()
    said = subprocess.run(
        [sys.executable, "-c", code, str(archive)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert [line.startswith(str(archive)) for line in said.stdout.splitlines()] == [True, True]
    assert workers.code_archive() == archive


def where_pyspark_is(groups):
    import pyspark

    yield from (pyspark.__file__ for _ in groups)


def test_workers_here_import_pyspark_from_where_it_is_installed(context) -> None:
    """Workers must not import pyspark from Spark's zip, whose code is not compiled."""
    assert context.parallelize([0], 1).mapPartitions(where_pyspark_is).collect() == [
        str(driver.spark_home() / "__init__.py")
    ]


def test_our_code_is_sent_compiled_and_another_python_reads_the_source(tmp_path) -> None:
    sent, other = workers.code_archive(), tmp_path / "other.zip"
    with zipfile.ZipFile(sent) as ours, zipfile.ZipFile(other, "w") as theirs:
        for name in ours.namelist():
            held = ours.read(name)
            theirs.writestr(name, b"\0\0\r\n" + held[4:] if name.endswith(".pyc") else held)
    for archive, ending in ((sent, ".pyc"), (other, ".py")):
        told = subprocess.run(
            [sys.executable, "-c", "from ackproof.spark import job; print(job.__file__)"],
            env={**os.environ, "PYTHONPATH": str(archive)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert told.stdout.strip() == f"{archive}/ackproof/spark/job{ending}"


def test_zips_of_another_pyspark_and_of_one_that_is_nowhere_else_stay(tmp_path) -> None:
    ours, theirs = driver.spark_home(), tmp_path / "spark"
    installed = str(ours.parent)

    def zips(home: Path) -> list[str]:
        return [str(home / "python" / "lib" / name) for name in ("pyspark.zip", "py4j-src.zip")]

    assert daemon.without_zips([*zips(ours), installed], ours) == [installed]
    assert daemon.without_zips([*zips(theirs), installed], theirs) == [*zips(theirs), installed]
    assert daemon.without_zips([*zips(ours), str(tmp_path)], ours) == [*zips(ours), str(tmp_path)]


@pytest.mark.parametrize("cut", ["", ", range_rows=1, slice_rows=1"], ids=["buckets", "ranges"])
def test_neither_driver_nor_tasks_import_pandas(tmp_path, cut: str) -> None:
    """pyarrow imports pandas by itself, which takes 0.5 s in each process."""
    ledger = write_ledger(tmp_path / "case", SENT, [*READ[:-1], read(2, 5)])
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\n"
        "from tests.audit.local import LocalEdge\n"
        "from ackproof.audit.pipeline import audit_all\n"
        "from ackproof.audit.units import Limits\n"
        f"limits = Limits(whole_rows=0{cut})\n"
        "(result,) = audit_all([Path(sys.argv[1])], LocalEdge, print, limits)\n"
        "print(sum(result.file.counts.values()), 'pandas' in sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(ledger), str(Path(__file__).parents[2])],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.splitlines()[-1] == "2 False"

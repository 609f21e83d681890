"""Tests that an audit counts planted flaws exactly on a cluster, with Spark Connect and in an existing session."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from ackproof.base.wait import wait_until
from ackproof.judge import prepare_audit
from ackproof.rundir.documents import AuditFile
from ackproof.rundir.storage import locate
from ackproof.spark.driver import spark_home
from planted_groups import PlantedGroups

from ..support.s3 import copied, s3_bucket
from . import group_agreement
from .flaws import plant_ledger
from .ledgers import write_ledger
from .planted import assert_found
from .rows import read, sent
from .spark_cluster import cluster, connect

pytestmark = [pytest.mark.audit, pytest.mark.timeout(900)]

CUT = {"whole_rows": 0, "split_rows": 500, "share_rows": 3_000, "range_rows": 1_000} | {
    "slice_rows": 500,
    "task_rows": 3_000,
}
"""Arguments of `Limits` that make many tasks of each kind, several shares, and cut partitions."""
CONF = {
    "spark.cores.max": "1",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.pyspark.python": sys.executable,
}
EVENTS = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}
BEGIN = """
import json, sys, time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from ackproof import audit
from ackproof.spark import edges
from ackproof.spark.session import SparkStart, SparkTarget
from ackproof.spark.job import Job
from ackproof.audit.units import Limits
from ackproof.rundir.storage import locate
given = json.loads(sys.argv[1])
"""
AUDIT = """
results = audit.run(
    [locate(given["ledger"])], master=given.get("master"), remote=given.get("remote"), conf=given.get("conf"),
    limits=Limits(**given.get("limits", {})))
print(json.dumps([results[0].code, results[0].reasons]))
"""
PLANTED = """
from ackproof.audit import stages
honest = edges.wrap_task
def carried(task):
    run = honest(task)
    if task in (stages._start_task, stages._started_task):
        return run  # nothing is counted in these
    def attempt(items):
        from pyspark import TaskContext
        context = TaskContext.get()
        found = list(run(items))
        if context.partitionId() == 0 and context.attemptNumber() < {attempts}:
            {then}
        return iter(found)
    return attempt
edges.wrap_task = carried
"""
"""Program text. The first `attempts` attempts of partition 0 run `then` after their work."""
FAILS_TWICE = PLANTED.format(attempts=2, then='raise RuntimeError("planted: it did its work, and failed")')
LAGS = PLANTED.format(attempts=1, then="time.sleep(30)")
COMPILED = """
honest = edges.wrap_task
def carried(task):
    run = honest(task)
    def attempt(items):
        import pyspark
        assert ".zip" not in pyspark.__file__, pyspark.__file__
        return run(items)
    return attempt
edges.wrap_task = carried
"""
"""Program text that fails if a worker imports pyspark from Spark's zip. Its code is not compiled, which takes 2 s."""
SLEEPS = """
with ExitStack() as stack:
    starting = SparkStart(SparkTarget("local[1]"), print, None)
    stack.push(starting.close)
    edge = starting.edge()
    print("there", flush=True)
    edge(Job("sleeping", [300], partial(map, time.sleep)))
"""
GIVEN = """
from pyspark.sql import SparkSession
from ackproof import api
spark = SparkSession.builder.getOrCreate()
results = api.audit([given["ledger"]])
assert spark.range(7).count() == 7, "it was left alone"
print(json.dumps([results[0].code, results[0].reasons, spark.sparkContext.appName]))
"""

OWN = """
from pyspark.sql import SparkSession
from ackproof.spark.session import sql_session
own = SparkSession.builder.remote(given["remote"]).getOrCreate()
with sql_session(SparkTarget(remote=given["remote"]), print) as session:
    assert session.range(3).count() == 3
print(json.dumps([own.range(7).count()]))
own.stop()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="module")
def master(folder):
    with cluster(folder) as running:
        yield running.master


def started(given: dict, *scripts: str, command: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start a Python process (or `command`) that runs `scripts` with `given` as JSON in its last argument.

    One process can have only one Spark context or one Spark Connect session.
    """
    return subprocess.Popen(
        [*(command or (sys.executable, "-W", "ignore", "-c", "".join([BEGIN, *scripts]))), json.dumps(given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def answer(process: subprocess.Popen[str]) -> list:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def counts(tmp_path: Path, *scripts: str, store: Path | None = None, **given) -> None:
    """Assert that an audit in another process counts planted flaws exactly. `store`: folder of an object store in which
    a copy of the ledger is audited; None: the ledger itself."""
    ledger = plant_ledger(9_000, 2, seed=1)
    path = ledger.write(tmp_path / "case")
    there = path if store is None else copied(path, store)
    code, reasons = answer(started({"ledger": str(there), "limits": CUT, **given}, *scripts, AUDIT))
    assert code == 2, reasons  # a producer whose end is lost is planted, too
    assert len(reasons) == 1, reasons
    if store is not None:
        assert not (path / "audit.json").exists()
        (path / "findings").mkdir()
        for file in (store / "audit.json", *(store / "findings").iterdir()):
            (path / file.relative_to(store)).write_bytes(file.read_bytes())
    assert_found(ledger, path, SimpleNamespace(file=AuditFile.load(path / "audit.json"), reasons=reasons))
    assert not list(there.glob(".audit*"))


@pytest.mark.nightly
def test_a_cluster_counts_what_was_planted(tmp_path, master) -> None:
    counts(tmp_path, master=master, conf=CONF)


def test_a_cluster_counts_planted_groups(tmp_path, master) -> None:
    group = PlantedGroups(commit="transaction")
    group.plant_all()
    run = group.write(tmp_path / "run", row_group_size=100)
    prepare_audit([run.path])
    given = {"ledger": str(run.path), "limits": asdict(group_agreement.CUT), "master": master, "conf": CONF}
    assert answer(started(given, AUDIT)) == [0, []]
    assert +Counter(AuditFile.load(run.audit_json).counts) == group.expected


@pytest.mark.nightly  # a cluster counts groups with every push, and test_stores.py in stores
def test_a_cluster_counts_what_was_planted_in_a_store(tmp_path, master) -> None:
    (tmp_path / "events").mkdir()
    conf = CONF | EVENTS | {"spark.eventLog.dir": str(tmp_path / "events")}
    with s3_bucket() as query:
        there = locate(f"s3://bucket/where?{query}")
        counts(tmp_path, COMPILED, store=there, master=master, conf=conf)
    (log,) = (tmp_path / "events").iterdir()
    jobs = [
        one
        for line in log.read_text("utf-8").splitlines()
        if (one := json.loads(line)) and "Stage Infos" in one
    ]
    told = [one["Properties"]["spark.job.description"] for one in jobs]
    assert told[0] == "ackproof audit, starting the workers", (
        "the first tasks of each are as long as any other"
    )
    assert "ackproof audit, counting" in told[1:]


@pytest.mark.nightly  # a cluster counts the same with every push
def test_spark_connect_counts_what_was_planted(tmp_path, folder) -> None:
    with connect(folder, "local[2]") as remote:
        counts(tmp_path, remote=remote)
        lost = AuditFile.load(tmp_path / "case" / "audit.json").counts["lost"]
        asked = ("select count(*) as n from findings where class = 'lost'", "--format", "json")
        command = [
            Path(sys.executable).with_name("ackproof"),
            "sql",
            tmp_path / "case",
            *asked,
            "--remote",
            remote,
        ]
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert (said.returncode, json.loads(said.stdout or "0")) == (0, [{"n": lost}]), said.stderr


@pytest.mark.nightly
def test_a_session_of_spark_connect_that_was_there_goes_on(folder) -> None:
    with connect(folder, "local[1]") as remote:
        assert answer(started({"remote": remote}, OWN)) == [7]


@pytest.mark.nightly
def test_spark_connect_to_a_cluster_counts_what_was_planted(tmp_path, folder, master) -> None:
    with connect(folder, master) as remote:
        counts(tmp_path, remote=remote)


@pytest.mark.nightly  # test_workers.py has the line with every push
def test_a_cluster_whose_python_lacks_what_is_needed_is_one_line(tmp_path, master) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    bare.chmod(0o755)
    ledger = write_ledger(tmp_path / "case", [sent(0)], [read(0)])
    conf = {**CONF, "spark.pyspark.python": str(bare), "spark.task.maxFailures": "1"}
    code, (reason,) = answer(started({"ledger": str(ledger), "master": master, "conf": conf}, AUDIT))
    assert code == 2
    assert reason.startswith("a Spark worker has no ")
    assert "\n" not in reason


def words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""  # gone since it was listed


def test_ctrl_c_ends_the_job_the_jvm_and_the_workers() -> None:
    process = started({}, SLEEPS)
    assert process.stdout is not None
    assert "there\n" in iter(process.stdout.readline, "")
    own = psutil.Process(process.pid)

    def sleeping() -> list[psutil.Process]:
        tree = own.children(recursive=True)
        return tree if any("ackproof.spark.daemon" in words(one) for one in tree) else []

    tree = wait_until(sleeping, what="a worker of Python", timeout_s=120)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, err
    assert "KeyboardInterrupt" in err
    assert psutil.wait_procs(tree, timeout=30)[1] == []


@pytest.mark.nightly
def test_a_job_of_spark_submit_is_counted_in_its_session_and_leaves_it(tmp_path) -> None:
    ledger = write_ledger(tmp_path / "case", [sent(0)], [read(0)])
    script = tmp_path / "job.py"
    script.write_text(BEGIN + GIVEN)
    command = (
        str(spark_home() / "bin" / "spark-submit"),
        "--name",
        "theirs",
        "--master",
        "local[1]",
        str(script),
    )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    assert answer(started({"ledger": str(ledger)}, command=command)) == [0, [], "theirs"]


@pytest.mark.nightly
def test_speculation_counts_nothing_twice(tmp_path, master) -> None:
    speculating = {
        "spark.speculation": "true",
        "spark.speculation.interval": "5ms",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "1ms",
        "spark.cores.max": "2",
        "spark.eventLog.dir": str(tmp_path / "events"),
    }
    (tmp_path / "events").mkdir()
    counts(tmp_path, LAGS, master=master, conf=CONF | EVENTS | speculating)
    (events,) = (tmp_path / "events").iterdir()
    assert '"Speculative":true' in events.read_text("utf-8"), "no task was done twice"


@pytest.mark.nightly
def test_a_task_that_did_its_work_and_failed_twice_is_counted_once(tmp_path, master) -> None:
    counts(tmp_path, FAILS_TWICE, master=master, conf=CONF)


@pytest.mark.nightly
def test_a_worker_that_is_killed_in_the_middle_is_made_up_for(tmp_path, folder) -> None:
    ledger = plant_ledger(200_000, 20, seed=3)
    path = ledger.write(tmp_path / "case")
    (tmp_path / "spark").mkdir()
    with cluster(tmp_path / "spark") as running:
        given = {"ledger": str(path), "limits": CUT | {"task_rows": 1}, "master": running.master}
        process = started({**given, "conf": CONF | {"spark.cores.max": "2"}}, AUDIT)
        work = wait_until(lambda: list(path.glob(".audit*/series/*")), what="the first bucket", timeout_s=300)
        assert work
        for one in [*running.workers[0].children(recursive=True), running.workers[0]]:
            one.kill()
        code, reasons = answer(process)
    assert (code, len(reasons)) == (2, 1), reasons
    assert_found(ledger, path, SimpleNamespace(file=AuditFile.load(path / "audit.json"), reasons=reasons))

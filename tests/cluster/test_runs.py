"""Tests of whole runs of the command on real clusters: their files, Ctrl-C, kill -9, and two runs at once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ackproof.base.processes import find_children
from ackproof.cli.main import main_code
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.documents import CaseFile, FinalReadFile, VerdictFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.observed import read_samples
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.registry import read_entries
from ackproof.rundir.timeline import EventKind, read_timeline

from ..support.begun import await_run

pytestmark = pytest.mark.cluster

ACKPROOF = Path(sys.executable).with_name("ackproof")
LEADER_KILL = """\
name: leader-kill
cluster: {brokers: 3, controllers: 1, config: {broker.session.timeout.ms: 2000}}
topics:
  orders: {partitions: 2, config: {min.insync.replicas: 2}}
workload:
  producers: {count: 1, acks: all, idempotence: true, rate: 2000/s}
  consumers: {live: 1}
  duration: 1s
faults:
  - kill: {target: leader(orders/0)}
    when: acked >= 500
    at_latest: 10s
    restart_after: 2s
expect:
  - {lost: 0, duplicate: 0}
"""
CALM = """\
name: calm
cluster: {brokers: 1, combined: true}
topics: {events: {replication_factor: 1}}
workload: {producers: {rate: 1000/s}, consumers: {live: 1}, duration: 60s}
"""


def _start(tmp_path: Path, yaml: str, *words: str) -> subprocess.Popen[str]:
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml, encoding="utf-8")
    return subprocess.Popen(
        [ACKPROOF, "run", file, "--out", tmp_path / "runs", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )


def _case(tmp_path: Path) -> CaseDir:
    batch = BatchDir((tmp_path / "runs" / "latest").resolve())
    return CaseDir(batch.path / BatchFile.load(batch.batch_json).cases[0].run)


def _running_case(tmp_path: Path) -> CaseDir | None:
    """Return the folder of the running case; None before it has a timeline."""
    found = sorted((tmp_path / "runs").glob("*/*/timeline.jsonl"))
    return CaseDir(found[0].parent) if found else None


def _has_records(tmp_path: Path, count: int) -> bool:
    run = _running_case(tmp_path)
    return run is not None and any(sample.high_watermark >= count for sample in read_samples(run.samples))


def _marked(folder: Path) -> list[str]:
    """Return the processes of runs below `folder`, as `role pid`."""
    return [f"{child.role} {child.pid}" for child in find_children() if folder in child.directory.parents]


def test_a_batch_from_file_to_report(tmp_path: Path) -> None:
    process = _start(tmp_path, LEADER_KILL, "--json", "--seed", "3")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    document = json.loads(out)
    assert (document["verdict"], document["exit_code"], document["seed"]) == ("PASS", 0, 3)
    (case,) = document["cases"]
    assert case["counts"]["lost"] == 0
    assert case["counts"]["acked"] > 500
    batch = BatchDir((tmp_path / "runs" / "latest").resolve())
    run = CaseDir(batch.path / case["run"])
    for path in (
        batch.report_html,
        batch.junit_xml,
        batch.summary_md,
        run.case_json,
        run.timeline,
        run.samples,
        run.final_read,
        run.audit_json,
        run.series,
        run.verdict_json,
        run.nodes / "1" / "server.properties",
        run.produced / "client=p0" / "_END",
        run.consumed / "client=r0" / "_END",
        run.consumed / "client=f0" / "_END",
    ):
        assert path.exists(), path
    assert not list(run.nodes.glob("*/data"))
    assert not run.journal.exists() or not list(run.journal.rglob("*.*"))
    assert _marked(tmp_path) == []
    events, whole = read_timeline(run.timeline)
    assert whole
    assert events[-1].kind is EventKind.END
    assert [event.kind for event in events if event.fault == 1] == [
        EventKind.FAULT_ASKED,
        EventKind.FAULT_CONFIRMED,
        EventKind.FAULT_HEALED,
        EventKind.FAULT_RECOVERED,
    ]
    assert {event.kind for event in events} >= {EventKind.LEADER, EventKind.ISR, EventKind.NODE_STARTED}
    assert f"--seed 3 --case '{case['case']}'" in CaseFile.load(run.case_json).replay


def test_ctrl_c_stops_everything_and_keeps_what_was_recorded(tmp_path: Path) -> None:
    process = _start(tmp_path, CALM)
    await_run(process, lambda: _has_records(tmp_path, 500), "500 records in the log")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 255
    assert len(err.strip().splitlines()) == 1
    assert "interrupted" in err
    assert _marked(tmp_path) == []
    run = _case(tmp_path)
    assert run.timeline.exists()
    assert list(run.produced.glob("client=p0/part-*.parquet"))
    assert not list(run.nodes.glob("*/data"))
    assert BatchFile.load(BatchDir((tmp_path / "runs" / "latest").resolve()).batch_json).interrupted


@pytest.mark.parametrize(
    "moment", [0, *(pytest.param(moment, marks=pytest.mark.nightly) for moment in range(1, 10))]
)
def test_kill_9_and_clean(tmp_path: Path, moment: int) -> None:
    """After a kill at a random moment, `clean` leaves no process, data or registry entry. Ledgers stay, and a verdict
    is INCONCLUSIVE."""
    process = _start(tmp_path, LEADER_KILL)
    await_run(process, lambda: _running_case(tmp_path), "a timeline")
    delay = random.Random(moment).uniform(0.0, 8.0)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=delay)
    process.kill()
    process.communicate()
    cleaned = subprocess.run([ACKPROOF, "clean"], capture_output=True, text=True, check=False)
    assert cleaned.returncode == 0, cleaned.stdout + cleaned.stderr
    assert _marked(tmp_path) == []
    assert [entry for _, entry in read_entries() if tmp_path in Path(entry.case_dir).parents] == []
    (batch,) = [path for path in (tmp_path / "runs").iterdir() if not path.is_symlink()]
    run = _running_case(tmp_path)
    assert run is not None
    assert not list(run.nodes.glob("*/data"))
    assert list(run.nodes.glob("*/server.properties")) or not list(run.nodes.glob("*"))
    assert main_code(["judge", str(batch)]) in (2, 255)
    verdict = BatchFile.load(BatchDir(batch).batch_json).cases[0].verdict
    assert verdict is (Verdict.INCONCLUSIVE if run.ledger.exists() else None)
    again = subprocess.run([ACKPROOF, "clean"], capture_output=True, text=True, check=False)
    assert str(tmp_path) not in again.stdout


@pytest.mark.nightly
def test_two_batches_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    processes = [_start(folder, LEADER_KILL) for folder in folders]
    for process in processes:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, out + err
    addresses = []
    for folder in folders:
        text = (_case(folder).nodes / "1" / "server.properties").read_text()
        addresses.append(next(line for line in text.splitlines() if line.startswith("listeners=")))
    assert addresses[0] != addresses[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "Missing argument"),
        (["run", "nowhere.yaml"], "nowhere.yaml"),
        (["run", "{bad}"], "{bad}:"),
        (["run", "{good}", "--case", "no such case"], "no such case"),
        (["run", "{good}", "--out", "{good}"], "{good}"),
        (["audit", "nowhere"], "nowhere"),
        (["judge", "nowhere"], "nowhere"),
        (["report", "nowhere"], "nowhere"),
        (["--nonsense"], "nonsense"),
    ],
)
def test_bad_input_is_254_and_one_message(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(CALM)
    bad.write_text(CALM.replace("brokers", "borkers"))
    fill: Callable[[str], str] = lambda text: text.replace("{good}", str(good)).replace("{bad}", str(bad))  # noqa: E731
    code = main_code([*map(fill, words)])
    told = "".join(capsys.readouterr())
    assert code == 254, told
    assert fill(said) in told
    assert "Traceback" not in told


def test_bad_input_is_254_for_a_shell(tmp_path: Path) -> None:
    words = [ACKPROOF, "run", "nowhere.yaml"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 254, done.stdout + done.stderr
    assert "nowhere.yaml" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


EXPIRES = """\
name: expires
cluster:
  brokers: 1
  combined: true
  config: {log.retention.check.interval.ms: 200, log.initial.task.delay.ms: 100, log.segment.delete.delay.ms: 100}
topics: {events: {replication_factor: 1, config: {segment.bytes: 1048576, retention.bytes: 1048576}}}
workload: {producers: {rate: 20000/s, value_size: 200B, acks: all}, consumers: {live: 1}, duration: 3s}
expect: [{lost: 0, vanished: 0}]
"""


@pytest.mark.nightly
def test_what_retention_deletes_is_not_lost(tmp_path: Path) -> None:
    process = _start(tmp_path, EXPIRES)
    told = process.communicate(timeout=120)
    assert process.returncode == 0, told
    run = _case(tmp_path)
    (read,) = FinalReadFile.load(run.final_read).partitions
    assert read.start > 0, "retention deleted nothing"
    (lost,) = (one for one in VerdictFile.load(run.verdict_json).classes if one.anomaly == "lost")
    assert (lost.count, lost.forbidden) == (read.start, False)
    assert f"{read.start} expired: events/0 begins at offset {read.start:,}" in lost.why

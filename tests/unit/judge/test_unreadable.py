"""Tests that a file of the run that cannot be parsed makes the verdict INCONCLUSIVE, with the file's name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.judge import judge_case, judge_unwritten
from ackproof.rundir.documents import VerdictFile
from ackproof.rundir.metadata import write_metadata
from ackproof.rundir.observed import Pulse
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.replicas import BATCHES, ReplicasFile
from judged_run import MakeRun, decided


def _run(make_run: MakeRun) -> Path:
    """Return the path of a run that also has a metadata log, replicas' logs, their batches and a pulse."""
    run = make_run()
    write_metadata(run.metadata_log, [decided(1)])
    ReplicasFile().save(run.replicas)
    pq.write_table(BATCHES.empty_table(), run.replica_batches)
    run.pulse.write_text(Pulse(t_ns=1, late_ms=0, looks=10, sent=1, acked=1).model_dump_json() + "\n")
    return run.path


@pytest.mark.parametrize(
    "name", ["observed/brokers.jsonl", "clients/r0/commits.jsonl", "clients/r0/served.jsonl"]
)
def test_what_only_some_experiments_ask_for_is_named_too(make_run: MakeRun, name: str) -> None:
    path = _run(make_run)
    (path / "clients" / "r0").mkdir(parents=True)
    (path / name).write_text('{"t_ns": 1}\n{"t_ns": 2}\n')
    (reason,) = _said(path)
    assert reason.startswith(f"{name}: cannot be read: ")


def _said(path: Path) -> tuple[str, ...]:
    from ackproof.rundir.layout import CaseDir

    verdict = judge_unwritten(CaseDir(path))
    if verdict is None:
        return ()
    assert VerdictFile.load(CaseDir(path).verdict_json) == verdict
    assert verdict.verdict is Verdict.INCONCLUSIVE
    return verdict.reasons


@pytest.mark.parametrize(
    "name",
    [
        "observed/final-read.json",
        "observed/metadata.jsonl",
        "observed/partitions.jsonl",
        "observed/pulse.jsonl",
        "observed/replicas.json",
        "observed/replicas.parquet",
        "series.parquet",
    ],
)
def test_a_torn_file_is_named(make_run: MakeRun, name: str) -> None:
    path = _run(make_run)
    assert _said(path) == ()
    whole = (path / name).read_bytes()
    (path / name).write_bytes(whole[: len(whole) // 2])
    (reason,) = _said(path)
    assert reason.startswith(f"{name}: cannot be read: ")
    assert reason.endswith("; write it again: ackproof audit") == (name == "series.parquet")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"backend": "process"', '"backend": "moon"', "there is no backend moon"),
        ('"repeat": 1', '"repeat": 2', "its repeat is 2, and that of the resolved case 1"),
        (
            '"settings": {}',
            '"settings": {"a": 1}',
            "its settings is {'a': 1}, and that of the resolved case {}",
        ),
        ('"resolved": {', '"resolved": null, "was": {', "not a resolved case"),
    ],
)
def test_a_case_that_means_nothing(make_run: MakeRun, old: str, new: str, words: str) -> None:
    file = _run(make_run) / "case.json"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    (reason,) = _said(file.parent)
    assert reason.startswith("case.json: cannot be read: ")
    assert words in reason


def test_columns_that_are_missing(make_run: MakeRun) -> None:
    path = _run(make_run)
    for name, column in (("series.parquet", "acked"), ("observed/replicas.parquet", "crc")):
        whole = pq.read_table(path / name)
        pq.write_table(whole.drop_columns([column]), path / name)
        (reason,) = _said(path)
        assert reason.startswith(f"{name}: cannot be read: ")
        pq.write_table(whole, path / name)
    older = [
        pa.field(one.name, one.type)
        for one in BATCHES
        if one.name not in {"sound", "content", "timestamp_type"}
    ]
    pq.write_table(pa.schema(older).empty_table(), path / "observed/replicas.parquet")
    assert _said(path) == ()


def test_logs_without_their_batches(make_run: MakeRun) -> None:
    path = _run(make_run)
    (path / "observed/replicas.parquet").unlink()
    assert _said(path) == ("observed/replicas.parquet: not there, and replicas.json lists logs",)


def test_pulses_of_one_moment_are_no_exception(make_run: MakeRun) -> None:
    run = make_run()
    pulse = Pulse(t_ns=1_200_000_000, late_ms=0, looks=10, sent=1, acked=1)
    run.pulse.write_text(f"{pulse.model_dump_json()}\n" * 3)
    assert judge_case(run).calm is None

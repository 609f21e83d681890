"""Tests of run directories in an object store, with an S3 server on loopback."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import shutil
from collections import Counter

import pytest

from ackproof.audit.units import Limits
from ackproof.base.errors import BadInput
from ackproof.cli.main import main_code
from ackproof.judge import prepare_audit
from ackproof.rundir import storage
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.storage import locate
from planted_groups import PlantedGroups

from ..support.s3 import copied, s3_bucket
from .group_agreement import CUT
from .ledgers import write_ledger
from .local import BUCKETS, audited
from .rows import read, sent

SENT = [sent(n, n // 2, partition=n % 2) for n in range(16)]
READ = [read(n, n // 2, partition=n % 2) for n in range(16) if n % 7]


@pytest.fixture(scope="module")
def query():
    with s3_bucket() as query:
        yield query


@pytest.fixture
def store(query, request):
    return locate(f"s3://bucket/{request.node.name} ü?{query}")


def lost_in(directory):
    table = storage.open_dataset(CaseDir(directory).finding_parts).to_table()
    return Counter(zip(table["class"].to_pylist(), table["seq"].to_pylist(), strict=True))


# the path ------------------------------------------------------------------------------------------------------------


def test_a_path_in_a_store_is_a_path(store) -> None:
    file = store / "a" / "case.json"
    assert not file.exists()
    file.write_text("häl\nlo\n", encoding="utf-8")
    assert file.read_text(encoding="utf-8") == "häl\nlo\n"
    with file.open("rb") as opened:
        assert hashlib.file_digest(opened, "sha256").digest() == hashlib.sha256("häl\nlo\n".encode()).digest()
    assert (file.stat().st_size, file.is_file(), file.is_dir(), store.is_dir()) == (8, True, False, True)
    assert str(file.relative_to(store)) == "a/case.json"
    assert str(file).endswith(f"/a/case.json?{str(store).partition('?')[2]}")
    assert locate(str(file)) == file == pickle.loads(pickle.dumps(file))
    assert file.resolve() is file.absolute() is file
    (store / "a/client=x/part-0.parquet").write_bytes(b"")
    (store / "a/client=y/sub/part-1.parquet").write_bytes(b"")
    assert [path.name for path in (store / "a").iterdir()] == ["case.json", "client=x", "client=y"]
    assert [path.parent.name for path in (store / "a").glob("client=*/part-*.parquet")] == ["client=x"]
    assert [path.name for path in store.rglob("*.parquet")] == ["part-0.parquet", "part-1.parquet"]
    assert list((store / "nowhere").glob("*")) == []
    file.replace(store / "b.json")
    assert (file.exists(), (store / "b.json").read_bytes()[:1]) == (False, b"h")
    file.unlink(missing_ok=True)
    storage.remove_tree(store / "a")
    assert [path.name for path in store.iterdir()] == ["b.json"]


def test_what_is_not_there_is_an_os_error(store) -> None:
    for touch in (store.stat, store.read_bytes, store.unlink, lambda: list(store.iterdir())):
        with pytest.raises(FileNotFoundError):
            touch()


def test_nothing_falls_through_to_this_machine(store, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = store / "x"
    file.write_bytes(b"1")
    for touch in (
        file.touch,
        lambda: file.chmod(0o600),
        lambda: file.symlink_to("y"),
        lambda: shutil.copy(file, "y"),
    ):
        with pytest.raises(TypeError, match="is not on this machine"):
            touch()
    with pytest.raises(io.UnsupportedOperation):
        file.open("a")
    with pytest.raises(FileExistsError):
        file.mkdir()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("s3://key:secret@bucket/runs", "credentials in the environment"),
        ("ftp://host/runs", "is not a supported store"),
        ("s3:///runs", "has no bucket"),
        ("abfs:///runs", "has no container"),
    ],
)
def test_a_uri_of_no_use_is_refused(uri, words) -> None:
    with pytest.raises(BadInput, match=words) as refused:
        locate(uri)
    assert "secret" not in str(refused.value)


def test_what_is_no_uri_is_a_path_of_this_machine(tmp_path) -> None:
    assert locate("a:b/c").parts == ("a:b", "c")
    assert locate(f"file://{tmp_path}/a%20b") == tmp_path / "a b"
    assert locate(tmp_path) is tmp_path


# the audit -----------------------------------------------------------------------------------------------------------


def records(folder):
    return write_ledger(folder, SENT, READ, row_group_size=8), {"lost": 3}


def groups(folder):
    """Write a run with a consumer group that shows each class. Return its path and the expected counts."""
    group = PlantedGroups(commit="transaction")
    group.plant_all()
    return group.write(folder, row_group_size=100).path, group.expected


@pytest.mark.parametrize(
    ("written", "limits"), [(records, Limits()), (records, BUCKETS), (groups, Limits()), (groups, CUT)]
)
def test_a_ledger_counts_the_same_in_a_store(tmp_path, store, written, limits) -> None:
    here, planted = written(tmp_path / "case")
    there = copied(here, store)
    prepare_audit([here, there])
    (one,), (other,) = (audited([path], limits=limits) for path in (here, there))
    assert one.file is not None and other.file is not None
    assert (one.code, +Counter(one.file.counts)) == (0, planted)
    assert other.file.model_dump(exclude={"findings"}) == one.file.model_dump(exclude={"findings"})
    assert lost_in(there) == lost_in(here)
    assert {path.name for path in there.iterdir()} == {path.name for path in here.iterdir()}
    assert not list(there.glob(".audit*"))


def test_an_audit_anew_replaces_the_older_one_and_leaves_nothing(tmp_path, store) -> None:
    there = copied(write_ledger(tmp_path / "case", SENT, READ), store)
    before = None
    for _ in range(3):
        (result,) = audited([there], limits=BUCKETS)
        names = [path.name for path in (there / "findings").iterdir()]
        assert result.file is not None
        assert tuple(names) == result.file.findings != before
        assert [path.name for path in there.glob("series*")] == [result.file.series]
        before = result.file.findings


def test_spark_reads_and_writes_there(tmp_path, store, audit) -> None:
    there = copied(write_ledger(tmp_path / "case", SENT, READ), store)
    for limits in (Limits(), BUCKETS):
        (result,) = audit(there, limits=limits)
        assert (result.code, result.reasons) == (0, ())
        assert lost_in(there) == {("lost", n): 1 for n in range(0, 16, 7)}


def test_a_folder_that_is_not_there(store) -> None:
    (result,) = audited([store])
    assert (result.code, result.reasons) == (254, (f"{store}: no such directory",))


# the command ---------------------------------------------------------------------------------------------------------


def test_a_run_goes_to_a_store_and_is_judged_there(store, tmp_path, monkeypatch, capsys) -> None:
    """A run with `--out` in a store leaves no file on this machine. Later commands work on the store."""
    experiment = tmp_path / "small.yaml"
    experiment.write_text(EXPERIMENT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main_code(["run", str(experiment), "--backend", "model", "--out", str(store)]) == 0
    (batch,) = store.iterdir()
    assert f"report: {batch.parent}".split("?")[0] in capsys.readouterr().out
    assert [path for path in (tmp_path / "runs").rglob("*") if path.is_file()] == []
    report = (batch / "report.html").read_bytes()
    (batch / "report.html").unlink()
    for command in ("judge", "report", "audit"):
        assert main_code([command, str(batch)]) == 0, capsys.readouterr()
    assert (batch / "report.html").read_bytes()[:100] == report[:100]
    assert json.loads((batch / "batch.json").read_bytes())["verdict"] == "PASS"
    assert main_code(["explain", str(batch), "--record", "0:3"]) == 0
    assert "sent by producer 0" in capsys.readouterr().out


EXPERIMENT = """\
name: small
cluster: {brokers: 3}
topics:
  orders: {partitions: 1, replication_factor: 3, config: {min.insync.replicas: 2}}
workload: {duration: 3s, producers: {count: 1, rate: 100/s}, consumers: {live: 1}}
faults:
  - kill: {target: leader(orders/0)}
    at: 1s
"""

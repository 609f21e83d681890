"""Tests of the files that an audit publishes and removes. It never removes those of another audit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ackproof.audit import results
from ackproof.audit.outputs import Outputs, create_findings
from ackproof.audit.pipeline import audit_all
from ackproof.audit.units import Limits, Tally
from ackproof.base.errors import AuditFailed
from ackproof.base.processes import here
from ackproof.rundir import storage
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.schema import FINDINGS, SERIES

from .ledgers import write_ledger
from .local import READ, SENT, audited, part

GONE = "4194305-1"
"""Process mark in a file name, of a process that does not exist."""


@pytest.fixture
def case(tmp_path: Path) -> CaseDir:
    """Return a run directory whose last record is lost, not yet audited."""
    return CaseDir(write_ledger(tmp_path / "case", SENT, READ[:-1]))


def publish(outputs: Outputs) -> None:
    results.publish(outputs, Tally(0), results.build_audit_file(Tally(0), (), {}))


def is_complete(case: CaseDir) -> bool:
    """Assert that the published files are those of `audit.json`. Return whether each has its schema."""
    named = [*case.finding_parts, case.series]
    there = [*case.findings.iterdir(), *case.path.glob("series*")]
    assert sorted(named) == sorted(there)
    return all(pq.read_table(path).schema in (FINDINGS, SERIES) for path in named)


@pytest.mark.parametrize(
    "told", ["", "{", '{"counts": {}}', '{"findings": []}', '{"findings": ["../kept.parquet"]}']
)
def test_where_the_older_audit_names_no_findings(case, told) -> None:
    """The audit removes findings without a process mark in the name, unless the old audit.json lists some findings.

    It keeps its own files.
    """
    case.findings.mkdir()
    older = case.findings / "part-0.parquet"
    older.touch()
    kept = case.path / "kept.parquet"
    kept.touch()
    case.audit_json.write_text(told)
    (result,) = audited([case.path])
    assert result.file is not None
    assert [path.name for path in case.finding_parts] == list(result.file.findings)
    assert (
        result.file.counts["lost"] == sum(pq.read_metadata(path).num_rows for path in case.finding_parts) == 1
    )
    assert older.exists() == ("kept" in told)
    assert kept.exists()
    assert case.series.exists()


def test_a_reader_of_an_older_audit_sees_nothing_of_one_under_way(case) -> None:
    case.findings.mkdir()
    (case.findings / "part-0.parquet").touch()
    case.audit_json.write_text('{"counts": {}}')
    outputs = Outputs.new(case.path)
    outputs.begin()
    outputs.findings("0").touch()
    assert [path.name for path in case.finding_parts] == ["part-0.parquet"]


@pytest.mark.parametrize("by", ["this process", "one that is gone"])
def test_an_audit_that_begins_leaves_the_published_one(case, by) -> None:
    audited([case.path])
    audited([case.path])  # its series have a name of their own
    if by == "one that is gone":
        text = case.audit_json.read_text()
        for path in case.published:
            parts = path.name.split("-")
            other = "-".join([*parts[:2], GONE, *parts[4:]])
            path.rename(path.with_name(other))
            text = text.replace(path.name, other)
        case.audit_json.write_text(text)
    assert case.series.name != "series.parquet"
    left = [f"findings/part-{here()}-{GONE}-a-0.parquet", f"series-{here()}-{GONE}-a.parquet"]
    for name in left:
        (case.path / name).touch()
    Outputs.new(case.path).begin()  # and is killed
    assert is_complete(case)


def test_series_have_the_plain_name_where_nothing_has_it(case) -> None:
    names = []
    for _ in range(3):
        audited([case.path])
        assert is_complete(case)
        names.append(case.series.name)
    assert names[0] == names[2] == "series.parquet" != names[1]


def test_two_audits_that_end_at_once_write_two_files_of_series(case, monkeypatch) -> None:
    """The second audit publishes while the first writes its series."""
    one, other = Outputs.new(case.path), Outputs.new(case.path)
    one.begin()
    other.begin()
    opened = storage.create_parquet
    ends = [lambda: publish(other)]

    def writer(path, schema, **options):
        if schema is SERIES and ends:
            ends.pop()()
            assert whole_of(other), "the other is published"
            first = opened(path, schema, **options)
            assert whole_of(other), "and still is"
            return first
        return opened(path, schema, **options)

    def whole_of(outputs: Outputs) -> bool:
        told = json.loads(case.audit_json.read_bytes())
        assert outputs.audit in told["findings"][0]
        return pq.read_table(case.series).schema == SERIES

    monkeypatch.setattr(storage, "create_parquet", writer)
    publish(one)
    assert one.audit in case.finding_parts[0].name
    assert is_complete(case)


def test_a_plain_name_that_two_audits_want_is_given_once(tmp_path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    found = [storage.rename_unless_taken(tmp_path / name, "plain").name for name in ("a", "b")]
    assert found == ["plain", "b"]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"plain": "a", "b": "b"}


def test_series_that_no_audit_names_do_not_keep_the_plain_name(case, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("ackproof.rundir.documents.AuditFile.save", full)
        (result,) = audited([case.path])
    assert (result.code, sorted(path.name for path in case.path.iterdir())) == (2, ["ledger"])


@pytest.mark.parametrize(
    "told", ["../series.parquet", "series/../x.parquet", "/etc/passwd", "", 7, None, "case.json"]
)
def test_series_of_a_path_are_none(tmp_path, told) -> None:
    case = CaseDir(tmp_path)
    case.audit_json.write_text(json.dumps({"series": told}))
    assert case.series == tmp_path / "series.parquet"


@pytest.mark.parametrize("write", [publish, lambda outputs: create_findings(outputs.findings("0")).close()])
def test_an_audit_that_leaves_takes_no_folder_from_another(case, write) -> None:
    one, other = Outputs.new(case.path), Outputs.new(case.path)
    other.begin()
    one.begin()
    one.leave()
    assert not case.findings.exists()
    write(other)
    assert case.findings.exists()


@pytest.mark.parametrize("holds", [[], ["x"]])
def test_a_folder_that_holds_something_stays(tmp_path, monkeypatch, holds) -> None:
    """The folder stays even if the file came after the folder was listed."""
    folder = tmp_path / "findings"
    folder.mkdir()
    for name in holds:
        (folder / name).touch()
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(()))
    storage.remove_empty(folder)
    storage.remove_empty(tmp_path / "nowhere")
    assert folder.exists() == bool(holds)


@pytest.mark.parametrize("write", [publish, lambda outputs: create_findings(outputs.findings("0"))])
def test_a_run_directory_that_is_gone_stays_gone(case, write) -> None:
    outputs = Outputs.new(case.path)
    outputs.begin()
    shutil.rmtree(case.path)
    with pytest.raises(FileNotFoundError):
        write(outputs)
    assert not case.path.exists()


def no_spark() -> None:
    raise AuditFailed("Spark did not start", code=2)


def test_without_spark_the_older_audit_stays(case) -> None:
    audited([case.path])
    before = case.audit_json.read_bytes()
    (result,) = audit_all([case.path], no_spark, lambda _: None, Limits())
    assert (result.code, result.file, result.reasons) == (2, None, ("Spark did not start",))
    assert case.audit_json.read_bytes() == before
    assert is_complete(case)
    assert not list(case.path.glob(".audit-*"))


def test_without_spark_an_older_audit_goes_of_what_cannot_be_audited(case) -> None:
    audited([case.path])
    table = pq.read_table(part(case.path, "consumed"), partitioning=None)
    pq.write_table(table.drop_columns(["phase"]), part(case.path, "consumed"))
    (result,) = audit_all([case.path], no_spark, lambda _: None, Limits())
    assert result.code == 254
    assert [path.name for path in case.path.iterdir()] == ["ledger"]


def test_an_older_audit_that_cannot_be_removed_is_told_of(case, monkeypatch) -> None:
    audited([case.path])
    table = pq.read_table(part(case.path, "consumed"), partitioning=None)
    pq.write_table(table.drop_columns(["phase"]), part(case.path, "consumed"))

    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("ackproof.audit.results.withdraw", refuse)
    (result,) = audit_all([case.path], no_spark, lambda _: None, Limits())
    assert result.code == 254
    assert result.reasons[-1].endswith("the results of an older audit cannot be removed (Permission denied)")

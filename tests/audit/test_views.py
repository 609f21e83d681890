"""Tests of Spark's views over run directories against plain Arrow and JSON, and of the command `ackproof sql`."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ackproof import api
from ackproof.base.errors import AuditFailed, BadInput
from ackproof.cli.main import main_code
from ackproof.rundir.batch import BatchCase, BatchFile
from ackproof.rundir.observed import Pulse, Sample
from ackproof.rundir.timeline import Event
from ackproof_lab.sql import views as room

from ..support.pages import ROOT, Page
from ..support.s3 import copied, s3_bucket
from .ledgers import write_ledger
from .rows import read, sent

pytestmark = pytest.mark.audit

SENT = [sent(n, n // 2, partition=n % 2) for n in range(40)]
READ = [read(n, n // 2, partition=n % 2) for n in range(40) if n % 7]
LOST = 6
EVENTS = [
    {"t_ns": 0, "wall_ns": 1, "kind": "phase", "detail": {"phase": "start"}},
    {"t_ns": 7, "wall_ns": 8, "kind": "fault-asked", "fault": 1, "detail": {"kind": "kill", "nodes": [2]}},
]
SAMPLE = {
    "t_ns": 5,
    "topic": "t",
    "partition": 0,
    "leader": 2,
    "leader_epoch": 1,
    "replicas": [1, 2],
    "isr": [2],
    "high_watermark": 3,
    "log_ends": {"1": 3, "2": 4},
}


def written(folder: Path) -> Path:
    run = write_ledger(folder, SENT, READ, row_group_size=3)
    for client in run.glob("ledger/*/*"):
        (client / "_END").touch()
    (run / "case.json").write_text('{"clients": []}')
    torn = '{"t_ns": 9, "wall_ns": 9, "ki'
    (run / "timeline.jsonl").write_text("\n".join([*map(json.dumps, EVENTS), torn]))
    (run / "observed").mkdir()
    (run / "observed/partitions.jsonl").write_text(json.dumps(SAMPLE) + "\n")
    return run


@pytest.fixture(scope="module")
def spark(context):
    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


@pytest.fixture
def counted(tmp_path, audit):
    run = written(tmp_path / "one")
    (result,) = audit(run)
    assert result.file.counts["lost"] == LOST
    (run / "findings" / "part-of-a-killed-audit.parquet").write_bytes(b"torn")
    return run


@pytest.mark.parametrize("where", ["folder", "store"])
def test_every_row_is_there_as_arrow_reads_it(counted, spark, where, tmp_path) -> None:
    with s3_bucket() as query:
        store = api.storage.locate(f"s3://bucket/{tmp_path.name} ü?{query}")
        (store / "old").write_bytes(b"moved")
        assert (store / "old").replace(store / "new") == store / "new"
        assert (store / "new").read_bytes() == b"moved" and not (store / "old").exists()
        there = counted if where == "folder" else copied(counted, store)
        views = api.Run(there).spark(spark)
        for name, files in (
            ("produced", counted.glob("ledger/produced/*/part*")),
            ("consumed", counted.glob("ledger/consumed/*/part*")),
            ("series", counted.glob("series.parquet")),
            ("findings", [counted / "findings" / one for one in api.Run(counted).audit.findings]),
        ):
            tables = [pq.read_table(file, partitioning=None) for file in files]
            more = ("group", "member") if name == "findings" else ()  # only findings about groups have these
            wanted = [(*row.values(), *(None for _ in more)) for table in tables for row in table.to_pylist()]
            found = [tuple(row)[1:] for row in spark.table(name).collect()]
            assert sorted(map(repr, found)) == sorted(map(repr, wanted))
            assert views[name].columns == ["run", *tables[0].column_names, *more]
        assert "pulse" not in views
        asked = "select kind, fault, get_json_object(detail, '$.nodes[0]') from timeline order by t_ns"
        assert [tuple(row) for row in spark.sql(asked).collect()] == [
            ("phase", None, None),
            ("fault-asked", 1, "2"),
        ]
        (one,) = spark.sql("select isr, log_ends['2'] as end, last_stable from samples").collect()
        assert tuple(one) == ([2], 4, None)


def test_the_columns_of_json_lines_are_those_of_their_types(spark) -> None:
    fields = (
        list(Event.model_fields),
        [one.name for one in dataclasses.fields(Sample)],
        list(Pulse.model_fields),
    )
    for table, named in zip((room._EVENT, room._SAMPLE, room._PULSE), fields, strict=True):
        assert named == [word.split()[0] for word in table.split(", ") if " " in word]


def test_what_is_not_there_says_why_and_takes_no_other_run_for_it(counted, tmp_path, spark) -> None:
    assert api.Run(counted).spark(spark)["findings"].count() == LOST
    views = api.Run(written(tmp_path / "two")).spark(spark)
    with pytest.raises(BadInput, match=r"no findings: .*two: not counted yet; first: ackproof audit"):
        views["findings"]
    with pytest.raises(BadInput, match="no findings"):
        room.ask(spark, views, "select * from findings", 10)
    with pytest.raises(BadInput, match=r"no view nix; there are: produced, consumed, timeline"):
        room.ask(spark, views, "select * from nix", 10)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("selec 1", r"Syntax error at or near 'selec' \(line 1, pos 0\)"),
        ("select nix from produced", "`nix` cannot be resolved"),
        ("select 1 / 0", "Division by zero"),
    ],
)
def test_a_wrong_statement_is_one_line(counted, spark, statement, said) -> None:
    with pytest.raises(BadInput, match=said) as wrong:
        room.ask(spark, api.Run(counted).spark(spark), statement, 10)
    assert "\n" not in str(wrong.value)


def test_a_file_that_is_gone_is_no_traceback(counted, spark) -> None:
    views = api.Run(counted).spark(spark)
    next(counted.glob("ledger/produced/*/part*")).unlink()
    with pytest.raises(AuditFailed, match="Spark gave no answer") as failed:
        room.ask(spark, views, "select count(seq) from produced", 10)
    assert "\n" not in str(failed.value)


def batch_of(folder: Path, *names: str) -> Path:
    cases = tuple(BatchCase(case=name, settings={}, repeat=1, run=name) for name in names)
    BatchFile(verdict=None, exit_code=0, seed=1, cases=cases).save(folder / "batch.json")
    return folder


def run_sql(capsys, *words: str) -> tuple[int, str, str]:
    code = main_code(["sql", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_command_over_a_batch(counted, tmp_path, spark, capsys) -> None:
    written(tmp_path / "two")
    batch = str(batch_of(tmp_path, "one", "two"))
    asked = "select run, count(*) as n from produced group by run order by run"
    code, out, _ = run_sql(capsys, batch, asked, "--format", "csv")
    assert (code, list(csv.reader(io.StringIO(out)))) == (0, [["run", "n"], ["one", "40"], ["two", "40"]])
    code, out, err = run_sql(capsys, batch, "select seq from findings", "--format", "json", "--limit", "2")
    assert (code, len(json.loads(out))) == (0, 2)
    assert "only the first 2 rows" in err
    assert "two: not counted yet" in " ".join(err.split())
    code, out, _ = run_sql(capsys, batch, "--views", "--format", "json")
    assert {row["view"]: row["rows"] for row in json.loads(out)} == {
        "produced": 80,
        "consumed": 2 * len(READ),
        "findings": LOST,
        "timeline": 4,
        "samples": 2,
        "series": pq.read_metadata(counted / "series.parquet").num_rows,
    }
    code, out, _ = run_sql(capsys, batch, "select 'a' as x, null as y, 10 as n union all select 'b', true, 9")
    assert (code, [line.split() for line in out.splitlines()]) == (
        0,
        [["x", "y", "n"], ["a", "NULL", "10"], ["b", "true", "9"]],
    )
    assert run_sql(capsys, str(tmp_path / "nowhere"), "select 1")[::2] == (
        254,
        f"ackproof: {tmp_path / 'nowhere'}: neither a run nor a batch; give one such as runs/latest\n",
    )


def test_the_statements_of_the_page_are_answered(counted, tmp_path, spark, monkeypatch, capsys) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/latest").symlink_to(batch_of(tmp_path, "one"))
    monkeypatch.chdir(tmp_path)
    lines = [line for line in Page(ROOT / "docs/audit.md").commands() if line.startswith("ackproof sql")]
    assert len(lines) == 4
    for line in lines:
        code, out, err = run_sql(capsys, *shlex.split(line)[2:])
        assert (code, len(out.splitlines()) > 1, err) == (0, True, ""), line

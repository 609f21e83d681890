"""Tests of the command `ackproof audit` and its exit codes over good, incomplete and bad ledgers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ackproof.cli.main import main_code
from ackproof.rundir.batch import BatchCase, BatchFile

from .ledgers import produced_table, write_case, write_ledger
from .rows import read, sent

pytestmark = pytest.mark.audit

SENT = [sent(n, n // 2, partition=n % 2) for n in range(6)]
READ = [read(n, n // 2, partition=n % 2) for n in range(6)]
LOST = READ[:-1]
"""Reads without the last acknowledged record. The audit finds it lost, and the exit code stays 0."""

VANISHING = """\
import os, shutil, sys
import pyspark

honest = pyspark.SparkContext.parallelize

def parallelize(*given, **named):
    shutil.rmtree(os.environ["VANISHES"], ignore_errors=True)
    return honest(*given, **named)

pyspark.SparkContext.parallelize = parallelize
from ackproof.cli.main import entry
entry()
"""
"""Program that runs the command and removes the directory `$VANISHES` once its footers were read."""


def part(ledger: Path, kind: str) -> Path:
    (path,) = sorted((ledger / "ledger" / kind).glob("*/part-*.parquet"))
    return path


def torn(ledger: Path) -> None:
    (part(ledger, "consumed").parent / "part-9.parquet").write_bytes(
        part(ledger, "consumed").read_bytes()[:-9]
    )


def unreadable(ledger: Path) -> None:
    (part(ledger, "produced").parent / "part-9.parquet").write_text("not Parquet at all " * 9)


def no_rows(ledger: Path) -> None:
    for kind in ("produced", "consumed"):
        path = part(ledger, kind)
        pq.write_table(pq.read_schema(path).empty_table(), path)


def no_end(ledger: Path) -> None:
    write_case(ledger, [{"id": "p0", "producer": 0}, {"id": "r9"}], ended=["consumed/r9"])


def nothing(ledger: Path) -> None:
    """Leave the ledger as it is."""


def no_produced(ledger: Path) -> None:
    shutil.rmtree(ledger / "ledger" / "produced")


def no_consumed(ledger: Path) -> None:
    shutil.rmtree(ledger / "ledger" / "consumed")


def no_ledger(ledger: Path) -> None:
    shutil.rmtree(ledger / "ledger")


def column_missing(ledger: Path) -> None:
    path = part(ledger, "consumed")
    pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["leader_epoch"]), path)


def wrong_type(ledger: Path) -> None:
    path = part(ledger, "produced")
    table = pq.read_table(path, partitioning=None)
    number = table.column_names.index("seq")
    pq.write_table(table.set_column(number, "seq", table["seq"].cast(pa.int32())), path)


def a_null(ledger: Path) -> None:
    path = part(ledger, "produced")
    table = pq.read_table(path, partitioning=None)
    number = table.column_names.index("offset")
    holed = pc.if_else(pa.array([n != 3 for n in range(len(table))]), table["offset"].combine_chunks(), None)
    pq.write_table(table.set_column(number, pa.field("offset", pa.int64()), holed), path)


def twice(ledger: Path) -> None:
    pq.write_table(
        produced_table([sent(2, 7, partition=1)]), part(ledger, "produced").parent / "part-9.parquet"
    )


INCOMPLETE = (torn, unreadable, no_rows, no_end)
BAD = (no_produced, no_consumed, no_ledger, column_missing, wrong_type, a_null, twice)


def write_broken(folder: Path, *breaks: Callable[[Path], None]) -> list[Path]:
    """Write a ledger with a lost record for each of these functions, and let the function change it. Each directory has
    the name of its function."""
    directories = []
    for breaking in breaks:
        directory = write_ledger(folder / breaking.__name__, SENT, LOST)
        breaking(directory)
        directories.append(directory)
    return directories


def audited(directories: Sequence[Path], *, vanishes: Path | None = None) -> tuple[int, dict[str, int], str]:
    """Run the command. Return its exit code, that of each directory by its name, and standard error.

    `vanishes`: a directory that disappears once its footers were read.
    """
    start = (
        [Path(sys.executable).with_name("ackproof")]
        if vanishes is None
        else [sys.executable, "-c", VANISHING]
    )
    done = subprocess.run(
        [*start, "audit", *directories, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "NO_COLOR": "1", "VANISHES": str(vanishes)},
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    codes = {Path(one["directory"]).name: one["exit_code"] for one in json.loads(done.stdout)}
    return done.returncode, codes, done.stderr


def test_good_ledgers_are_0_whatever_is_found_in_them(tmp_path: Path) -> None:
    (directory,) = write_broken(tmp_path, nothing)
    assert audited([directory])[:2] == (0, {"nothing": 0})
    counts = json.loads((directory / "audit.json").read_text())["counts"]
    assert {name: count for name, count in counts.items() if count} == {"lost": 1}


def test_incomplete_ledgers_are_2_and_the_good_are_counted(tmp_path: Path) -> None:
    vanishes = write_ledger(tmp_path / "vanishes", SENT, READ)
    directories = [vanishes, *write_broken(tmp_path, *INCOMPLETE, nothing)]
    code, codes, said = audited(directories, vanishes=vanishes)
    assert code == 2
    assert codes == {"vanishes": 2, **{breaking.__name__: 2 for breaking in INCOMPLETE}, "nothing": 0}
    assert "disappeared" in said
    assert not vanishes.exists()
    for directory in directories[1:]:
        document = json.loads((directory / "audit.json").read_text())
        assert document["complete"] is (directory.name == "nothing")
        assert document["counts"]["lost"] == (0 if directory.name == "no_rows" else 1)


@pytest.mark.usefixtures("context")
def test_bad_ledgers_are_254_and_all_others_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run the command in this process, which has Spark."""
    directories = [
        *write_broken(tmp_path, *BAD),
        tmp_path / "nowhere",
        *write_broken(tmp_path, nothing, torn),
    ]
    code = main_code(["audit", *map(str, directories), "--json"])
    out, said = capsys.readouterr()
    codes = {Path(one["directory"]).name: one["exit_code"] for one in json.loads(out)}
    assert "Traceback" not in out + said
    assert code == 254
    assert codes == {**{breaking.__name__: 254 for breaking in BAD}, "nowhere": 254, "nothing": 0, "torn": 2}
    for directory in directories:
        assert str(directory) in said
        assert (directory / "audit.json").exists() is (directory.name in ("nothing", "torn"))


def test_a_folder_without_a_ledger_alone_is_254(tmp_path: Path) -> None:
    assert audited(write_broken(tmp_path, no_ledger))[:2] == (254, {"no_ledger": 254})


def test_what_is_no_ledger_is_told_as_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_code(["audit", str(tmp_path / "nix")]) == 254
    said = capsys.readouterr()
    assert " ".join(said.err.split()) == f"ackproof: {tmp_path / 'nix'}: no such directory"
    assert said.out == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--master", "local", "--remote", "sc://there"], "give --master or --remote, not both"),
        (
            ["--conf", "spark.ui.enabled"],
            "--conf spark.ui.enabled: not a Spark setting; give spark.NAME=VALUE",
        ),
        (["--conf", "ui.enabled=no"], "--conf ui.enabled=no: not a Spark setting; give spark.NAME=VALUE"),
    ],
    ids=["two places", "no value", "not Spark's"],
)
def test_what_is_said_of_spark_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main_code(["audit", str(tmp_path), *words]) == 254
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_batch_stands_for_its_cases_that_came_to_a_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("first", "second", "never")
    cases = tuple(BatchCase(case=name, settings={}, repeat=1, run=name) for name in names)
    batch = BatchFile(verdict=None, exit_code=255, seed=1, name="b", command="", cases=cases)
    batch.save(tmp_path / "batch.json")
    assert main_code(["audit", str(tmp_path)]) == 254
    assert "no case of this batch has a ledger" in capsys.readouterr().err
    for name in names[:2]:
        write_ledger(tmp_path / name, SENT, LOST)
    code, codes, _ = audited([tmp_path])
    assert (code, codes) == (0, {"first": 0, "second": 0})

"""Tests that a run with a missing, changed, copied or foreign file is INCONCLUSIVE, and that the reason names it.

The run is simulated, with two producers, two live readers and a fault that kills a producer. No Spark is used.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ackproof.ledgers.clients import find_hole
from ackproof.run.conclude import CaseResult, conclude, judge_run
from ackproof.run.extensions import find_simulator
from ackproof.rundir.documents import AuditFile, CaseFile, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.parts import mark_end, read_end
from ackproof.rundir.seal import find_changes, seal
from run_directory import read_case

from .local import audited

EXPERIMENT = """\
name: sealed
backend: model
topics: {orders: {partitions: 2, replication_factor: 3, config: {min.insync.replicas: 2}}}
workload:
  producers: {count: 2, acks: all, idempotence: true, rate: 200/s}
  consumers: {live: 2}
  duration: 6s
faults:
  - kill_client: {client: producer}
    at: 2s
"""
Spoil = Callable[[CaseDir], object]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[CaseDir, CaseDir]:
    """Return two runs of the same experiment with different seeds, audited and judged PASS."""
    folder = tmp_path_factory.mktemp("sealed")
    found = []
    for seed in (1, 2):
        run = CaseDir(folder / f"run-{seed}")
        find_simulator().run_case(read_case(EXPERIMENT, seed=seed), run, "", lambda _: None)
        found.append(run)
    counted(*found)
    results = conclude(found, lambda _: None)
    assert [result.verdict and result.verdict.verdict for result in results] == [Verdict.PASS] * 2, results
    return found[0], found[1]


@pytest.fixture
def run(runs: tuple[CaseDir, CaseDir], tmp_path: Path) -> CaseDir:
    return CaseDir(Path(shutil.copytree(runs[0].path, tmp_path / "run")))


@pytest.fixture
def other(runs: tuple[CaseDir, CaseDir]) -> CaseDir:
    return runs[1]


def counted(*runs: CaseDir) -> list[AuditFile | None]:
    return [one.file for one in audited([r.path for r in runs])]


def judged(run: CaseDir) -> CaseResult:
    (result,) = conclude([run], lambda _: None)
    return result


def inconclusive(run: CaseDir, *words: str) -> VerdictFile:
    """Assert that a run is judged INCONCLUSIVE, with `words` in its reasons. Return the saved verdict."""
    result = judged(run)
    assert result.error is None
    assert result.verdict is not None
    assert result.verdict.verdict is Verdict.INCONCLUSIVE, result.verdict
    told = " | ".join(result.verdict.reasons)
    for word in words:
        assert word in told
    judge_run(run)
    assert VerdictFile.load(run.verdict_json) == result.verdict
    return result.verdict


def client(run: CaseDir, kind: str, name: str) -> Path:
    return run.ledger / kind / f"client={name}"


def part_of(run: CaseDir, kind: str = "produced", name: str = "p0") -> Path:
    return sorted(client(run, kind, name).glob("part-*.parquet"))[0]


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def edit(path: Path, **values: object) -> None:
    document = json.loads(path.read_text())
    for name, value in values.items():
        document[name] = {**document[name], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(document))


def without_last_line(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def without_rows(path: Path, *numbers: int, column: str = "seq") -> None:
    table = pq.read_table(path, partitioning=None)
    pq.write_table(table.filter(pc.invert(pc.is_in(table[column], pa.array(numbers, pa.int64())))), path)


def test_a_run_says_what_it_wrote(run: CaseDir) -> None:
    files = json.loads(run.seal.read_text())["files"]
    on_disk = [p for p in run.path.rglob("*") if p.is_file() and p.parts[-2] != "findings"]
    derived = {
        "audit.json",
        "series.parquet",
        "conformance.json",
        "prediction.json",
        "verdict.json",
        "seal.json",
    }
    assert files.keys() == {str(p.relative_to(run.path)) for p in on_disk} - derived
    (part,) = read_end(client(run, "produced", "p1")) or ()
    assert (part.rows, part.first, part.last) == (part.last + 1, 0, part.rows - 1)
    assert part.bytes == part_of(run, name="p1").stat().st_size
    name = f"ledger/produced/client=p1/{part.name}"
    assert (files[name]["rows"], files[name]["sha256"]) == (part.rows, part.sha256)
    assert files["timeline.jsonl"]["rows"] == len(run.timeline.read_text().splitlines())
    file = AuditFile.load(run.audit_json)
    assert file.counted.items() <= {name: written["sha256"] for name, written in files.items()}.items()


def test_what_is_whole_keeps_its_verdict(run: CaseDir) -> None:
    run.verdict_json.unlink()
    result = judged(run)
    assert result.verdict is not None
    assert (result.verdict.verdict, result.verdict.reasons) == (Verdict.PASS, ())


SPOILED: dict[str, tuple[Spoil, str]] = {
    "a part is gone": (
        lambda run: part_of(run).unlink(),
        "ledger/produced/client=p0/part-000000.parquet: missing",
    ),
    "a part is torn": (lambda run: half(part_of(run)), "part-000000.parquet: "),
    "a part is there twice": (
        lambda run: shutil.copy(part_of(run), part_of(run).with_name("part-000009.parquet")),
        "part-000009.parquet: did not exist when the run ended; it is ledger/produced/client=p0/part-000000.parquet",
    ),
    "a part has another name": (
        lambda run: part_of(run).rename(part_of(run).with_name("part-000001.parquet")),
        "part-000000.parquet: missing",
    ),
    "a part is of another client": (
        lambda run: shutil.copy(part_of(run, name="p1"), part_of(run)),
        "client=p0/part-000000.parquet: ",
    ),
    "a part lacks rows": (lambda run: without_rows(part_of(run), 3, 4), "part-000000.parquet: "),
    "a live reader's part is gone": (lambda run: part_of(run, "consumed", "r0").unlink(), "client=r0/part"),
    "the final read's part is gone": (lambda run: part_of(run, "consumed", "f0").unlink(), "client=f0/part"),
    "a client's folder is gone": (lambda run: shutil.rmtree(client(run, "consumed", "r1")), "client=r1/part"),
    "a folder has another name": (
        lambda run: client(run, "consumed", "r1").rename(client(run, "consumed", "r7")),
        "client=r7/part-000000.parquet: did not exist",
    ),
    "an END is gone": (
        lambda run: (client(run, "produced", "p1") / "_END").unlink(),
        "client=p1/_END: missing",
    ),
    "an END is empty": (
        lambda run: (client(run, "produced", "p1") / "_END").write_text(""),
        "client=p1/_END: 0 bytes",
    ),
    "no ledgers": (lambda run: shutil.rmtree(run.ledger), "ledger/"),
    "the timeline lacks its end": (lambda run: without_last_line(run.timeline), "timeline.jsonl: "),
    "the timeline is torn": (lambda run: half(run.timeline), "timeline.jsonl: "),
    "the timeline is no text": (
        lambda run: run.timeline.write_bytes(b"\xff\xfe" * 9999),
        "timeline.jsonl: not what",
    ),
    "the timeline is gone": (lambda run: run.timeline.unlink(), "timeline.jsonl: missing"),
    "samples are gone": (lambda run: run.samples.unlink(), "observed/partitions.jsonl: missing"),
    "samples lack their end": (lambda run: without_last_line(run.samples), "observed/partitions.jsonl: "),
    "the metadata log is gone": (lambda run: run.metadata_log.unlink(), "observed/metadata.jsonl: missing"),
    "the final read is torn": (lambda run: half(run.final_read), "observed/final-read.json: "),
    "replicas are gone": (lambda run: run.replicas.unlink(), "observed/replicas.json: missing"),
    "batches are torn": (lambda run: half(run.replica_batches), "observed/replicas.parquet: "),
    "the case is torn": (lambda run: half(run.case_json), "case.json: "),
    "the case is gone": (lambda run: run.case_json.unlink(), "case.json: "),
    "the case has another seed": (lambda run: edit(run.case_json, seed=99), "case.json: "),
    "the seal is gone": (lambda run: run.seal.unlink(), "seal.json: missing"),
    "the seal is torn": (lambda run: half(run.seal), "seal.json: "),
    "audited twice over": (
        lambda run: edit(run.audit_json, counted={"ledger/produced/client=p9/part-000000.parquet": "0"}),
        "audit.json counted other files than those of this run: ledger/produced/client=p9/part-000000.parquet",
    ),
    "audited in part": (
        lambda run: run.audit_json.write_text(
            run.audit_json.read_text().replace("client=p1/part-000000", "client=p0/part-000000")
        ),
        "audit.json",
    ),
    "fewer than none": (lambda run: edit(run.audit_json, counts={"lost": -1}), "audit.json: lost is -1"),
    "rows that are not there": (lambda run: edit(run.audit_json, records={"acked": 1}), "were produced"),
    "rows of no reader": (lambda run: edit(run.audit_json, records={"consumed_live": 7}), "rows, and "),
    "a count without findings": (
        lambda run: edit(run.audit_json, counts={"surfaced": 12}),
        "audit.json counts 12 surfaced, and findings has 0",
    ),
    "complete, with reasons": (lambda run: edit(run.audit_json, reasons=["x"]), "calls itself complete"),
    "no findings that can be read": (
        lambda run: [half(path) for path in run.findings.glob("*.parquet")],
        "findings: cannot be read",
    ),
    "no audit that can be read": (lambda run: half(run.audit_json), "audit.json: not a AuditFile"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_not_as_it_was_written_is_named(run: CaseDir, name: str) -> None:
    spoil, words = SPOILED[name]
    spoil(run)
    inconclusive(run, words)


def test_a_lie_that_was_audited_is_seen_too(run: CaseDir) -> None:
    without_rows(part_of(run, "consumed", "f0"), 5, 6, 7, column="read_seq")
    (file,) = counted(run)
    assert file is not None
    assert not file.complete
    assert inconclusive(run, "client=f0/part-000000.parquet").classes == ()


@pytest.mark.parametrize(
    "name", ["timeline", "samples", "metadata_log", "final_read", "audit_json", "seal", "ledger"]
)
def test_a_file_of_another_run_is_named(run: CaseDir, other: CaseDir, name: str) -> None:
    mine, foreign = getattr(run, name), getattr(other, name)
    if mine.is_dir():
        shutil.rmtree(mine)
        shutil.copytree(foreign, mine)
    else:
        shutil.copy(foreign, mine)
    inconclusive(run, mine.name)


def test_a_broken_run_takes_no_other_along(run: CaseDir, runs: tuple[CaseDir, CaseDir]) -> None:
    half(run.case_json)
    broken, whole = conclude([run, runs[1]], lambda _: None)
    assert broken.verdict is not None and whole.verdict is not None
    assert (broken.verdict.verdict, whole.verdict.verdict) == (Verdict.INCONCLUSIVE, Verdict.PASS)
    half(run.seal)  # which hides no broken case file
    assert [reason.partition(":")[0] for reason in find_changes(run)] == ["seal.json", "case.json"]


def test_runs_of_older_versions_are_judged_as_before(run: CaseDir) -> None:
    run.seal.unlink()
    edit(run.case_json, sealed=False)
    run.samples.unlink()  # they never said that there would be any
    edit(run.audit_json, counted={})
    result = judged(run)
    assert result.verdict is not None
    assert "seal" not in " ".join(result.verdict.reasons)


def test_an_older_case_file_is_of_an_older_version() -> None:
    assert CaseFile.model_fields["sealed"].default is False


# -- what the audit alone says, of ledgers that come without a seal ------------------------------------------------


@pytest.fixture
def ledgers(run: CaseDir) -> CaseDir:
    run.seal.unlink()
    return run


def test_a_missing_part_makes_nothing_phantom(ledgers: CaseDir) -> None:
    part_of(ledgers).unlink()
    (file,) = counted(ledgers)
    assert file is not None
    assert file.counts["phantom"] == 0
    assert file.unledgered > 0
    # p0 was killed by the fault: without an END nobody says what it wrote. Its successor and p1 do.
    part_of(ledgers, name="p1").unlink()
    (file,) = counted(ledgers)
    assert file is not None
    assert any(
        "client=p1/part-000000.parquet: _END lists part-000000.parquet (" in one for one in file.reasons
    )
    assert file.counts["phantom"] == 0


TEXT_FOR_ROWS = '{"name": "part-7", "rows": "7", "first": 0, "last": 6, "bytes": 9, "sha256": "0"}'


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            lambda path: shutil.copy(path, path.with_name("part-000009.parquet")),
            "same file as part-000000.parquet",
        ),
        (
            lambda path: path.rename(path.with_name("part-000001.parquet")),
            "part-000001.parquet is the same file",
        ),
        (lambda path: without_rows(path, 0), "differs from _END (part-000000.parquet ("),
        (lambda path: (path.parent / "_END").write_text("{"), "_END: cannot be parsed"),
        (lambda path: (path.parent / "_END").write_text('{"parts": [{"name": 1}]}'), "END: cannot be parsed"),
        (
            lambda path: (path.parent / "_DELETED").write_text(TEXT_FOR_ROWS),
            "_DELETED: cannot be parsed",
        ),
        (half, "torn or unreadable"),
    ],
)
def test_the_audit_holds_parts_against_their_end(
    ledgers: CaseDir, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(part_of(ledgers, name="p1"))
    (file,) = counted(ledgers)
    assert file is not None
    assert any(words in reason for reason in file.reasons), file.reasons
    assert not file.complete
    assert (file.counts["phantom"], file.counts["duplicate"]) == (0, 0)
    assert not any(
        "client=p1/part" in one and "_END lists" in one and words[:4] == "torn" for one in file.reasons
    )


@pytest.mark.parametrize(
    ("kind", "name", "column"), [("produced", "p1", "seq"), ("consumed", "f0", "read_seq")]
)
def test_a_hole_that_a_client_wrote_itself_is_named(
    ledgers: CaseDir, kind: str, name: str, column: str
) -> None:
    without_rows(part_of(ledgers, kind, name), 0, 1, column=column)
    mark_end(client(ledgers, kind, name))
    (file,) = counted(ledgers)
    assert file is not None
    assert f"ledger/{kind}/client={name}: its rows 0 to 1 are in no part" in file.reasons


def test_a_hole_of_a_killed_client_is_named(ledgers: CaseDir) -> None:
    without_rows(part_of(ledgers), 0)
    (file,) = counted(ledgers)
    assert file is not None
    assert "ledger/produced/client=p0: its rows 0 to 0 are in no part" in file.reasons


def test_an_empty_end_vouches_for_nothing(ledgers: CaseDir) -> None:
    without_rows(part_of(ledgers, name="p1"), 0)
    (client(ledgers, "produced", "p1") / "_END").write_text("")
    (file,) = counted(ledgers)
    assert file is not None
    assert not any("client=p1" in reason for reason in file.reasons)


@pytest.mark.parametrize(
    ("spans", "words"),
    [
        ([(0, 9, 10), (10, 12, 3)], None),
        ([(10, 12, 3), (0, 9, 10)], None),
        ([], None),
        ([(0, 4, 5), (1 << 40, (1 << 40) + 2, 3), (2 << 40, 2 << 40, 1)], None),
        ([(-1, -1, 5)], None),
        ([(1, 9, 9)], "its rows 0 to 0 are in no part"),
        ([(0, 9, 10), (11, 12, 2)], "its rows 10 to 10 are in no part"),
        ([(0, 9, 10), (9, 12, 4)], "its rows from 9 on occur twice"),
        ([(0, 9, 9)], "9 rows are numbered 0 to 9"),
        ([(0, 9, 10), (0, 9, 10)], "its rows from 0 on occur twice"),
        ([((1 << 40) + 1, (1 << 40) + 1, 1)], "its rows 0 to"),
    ],
)
def test_numbers_of_rows(spans: list[tuple[int, int, int]], words: str | None) -> None:
    found = find_hole(spans)
    assert (found is None) if words is None else (found is not None and found.startswith(words))


def test_what_was_being_written_when_its_writer_died_is_no_evidence(run: CaseDir) -> None:
    (client(run, "produced", "p0") / ".part-000003.parquet.77.tmp").write_bytes(b"PAR1")
    case = CaseFile.load(run.case_json)
    before = run.seal.read_text()
    seal(run, case.run_id)
    assert run.seal.read_text() == before

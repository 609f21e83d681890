"""Tests of the producers' journal, and of salvaging it: torn anywhere, salvaged twice, half converted."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackproof.clients.contract import ProducerSettings
from ackproof.clients.conversion import salvage
from ackproof.clients.journal import (
    DONE,
    OFFSET,
    RESULT,
    SENT,
    WORDS,
    Journal,
    TornJournal,
    chunk_path,
    pack_result,
    produced_rows,
    read_chunk,
)
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import parts, read_parts
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import PRODUCED

PLACES = (TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("audit", 0))
ORIGIN = 1_000_000
ROWS = 64


def whose(client: str = "p0") -> ProducerSettings:
    return ProducerSettings(
        client=client,
        run_id="00" * 8,
        case_dir="",
        places=PLACES,
        origin_ns=ORIGIN,
        config={},
        producer=0,
        first_place=0,
        value_size=100,
        rate=None,
        chunk_rows=ROWS,
    )


def fill(run: CaseDir, count: int, *, resolved: int, client: str = "p0") -> Journal:
    """Return a journal with `count` sent attempts. The first `resolved` have a delivery report; every tenth report is
    an error."""
    (run.clients / client).mkdir(parents=True, exist_ok=True)
    whose(client).write(run.clients / client / "settings.json")
    journal = Journal(run.journal / client, ROWS)
    for seq in range(count):
        if seq % ROWS == 0:
            journal.extend()
            words = journal.current.words
        at = seq % ROWS * WORDS
        words[at + RESULT] = seq % len(PLACES)
        words[at + SENT] = ORIGIN + 10 * seq
        if seq < resolved:
            words[at + OFFSET] = seq
            if seq % 10 == 9:
                words[at + RESULT] = pack_result(seq % len(PLACES), -192, Outcome.INDETERMINATE)
            words[at + DONE] = ORIGIN + 10 * seq + 5
    return journal


def expected(count: int, resolved: int) -> list[dict[str, object]]:
    rows = []
    for seq in range(count):
        topic, partition = PLACES[seq % len(PLACES)]
        done, error = seq < resolved, seq % 10 == 9
        outcome = Outcome.ACKED if done and not error else Outcome.INDETERMINATE
        rows.append(
            {
                "producer": 0,
                "seq": seq,
                "topic": topic,
                "partition": partition,
                "outcome": int(outcome),
                "error": -192 if done and error else 0,
                "offset": seq if outcome is Outcome.ACKED else -1,
                "sent_ns": 10 * seq,
                "done_ns": 10 * seq + 5 if done else -1,
                "txn": -1,
            }
        )
    return rows


def salvaged(run: CaseDir) -> list[dict[str, object]]:
    return read_parts(run.produced, PRODUCED).sort_by("seq").to_pylist()


@given(st.integers(0, 2**31 - 1), st.integers(-(2**15), 2**15 - 1), st.sampled_from(Outcome))
def test_a_result_is_one_word(place: int, error: int, outcome: Outcome) -> None:
    word = pack_result(place, error, outcome)
    assert 0 <= word < 2**63
    assert word & 0xFFFFFFFF == place
    assert (word >> 48) & 0xFF == outcome


@pytest.mark.parametrize(("count", "resolved"), [(1, 0), (1, 1), (64, 64), (65, 30), (200, 150), (200, 200)])
def test_salvage(tmp_path: Path, count: int, resolved: int) -> None:
    run = CaseDir(tmp_path)
    fill(run, count, resolved=resolved)
    written, refused = salvage(run)
    assert written
    assert not refused
    assert salvaged(run) == expected(count, resolved)
    assert not run.journal.exists()
    assert salvage(run) == ([], [])


def test_one_client_of_several(tmp_path: Path) -> None:
    run = CaseDir(tmp_path)
    fill(run, 10, resolved=5, client="p0")
    fill(run, 10, resolved=5, client="p1")
    salvage(run, "p1")
    assert len(parts(run.produced / "client=p1")) == 1
    assert parts(run.produced / "client=p0") == []
    assert (run.journal / "p0").is_dir()


def test_a_chunk_whose_part_is_there_is_not_written_again(tmp_path: Path) -> None:
    run = CaseDir(tmp_path)
    journal = fill(run, 200, resolved=200)
    from ackproof.rundir.ledger import write_produced

    for chunk in journal.resolved()[:2]:  # killed after the part, before the removal
        write_produced(
            run.produced / "client=p0",
            chunk.index,
            produced_rows(whose(), chunk.first_seq, chunk.matrix),
        )
    assert len(salvage(run)[0]) == 2
    assert salvaged(run) == expected(200, 200)


def test_unfinished_files_are_removed(tmp_path: Path) -> None:
    run = CaseDir(tmp_path)
    fill(run, 10, resolved=0)
    (run.journal / "p0" / ".chunk-000001.rows.tmp").write_bytes(b"half")
    (run.produced / "client=p0").mkdir(parents=True)
    (run.produced / "client=p0" / ".part-000000.parquet.1.tmp").write_bytes(b"PAR1")
    salvage(run)
    assert salvaged(run) == expected(10, 0)
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_chunk_cut_anywhere_gives_its_whole_rows_or_is_refused(tmp_path: Path) -> None:
    random_numbers = random.Random(4)
    for cut in [0, 1, 63, 64, 65, 95, 96, *random_numbers.choices(range(64 + ROWS * 32), k=20)]:
        run = CaseDir(tmp_path / f"cut-{cut}")
        fill(run, 40, resolved=40)
        path = chunk_path(run.journal / "p0", 0)
        path.write_bytes(path.read_bytes()[:cut])
        written, refused = salvage(run)
        if cut < 64:
            assert not written
            assert str(path) in refused[0]
            assert path.exists(), "what cannot be read stays"
        else:
            assert not refused
            assert salvaged(run) == expected(min(40, (cut - 64) // 32), 40)


@pytest.mark.parametrize("at", [0, 7, 8, 16])
def test_a_damaged_header_is_refused(tmp_path: Path, at: int) -> None:
    run = CaseDir(tmp_path)
    fill(run, 10, resolved=10)
    path = chunk_path(run.journal / "p0", 0)
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0xFF
    path.write_bytes(raw)
    if at == 16:  # the number of rows; as chunk 0 any number agrees with its first seq
        return
    with pytest.raises(TornJournal):
        read_chunk(path, 0)
    assert salvage(run)[1]
    assert path.exists()


def test_without_the_settings_of_its_client_a_journal_is_refused(tmp_path: Path) -> None:
    run = CaseDir(tmp_path)
    fill(run, 10, resolved=10)
    (run.clients / "p0" / "settings.json").write_text('{"client"')
    assert "settings.json" in salvage(run)[1][0]
    assert chunk_path(run.journal / "p0", 0).exists()


def test_a_row_that_names_no_place_is_refused(tmp_path: Path) -> None:
    run = CaseDir(tmp_path)
    journal = fill(run, 10, resolved=10)
    journal.chunks[0].words[3 * WORDS + RESULT] = 77
    assert "place 77" in salvage(run)[1][0]


def test_rows_must_be_a_power_of_two(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="power of two"):
        Journal(tmp_path / "p0", 100)

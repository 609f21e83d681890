"""Tests of `Converter`: for a producer with a rate it converts chunks at once; at full speed it leaves them until the
end."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.base.wait import wait_until
from ackproof.clients import journal as journals
from ackproof.clients.contract import ProducerSettings
from ackproof.clients.journal import DONE, RESULT, SENT, Chunk, Converter, Journal, chunk_files
from ackproof.rundir.ledger import parts, read_parts
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import PRODUCED

ROWS, CHUNKS, LATER = 64, 9, 3


@pytest.mark.parametrize(("paced", "at_once"), [(True, CHUNKS - 1), (False, CHUNKS - 1 - LATER)])
def test_how_many_wait_for_the_end(
    paced: bool, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "_LATER", LATER)
    monkeypatch.setattr(journals, "_LOOK_EVERY_S", 0.01)
    journal = Journal(tmp_path / "journal", ROWS)
    for number in range(CHUNKS):
        journal.extend()
        matrix = journal.current.matrix
        matrix[:, [SENT, DONE]] = number + 1
        matrix[:, RESULT] = number % 2
    ledger = tmp_path / "ledger"
    looks, look = [0], journal.resolved

    def count_looks() -> list[Chunk]:
        looks[0] += 1
        return look()

    monkeypatch.setattr(journal, "resolved", count_looks)
    whose = ProducerSettings(
        client="p0",
        run_id="00" * 8,
        case_dir=str(tmp_path),
        places=(TopicPartition("orders", 0), TopicPartition("orders", 1)),
        origin_ns=0,
        config={},
        producer=0,
        first_place=0,
        value_size=100,
        rate=100.0 if paced else None,
        chunk_rows=ROWS,
    )
    one = Converter(whose, journal, ledger)
    # every look but the first comes after the one before has converted what it wanted to
    wait_until(lambda: looks[0] >= 3, what="looks at the journal", timeout_s=30)
    late = len(chunk_files(journal.folder))
    assert len(parts(ledger)) == at_once
    one.finish()
    assert late == CHUNKS - at_once
    assert not journal.folder.exists()
    assert sorted(read_parts(ledger, PRODUCED)["seq"].to_pylist()) == list(range(ROWS * CHUNKS))

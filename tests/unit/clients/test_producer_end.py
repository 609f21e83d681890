"""Tests of the end of a producer process: after a fatal error of its client library, and by a kill while it
converts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from ackproof.clients.librdkafka import producer
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import read_parts
from ackproof.rundir.parts import ClientLibrary
from ackproof.rundir.schema import TRANSACTIONS


@pytest.mark.parametrize("fatal", [True, False])
def test_an_error_that_closing_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fatal: bool) -> None:
    """librdkafka raises a fatal error again at close if nobody polled since, as after a failed commit."""

    def close() -> None:
        raise KafkaException(KafkaError(48, "Failed to end transaction", fatal=fatal))

    process = producer.ProducerProcess.__new__(producer.ProducerProcess)
    events: list[str] = []
    for name in ("_load", "_flush", "_await_brokers"):
        monkeypatch.setattr(process, name, lambda: None)
    reports = SimpleNamespace(fatal="", settle=lambda: None)
    reports.note_fatal = lambda error: setattr(reports, "fatal", error.str())
    given = {
        "transactions": None,
        "counters": SimpleNamespace(stage=None),
        "client": SimpleNamespace(close=close),
        "reports": reports,
        "converter": SimpleNamespace(finish=lambda: None),
        "ledger": tmp_path,
        "events": SimpleNamespace(add=lambda kind, reason: events.append(f"{kind}: {reason}")),
    }
    for name, value in given.items():
        monkeypatch.setattr(process, name, value, raising=False)
    if not fatal:
        with pytest.raises(KafkaException):
            process.run()
        return
    assert process.run() == producer.EXIT_RESET
    assert events == ["reset: Failed to end transaction"]


def test_a_producer_that_is_killed_while_it_converts_has_its_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is written before the last journal chunk is removed: `salvage` writes it only for a client that left a
    chunk."""

    def die() -> None:
        raise SystemExit(9)

    run = CaseDir(tmp_path)
    (run.clients / "p0").mkdir(parents=True)
    (run.clients / "p0" / "transactions.log").write_text("begin 0 0 5\ncommit 0 7\nend 0 0 9\n")
    process = producer.ProducerProcess.__new__(producer.ProducerProcess)
    for name in ("_load", "_flush", "_await_brokers"):
        monkeypatch.setattr(process, name, lambda: None)
    given = {
        "settings": SimpleNamespace(
            case_dir=str(tmp_path), client="p0", producer=0, client_library=ClientLibrary("librdkafka", "2")
        ),
        "transactions": SimpleNamespace(join=lambda: True, finish=lambda commit: None, gave_up=""),
        "counters": SimpleNamespace(stage=None),
        "client": SimpleNamespace(close=lambda: None),
        "reports": SimpleNamespace(fatal="", settle=lambda: None),
        "converter": SimpleNamespace(finish=die),
    }
    for name, value in given.items():
        monkeypatch.setattr(process, name, value, raising=False)
    with pytest.raises(SystemExit):
        process.run()
    assert read_parts(run.transactions, TRANSACTIONS).column("txn").to_pylist() == [0]


@pytest.mark.parametrize("fatal", [True, False])
@pytest.mark.parametrize("in_report", [True, False])
def test_a_fatal_error_is_found_where_it_broke_off_a_report(fatal: bool, in_report: bool) -> None:
    error: Exception = KafkaException(KafkaError(KafkaError._FENCED, fatal=fatal))
    if in_report:
        error, error.__cause__ = SystemError("returned a result with an exception set"), error
    found = producer.find_fatal(error)
    assert (found is not None and found.code() == KafkaError._FENCED) == fatal
    assert producer.find_fatal(SystemError("something else")) is None

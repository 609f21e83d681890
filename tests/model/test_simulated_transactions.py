"""Tests of transactions in virtual time: what readers at read_committed get, through deaths, fencing and time-outs."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import parts, read_parts
from ackproof.rundir.outcome import ReadPhase, TxnOutcome
from ackproof.rundir.schema import TRANSACTIONS
from ackproof_model.replay.metadata import conform
from ackproof_simulator.coordinator import Coordinator
from ackproof_simulator.run import Simulation
from run_directory import read_case
from simulated_run import simulated

FILE = """\
name: transactions
topics:
  t: {{partitions: 2, replication_factor: 3, config: {{min.insync.replicas: 2}}}}
workload:
  producers:
    {{count: 2, idempotence: true, rate: 800/s, transaction_size: 40, abort_share: 0.3,
     transaction_timeout: {timeout}}}
  consumers: {{live: 1, isolation: read_committed}}
  duration: 6s
faults: {faults}
"""


def ran(tmp_path: Path, faults: str, *, seed: int = 3, timeout: str = "10s") -> Simulation:
    case = read_case(FILE.format(faults=faults, timeout=timeout), backend="model")
    simulation = simulated(case, tmp_path / "run", seed=seed)
    assert simulation.complete, simulation.reasons
    assert [life.reason for life in simulation.lives if life.stage.name != "RECOVERED"] == []
    return simulation


Key = tuple[int, int]


def wrong(folder: Path) -> dict[str, set[Key]]:
    """Return, by class of finding, the records (producer, seq) that readers at read_committed got wrongly, or lack."""
    run = CaseDir(folder)
    sent = ds.dataset([str(part) for part in parts(run.produced)]).to_table().to_pylist()
    txns = {
        (row["producer"], row["txn"]): row for row in read_parts(run.transactions, TRANSACTIONS).to_pylist()
    }
    handed = {
        phase: ds.dataset([str(part) for part in parts(run.consumed)])
        .to_table(filter=pc.field("phase") == int(phase))
        .to_pylist()
        for phase in (ReadPhase.FINAL_COMMITTED, ReadPhase.LIVE_COMMITTED)
    }
    seen = {(row["producer"], row["seq"]) for row in handed[ReadPhase.FINAL_COMMITTED]}
    of = {(row["producer"], row["seq"]): txns[row["producer"], row["txn"]] for row in sent}
    everywhere = [row for rows in handed.values() for row in rows]
    whole: dict[Key, set[Key]] = {}
    for key, txn in of.items():
        whole.setdefault((txn["producer"], txn["txn"]), set()).add(key)
    return {
        "aborted-read": {
            (row["producer"], row["seq"])
            for row in everywhere
            if of[row["producer"], row["seq"]]["outcome"] == TxnOutcome.ABORTED
        },
        "early-read": {
            (row["producer"], row["seq"])
            for row in everywhere
            if row["read_ns"] < of[row["producer"], row["seq"]]["commit_ns"]
        },
        "torn": {
            key
            for (producer, txn), keys in whole.items()
            for key in keys - seen
            if keys & seen or txns[producer, txn]["outcome"] == TxnOutcome.COMMITTED
        },
    }


KILLS = """
  - kill: {target: leader(t/0)}
    at: 1s
    restart_after: 1s
  - kill: {target: leader(__transaction_state/0)}
    after: {fault: 1, by: 6s}
    restart_after: 1s
"""
FENCE = """
  - fence_producer: {client: producer(0)}
    at: 1s
"""
KILL_CLIENT = """
  - kill_client: {client: producer(1)}
    at: 1s
    restart_after: 500ms
"""


@pytest.mark.parametrize(
    "faults", ["[]", KILLS, FENCE, KILL_CLIENT], ids=["none", "kills", "fence", "client"]
)
def test_readers_at_read_committed_are_handed_whole_committed_transactions(
    tmp_path: Path, faults: str
) -> None:
    simulation = ran(tmp_path, faults)
    outcomes = [row.outcome for producer in simulation.world.producers for row in producer.rows()]  # type: ignore[attr-defined]
    assert outcomes.count(TxnOutcome.COMMITTED) > 20
    assert outcomes.count(TxnOutcome.ABORTED) > 5
    assert wrong(tmp_path / "run") == {"aborted-read": set(), "early-read": set(), "torn": set()}
    told = conform(CaseDir(tmp_path / "run"), simulation.case)
    assert told.forbidden is None
    assert sum(one.unexplained for one in told.classes) == 0


def test_a_producer_whose_id_another_takes_is_fenced_and_its_open_transaction_aborted(tmp_path: Path) -> None:
    old, _, new = ran(tmp_path, FENCE).world.producers
    assert (old.gave_up, new.gave_up, old.slot, new.slot) == ("fenced", "", 0, 0)  # type: ignore[attr-defined]
    assert new.epoch > old.epoch  # type: ignore[attr-defined]


def test_a_transaction_that_stays_open_is_aborted_by_the_coordinator(tmp_path: Path) -> None:
    """The producer is frozen for longer than its transaction time-out; no reader gets its records."""
    pause = """
  - pause_client: {client: producer(0)}
    at: 1050ms
    for: 14s
"""
    simulation = ran(tmp_path, pause, timeout="2s")
    assert simulation.world.producers[0].gave_up == "fenced"  # type: ignore[attr-defined]
    assert wrong(tmp_path / "run") == {"aborted-read": set(), "early-read": set(), "torn": set()}


def test_the_check_itself_finds_what_was_aborted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ackproof_simulator.run.aborted", lambda log, batch: False)
    ran(tmp_path, "[]")
    assert wrong(tmp_path / "run")["aborted-read"]


def test_a_coordinator_that_forgets_a_marker_leaves_no_complete_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgets(self: Coordinator, known: object, place: int, leader: int, marker: object) -> None:
        if place == 0:
            write(self, known, place, leader, marker)  # type: ignore[arg-type]

    write = Coordinator.write
    monkeypatch.setattr(Coordinator, "write", forgets)
    with pytest.raises(AssertionError, match="a transaction is open"):
        ran(tmp_path, "[]")

"""The case of a soak: cut short, and the sizes of its ledger parts."""

from __future__ import annotations

from pathlib import Path

from ackproof.clients.contract import Rotation
from ackproof.plan import cases, load
from ackproof.plan.cases import case_from_json, case_to_json
from ackproof.plan.soaking import Soak
from ackproof_lab.soak.load import shorten
from ackproof_lab.soak.windows import rotation_of

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FILE = """\
name: s
topics: {orders: {partitions: 2}}
workload: {producers: {rate: 100/s}, consumers: {live: 1}, duration: 20s}
faults:
  - pause: {target: leader(orders/0)}
    at: 2s
    for: 1s
  - kill: {target: leader(orders/0)}
    after: {fault: 1, by: 1s}
    restart_after: 1s
"""


def test_one_that_ended_early_is_as_long_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(FILE)
    (case,) = cases(load(file, soak=Soak("1m", None)))
    short = shorten(case, 2)
    assert short.experiment.workload.duration == 40.0
    assert [fault.number for fault in short.experiment.faults] == [1, 2, 3, 4]
    assert {fault.number for fault in short.faults} < {fault.number for fault in case.faults}
    assert shorten(case, 3) is case
    assert case_from_json(case_to_json(short)) == short


def test_a_reader_holds_twice_what_comes_until_it_writes() -> None:
    """A reader's part has at most twice the usual rows of 5 s. So a storm's backlog does not fill its memory."""
    (case,) = cases(load(EXPERIMENTS / "soak.yaml", soak=Soak("1h", None)))
    assert rotation_of(case.experiment) == Rotation(chunk_rows=1 << 15, flush_s=5.0, flush_rows=50_001)

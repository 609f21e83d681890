"""A plan is equal on all machines. Before a run, all faults that this machine cannot inject are reported together."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.experiment.backends import Need
from ackproof.plan.cases import case_from_json, case_to_json, cases, load
from ackproof.plan.schedule import describe
from ackproof.run import machine
from ackproof.run.batch import run_batch
from ackproof.run.options import BatchOptions, plan_batch
from ackproof.run.phases import SilentWatcher

HEAD = "name: m\ncluster: {controllers: 3}\ntopics: {orders: {}}\nworkload: {producers: {rate: 500/s}}\nfaults:\n"
LACKS = {Need.DISKS: "only root can mount", Need.CLOCKS: "cc is missing"}


@pytest.fixture(autouse=True)
def poor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that cannot mount file systems and has no compiler."""
    monkeypatch.setattr(machine, "find_lack", lambda need, backend: LACKS.get(need, ""))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "m.yaml"


@pytest.mark.parametrize("seed", range(4))
def test_a_storm_is_the_same_on_every_machine(file: Path, seed: int) -> None:
    file.write_text(HEAD + "  - storm: {count: 60}\n    at: 1s\n")
    (drawn,) = cases(load(file), seed=seed)
    assert not drawn.unable
    assert cases(load(file, backend="docker"), seed=seed)[0].faults == drawn.faults
    case = machine.mark_missed(drawn)
    assert case.faults == drawn.faults
    wants = {one.number: one.needs & LACKS.keys() for one in case.faults}
    assert case.unable == {number: LACKS[need] for number, needs in wants.items() for need in needs}
    assert case.unable and not case.needs & LACKS.keys()
    number = min(case.unable)
    (line,) = [line for line in describe(case) if f"fault 1.{number - 1000}. " in line]
    assert line.endswith(f"missed, not possible on this machine: {case.unable[number]}")
    assert case_from_json(case_to_json(case)) == case
    notes = list(machine.describe_limits([drawn]))
    assert {note.partition(", ")[0] for note in notes} == {"note: not possible on this machine"}
    assert {note.partition(": ")[2].partition(": ")[2] for note in notes} == set(case.unable.values())


def test_a_run_is_refused_with_every_fault_that_this_machine_cannot_do(file: Path, tmp_path: Path) -> None:
    faults = [
        "  - pause: broker\n    at: 0s\n",
        "  - full_disk: broker(1)\n    at: 1s\n",
        "  - storm: {count: 1, menu: {full_disk: 1}}\n    at: 1s\n",
        "  - clock_jump: {target: broker(2), by: 1h}\n    at: 9s\n",
    ]
    file.write_text(HEAD + "".join(faults))
    with pytest.raises(BadInput) as raised:
        run_batch(plan_batch(BatchOptions((file,), out=tmp_path / "runs")), SilentWatcher())
    lines = str(raised.value).splitlines()
    assert [line for line in lines if line.startswith(str(file))] == [
        f"{file}:{line}:5: faults[{number}]: fault {named} is not possible on this machine: {why}"
        for line, number, named, why in (
            (8, 2, "2 (full_disk broker(1))", LACKS[Need.DISKS]),
            (10, 3, "3.1 (full_disk broker)", LACKS[Need.DISKS]),
            (12, 4, "4 (clock_jump broker(2) by +3600s)", LACKS[Need.CLOCKS]),
        )
    ]
    assert lines[1].endswith("8 |   - full_disk: broker(1)")
    assert not (tmp_path / "runs").exists()

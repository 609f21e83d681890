"""`--soak`: the load of a file becomes a window, each window repeats its faults, and some files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.cli.main import main_code
from ackproof.experiment.case import Case
from ackproof.experiment.problems import InvalidExperiment
from ackproof.experiment.triggers import TimeTrigger
from ackproof.plan import cases, load
from ackproof.plan.cases import case_from_json, case_to_json
from ackproof.plan.soaking import Soak

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
FILE = """\
name: s
topics: {orders: {partitions: 2}}
workload: {producers: {rate: 100/s}, consumers: {live: 1}, duration: 20s}
faults:
  - storm: {count: 2, menu: {pause: 1, kill: 1}}
    at: 2s
  - pause: {target: leader(orders/0)}
    after: {fault: 1, by: 1s}
    for: 1s
"""


def soaked(tmp_path: Path, text: str = FILE, *, soak: str = "1m", keep: int | None = None) -> Case:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    (case,) = cases(load(file, soak=Soak(soak, keep)))
    return case


def test_the_faults_come_again_in_each_window(tmp_path: Path) -> None:
    case = soaked(tmp_path, keep=2)
    spec = case.experiment
    assert (spec.workload.duration, spec.soak and (spec.soak.window, spec.soak.keep)) == (60.0, (20.0, 2))
    assert [fault.kind for fault in spec.faults] == ["storm", "pause"] * 3
    assert [fault.trigger.at for fault in spec.faults if isinstance(fault.trigger, TimeTrigger)] == [
        2.0,
        22.0,
        42.0,
    ]
    assert [getattr(fault.trigger, "fault", None) for fault in spec.faults[1::2]] == [1, 3, 5]
    drawn = [[str(fault) for fault in case.drawn[number].faults] for number in (1, 3, 5)]
    assert len({tuple(one) for one in drawn}) > 1, "each window has a storm of its own"
    assert soaked(tmp_path).drawn[3].faults == case.drawn[3].faults, "from the seed alone"


def test_it_comes_back_from_its_file(tmp_path: Path) -> None:
    case = soaked(tmp_path, keep=3)
    assert case_from_json(case_to_json(case)) == case


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--soak", "0"], "a duration with its unit"),
        (["--soak", "0s"], "give a duration such as 6h"),
        (["--soak", "1m", "--keep", "-1"], "-1 is not in the range"),
        (["--soak", "banana"], "a duration with its unit"),
        (["--soak", "5s"], "a window is as long as the load of"),
        (["--soak", "24h", "--set", "workload.duration=6s"], "make a window longer"),
        (["--soak", "1m", "--set", "workload.duration=0s"], "expected more than 0s"),
        (["--soak", "1m", "--set", "workload.duration=20xs"], "expected a duration with its unit"),
        (["--soak", "1h", "--set", "workload.duration=48h"], "expected a duration of at most 24h"),
        (["--keep", "2"], "--keep needs --soak DURATION"),
    ],
)
def test_what_the_command_refuses(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(FILE)
    assert main_code(["plan", str(file), *words]) == 254
    assert said in capsys.readouterr().err


def test_a_wrong_duration_is_named_at_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(FILE.replace("20s", "20xs"))
    assert main_code(["plan", str(file)]) == 254
    without = capsys.readouterr().err
    assert "s.yaml:3:" in without
    assert main_code(["plan", str(file), "--soak", "1m"]) == 254
    assert capsys.readouterr().err == without


def test_more_faults_than_a_file_may_have(tmp_path: Path) -> None:
    faults = "faults:\n" + "  - {pause: leader(orders/0), at: 2s, for: 1s}\n" * 201
    with pytest.raises(InvalidExperiment, match="201 faults are too many"):
        soaked(tmp_path, FILE.partition("faults:")[0] + faults, soak="20s")


def test_a_soak_is_no_longer_than_a_day(tmp_path: Path) -> None:
    spec = soaked(tmp_path, FILE.replace("20s", "5h"), soak="24h").experiment
    assert (spec.workload.duration, len(spec.faults)) == (20 * 3600.0, 8)

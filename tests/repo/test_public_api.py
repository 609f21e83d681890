"""Tests of the public names and signatures of `ackproof`, which must not depend on earlier imports."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import ackproof
from ackproof import api
from ackproof.base.errors import BadInput

SIGNATURES = {
    "plan": "(*files: 'AnyPath', backend: 'str | None' = None, seed: 'int | None' = None, "
    "repeat: 'int | None' = None, settings: 'Sequence[str]' = (), only: 'Sequence[str]' = ()) -> 'list[Case]'",
    "run": "(*files: 'AnyPath', backend: 'str | None' = None, seed: 'int | None' = None, "
    "repeat: 'int | None' = None, settings: 'Sequence[str]' = (), only: 'Sequence[str]' = (), "
    "bootstrap: 'str | None' = None, client_config: 'AnyPath | None' = None, out: 'AnyPath' = 'runs', "
    "keep_data: 'bool' = False, simulate: 'bool' = False, at_most: 'int | None' = None, "
    "progress: 'Progress | None' = None) -> 'Batch'",
    "audit": "(directories: 'Iterable[AnyPath]', *, master: 'str | None' = None, remote: 'str | None' = None, "
    "conf: 'Mapping[str, str] | None' = None, spark: 'SparkSession | None' = None, "
    "progress: 'Progress | None' = None) -> 'list[AuditResult]'",
    "judge": "(directory: 'AnyPath', *, progress: 'Progress | None' = None) -> 'tuple[Run, ...]'",
    "report": "(directory: 'AnyPath') -> 'Path'",
    "open_run": "(directory: 'AnyPath') -> 'Run'",
    "open_batch": "(directory: 'AnyPath') -> 'Batch'",
}
OF_A_RUN = [
    *("audit", "case", "consumed", "directory", "elections", "events", "final_read", "findings"),
    *("metrics", "prediction", "produced", "quantities", "replay", "series", "spark", "timeline", "verdict"),
]

OF_A_BATCH = [
    *("directory", "document", "elections", "findings", "metrics", "quantities", "report", "runs"),
    *("series", "spark", "timeline", "verdict"),
]


def _public(kind: type) -> list[str]:
    return sorted(name for name in {*dir(kind), *kind.__annotations__} if not name.startswith("_"))


def test_the_names() -> None:
    assert ackproof.__all__ == ["__version__"]
    assert sorted(api.__all__) == sorted([*SIGNATURES, "Batch", "Run"])
    assert _public(api.Run) == OF_A_RUN
    assert _public(api.Batch) == OF_A_BATCH


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_signatures(name: str) -> None:
    assert str(inspect.signature(getattr(api, name))) == SIGNATURES[name]
    assert "aises" in inspect.getdoc(getattr(api, name)), "says what it raises"


def test_they_stay_whatever_else_was_imported() -> None:
    program = (
        "import ackproof.run.batch, ackproof.plan, ackproof.audit, ackproof.judge\n"
        "from ackproof import api\n"
        f"assert all(callable(getattr(api, name)) for name in {list(SIGNATURES)!r})\n"
        "from ackproof.api import run, plan, audit, judge, report, open_run, open_batch\n"
        "assert {one.__module__ for one in (run, plan, audit, judge, report, open_run)} == {'ackproof.api'}"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_cases_are_planned(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("name: x\ntopics: {t: {}}\nworkload: {duration: 1s}\n", encoding="utf-8")
    settings = ["workload.producers.acks=1"]
    cases = api.plan(file, seed=7, repeat=2, settings=settings)
    assert [(case.repeat, case.experiment.workload.producers.acks) for case in cases] == [(1, "1"), (2, "1")]
    with pytest.raises(BadInput, match="no case is called 'y'"):
        api.plan(str(file), only=["y"])


@pytest.mark.parametrize("call", [api.open_run, api.open_batch, api.judge, api.report])
def test_a_folder_of_something_else_is_bad_input(tmp_path: Path, call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadInput, match=str(tmp_path)):
        call(tmp_path)

"""`validate`, `plan` and `schema` are quick on small files: they load only what they need."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from ackproof.clients.librdkafka.adapter import objection, producer_config, reader_config
from ackproof.experiment.spec import Acks, ProducerSpec

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
NOT_NEEDED = {
    "asyncio",
    "confluent_kafka",
    "docker",
    "jinja2",
    "kafka",
    "kazoo",
    "numpy",
    "pyarrow",
    "pyspark",
    "ssl",
    "ackproof.audit",
    "ackproof.cluster.backends.choice",
    "ackproof.judge",
    "ackproof.ledgers",
    "ackproof_model.predict",
    "ackproof_model.replay",
    "ackproof.spark",
    "ackproof_simulator.run",
}
BARE = "import click, pydantic, rich.console; from pydantic import BaseModel, Field, JsonValue"
MOST = 3.6
"""Maximum processor time of a command, as a multiple of the time to load the three libraries that it needs (0.1 s).
Measured: 2.4 to 3.3. It is 3.9 to 5.1 if every kind of fault is built and librdkafka is always asked."""


def processor_s(code: str, compiled: Path | None = None) -> tuple[float, str]:
    """Run code in a new Python process; return its processor time in seconds, and its standard error. `compiled`:
    folder for compiled modules, so that a second call does not compile them again."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if compiled is not None:
        environment["PYTHONPYCACHEPREFIX"] = str(compiled)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stderr


def command(name: str, *files: str) -> str:
    words = [name, *(str(EXPERIMENTS / file) for file in files)]
    return f"from ackproof.cli.main import main_code; assert main_code({words!r}) == 0"


@pytest.mark.parametrize(
    ("name", "file"), [("validate", "rolling-restart.yaml"), ("plan", "acks-matrix.yaml"), ("schema", "")]
)
def test_what_is_not_needed_is_not_loaded(name: str, file: str) -> None:
    code = command(name, *[file] * bool(file)) + "; import sys; print(*sys.modules, file=sys.stderr)"
    loaded = set(processor_s(code)[1].split())
    assert "ackproof.plan.matrix" in loaded
    assert loaded & NOT_NEEDED == set()


def test_only_the_kinds_of_a_file_are_built() -> None:
    """Most of the time goes into pydantic's building of classes, and there are about fifty kinds of faults."""
    code = command("validate", "rolling-restart.yaml") + (
        "; from ackproof.faults.registry import fault_kinds; import sys"
        "; print(*(name for name, kind in fault_kinds().items() if kind.__pydantic_complete__), file=sys.stderr)"
    )
    assert processor_s(code)[1].split() == ["rolling_restart"]


@pytest.mark.parametrize("name", ["validate", "plan"])
def test_processor_time_beside_that_of_its_libraries(name: str, tmp_path: Path) -> None:
    """Commands and bare libraries are measured in turn: a busy machine slows down both. The best of six counts."""
    whole = command(name, "rolling-restart.yaml")
    processor_s(whole, tmp_path)
    ratios = []
    for _ in range(6):
        ratios.append(processor_s(whole, tmp_path)[0] / processor_s(BARE, tmp_path)[0])
        if min(ratios) <= MOST:
            return
    raise AssertionError(f"{name} takes {min(ratios):.1f} × as long as its libraries, not {MOST} × at most")


@pytest.mark.parametrize(
    ("acks", "idempotence"), [("0", False), ("1", False), ("all", False), ("all", True)], ids=str
)
def test_librdkafka_need_not_be_asked(acks: Acks, idempotence: bool) -> None:
    """librdkafka accepts these settings in any case, unless the file has a `config` for the client."""
    spec = ProducerSpec(acks=acks, idempotence=idempotence)
    assert objection("producer", producer_config(spec, "", "", "")) is None
    assert objection("consumer", reader_config({}, "read_committed", "", "")) is None
    assert objection("consumer", reader_config({}, "read_uncommitted", "", "")) is None

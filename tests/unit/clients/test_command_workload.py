"""Tests of users' programs as processes of a load, without brokers: a clean close, and how each breach ends the
program."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput, ClientDied
from ackproof.base.processes import RunTag, end_children
from ackproof.base.wait import wait_until
from ackproof.clients.workload import Workload
from ackproof.experiment.client import COMMAND, ClientChoice
from ackproof.experiment.spec import ProducerSpec, TopicSpec, WorkloadSpec
from ackproof.rundir.clock import RunClock
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.ledger import read_parts
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.parts import has_end
from ackproof.rundir.schema import PRODUCED
from ackproof.rundir.timeline import ClientDied as ClientDiedEvent
from ackproof.rundir.timeline import Timeline, read_timeline

PROGRAM = """\
import json, sys, time
settings = json.loads(sys.argv[1])
def tell(event, **fields):
    print(json.dumps({"e": event, "t": time.monotonic_ns(), **fields}), flush=True)
tell("started", client="test", acks=settings["config"]["acks"])
for n in range(5):
    tell("attempt", n=n, topic="orders", p=0)
for n in range(3):
    tell("result", n=n, o=10 + n)
"""
GOOD = "sys.stdin.readline()\ntell('stopping')\ntell('closed')\n"


class Load:
    """A load with one program as its producer, and the folder of its run."""

    def __init__(self, folder: Path, script: str, timeline: Timeline) -> None:
        file = folder / "program.py"
        file.write_text(PROGRAM + script)
        self.run = CaseDir(folder)
        self.run_id = secrets.token_hex(8)
        client = ClientChoice(COMMAND, command=(sys.executable, str(file), "{settings}"))
        self.workload = Workload(
            WorkloadSpec(producers=ProducerSpec(client=client, rate=10)),
            {"orders": TopicSpec()},
            "127.0.0.1:1",
            timeline,
            RunTag(self.run_id, folder, folder),
        )

    def await_death(self) -> str:
        """Wait until the program has died. Return the message of the `ClientDied` that reports it."""

        def dead() -> bool:
            try:
                self.workload.check()
            except ClientDied as error:
                self.message = str(error)
                return True
            return False

        wait_until(dead, what="the program to die", timeout_s=20)
        return self.message

    def ledger(self) -> list[tuple[int, int]]:
        """Return seq and outcome of each attempt in the ledger."""
        rows = read_parts(self.run.produced / client_folder("p0"), PRODUCED).to_pylist()
        return sorted((row["seq"], row["outcome"]) for row in rows)


TOLD = [*((n, Outcome.ACKED) for n in range(3)), *((n, Outcome.INDETERMINATE) for n in (3, 4))]
"""(seq, outcome) of each attempt that every program prints before it breaks the contract."""


@contextmanager
def load_of(folder: Path, script: str) -> Iterator[Load]:
    with Timeline(folder / "timeline.jsonl", RunClock.start()) as timeline:
        load = Load(folder, script, timeline)
        try:
            yield load
        finally:
            load.workload.abort()
            end_children(lambda child: child.run_id == load.run_id)


def test_a_program_that_closes_cleanly_leaves_a_complete_ledger(tmp_path: Path) -> None:
    with load_of(tmp_path, GOOD) as load:
        load.workload.start()
        wait_until(lambda: load.workload.acked() == 3, what="three acks", timeout_s=20)
        assert load.workload.sent() == 5
        load.workload.stop()
    assert load.ledger() == TOLD
    assert has_end(load.run.produced / client_folder("p0"))


def test_a_killed_program_leaves_what_it_told(tmp_path: Path) -> None:
    with load_of(tmp_path, GOOD) as load:
        load.workload.start()
        wait_until(lambda: load.workload.acked() == 3, what="three acks", timeout_s=20)
        assert load.workload.kill("p0") == 2
    assert load.ledger() == TOLD
    assert not has_end(load.run.produced / client_folder("p0"))


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("print('oops', flush=True)\ntime.sleep(60)\n", "line 10: no JSON: 'oops'"),
        ("tell('attempt', n=4, topic='orders', p=0)\ntime.sleep(60)\n", "a second attempt has the number 4"),
        ("sys.stdout.write('{')\n", "line 10: half a line at the end: '{'"),
        ("tell('closed')\ntell('closed')\n", "line 11: closed comes after closed"),
        ("", "the program ended and never said closed"),
        ("time.monotonic_ns = time.time_ns\ntell('stopping')\ntime.sleep(60)\n", "CLOCK_MONOTONIC was"),
        ("sys.exit('no broker answers')\n", "ended by itself with status 1; its last output:\nno broker answers"),
    ],
)  # fmt: skip
def test_a_breach_ends_the_program_with_one_line(tmp_path: Path, script: str, why: str) -> None:
    with load_of(tmp_path, script) as load:
        try:
            load.workload.start()
            message = load.await_death()
        except ClientDied as error:
            message = str(error)
        assert why in message and "producer p0 ended by itself" in message
    assert load.ledger() == TOLD
    events, _ = read_timeline(tmp_path / "timeline.jsonl")
    (death,) = [event.what for event in events if isinstance(event.what, ClientDiedEvent)]
    assert death.output in message


def test_a_program_that_does_not_exist_is_bad_input(tmp_path: Path) -> None:
    with load_of(tmp_path, "") as load:
        spec = load.workload.spec
        missing = ClientChoice(COMMAND, command=("./no-such-program",))
        producers = spec.producers.model_copy(update={"client": missing})
        changed = spec.model_copy(update={"producers": producers})
        with Timeline(tmp_path / "other.jsonl", RunClock.start()) as timeline:
            workload = Workload(
                changed,
                {"orders": TopicSpec()},
                "127.0.0.1:1",
                timeline,
                RunTag(load.run_id, tmp_path, tmp_path),
            )
            with pytest.raises(BadInput, match="no-such-program cannot be started: No such file"):
                workload.start()
            workload.abort()

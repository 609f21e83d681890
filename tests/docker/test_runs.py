"""Tests of whole runs in containers: the same verdicts as on processes, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ackproof.cli.main import main_code
from ackproof.cluster.containers.engine import Engine, Leftover, find_leftovers

from ..support.begun import await_run
from .relay import Relay

pytestmark = pytest.mark.docker

ACKPROOF = Path(sys.executable).with_name("ackproof")
MATRIX = Path(__file__).parents[2] / "experiments" / "acks-matrix.yaml"
CASES = ("acks=1,min.insync.replicas=2", "acks=all,min.insync.replicas=2")
CALM = """\
name: calm
backend: docker
cluster: {brokers: 1, controllers: 1}
topics: {events: {replication_factor: 1}}
workload: {producers: {rate: 1000/s}, consumers: {live: 1}, duration: 120s}
"""


def _ackproof(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ACKPROOF, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1", **environment},
    )


def _on_both(file: Path, tmp_path: Path, *words: str) -> dict[str, list[tuple[str, str, bool]]]:
    """Run an experiment on both backends; return, by backend, each case with its verdict, and True if it lost
    records."""
    found = {}
    for backend in ("process", "docker"):
        done = _ackproof("run", file, "--backend", backend, *words, "--out", tmp_path / backend, "--json")
        batch = json.loads(done.stdout)
        found[backend] = [
            (case["case"], case["verdict"], (case["counts"] or {}).get("lost", 0) > 0)
            for case in batch["cases"]
        ]
        assert done.returncode == 0, (backend, batch["cases"], done.stderr[-2000:])
        report = (tmp_path / backend / "latest" / "report.html").read_text(encoding="utf-8")
        assert backend in report
    return found


def test_a_loss_in_containers_from_file_to_report(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", MATRIX, "--backend", "docker", "--case", CASES[0], "--out", tmp_path, "--json"]
    code = main_code([str(word) for word in words])
    output, errors = capsys.readouterr()
    assert code == 0, errors[-2000:]
    (case,) = json.loads(output)["cases"]
    assert case["verdict"] == "PASS"
    assert case["counts"]["lost"] > 0
    assert "docker" in (tmp_path / "latest" / "report.html").read_text(encoding="utf-8")


@pytest.mark.nightly
def test_both_backends_give_the_same_verdicts(engine: Engine, tmp_path: Path) -> None:
    found = _on_both(MATRIX, tmp_path, *(word for case in CASES for word in ("--case", case)))
    assert found["process"] == found["docker"]
    assert [lost for _, _, lost in found["docker"]] == [True, False]


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="links of containers are broken by root")
@pytest.mark.parametrize("name", ["jepsen-2013", "one-way-cut", "zombie-leader", "throttled-follower"])
def test_faults_of_links_give_the_same_verdicts(engine: Engine, tmp_path: Path, name: str) -> None:
    """Links are broken by Toxiproxy on processes, and by the kernel's rules in containers."""
    found = _on_both(MATRIX.with_name(f"{name}.yaml"), tmp_path)
    assert found["process"] == found["docker"]


def _mine(engine: Engine, folder: Path) -> list[Leftover]:
    """Return the containers, networks and volumes of runs below this folder, without those of other runs on the
    machine."""
    return [
        found for found in find_leftovers(engine) if found.marks.directory.is_relative_to(folder.resolve())
    ]


def _start_calm(tmp_path: Path, engine: Engine) -> subprocess.Popen[bytes]:
    """Start a run, and return its process once its load has begun."""
    file = tmp_path / "calm.yaml"
    file.write_text(CALM, encoding="utf-8")
    run = subprocess.Popen(
        [ACKPROOF, "run", file, "--out", tmp_path / "runs"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await_run(
            run,
            lambda: len(_mine(engine, tmp_path)) >= 3 and any((tmp_path / "runs").glob("*/*/clients/*")),
            "two containers, a network and clients",
        )
    except BaseException:
        run.kill()
        raise
    return run


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGKILL])
def test_nothing_of_a_run_is_left(engine: Engine, tmp_path: Path, number: signal.Signals) -> None:
    run = _start_calm(tmp_path, engine)
    run.send_signal(number)
    run.wait(60)
    if number is signal.SIGKILL:
        assert not any(thing.marks.owner_alive for thing in _mine(engine, tmp_path))
        assert "removed container ackproof-" in _ackproof("clean").stdout
    assert not _mine(engine, tmp_path)
    assert not list((tmp_path / "runs").glob("*/*/nodes/*/data"))
    assert list((tmp_path / "runs").glob("*/*/nodes/*/server.log"))


def test_without_an_engine_one_line_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "calm.yaml"
    file.write_text(CALM, encoding="utf-8")
    done = _ackproof("run", file, "--out", tmp_path / "runs", DOCKER_HOST=f"unix://{tmp_path}/no.sock")
    assert done.returncode == 254
    [line] = [line for line in done.stderr.splitlines() if "engine" in line]
    assert "no.sock" in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.nightly
def test_containers_of_living_harnesses_are_not_swept(engine: Engine, tmp_path: Path) -> None:
    run = _start_calm(tmp_path, engine)
    try:
        before = {thing.name for thing in _mine(engine, tmp_path)}
        _ackproof("clean")
        assert {thing.name for thing in _mine(engine, tmp_path)} == before
        assert run.poll() is None
    finally:
        run.send_signal(signal.SIGINT)
        run.wait(60)


@pytest.mark.nightly
def test_a_run_whose_engine_dies_says_so_in_a_line(engine: Engine, tmp_path: Path) -> None:
    """The run reaches the engine through a relay, which fails during the load."""
    file = tmp_path / "calm.yaml"
    file.write_text(CALM.replace("120s", "4s"), encoding="utf-8")
    with Relay(tmp_path / "relay.sock") as relay:
        run = subprocess.Popen(
            [ACKPROOF, "run", file, "--out", tmp_path / "runs"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "NO_COLOR": "1", "DOCKER_HOST": f"unix://{relay.address}"},
        )
        await_run(run, lambda: any((tmp_path / "runs").glob("*/*/clients/*")), "clients")
        relay.die()
        said = run.communicate(timeout=180)[0]
    assert run.returncode == 255
    assert "does not answer any more" in said
    assert "Traceback" not in said
    _ackproof("clean")
    assert not _mine(engine, tmp_path)

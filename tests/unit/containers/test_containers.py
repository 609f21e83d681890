"""Tests of containers without an engine: variables, labels, frozen control groups, addresses, the backend `auto`."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.base.processes import OWNER, RUN, RunTag
from ackproof.cluster.backends.choice import resolve
from ackproof.cluster.backends.docker import docker_addresses
from ackproof.cluster.containers import build, presence
from ackproof.cluster.containers.container import is_frozen, settings_as_environment
from ackproof.cluster.containers.engine import LABELS, connect, labels, marks
from ackproof.cluster.properties import settings
from ackproof.experiment.spec import ClusterSpec
from ackproof.network.addresses import Layout
from ackproof.provision.releases import lock

RECIPE = Path(build.__file__).parent / "recipe"


def _tag(folder: Path) -> RunTag:
    return RunTag("run-1", folder, folder / "case")


def test_settings_come_back_from_their_variables(tmp_path: Path) -> None:
    """The image's own start script converts the variables back into settings."""
    config = {
        "num.io.threads": "2",
        "a_b.c-d": "x=y z",
        "listeners": "INTERNAL://10.0.0.1:9092,EXTERNAL://10.0.0.1:9094",
        "path": "C:\\x",
    }
    script = (RECIPE / "run").read_text(encoding="utf-8")
    reading = re.search(r"from_environment=\$\((awk .*?)\n\}'\)", script, re.DOTALL)
    assert reading is not None
    done = subprocess.run(
        ["sh", "-c", reading[1] + "\n}'"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "KAFKA_OPTS": "-Dno", **settings_as_environment(config)},
    )
    read = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert read == {**config, "path": "C:\\\\x"}


@pytest.mark.parametrize("key", ["upper.Case", "a..b", "a._b", "a b"])
def test_a_setting_that_no_variable_can_carry_is_refused(key: str) -> None:
    with pytest.raises(BadInput, match="cannot be given to a container"):
        settings_as_environment({key: "1"})


def test_every_setting_of_a_node_fits_into_variables() -> None:
    addresses = docker_addresses(7, (1, 2, 3), (101,))
    layout = Layout(ClusterSpec(), addresses)
    for node in (1, 2, 3, 101):
        made = settings_as_environment(settings(layout, node, "data"))
        assert made["KAFKA_NODE_ID"] == str(node)
    values = settings(layout, 1, "data")
    assert values["listeners"] == "INTERNAL://10.213.7.1:9092,EXTERNAL://10.213.7.1:9094"
    assert values["advertised.listeners"].endswith(f"EXTERNAL://127.0.0.1:{addresses.client(1).port}")


def test_a_port_that_somebody_listens_at_is_passed_over() -> None:
    first = docker_addresses(9, (1,), ()).client(1)
    with socket.socket() as taken:
        taken.bind(first)
        taken.listen()
        assert docker_addresses(9, (1,), ()).client(1) != first


def test_too_few_free_ports_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ackproof.cluster.backends.docker.is_free", lambda address: False)
    with pytest.raises(BadInput, match="too few ports"):
        docker_addresses(9, (1,), ())


def test_labels_say_whose_it_is(tmp_path: Path) -> None:
    read = marks(labels(_tag(tmp_path), "broker-1"))
    assert read is not None
    assert (read.run_id, read.role, read.owner_alive) == ("run-1", "broker-1", True)
    assert read.directory == tmp_path / "case"
    dead = marks({**labels(_tag(tmp_path), "broker-1"), LABELS[OWNER]: f"{os.getpid()}:1"})
    assert dead is not None
    assert not dead.owner_alive
    assert marks({LABELS[RUN]: "run-1"}) is None
    assert marks(None) is None


@pytest.mark.parametrize(
    ("line", "file", "text", "frozen"),
    [
        ("5:freezer:/docker/abc", "freezer/docker/abc/freezer.state", "FROZEN\n", True),
        ("5:freezer:/docker/abc", "freezer/docker/abc/freezer.state", "FREEZING\n", False),
        ("5:freezer:/docker/abc", "freezer/docker/abc/freezer.state", "THAWED\n", False),
        ("0::/docker/abc", "docker/abc/cgroup.events", "populated 1\nfrozen 1\n", True),
        ("0::/docker/abc", "docker/abc/cgroup.events", "populated 1\nfrozen 0\n", False),
    ],
)
def test_the_kernel_says_whether_a_group_is_frozen(
    tmp_path: Path, line: str, file: str, text: str, frozen: bool
) -> None:
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "cgroup").write_text(f"9:cpu:/x\n{line}\n", encoding="utf-8")
    state = tmp_path / "groups" / file
    state.parent.mkdir(parents=True)
    state.write_text(text, encoding="utf-8")
    assert is_frozen(7, tmp_path / "proc", tmp_path / "groups") is frozen
    assert not is_frozen(8, tmp_path / "proc", tmp_path / "groups")


def test_without_an_engine_auto_means_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    assert not presence.listening()
    assert resolve("auto") == "process"
    assert resolve("docker") == "docker"
    with pytest.raises(BadInput, match=r"no\.sock") as error:
        connect()
    assert "\n" not in str(error.value)


def test_somebody_who_listens_and_is_no_engine_is_not_mistaken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(tmp_path / "s"))
        stranger.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
        monkeypatch.setattr("ackproof.cluster.containers.engine.TIMEOUT_S", 1)
        assert presence.listening()
        assert resolve("auto") == "process"


def test_recipes_tell_versions_apart() -> None:
    one, another = lock("4.3.1"), lock("4.3.0")
    assert one is not None and another is not None
    assert build.recipe_of(one.digest) != build.recipe_of(another.digest)

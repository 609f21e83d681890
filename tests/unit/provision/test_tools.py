"""Tests of the tools besides Kafka: where each comes from, its checksum, and the message if it is missing."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from ackproof.base.errors import BadInput, MissingTool
from ackproof.cluster.backends.choice import prepare
from ackproof.experiment.backends import Need
from ackproof.experiment.spec import ClusterSpec
from ackproof.provision import tools
from ackproof.provision.progress import ProvisionFailed
from ackproof.rundir.metrics import METRICS

from .conftest import Machine

EXPORTER = f"jmx_prometheus_javaagent-{tools.EXPORTER_VERSION}.jar"


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, which is the only one on the PATH. The cache is empty too."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("ACKPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tools, "_GO_AT", str(folder))
    return folder


def program(folder: Path, name: str, text: str = "exit 0") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_toxiproxy_is_asked_for_in_one_line_and_only_where_links_are_broken(empty_path: Path) -> None:
    with pytest.raises(MissingTool) as caught:
        prepare("process", frozenset({Need.BROKER_LINKS}), ClusterSpec())
    said = str(caught.value)
    assert "\n" not in said and "2.12.0" in said
    assert "toxiproxy-server is missing" in said and "Go 1.23" in said
    prepare("process", frozenset(), ClusterSpec())


def test_toxiproxy_on_the_path_comes_first(empty_path: Path) -> None:
    there = program(empty_path, "toxiproxy-server")
    assert tools.toxiproxy_server() == there
    assert tools.locate_toxiproxy() == str(there)
    prepare("process", frozenset({Need.CLIENT_LINKS}), ClusterSpec())


def test_go_is_named_before_it_is_used(empty_path: Path) -> None:
    program(empty_path, "go")
    assert "builds 2.12.0" in tools.locate_toxiproxy()


OTHER = f'if [ "$1" = version ]; then echo mod {tools._MODULE} v2.5.0 h1:other; else : > "$GOBIN/server"; fi'


@pytest.mark.parametrize(
    ("go", "why"),
    [
        ("echo no network >&2; exit 1", r"could not build toxiproxy-server .*no network"),
        (OTHER, "not built from the locked files"),
    ],
)
def test_a_build_that_fails_or_is_of_other_sources(empty_path: Path, go: str, why: str) -> None:
    program(empty_path, "go", go)
    with pytest.raises(ProvisionFailed, match=why):
        tools.toxiproxy_server()


def test_without_root_packets_are_refused(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(empty_path, "toxiproxy-server")
    program(empty_path, "nft")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BadInput, match="without root"):
        prepare("process", frozenset({Need.BROKER_LINKS, Need.PACKETS}), ClusterSpec())
    prepare("process", frozenset({Need.BROKER_LINKS}), ClusterSpec())


@pytest.fixture
def agent(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for jar in machine.repository.iterdir():
        jar.unlink()
    (machine.repository / EXPORTER).write_bytes(b"agent")
    monkeypatch.setattr(tools, "EXPORTER_SHA256", hashlib.sha256(b"agent").hexdigest())
    return machine


def test_the_exporter_is_fetched_once_then_offline(agent: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tools.exporter_jar(agent.listen)
    assert (jar.name, jar.read_bytes()) == (EXPORTER, b"agent")
    assert [path.name for path in jar.parent.iterdir()] == [EXPORTER]
    monkeypatch.setenv("PATH", "/nowhere")
    assert tools.exporter_jar() == jar
    assert agent.maven_calls() == 1


def test_another_exporter_is_not_used(agent: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (agent.repository / EXPORTER).write_bytes(b"another")
    with pytest.raises(ProvisionFailed, match="wrong SHA-256"):
        tools.exporter_jar()
    (agent.repository / EXPORTER).write_bytes(b"agent")
    jar = tools.exporter_jar()
    tools._verify_jar.cache_clear()
    jar.chmod(0o644)
    jar.write_bytes(b"changed")
    with pytest.raises(ProvisionFailed, match=f"To fetch it again: rm -r {jar.parent}"):
        tools.exporter_jar()


def test_each_metric_has_a_rule_that_its_bean_alone_matches() -> None:
    settings = YAML(typ="safe").load(tools.exporter_settings())
    assert set(settings["includeObjectNames"]) == {metric.bean for metric in METRICS.values()}
    written = {}
    for metric in METRICS.values():
        domain, _, keys = metric.bean.partition(":")
        written[metric.name] = f"{domain}<{', '.join(keys.split(','))}><>{metric.attribute}: 3.0"
    for rule in settings["rules"]:
        matching = [name for name, text in written.items() if re.match(rule["pattern"], text)]
        assert matching == [rule["name"]]
    assert {rule["name"] for rule in settings["rules"]} == set(METRICS)


def test_no_attribute_that_is_asked_for_is_left_out() -> None:
    left_out = YAML(typ="safe").load(tools.exporter_settings())["excludeObjectNameAttributes"]
    assert all(metric.attribute not in left_out.get(metric.bean, []) for metric in METRICS.values())
    assert "50thPercentile" in left_out[METRICS["isr_shrinks"].bean]

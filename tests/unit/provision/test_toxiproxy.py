"""Where the proxies' server comes from, and what is said where it cannot be had."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput, MissingTool
from ackproof.cluster.backends.choice import prepare
from ackproof.experiment.backends import Need
from ackproof.experiment.spec import ClusterSpec
from ackproof.provision import toxiproxy


@pytest.fixture(autouse=True)
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache, and nothing on its PATH but this folder."""
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("ACKPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(toxiproxy, "_GO_AT", str(tools))
    return tools


def program(folder: Path, name: str, text: str = "exit 0") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_it_is_asked_for_in_one_line_and_only_where_links_are_broken() -> None:
    with pytest.raises(MissingTool) as caught:
        prepare("process", frozenset({Need.BROKER_LINKS}), ClusterSpec())
    assert "\n" not in str(caught.value)
    assert "toxiproxy-server is missing" in str(caught.value)
    assert "2.12.0" in str(caught.value)
    assert "Go 1.23" in str(caught.value)
    prepare("process", frozenset(), ClusterSpec())


def test_the_path_comes_first(nothing: Path) -> None:
    there = program(nothing, "toxiproxy-server")
    assert toxiproxy.toxiproxy_server() == there
    assert toxiproxy.where() == str(there)
    prepare("process", frozenset({Need.CLIENT_LINKS}), ClusterSpec())


def test_go_is_named_before_it_is_used(nothing: Path) -> None:
    program(nothing, "go")
    assert "builds 2.12.0" in toxiproxy.where()


def test_a_build_that_fails_says_why(nothing: Path) -> None:
    program(nothing, "go", "echo no network >&2; exit 1")
    with pytest.raises(Exception, match=r"could not build toxiproxy-server .*no network"):
        toxiproxy.toxiproxy_server()


def test_a_program_of_other_sources_is_refused(nothing: Path) -> None:
    build = f'if [ "$1" = version ]; then echo mod {toxiproxy._MODULE} v2.5.0 h1:other; else : > "$GOBIN/server"; fi'
    program(nothing, "go", build)
    with pytest.raises(Exception, match="as it is locked"):
        toxiproxy.toxiproxy_server()


def test_without_root_packets_are_refused(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(nothing, "toxiproxy-server")
    program(nothing, "nft")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BadInput, match="without root"):
        prepare("process", frozenset({Need.BROKER_LINKS, Need.PACKETS}), ClusterSpec())
    prepare("process", frozenset({Need.BROKER_LINKS}), ClusterSpec())

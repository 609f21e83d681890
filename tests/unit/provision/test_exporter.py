"""The exporter comes from Maven once, matches its SHA-256 always, and tells what is asked of it and no more."""

from __future__ import annotations

import hashlib
import re

import pytest
from ruamel.yaml import YAML

from ackproof.provision import exporter
from ackproof.provision.exporter import NAME, exporter_jar, exporter_settings
from ackproof.provision.failure import ProvisionFailed
from ackproof.rundir.metrics import METRICS

from .conftest import Machine


@pytest.fixture
def agent(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for jar in machine.repository.iterdir():
        jar.unlink()
    (machine.repository / NAME).write_bytes(b"agent")
    monkeypatch.setattr(exporter, "SHA256", hashlib.sha256(b"agent").hexdigest())
    return machine


def test_fetched_once_then_offline(agent: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = exporter_jar(agent.listen)
    assert (jar.name, jar.read_bytes()) == (NAME, b"agent")
    assert [one.name for one in jar.parent.iterdir()] == [NAME]
    monkeypatch.setenv("PATH", "/nowhere")
    assert exporter_jar() == jar
    assert agent.maven_calls() == 1


def test_another_jar_is_not_used(agent: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (agent.repository / NAME).write_bytes(b"another")
    with pytest.raises(ProvisionFailed, match="wrong SHA-256"):
        exporter_jar()
    (agent.repository / NAME).write_bytes(b"agent")
    jar = exporter_jar()
    exporter._check.cache_clear()
    jar.chmod(0o644)
    jar.write_bytes(b"changed")
    with pytest.raises(ProvisionFailed, match=f"To fetch it anew: rm -r {jar.parent}"):
        exporter_jar()


def test_each_metric_has_a_rule_that_its_bean_alone_matches() -> None:
    settings = YAML(typ="safe").load(exporter_settings())
    assert set(settings["includeObjectNames"]) == {one.bean for one in METRICS.values()}
    written = {}
    for one in METRICS.values():
        domain, _, keys = one.bean.partition(":")
        written[one.name] = f"{domain}<{', '.join(keys.split(','))}><>{one.attribute}: 3.0"
    for rule in settings["rules"]:
        matching = [name for name, text in written.items() if re.match(rule["pattern"], text)]
        assert matching == [rule["name"]]
    assert {rule["name"] for rule in settings["rules"]} == set(METRICS)


def test_no_attribute_that_is_asked_for_is_left_out() -> None:
    left_out = YAML(typ="safe").load(exporter_settings())["excludeObjectNameAttributes"]
    assert all(one.attribute not in left_out.get(one.bean, []) for one in METRICS.values())
    assert "50thPercentile" in left_out[METRICS["isr_shrinks"].bean]

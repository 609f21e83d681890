"""Tests of a service under test: identities in its input, output and sink, and experiment files that are refused."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as ClientPartition

from ackproof.base.errors import BadInput
from ackproof.base.processes import RunTag, process_state
from ackproof.base.wait import wait_until
from ackproof.clients.command.output import ask_sink, identity_of
from ackproof.clients.command.service import Service
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.group import ServiceSpec
from ackproof.experiment.triggers import TimeTrigger
from ackproof.faults.clients.client import ClientFault, ClientSelector, KillClient, PauseClient
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import Aim, Injection, make_injection
from ackproof.plan import InvalidExperiment, load
from ackproof.plan.cases import cases
from ackproof.plan.schedule import describe
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.payload import JSON_FRONT, decode, encoder, identity_text, unwrap, wrap
from ackproof.rundir.payload_bulk import BulkDecoder
from mock_kafka import RUN_ID as MOCK_RUN

RUN_ID = "cd" * 8
VALUE = encoder(RUN_ID, 3, "orders", 1, 80)(41)


@dataclass
class Record:
    """Fake of confluent-kafka's message, with the methods that `identity_of` calls."""

    given_value: bytes | None = None
    given_key: bytes | None = None
    given_headers: Mapping[str, bytes] | None = None

    def value(self) -> bytes | None:
        return self.given_value

    def key(self) -> bytes | None:
        return self.given_key

    def headers(self) -> list[tuple[str, bytes]] | None:
        return None if self.given_headers is None else list(self.given_headers.items())


def found(where: str, **given: object) -> tuple[int, int]:
    record = Record(**{f"given_{name}": value for name, value in given.items()})  # type: ignore[arg-type]
    return identity_of(cast("Message", record), where=where, run_id=RUN_ID)


def test_a_json_value_has_the_same_identity_as_the_plain_one() -> None:
    document = wrap(VALUE, "/order/id", identity_text(3, 41))
    assert json.loads(document)["order"] == {"id": "3-41"} and document.startswith(JSON_FRONT)
    assert unwrap(document) == VALUE and decode(RUN_ID, document) == decode(RUN_ID, VALUE)
    bulk = BulkDecoder(RUN_ID, ["orders"])([document, document])
    assert bulk.seq.tolist() == [41, 41] and bulk.intact.all()
    damaged = document.replace(b"A", b"B", 1)
    assert not decode(RUN_ID, damaged).intact
    assert not BulkDecoder(RUN_ID, ["orders"])([damaged]).intact.any()
    for odd in (JSON_FRONT, JSON_FRONT + b"%%", b"{}"):
        assert unwrap(odd) == odd and decode(RUN_ID, odd).producer == -1


def test_an_identity_is_found_where_the_service_keeps_it() -> None:
    assert found("value", value=VALUE) == (3, 41)
    assert found("header", headers={"ackproof": b"3-41"}) == (3, 41)
    assert found("key", key=b"3-41") == (3, 41)
    assert found("/order/id", value=b'{"order": {"id": "3-41"}}') == (3, 41)
    assert found("/0/id", value=b'[{"id": "3-41"}]') == (3, 41)


@pytest.mark.parametrize(
    ("where", "given"),
    [
        ("value", {"value": VALUE[:-1] + b"x"}),
        ("value", {"value": None}),
        ("header", {"headers": {"other": b"3-41"}}),
        ("header", {}),
        ("key", {"key": b"3"}),
        ("key", {"key": b"x-y"}),
        ("key", {"key": b"3-" + b"9" * 30}),
        ("/order/id", {"value": b"{"}),
        ("/order/id", {"value": b'{"order": 5}'}),
        ("/order/id", {"value": b'{"order": {"id": 5}}'}),
        ("/order/id", {"value": None}),
    ],
)
def test_what_is_no_identity_is_none(where: str, given: dict[str, object]) -> None:
    assert found(where, **given) == (-1, -1)


def test_a_sink_prints_one_identity_a_line() -> None:
    rows = ask_sink([sys.executable, "-c", "print('0-1\\n\\nodd\\n2-30')"])
    assert rows == [(0, 1, -1, 0), (-1, -1, -1, 1), (2, 30, -1, 2)]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["/no/such/program"], "did not answer"),
        ([sys.executable, "-c", "import sys; sys.exit('no store')"], "no store"),
    ],
)
def test_a_sink_that_fails_is_said(command: list[str], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        ask_sink(command)


SERVICE = "service: {{command: [./x, a], input: orders, {rest}}}"


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        (SERVICE.format(rest="output: orders"), "the harness creates the output"),
        (SERVICE.format(rest="level: 1"), "write either output or sink"),
        (SERVICE.format(rest="output: c, sink: [x]"), "write either output or sink"),
        (SERVICE.format(rest="output: c, level: 4"), "expected at most 3"),
        (SERVICE.format(rest="output: c, identity: body"), "expected value, header, key or"),
        (SERVICE.format(rest="output: c, identity: {json: id}"), "begins with a slash"),
        (SERVICE.format(rest="output: c, identity: key") + ", producers: {keys: 3}", "producers have keys"),
        (
            SERVICE.format(rest="output: c, identity: key") + ", producers: {client: java}",
            "use client: librdkafka for the producers",
        ),
        (SERVICE.format(rest="output: c") + ", producers: {topics: [other]}", "no producer writes to orders"),
    ],
)
def test_what_a_service_cannot_be_judged_with_is_refused(tmp_path: Path, workload: str, why: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"name: x\ntopics: {{orders: {{}}, other: {{}}}}\nworkload: {{{workload}}}\n")
    with pytest.raises(InvalidExperiment) as caught:
        load(file)
    assert any(why in problem.message for problem in caught.value.problems), caught.value.problems


def test_what_kafka_removes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    text = SERVICE.format(rest="output: c")
    file.write_text(f'name: x\ntopics: {{orders: {{config: {{retention.ms: "5"}}}}}}\nworkload: {{{text}}}\n')
    with pytest.raises(InvalidExperiment, match="looks as if it was dropped"):
        load(file)


def test_a_plan_shows_the_service(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    text = SERVICE.format(rest="output: copies, identity: {json: /a}, promise: exactly-once, count: 2")
    file.write_text(f"name: x\ntopics: {{orders: {{}}}}\nworkload: {{{text}}}\n")
    case = cases(load(file))[0]
    assert "  service: 2 × ./x, from orders to copies, exactly-once, level 0" in describe(case)
    assert case.experiment.data()["workload"]["service"]["identity"] == {"json": "/a"}  # type: ignore[index,call-overload]


WRAPPER = [sys.executable, "-c", "import subprocess, sys; sys.exit(subprocess.call(['sleep', '60']))"]
"""Command of a program that starts another program and waits for it, as shell scripts do."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    spec = ServiceSpec.model_validate({"command": WRAPPER, "input": "orders", "output": "copies", "count": 2})
    started = Service(
        spec, CaseDir(tmp_path), RunTag(f"service-{tmp_path.name}", tmp_path, tmp_path), "b:1", 1
    )
    started.start()
    try:
        for name in ("s0", "s1"):
            wait_until(lambda name=name: len(started.members(name)) == 2, what="both to run", timeout_s=20)  # type: ignore[misc]
        yield started
    finally:
        for member in [member for one in started.instances for member in started.members(one.id)]:
            os.kill(member.pid, signal.SIGKILL)
        ended = started.stop()
    assert len(ended) == len(started.instances)


def _inject(fault: type[ClientFault], service: Service) -> Injection[Any]:
    made = fault(number=1, trigger=TimeTrigger(0.0), client=ClientSelector.parse("service(0)"))
    return make_injection(made, Aim(), FaultContext(cast("Cluster", None), Event(), service=service))


def test_a_kill_hits_what_a_wrapper_started_and_another_instance_takes_its_place(service: Service) -> None:
    before = {member.pid for member in service.members("s0")}
    kill = _inject(KillClient, service)
    kill.inject()
    assert all(f"pid {pid} is gone" in kill.confirm() for pid in before)
    assert service.members("s0") == [] and len(service.members("s1")) == 2
    assert list(service.dead()) == [] and service.successor("s0") is None
    assert kill.heal() == "started s2"
    assert kill.confirm_healed() == "its process and output: s2 is at work"
    assert service.successor("s0") == "s2"
    assert service.replace("s0") == "s2"  # another fault was first


def test_a_pause_stops_what_a_wrapper_started(service: Service) -> None:
    pause = _inject(PauseClient, service)
    pause.inject()
    assert pause.confirm().count("are stopped and none ran") == 2
    states = [process_state(member.pid, member.started) for member in service.members("s0")]
    assert states == ["stopped", "stopped"]
    pause.heal()
    pause.confirm_healed()


def test_a_fault_of_a_service_needs_one(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    text = "name: x\ntopics: {orders: {}}\nfaults: [{kill_client: {client: services}, at: 1s}]\n"
    file.write_text(text)
    with pytest.raises(InvalidExperiment, match="services does not exist"):
        load(file)


@pytest.mark.parametrize(
    ("where", "rate"),
    [
        ("value", "500/s"),
        ("header", "20000/s"),
        ("key", "500/s"),
        ("/order/id", "20000/s"),
        *(
            pytest.param(where, rate, marks=pytest.mark.nightly)
            for where, rate in (
                ("value", "20000/s"),
                ("header", "500/s"),
                ("key", "20000/s"),
                ("/order/id", "500/s"),
            )
        ),
    ],
)
def test_producers_write_identities_where_a_service_keeps_them(
    where: str, rate: str, kafka: Any, load: Any
) -> None:
    """Readers and ledgers identify the records in each case, whether reports come one by one or many at a time."""
    service = {"command": ["x"], "input": "orders", "output": "copies", "identity": where}
    load = load(kafka, topics={"orders": 2}, rate=rate, live=1, service=service)
    load.workload.start()
    load.until(lambda: load.workload.acked() >= 60 and load.workload.read() >= 60, "reads")
    load.workload.stop()
    produced = {row["seq"]: row for row in load.produced().to_pylist()}
    assert {row["outcome"] for row in produced.values()} == {Outcome.ACKED}
    reads = load.consumed().to_pylist()
    assert sorted(row["seq"] for row in reads) == sorted(produced)
    assert all(row["intact"] and row["producer"] == 0 for row in reads)
    client = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "t"})
    client.assign([ClientPartition("orders", 0, 0)])
    found = client.consume(20, 10)
    client.close()
    seqs = {row["offset"]: row["seq"] for row in reads if row["partition"] == 0}
    assert len(found) == 20
    for message in found:
        assert identity_of(message, where=where, run_id=MOCK_RUN) == (0, seqs[message.offset()])

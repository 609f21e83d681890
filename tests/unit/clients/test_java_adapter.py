"""Tests of the Java client's adapter that start no Java: properties file, configuration, refused settings, journals as
ledgers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from ackproof.base.errors import BadInput
from ackproof.clients.contract import SETTINGS, ReaderSettings
from ackproof.clients.conversion import JournalConverter, salvage
from ackproof.clients.java.adapter import (
    member_config,
    objection,
    output_config,
    producer_config,
    reader_config,
    resend_after_s,
    security_text,
)
from ackproof.clients.java.security import security_settings
from ackproof.clients.journal import ROW
from ackproof.clients.launch import verify_config
from ackproof.experiment.client import ClientChoice
from ackproof.experiment.group import GroupSpec
from ackproof.experiment.kafka import DEFAULT, KafkaBuild
from ackproof.experiment.spec import ConsumerSpec, ProducerSpec
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.ledger import read_parts
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import has_end
from ackproof.rundir.schema import CONSUMED

PLACES = (TopicPartition("a", 0), TopicPartition("b", 0))
ORIGIN = 1_000
ROWS = 8


def test_the_word_of_a_file() -> None:
    named = ProducerSpec.model_validate({"client": {"java": "3.9.2"}})
    assert (named.client.library, named.client.release_for(KafkaBuild("4.4.0"))) == ("java", "3.9.2")
    assert named.model_dump(mode="json")["client"] == {"java": "3.9.2"}
    plain = ConsumerSpec.model_validate({"client": "java"})
    assert plain.client.release_for(KafkaBuild("4.3.1")) == "4.3.1"
    assert plain.client.release_for(KafkaBuild("4.4.9", path="build")) == DEFAULT
    assert ProducerSpec().client == ClientChoice() and ClientChoice().release_for(KafkaBuild("4.3.1")) == ""


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("Java", "expected librdkafka, java"),
        ({"java": 4.1}, "a release is a text in quotes"),
        ({"java": "4.1"}, "expected a full version"),
        ({"java": "2.8.0"}, "not supported"),
        ({"librdkafka": "2.0.0"}, "the installed confluent-kafka"),
        (7, "expected librdkafka, java"),
    ],
)
def test_another_word_is_refused(value: object, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        ProducerSpec.model_validate({"client": value})


def test_a_producer_has_room_for_its_requests_within_the_delivery_timeout() -> None:
    config = producer_config(ProducerSpec(acks="1", delivery_timeout=7.0, linger=0.1), "h:1", "p0")
    assert (config["delivery.timeout.ms"], config["request.timeout.ms"], config["linger.ms"]) == (
        7000,
        6900,
        100,
    )
    assert objection("producer", config) is None
    assert objection("consumer", reader_config({"client.rack": "a"}, "read_committed", "h:1", "r0")) is None


@pytest.mark.parametrize(
    ("producer", "why"),
    [
        ({"config": {"socket.timeout.ms": "7"}}, 'no setting "socket.timeout.ms"'),
        ({"config": {"max.request.size": "much"}}, '"max.request.size" is a whole number'),
        ({"config": {"enable.metrics.push": "perhaps"}}, '"enable.metrics.push" is true or false'),
        ({"request_timeout": 40.0}, '"request.timeout.ms" and linger.ms are 40005 together'),
    ],
)
def test_what_java_refuses(producer: dict, why: str) -> None:
    said = objection("producer", producer_config(ProducerSpec.model_validate(producer), "h:1", "p0"))
    assert said is not None and why in said


SCRAM = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "me",
    "sasl.password": 'a "quoted\\ one',
    "ssl.endpoint.identification.algorithm": "none",
    "socket.keepalive.enable": "true",
}


def test_security_settings_have_the_names_of_java(tmp_path: Path) -> None:
    pem = tmp_path / "ca.pem"
    pem.write_text("-----BEGIN\nx\n", encoding="ascii")
    found = security_settings({**SCRAM, "ssl.ca.location": str(pem)})
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="me" password="a \\"quoted\\\\ one";',
        "ssl.endpoint.identification.algorithm": "",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "-----BEGIN\nx\n",
    }
    assert "ssl.truststore.certificates=-----BEGIN\\nx\\n\n" in security_text(
        {**SCRAM, "ssl.ca.location": str(pem)}
    )
    assert security_text({}) == ""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs further jars; use client: librdkafka"),
        ({"enable.ssl.certificate.verification": "false"}, "always verifies certificates"),
        ({"ssl.ca.location": "/nowhere"}, "ssl.ca.location: cannot be read: No such file"),
    ],
)
def test_security_that_java_cannot_do_is_refused(changed: dict[str, str], why: str) -> None:
    config = producer_config(ProducerSpec(), "h:1", "p0")
    with pytest.raises(BadInput, match=f"workload.producers.client: .*{why}"):
        verify_config("java", "producer", config, {**SCRAM, **changed})
    verify_config("java", "producer", config, SCRAM)


@pytest.mark.parametrize(
    ("producer", "seconds"),
    [({}, 0), ({"retries": 3}, 0), ({"retries": 0, "idempotence": True}, 0), ({"retries": 0}, math.inf)],
)
def test_without_retries_a_record_is_sent_once(producer: dict, seconds: float) -> None:
    assert resend_after_s(producer_config(ProducerSpec.model_validate(producer), "", "")) == seconds


def reader(run: CaseDir) -> ReaderSettings:
    settings = ReaderSettings(
        client="r0",
        process="r0",
        run_id="00" * 8,
        case_dir=str(run.path),
        places=PLACES,
        origin_ns=ORIGIN,
        config={},
        library="java",
        library_version="4.4.0",
        reader=0,
        isolation="read_committed",
        flush_rows=ROWS,
    )
    (run.clients / "r0").mkdir(parents=True)
    settings.write(run.clients / "r0" / SETTINGS)
    return settings


def write_journal(run: CaseDir, count: int) -> None:
    """Write the journal that a Java reader leaves after `count` reads."""
    folder = run.journal / "r0"
    folder.mkdir(parents=True)
    for index in range(-(-count // ROWS)):
        rows = np.zeros(ROWS, ROW)
        for at in range(min(ROWS, count - index * ROWS)):
            read = index * ROWS + at
            rows[at] = (ORIGIN + read + 1, read % 2, 3, read // 2, -1, 5, read, read % 3, 0, 99, read != 4)
        head = b"AKPREAD1" + np.array([index * ROWS, ROWS], "=i8").tobytes() + bytes(40)
        (folder / f"reads-{index:06d}.rows").write_bytes(head + rows.tobytes())


@pytest.mark.parametrize("count", [1, ROWS, 2 * ROWS + 3])
def test_the_journal_of_a_reader_becomes_its_ledger(tmp_path: Path, count: int) -> None:
    run = CaseDir(tmp_path)
    settings = reader(run)
    write_journal(run, count)
    assert JournalConverter(run, list).close_ledger(settings) == []
    table = read_parts(run.consumed, CONSUMED).sort_by("read_seq")
    rows = table.to_pylist()
    assert [row["read_seq"] for row in rows] == [row["seq"] for row in rows] == list(range(count))
    assert [row["read_ns"] for row in rows] == list(range(1, count + 1))
    assert [(row["topic"], row["offset"]) for row in rows] == [("ab"[n % 2], n // 2) for n in range(count)]
    assert [row["origin_topic"] for row in rows] == [("", "a", "b")[n % 3] for n in range(count)]
    assert [row["seq"] for row in rows if not row["intact"]] == ([4] if count > 4 else [])
    assert {(row["assignment"], row["producer"], row["leader_epoch"]) for row in rows} == {(3, 5, -1)}
    assert has_end(run.consumed / client_folder("r0"))
    assert not (run.journal / "r0").exists()


def test_what_is_torn_leaves_the_ledger_open(tmp_path: Path) -> None:
    run = CaseDir(tmp_path)
    settings = reader(run)
    write_journal(run, 2 * ROWS)
    torn = run.journal / "r0" / "reads-000001.rows"
    torn.write_bytes(torn.read_bytes()[:50])
    (refused,) = JournalConverter(run, list).close_ledger(settings)
    assert "less than a header" in refused
    assert read_parts(run.consumed, CONSUMED).num_rows == ROWS
    assert not has_end(run.consumed / client_folder("r0"))
    assert len(salvage(run)[1]) == 1


@pytest.mark.parametrize(
    ("fields", "there", "absent"),
    [
        ({"assignor": "roundrobin"}, "session.timeout.ms", "group.remote.assignor"),
        ({"protocol": "consumer"}, "group.remote.assignor", "session.timeout.ms"),
        ({"commit": "auto", "static": True}, "group.instance.id", "group.remote.assignor"),
    ],
)
def test_a_member_is_configured_by_its_protocol(fields: dict[str, object], there: str, absent: str) -> None:
    spec = GroupSpec.model_validate({"batch": 7, **fields})
    config = member_config(spec, "h:1", "g0", "billing", "one" if spec.static else "")
    assert there in config and absent not in config
    assert config["enable.auto.commit"] == str(spec.commit == "auto").lower()
    assert (config["max.poll.records"], config["auto.offset.reset"]) == (7, "none")
    assert objection("consumer", config) is None
    assert ("partition.assignment.strategy" in config) == (spec.protocol == "classic")


def test_the_output_of_a_transactional_member() -> None:
    plain, transactional = output_config("h:1", "g0"), output_config("h:1", "g0", "t")
    assert "transactional.id" not in plain and transactional["transactional.id"] == "t"
    assert objection("producer", plain) is None and objection("producer", transactional) is None


def test_a_member_refuses_what_only_the_harness_may_set() -> None:
    with pytest.raises(BadInput, match=r"auto\.offset\.reset"):
        member_config(GroupSpec(config={"auto.offset.reset": "latest"}), "h:1", "g0", "billing")

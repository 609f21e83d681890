"""Tests of the tables of client libraries: their page, error codes, and a row for each setting of a producer."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, libversion

from ackproof.clients.command import adapter as command_adapter
from ackproof.clients.contract import ClientAdapter, client_adapter
from ackproof.clients.java import adapter as java_adapter
from ackproof.clients.librdkafka import adapter as librdkafka_adapter
from ackproof.experiment.client import COMMAND, JAVA
from ackproof.rundir.anomalies import TABLE
from ackproof.rundir.anomaly_terms import RuledBy
from ackproof.rundir.guarantees import (
    LIBRARIES,
    LIBRDKAFKA,
    AutoCommit,
    Fact,
    Holds,
    Use,
    markdown,
    taken_back_codes,
)

DOCS = Path(__file__).parents[3] / "docs" / "client-libraries.md"
RULED = [row.name for row in TABLE.values() if row.ruled_by in (RuledBy.RETRIES, RuledBy.ORDER)]


def test_the_page_is_that_of_the_tables() -> None:
    assert DOCS.read_text() == markdown()


def test_every_library_has_an_adapter() -> None:
    """An adapter is registered by its folder alone. The annotation lets mypy compare each with the protocol."""
    adapters: dict[str, ClientAdapter] = {
        LIBRDKAFKA: librdkafka_adapter,
        JAVA: java_adapter,
        COMMAND: command_adapter,
    }
    assert {name: client_adapter(name) for name in LIBRARIES} == adapters
    with pytest.raises(KeyError):
        client_adapter("none")


def test_the_library_is_the_installed_one() -> None:
    """The table names the installed version of librdkafka. Check its source and tests before naming another."""
    assert libversion()[0] in LIBRARIES[LIBRDKAFKA].title


def test_the_codes_are_those_of_the_library() -> None:
    known = {code for name in dir(KafkaError) if isinstance(code := getattr(KafkaError, name), int)}
    # confluent-kafka names neither INVALID_RECORD nor the two of librdkafka
    assert {row.code for row in LIBRARIES[LIBRDKAFKA].errors} - known <= {87, -137, -166}


@pytest.mark.parametrize(
    ("anomaly", "idempotence", "retries", "acks"),
    list(product(RULED, (False, True), (False, True), ("0", "1", "all"))),
)
@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_every_setting_of_a_producer_has_a_row(
    anomaly: str, idempotence: bool, retries: bool, acks: str, library: str
) -> None:
    row = LIBRARIES[library].guarantee(anomaly, idempotence=idempotence, retries=retries, acks=acks)
    assert row.holds is not Holds.REFUTED
    assert bool(row.excuses) is (row.holds is Holds.EXCEPT)


def test_each_row_names_its_source_and_its_attack() -> None:
    for library in LIBRARIES.values():
        assert all(row.source and row.attack for row in library.guarantees)
        assert all(row.why for row in library.errors)


def test_every_library_has_each_fact_with_its_source() -> None:
    for library in LIBRARIES.values():
        assert library.facts.keys() == library.sources.keys() == set(Fact)
        assert all(library.sources.values())
        assert AutoCommit(library.facts[Fact.AUTO_COMMIT]) and library.single_commit_ns(()) >= 0
        assert library.facts[Fact.REQUEST_TIMEOUT] in library.timeouts_ms
    assert set(Use) <= LIBRARIES[JAVA].cannot.keys() and not LIBRARIES[LIBRDKAFKA].cannot


def test_what_a_library_calls_its_own_code_is_taken_back_by_no_other() -> None:
    assert set(taken_back_codes(LIBRDKAFKA)) == {KafkaError._PURGE_INFLIGHT, KafkaError._PURGE_QUEUE}
    assert taken_back_codes("") == taken_back_codes("ackproof_simulator") == taken_back_codes(LIBRDKAFKA)
    assert taken_back_codes(JAVA) == (-1002,)
    assert taken_back_codes(COMMAND) == taken_back_codes("aiokafka") == ()

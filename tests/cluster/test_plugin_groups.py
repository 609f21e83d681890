"""Tests of `ledger.assert_processed`: the example of docs/pytest.md, and groups of each library that lose or repeat
work."""

from __future__ import annotations

import asyncio
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from ackproof.base.errors import BadInput, EvidenceMissing
from ackproof.testing.cluster import KafkaCluster
from ackproof.testing.ledger import Ledger

with warnings.catch_warnings(action="ignore"):  # on Python 3.11 kafka-python calls what is deprecated there
    from kafka import KafkaConsumer

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]
PAGE = Path(__file__).parents[2] / "docs" / "pytest.md"
ORDERS = {"orders": {"partitions": 2}}
COUNT = 20


def example() -> Any:
    """Return the example test in docs/pytest.md that calls assert_processed."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if "assert_processed" in block]
    names: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), names)
    return names["test_every_order_is_billed"]


@pytest.mark.kafka(topics={"orders": {}}, brokers=1, combined=True)
def test_the_example_of_the_page_finds_the_dropped_order(kafka_cluster: KafkaCluster, ledger: Ledger) -> None:
    with pytest.raises(AssertionError) as caught:
        example()(kafka_cluster, ledger)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("group billing did not process every record at least once (committed offsets:")
    assert lines[1] == "committed past, handed over, not processed: 1"
    assert "value b'order-7' (p0 #7" in lines[2]
    ledger.assert_processed("billing", "at most once", caught_up=True)
    with pytest.raises(
        EvidenceMissing, match="no consumer of this ledger is in group shipping, but in billing"
    ):
        ledger.assert_processed("shipping")


def settings(cluster: KafkaCluster, group: str) -> dict[str, Any]:
    own = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    return {"bootstrap.servers": cluster.bootstrap, **own}


async def read_by_aiokafka(cluster: KafkaCluster, ledger: Ledger, count: int) -> None:
    given = AIOKafkaConsumer(
        "orders", bootstrap_servers=cluster.bootstrap, group_id="aio", auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip
    async with ledger.consumer(given) as consumer:
        for _ in range(count):
            await consumer.getone()
        await consumer.commit()


def read_by_kafka_python(cluster: KafkaCluster, ledger: Ledger, count: int) -> None:
    given = KafkaConsumer(
        "orders", bootstrap_servers=cluster.bootstrap, group_id="python", auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip
    consumer = ledger.consumer(given)
    for _ in range(count):
        next(consumer)
    consumer.commit()
    consumer.close()


@pytest.mark.kafka(topics=ORDERS, brokers=1, combined=True)
def test_groups_of_each_library(kafka_cluster: KafkaCluster, ledger: Ledger) -> None:
    producer = ledger.producer({"bootstrap.servers": kafka_cluster.bootstrap})
    for number in range(COUNT):
        producer.produce("orders", f"order-{number}", partition=number % 2)
    producer.flush()
    read_by_kafka_python(kafka_cluster, ledger, COUNT)
    asyncio.run(read_by_aiokafka(kafka_cluster, ledger, COUNT - 4))
    for commits in (
        False,
        True,
    ):  # the first member leaves without a commit, and the second is handed all again
        consumer = ledger.consumer(settings(kafka_cluster, "confluent"))
        consumer.subscribe(["orders"])
        last = [message for _ in range(COUNT) if (message := consumer.poll(30)) is not None][-1]
        if commits:
            consumer.commit(asynchronous=False)
        consumer.close()

    for group in ("python", "aio", "confluent"):
        ledger.assert_processed(group)
    for group in ("python", "aio"):
        ledger.assert_processed(group, "exactly once")
    with pytest.raises(AssertionError, match=f"processed more than once: {COUNT}"):
        ledger.assert_processed("confluent", "exactly once")
    with pytest.raises(AssertionError, match="not committed past: 4"):
        ledger.assert_processed("aio", caught_up=True)
    with pytest.raises(
        BadInput, match="name the group: consumers of this ledger are in aio, confluent, python"
    ):
        ledger.processed(last)
    ledger.processed(last, group="confluent")
    with pytest.raises(AssertionError, match=f"committed past, handed over, not processed: {COUNT - 1}"):
        ledger.assert_processed("confluent")

"""A group member as a user may write it: ``python command_member.py SETTINGS``, with the events of docs/clients.md.

It processes at least once (`commit: after`): it commits after each poll, and drops nothing.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ackproof.rundir.payload import decode

settings = json.loads(sys.argv[1])
stop = threading.Event()


def tell(event: str, **fields: Any) -> None:
    print(json.dumps({"e": event, "t": time.monotonic_ns(), **fields}), flush=True)


def obey() -> None:
    for line in sys.stdin:
        if line == "stop\n":
            stop.set()


def pairs(partitions: list[TopicPartition]) -> list[list[object]]:
    return [[part.topic, part.partition] for part in partitions]


def main() -> None:
    threading.Thread(target=obey, daemon=True).start()
    own = {"bootstrap.servers": settings["bootstrap"], "group.id": settings["group"]}
    config = {**settings["config"], **own, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    consumer.subscribe(
        settings["topics"],
        on_assign=lambda _, parts: tell("assigned", ps=pairs(parts)),
        on_revoke=lambda _, parts: tell("revoked", ps=pairs(parts)),
        on_lost=lambda _, parts: tell("lost", ps=pairs(parts)),
    )
    tell("started", client=settings["client"])
    polls = commits = 0
    while not stop.is_set():
        records = [record for record in consumer.consume(settings["batch"], 0.2) if record.error() is None]
        for record in records:
            value = record.value() or b""
            found = decode(value[4:12].hex(), value)
            where = {"topic": record.topic(), "p": record.partition(), "o": record.offset()}
            tell("delivered", **where, id=[found.producer, found.seq], batch=polls)
        for record in records:
            tell("processed", topic=record.topic(), p=record.partition(), o=record.offset())
        if records:
            ends = {(record.topic(), record.partition()): (record.offset() or 0) + 1 for record in records}
            tell("commit", n=commits, os=[[*place, end] for place, end in ends.items()])
            try:
                consumer.commit(
                    offsets=[
                        TopicPartition(topic or "", number or 0, end) for (topic, number), end in ends.items()
                    ],
                    asynchronous=False,
                )
                tell("committed", n=commits)
            except KafkaException as error:
                tell("committed", n=commits, x=error.args[0].name())
            polls, commits = polls + 1, commits + 1
    tell("stopping")
    consumer.close()
    tell("closed")


if __name__ == "__main__":
    main()

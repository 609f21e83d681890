"""The output of a service under test, read back: a topic, or a store of its own that a command reads (`sink`)."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from ackproof.base.errors import BadInput, WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.clients.contract import Isolation
from ackproof.cluster.protocol import Cluster
from ackproof.cluster.queries import PartitionEnds
from ackproof.rundir.ledger import write_table
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import HEADER, decode
from ackproof.rundir.service import OUTPUT

LAST_WORDS: Final = 500
"""Number of characters that are kept from the end of a program's standard error."""
_READ_IDLE_S: Final = 15.0
_SINK_S: Final = 120.0
_BATCH: Final = 1000
Identity = tuple[int, int]
OutputRow: TypeAlias = tuple[int, int, int, int]
"""Producer, seq, partition and offset of a record of the output; -1: unknown."""
_NOBODY: Final[Identity] = (-1, -1)


def ends(cluster: Cluster, topic: str) -> dict[TopicPartition, int]:
    """Return the high watermark of each partition of a topic; -1 if its leader does not report it. A partition whose
    leader does not answer is missing."""
    return {place: end.high_watermark for place, end in cluster.partition_ends([topic]).items()}


def await_ends(
    cluster: Cluster, topic: str, partitions: int, timeout_s: float
) -> tuple[dict[TopicPartition, int], str]:
    """Wait until every partition's leader answers, and high watermark, last stable offset and log end are equal.

    Return the last high watermark of each partition whose leader answered. Return also, as text, the partitions that
    did not come to rest within `timeout_s` seconds ('' if all did).
    """
    places = [TopicPartition(topic, number) for number in range(partitions)]
    found: dict[TopicPartition, PartitionEnds] = {}

    def restless() -> list[TopicPartition]:
        rest = {
            place for place, end in found.items() if 0 <= end.high_watermark == end.last_stable == end.log_end
        }
        return [place for place in places if place not in rest]

    def look() -> bool:
        found.update(cluster.partition_ends([topic]))
        return not restless()

    with suppress(WaitTimeout):
        wait_until(look, what=f"{topic} to be at rest", timeout_s=timeout_s, interval_s=0.3)
    names = ", ".join(map(str, restless()))
    reached = {place: end.high_watermark for place, end in found.items()}
    return reached, f"not at rest: {names}" if names else ""


def read_output(
    bootstrap: str,
    places: Mapping[TopicPartition, int],
    identify: Callable[[Message], Identity],
    *,
    starts: Mapping[TopicPartition, int] | None = None,
    isolation: Isolation = "read_committed",
    hidden: Mapping[str, str] | None = None,
    idle_s: float = _READ_IDLE_S,
) -> tuple[list[OutputRow], str]:
    """Read each partition of `places` (partition → end offset) until its end offset is reached. Records beyond it that
    arrive while other partitions are read are returned, too.

    `starts`: offset at which a partition's read starts; by default its beginning. `identify` returns producer and seq
    of a record. `hidden`: settings with secrets. `idle_s`: seconds without a record after which the read ends,
    incomplete. Return the rows (producer, seq, partition, offset), and why the read is incomplete ('' if it is
    complete). Raises KafkaException if the consumer cannot be made.
    """
    config = {
        **(hidden or {}),
        "bootstrap.servers": bootstrap,
        "group.id": "ackproof-service-output",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": isolation,
        "enable.partition.eof": True,
    }
    rows: list[OutputRow] = []
    left = {place: end for place, end in places.items() if end > 0}
    consumer = Consumer(config)
    try:
        consumer.assign([ClientPartition(*place, (starts or {}).get(place, 0)) for place in left])
        moved = time.monotonic()
        while left and time.monotonic() - moved < idle_s:
            for message in consumer.consume(_BATCH, 0.2):
                place = TopicPartition(message.topic() or "", message.partition() or 0)
                offset = message.offset() or 0
                error = message.error()
                if error is None:
                    rows.append((*identify(message), place.partition, offset))
                    moved = time.monotonic()
                elif error.code() != KafkaError._PARTITION_EOF:
                    continue  # what stays unread is counted below
                if offset + (error is None) >= left.get(place, 0):
                    left.pop(place, None)
    finally:
        consumer.close()
    unread = ", ".join(f"{place} below {end}" for place, end in sorted(left.items()))
    return rows, f"not read: {unread}" if unread else ""


def read_back(
    cluster: Cluster,
    topic: str,
    partitions: int,
    settle_s: float,
    identify: Callable[[Message], Identity],
    hidden: Mapping[str, str] | None = None,
) -> tuple[list[OutputRow], dict[TopicPartition, int], str]:
    """Wait at most `settle_s` seconds until a topic is at rest (`await_ends`), then read it as `read_output` does.
    Return rows, high watermarks, and why the read is incomplete ('' if it is complete). `partitions`: number of the
    topic's partitions. Nothing is raised if the consumer cannot be made: the reason says so."""
    reached, unrest = await_ends(cluster, topic, partitions, settle_s)
    try:
        rows, unread = read_output(cluster.bootstrap, reached, identify, hidden=hidden)
    except KafkaException as error:
        rows, unread = [], str(error)
    return rows, reached, "; ".join(filter(None, (unrest, unread)))


def write_output(path: Path, rows: Sequence[OutputRow]) -> None:
    """Write the rows of a service's output to a Parquet file with schema `rundir.service.OUTPUT`. Raises OSError if it
    cannot be written."""
    columns = np.array(rows, np.int64).reshape(len(rows), len(OUTPUT)).T
    arrays = [pa.array(column).cast(kind) for column, kind in zip(columns, OUTPUT.types, strict=True)]
    write_table(path, pa.Table.from_arrays(arrays, schema=OUTPUT))


def ask_sink(command: Sequence[str]) -> list[OutputRow]:
    """Run a command of the user that prints one record identity a line, and return a row per line that is not blank.

    A row is (producer, seq, -1, its own number from 0); producer and seq are -1 if they cannot be read. Raises
    `BadInput` if the command cannot be started, fails, or runs longer than 120 s.
    """
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_SINK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"the sink's command {command[0]} did not answer: {error}") from error
    if answer.returncode:
        raise BadInput(
            f"the sink's command ended with {answer.returncode}: {answer.stderr.strip()[-LAST_WORDS:]}"
        )
    lines = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
    return [(*_parse(line), -1, number) for number, line in enumerate(lines)]


def identity_of(message: Message, *, where: str, run_id: str) -> Identity:
    """Return producer and seq of a record in the output; (-1, -1) if they cannot be read.

    `where` says which part of the record has them: `value`, `header`, `key`, or a JSON pointer into the value
    (`experiment.group.ServiceSpec.identity`). `run_id`: with `value`, records of other runs are not recognized.
    """
    value = message.value()
    if where == "value":
        found = decode(run_id, value)
        return (found.producer, found.seq) if found.intact and found.producer >= 0 else _NOBODY
    if where == "header":
        return _parse(dict(message.headers() or ()).get(HEADER))
    if where == "key":
        return _parse(message.key())
    try:
        document = json.loads(value or b"")
        for name in where.split("/")[1:]:
            document = document[int(name)] if isinstance(document, list) else document[name]
    except (ValueError, KeyError, IndexError, TypeError):
        return _NOBODY
    return _parse(document)


def _parse(text: object) -> Identity:
    """Parse `PRODUCER-SEQ` (`rundir.payload.identity_text`), as text or bytes; (-1, -1) for anything else."""
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    producer, _, seq = text.partition("-") if isinstance(text, str) else ("", "", "")
    if not (producer.isdecimal() and seq.isdecimal() and len(producer) < 9 and len(seq) < 18):
        return _NOBODY
    return int(producer), int(seq)

"""The producer process with three planted lies: it reports an acknowledgement of a record that it never sent, sends a
record twice, and reports a refusal of a record that it sent.

Run in place of the producer: ``python -m lying_producer SETTINGS.json``, with this folder on PYTHONPATH. A file with
the name of a lie in the folder ``LIES`` requests that lie for the next record. Each lie is written to `lies.jsonl` in
the client's folder."""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from pathlib import Path

import confluent_kafka

from ackproof.clients.journal import DONE, OFFSET, RESULT, WORDS, pack_result
from ackproof.clients.librdkafka import producer
from ackproof.rundir.guarantees import REFUSED

LIES = ("lost", "duplicate", "resurrected")
_SEQ = struct.Struct(">q")
_SEQ_AT = 16
_QUEUE_FULL = -184


class LyingProducer(confluent_kafka.Producer):
    """The client library of the lying producer: it sends or reports something else than it is asked to."""

    process: producer.ProducerProcess
    lies: list[Path]

    def produce(  # type: ignore[override]
        self, topic: str, value: bytes, key: None, partition: int, *, timestamp: int
    ) -> None:
        asked = next((path for path in self.lies if path.exists()), None)
        if asked is None:
            super().produce(topic, value, key, partition, timestamp=timestamp)
            return
        asked.unlink()
        (seq,) = _SEQ.unpack_from(value, _SEQ_AT)
        journal, settings = self.process.journal, self.process.settings
        chunk, at = journal.chunks[seq // settings.chunk_rows], seq % settings.chunk_rows * WORDS
        row = chunk.words
        if asked.name == "lost":
            row[at + OFFSET] = -1
            row[at + DONE] = time.monotonic_ns()
            self.process.counters.counts[(seq + settings.first_place) % len(settings.places)] += 1
        elif asked.name == "duplicate":
            super().produce(topic, value, key, partition, timestamp=timestamp)
            super().produce(topic, value, key, partition, timestamp=timestamp, on_delivery=lambda *_: None)
        else:
            super().produce(topic, value, key, partition, timestamp=timestamp, on_delivery=lambda *_: None)
            row[at + RESULT] = pack_result(row[at + RESULT] & 0xFFFFFFFF, _QUEUE_FULL, REFUSED)
            row[at + DONE] = time.monotonic_ns()
            self.process.counters.failed += 1
        with Path("lies.jsonl").open("a", encoding="ascii") as file:
            told = {"lie": asked.name, "seq": seq, "t_ns": time.monotonic_ns() - settings.origin_ns}
            file.write(json.dumps(told) + "\n")


class LyingProcess(producer.ProducerProcess):
    """Producer process with the lying library. Only that of producer 0 lies."""

    def __init__(self, settings: producer.ProducerSettings, folder: Path) -> None:
        super().__init__(settings, folder)
        assert isinstance(self.client, LyingProducer)
        self.client.process = self
        where = Path(os.environ["LIES"])
        self.client.lies = [where / lie for lie in LIES] if settings.producer == 0 else []


if __name__ == "__main__":
    producer.Producer = LyingProducer  # type: ignore[misc]
    producer.ProducerProcess = LyingProcess  # type: ignore[misc]
    sys.exit(producer.main(sys.argv[1:]))

"""What each client process of a run is told, and who it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ackproof.experiment.spec import WorkloadSpec
from ackproof.rundir.documents import Client
from ackproof.rundir.partition import TopicPartition
from ackproof.workload.config import (
    acks_of,
    delivery_timeout_s,
    producer_config,
    reader_config,
    resend_after_s,
)
from ackproof.workload.settings import ProducerSettings, ReaderSettings

FLUSH_ROWS: Final = 1 << 17
FLUSH_S: Final = 1.0


@dataclass(frozen=True)
class Outfit:
    """One client to be started. `write(path, control_fd)` leaves its settings file."""

    client: Client
    module: str
    places: tuple[TopicPartition, ...]
    write: Callable[[Path, int], None]


@dataclass(frozen=True)
class Outfitter:
    """What all clients of a run share. `written`: the places that producers write to."""

    spec: WorkloadSpec
    bootstrap: str
    run_id: str
    case_dir: str
    places: tuple[TopicPartition, ...]
    written: tuple[TopicPartition, ...]
    origin_ns: int
    chunk_rows: int
    seed: int

    def transactional_id(self, slot: int) -> str:
        """The transactional id of a producer's place, '' without transactions.

        Of the place, not of the client: whoever takes it over fences the one before it.
        """
        return f"ackproof-{self.run_id}-{slot}" if self.spec.producers.transaction_size else ""

    def producer(self, number: int, slot: int) -> Outfit:
        """The producer with this number, which takes the place of the `slot`-th."""
        spec = self.spec.producers
        name = f"p{number}"
        config = producer_config(spec, self.bootstrap, name, self.transactional_id(slot))

        def write(path: Path, control_fd: int) -> None:
            ProducerSettings(
                client=name,
                producer=number,
                run_id=self.run_id,
                case_dir=self.case_dir,
                places=self.written,
                first_place=(self.seed + number) % len(self.written),
                value_size=spec.value_size,
                rate=None if spec.rate is None else spec.rate / spec.count,
                acks=acks_of(config),
                resend_after_s=resend_after_s(config),
                delivery_timeout_s=delivery_timeout_s(config),
                origin_ns=self.origin_ns,
                chunk_rows=self.chunk_rows,
                control_fd=control_fd,
                config=config,
                transaction_size=spec.transaction_size or 0,
                abort_share=spec.abort_share,
            ).write(path)

        client = Client(id=name, kind="producer", producer=number, topics=_topics(self.written))
        return Outfit(client, "ackproof.workload.producer", self.written, write)

    def reader(self, number: int) -> Outfit:
        """The live reader with this number."""
        spec = self.spec.consumers
        committed = spec.isolation == "read_committed"
        name = f"r{number}"

        def write(path: Path, control_fd: int) -> None:
            ReaderSettings(
                client=name,
                reader=number,
                run_id=self.run_id,
                case_dir=self.case_dir,
                places=self.places,
                origin_ns=self.origin_ns,
                flush_rows=FLUSH_ROWS,
                flush_s=FLUSH_S,
                control_fd=control_fd,
                config=reader_config(spec.config, spec.isolation, self.bootstrap, name),
                committed=committed and self.spec.producers.transaction_size is not None,
            ).write(path)

        client = Client(
            id=name,
            kind="reader",
            reader=number,
            topics=_topics(self.places),
            isolation=spec.isolation,
        )
        return Outfit(client, "ackproof.workload.reader", self.places, write)


def _topics(places: tuple[TopicPartition, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(place.topic for place in places))

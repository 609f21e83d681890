"""What a client process is told: one JSON file, read without pydantic so that a client starts fast."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self, TypeAlias

from ackproof.rundir.partition import TopicPartition

ConfigValue: TypeAlias = str | int | float | bool

EXIT_CLEAN: Final = 0
EXIT_RESET: Final = 3
"""A producer met a fatal error of its client, closed cleanly, and is to come back as a new producer."""
EXIT_ORPHAN: Final = 4
"""The parent is gone; the client ended at once and left its journal."""


TRANSACTIONS_LOG: Final = "transactions.log"
"""In a producer's journal folder: what became of each transaction (see `txn_log`, which reads it)."""
HIDDEN_FD: Final = "ACKPROOF_HIDDEN_FD"
"""Names the descriptor from which a client reads settings that are written nowhere: those that let it in."""


def hide(settings: Mapping[str, str]) -> int:
    """A descriptor of a file without a name that holds these settings, for a child to inherit."""
    descriptor = os.memfd_create("ackproof-settings", os.MFD_CLOEXEC)
    os.write(descriptor, json.dumps(dict(settings)).encode())
    return descriptor


def hidden() -> dict[str, ConfigValue]:
    """What the parent hid for this process; nothing where it hid nothing."""
    descriptor = os.environ.get(HIDDEN_FD, "")
    if not descriptor:
        return {}
    found: dict[str, ConfigValue] = json.loads(os.pread(int(descriptor), 1 << 20, 0))
    return found


def _places(raw: list[list[str | int]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(str(topic), int(partition)) for topic, partition in raw)


@dataclass(frozen=True)
class ProducerSettings:
    """One producer process. Record `seq` goes to `places[(seq + first_place) % len(places)]`.

    `rate` is this producer's own, in records per second; None is full speed. `resend_after_s`: see `config`.
    `acks` is "0", "1" or "all". `config` goes to librdkafka as it is. `control_fd`: see `control`.
    `transaction_size`: records of a transaction, 0 none; such a share of them is aborted on purpose.
    """

    client: str
    producer: int
    run_id: str
    case_dir: str
    places: tuple[TopicPartition, ...]
    first_place: int
    value_size: int
    rate: float | None
    acks: str
    resend_after_s: float
    delivery_timeout_s: float
    origin_ns: int
    chunk_rows: int
    control_fd: int
    config: dict[str, ConfigValue]
    transaction_size: int = 0
    abort_share: float = 0.0

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read back, with what the parent hid."""
        raw = json.loads(path.read_text(encoding="utf-8"))
        config = {**raw["config"], **hidden()}
        return cls(**{**raw, "places": _places(raw["places"]), "config": config})


@dataclass(frozen=True)
class FinalEnds:
    """Where the final reader reads: for each place, in order, from `starts` until its position reaches `ends`.

    It gives up when no unfinished partition got on for `idle_s` seconds.
    """

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    idle_s: float


@dataclass(frozen=True)
class Share:
    """Process `number` of `of` that are one reader together, each with partitions of its own."""

    number: int = 0
    of: int = 1

    def name(self, client: str) -> str:
        """What the process is called: as the reader, and by its number if there are others."""
        return client if self.of == 1 else f"{client}.{self.number}"

    @property
    def first_read_seq(self) -> int:
        """Where it begins to number its reads: no process of a reader comes to where the next one begins."""
        return self.number << 40

    @property
    def first_part(self) -> int:
        """The number of its first part of the ledger."""
        return self.number * 1_000_000


@dataclass(frozen=True)
class ReaderSettings:
    """One reader process: a live one, or the final one when `final` says where to end.

    `flush_rows` and `flush_s`: a part of the ledger is closed at so many rows, or after so many seconds.
    """

    client: str
    reader: int
    run_id: str
    case_dir: str
    places: tuple[TopicPartition, ...]
    origin_ns: int
    flush_rows: int
    flush_s: float
    control_fd: int
    config: dict[str, ConfigValue]
    final: FinalEnds | None = None
    committed: bool = False
    """It reads transactions at read_committed: its rows say so (their phase)."""
    share: Share = Share()

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read back, with what the parent hid."""
        raw = json.loads(path.read_text(encoding="utf-8"))
        final = raw.pop("final")
        if final is not None:
            final = FinalEnds(tuple(final["starts"]), tuple(final["ends"]), final["idle_s"])
        config = {**raw["config"], **hidden()}
        share = Share(**raw.pop("share"))
        return cls(**{**raw, "places": _places(raw["places"]), "config": config}, final=final, share=share)

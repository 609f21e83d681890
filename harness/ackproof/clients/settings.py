"""What a client process is told: one JSON file, read without pydantic so that a client starts fast."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import ClassVar, Final, Literal, NamedTuple, Self, TypeAlias

from ackproof.rundir.guarantees import LIBRDKAFKA
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import SHARE, ClientLibrary

ConfigValue: TypeAlias = str | int | float | bool
Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]

EXIT_CLEAN: Final = 0
EXIT_RESET: Final = 3
"""A producer met a fatal error of its client, closed cleanly, and is to come back as a new producer."""
EXIT_ORPHAN: Final = 4
"""The parent is gone; the client ended at once and left its journal."""


CHUNK_ROWS: Final = 1 << 17
"""Rows of a producer's part, a power of two: 4 MiB of its journal."""
FLUSH_S: Final = 1.0
"""After so many seconds a reader closes a part of its ledger."""
SETTINGS: Final = "settings.json"
TRANSACTIONS_LOG: Final = "transactions.log"
"""In a producer's folder: what became of each transaction (see `transactions`; `salvage` reads it)."""
CONTROL_FD: Final = "ACKPROOF_CONTROL_FD"
"""Names the descriptor of the pipe over which the parent speaks (see `control`)."""
HIDDEN_FD: Final = "ACKPROOF_HIDDEN_FD"
"""Names the descriptor from which a client reads settings that are written nowhere: those that let it in."""


_RETRY_BACKOFF_MS: Final = 100
_RETRY_BACKOFF_MAX_MS: Final = 1000
_SOCKET_TIMEOUT_MS: Final = 60_000
_JITTER: Final = 0.2
"""librdkafka's defaults, and its RD_KAFKA_RETRY_JITTER_PERCENT."""


def installed_library() -> ClientLibrary:
    """Return the client library of this process and its version."""
    from confluent_kafka import libversion

    return ClientLibrary(LIBRDKAFKA, libversion()[0])


class Rotation(NamedTuple):
    """How clients cut their ledgers: rows of a producer's part; seconds of a reader's, and the most rows of it."""

    chunk_rows: int = CHUNK_ROWS
    flush_s: float = FLUSH_S
    flush_rows: int = CHUNK_ROWS


WHOLE: Final = Rotation()


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


def resend_after_s(config: Mapping[str, ConfigValue]) -> float:
    """The age in seconds below which a record cannot have been sent twice; 0 if it can at any age.

    With retries > 0 or idempotence it can. With retries=0 librdkafka still sends again, uncounted, after the errors
    that `rundir.guarantees` says, some of which can come after an append. But never before retry.backoff.ms, less a
    fifth of jitter (rd_kafka_retry_msgq).
    """
    idempotent = str(config["enable.idempotence"]).lower() == "true"
    if idempotent or str(config.get("retries", "")) != "0":
        return 0.0
    first = float(config.get("retry.backoff.ms", _RETRY_BACKOFF_MS)) * (1 - _JITTER)
    most = float(config.get("retry.backoff.max.ms", _RETRY_BACKOFF_MAX_MS))
    return min(first, most) / 1000


def delivery_timeout_s(config: Mapping[str, ConfigValue]) -> float:
    """How long a record may be tried, in seconds."""
    return float(config["message.timeout.ms"]) / 1000


def socket_timeout_s(config: Mapping[str, ConfigValue]) -> float:
    """How long a request may wait to be sent or answered, in seconds."""
    return float(config.get("socket.timeout.ms", _SOCKET_TIMEOUT_MS)) / 1000


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """What every client is told. `config` goes to librdkafka as it is."""

    MODULE: ClassVar[str]
    client: str
    run_id: str
    case_dir: str
    places: tuple[TopicPartition, ...]
    origin_ns: int
    config: dict[str, ConfigValue]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read back, with what the parent hid. Raises OSError, ValueError, KeyError, TypeError."""
        raw = json.loads(path.read_text(encoding="utf-8"))
        places = tuple(TopicPartition(str(topic), int(partition)) for topic, partition in raw["places"])
        own = {field.name: raw[field.name] for field in fields(cls) if field.name in raw}
        return cls(**{**own, "places": places, "config": {**raw["config"], **hidden()}})


@dataclass(frozen=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """One producer process. Record `seq` goes to `places[(seq + first_place) % len(places)]`.

    `rate` is this producer's own, in records per second; None is full speed. `on_demand`: it sends what its parent asks
    for, until it is free. `transaction_size`: records of a
    transaction, 0 none; such a share of them is aborted on purpose.
    """

    MODULE: ClassVar[str] = "ackproof.clients.producer"
    producer: int
    first_place: int
    value_size: int
    rate: float | None
    chunk_rows: int
    transaction_size: int = 0
    abort_share: float = 0.0
    on_demand: bool = False
    keys: int = 0
    """How many keys its records have, in turn; 0: none. Each `tombstone_every`-th of a key is a tombstone (0: none)."""
    tombstone_every: int = 0


@dataclass(frozen=True, kw_only=True)
class ReaderSettings(ClientSettings):
    """One reader process: a live one, or the final one when `ends` says up to where.

    `flush_rows` and `flush_s`: a part of the ledger is closed at so many rows, or after so many seconds. `committed`:
    it reads transactions at read_committed, and its rows say so (their phase).
    """

    MODULE: ClassVar[str] = "ackproof.clients.reader"
    reader: int
    isolation: Isolation
    commit_s: float | None = None
    """So often a live reader commits what it has read, and waits for the answer; None: it does not."""
    flush_rows: int = CHUNK_ROWS
    flush_s: float = FLUSH_S
    committed: bool = False
    starts: Sequence[int] = ()
    """Where the final reader begins, for each place; it reads until its position reaches that of `ends`."""
    ends: Sequence[int] | None = None
    tells: bool = False
    """A live reader writes down from which brokers it fetches."""
    idle_s: float = 0.0
    """The final reader gives up when no unfinished partition got on for so many seconds."""
    share: int = 0
    """Process so-and-so of `shares` that are one reader together, each with partitions and a name of its own."""
    shares: int = 1
    process: str = ""

    @property
    def first_read_seq(self) -> int:
        """Where it begins to number its reads: no process of a reader comes to where the next one begins."""
        return self.share * SHARE

    @property
    def first_part(self) -> int:
        """The number of its first part of the ledger."""
        return self.share * 1_000_000

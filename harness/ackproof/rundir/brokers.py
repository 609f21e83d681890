"""`observed/brokers.jsonl`: what each broker said when it was asked by itself, a round a line; and, per live reader,
`clients/<reader>/served.jsonl`: which brokers it fetched from.

Both only with `observe: {brokers: true}`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ackproof.rundir.documents import Document, read_lines

EVERY_S: Final = 0.2
"""So far apart rounds are, and what a reader tells."""
ZNODES: Final = 0
"""Among the viewers: ZooKeeper's znodes. Brokers count from 1."""


class PartitionTold(Document):
    """What a viewer says of a partition. Its leader is -1 where it says none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Served(Document):
    """What a broker gave a client of one replica of its own. -1: it did not say.

    `log_end`: of that replica, asked just before. `fetch`: the error of a consumer's Fetch, 0 none; then `records`
    came with `high_watermark`, `beyond` of which had offsets at or above the one that the broker told after it, for it
    notes the mark before it reads (Partition.readRecords). `produce`: the error of a Produce whose batch has a broken
    checksum. Nothing of it is ever appended: who leads says CORRUPT_MESSAGE, who does not NOT_LEADER_OR_FOLLOWER,
    before it looks at the batch.
    """

    topic: str
    partition: int
    log_end: int = -1
    fetch: int
    records: int = 0
    beyond: int = 0
    high_watermark: int = -1
    produce: int


class Told(Document):
    """One viewer's answer. `brokers`: those that it takes for members."""

    viewer: int
    brokers: tuple[int, ...]
    partitions: tuple[PartitionTold, ...]
    served: tuple[Served, ...] = ()


class Round(Document):
    """All viewers asked at `t_ns`; every answer was there by `done_ns`.

    `controller`: the active one as the quorum itself says, -1 nobody, None where it did not answer in time. `silent`:
    viewers that could be asked and did not answer in time. Who is stopped, paused or starts is not among them: it tells
    nobody anything.
    """

    t_ns: int
    done_ns: int
    controller: int | None
    told: tuple[Told, ...]
    silent: tuple[int, ...] = ()


class Fetching(Document):
    """From which broker a reader fetched each of its partitions at `t_ns`, as its client library says: (topic,
    partition, broker), -1 none."""

    t_ns: int
    sources: tuple[tuple[str, int, int], ...]


def read_rounds(path: Path) -> list[Round]:
    """All rounds. Raises as `read_lines`."""
    return list(read_lines(path, Round))


def read_fetching(path: Path) -> list[Fetching]:
    """What one reader told. Raises as `read_lines`."""
    return list(read_lines(path, Fetching))

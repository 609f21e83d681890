"""ZooKeeper's transaction logs, decoded: every change of Kafka's znodes in its order, as `metadata.jsonl`.

With ZooKeeper this is what the controllers' metadata log is with KRaft: the state znodes of partitions (leader,
epochs, ISR; the version is the partition epoch), the brokers' ephemeral znodes (there: registered and unfenced;
gone: fenced), assignments and settings. Offsets are zxids; a broker's epoch is the zxid that made its znode, as
Kafka has it.

Source: org.apache.zookeeper.server.persistence.FileTxnLog and zookeeper.jute (ZooKeeper 3.8). A log file begins with
magic, version and database id; each entry is a checksum, a length, a header (session, cxid, zxid, time, type), the
transaction, and the byte `B`. The rest of a file is preallocated zeros.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ackproof.cluster.metadata.protocol import NotDecoded, committed
from ackproof.cluster.metadata.zookeeper.znodes import Change, Znodes
from ackproof.rundir.metadata import MetadataRecord

FOLDER: Final = "version-2"
_MAGIC: Final = b"ZKLG"
_FILE_HEADER: Final = struct.Struct(">4siq")
_ENTRY: Final = struct.Struct(">qi")
_HEADER: Final = struct.Struct(">qiqqi")
_END: Final = 0x42
_CREATES: Final = frozenset({1, 15, 19, 21})
_DELETES: Final = frozenset({2, 20})
_SET_DATA, _MULTI, _CLOSE_SESSION = 5, 14, -11


@dataclass(frozen=True)
class Transaction:
    """One entry of a log."""

    zxid: int
    time_ms: int
    session: int
    type: int
    body: bytes

    def changes(self) -> Iterator[Change]:
        """What it changes. Raises struct.error and ValueError for what is no such transaction."""
        yield from self._of(self.type, _Body(self.body))

    def _of(self, type_: int, body: _Body) -> Iterator[Change]:
        where = (self.zxid, self.time_ms, self.session)
        if type_ in _CREATES:
            path, data = body.text(), body.buffer()
            body.acl()
            ephemeral = type_ not in {19, 21} and body.flag()
            yield Change(*where, path, data, 0, ephemeral)
        elif type_ in _DELETES:
            yield Change(*where, body.text())
        elif type_ == _SET_DATA:
            yield Change(*where, body.text(), body.buffer(), body.int())
        elif type_ == _MULTI:
            for _ in range(body.int()):
                inner = body.int()
                yield from self._of(inner, _Body(body.buffer()))
        elif type_ == _CLOSE_SESSION:
            yield Change(*where, "")


class _Body:
    """A record in ZooKeeper's own encoding (jute), read from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def int(self) -> int:
        (value,) = struct.unpack_from(">i", self._data, self._at)
        self._at += 4
        return int(value)

    def flag(self) -> bool:
        self._at += 1
        return self._data[self._at - 1] != 0

    def buffer(self) -> bytes:
        size = max(0, self.int())
        if self._at + size > len(self._data):
            raise ValueError("a field reaches beyond its transaction")
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        return self.buffer().decode()

    def acl(self) -> None:
        for _ in range(max(0, self.int())):
            self.int()
            self.buffer()
            self.buffer()


def transactions(file: Path) -> Iterator[Transaction]:
    """The whole entries of one log file; a torn last one is passed over. Raises `NotDecoded` for another file."""
    data = file.read_bytes()
    if len(data) < _FILE_HEADER.size:
        return
    if _FILE_HEADER.unpack_from(data)[0] != _MAGIC:
        raise NotDecoded(f"{file} is no log of ZooKeeper's")
    at = _FILE_HEADER.size
    while at + _ENTRY.size <= len(data):
        _, size = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        if size <= 0 or at + size >= len(data) or data[at + size] != _END:
            return
        session, _, zxid, time_ms, type_ = _HEADER.unpack_from(data, at)
        yield Transaction(zxid, time_ms, session, type_, data[at + _HEADER.size : at + size])
        at += size + 1


def decode(folders: Sequence[Path]) -> Iterator[MetadataRecord]:
    """Kafka's part of what a majority of these servers logged (their `version-2` folders), by zxid.

    A server that was sent a snapshot lacks what lies in it; another one has that. Raises `NotDecoded` and OSError.
    """
    logs = [{one.zxid: one for one in _of_a_server(folder)} for folder in folders]
    bound = committed([max(log, default=0) for log in logs])
    every = {zxid: one for log in logs for zxid, one in log.items() if zxid <= bound}
    znodes = Znodes()
    for zxid in sorted(every):
        try:
            for change in every[zxid].changes():
                yield from znodes.take(change)
        except (struct.error, ValueError, KeyError, TypeError) as error:
            raise NotDecoded(f"zxid {zxid:#x} of ZooKeeper's log: {error!r}") from error


def _of_a_server(folder: Path) -> Iterator[Transaction]:
    for file in sorted(folder.glob("log.*"), key=lambda path: int(path.suffix[1:], 16)):
        yield from transactions(file)

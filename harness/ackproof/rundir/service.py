"""`observed/service.json` and `observed/service.parquet`: end and output of a service under test.

The lines that its instances printed are in `clients/<id>/lines.jsonl` (docs/clients.md).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ackproof.rundir.committed import GroupOffsets
from ackproof.rundir.document import Document

OUTPUT: Final = pa.schema(
    [("producer", pa.int32()), ("seq", pa.int64()), ("partition", pa.int32()), ("offset", pa.int64())]
)
"""Schema of a service's output, one row per record. A record without a readable identity has producer and seq -1.

Identities from a sink (a command that prints those in the service's store) have partition -1, and the line's number
from 0 as offset."""


class InstanceEnd(Document):
    """Outcome of one instance of a service. `started_ns`: start on CLOCK_MONOTONIC. `status`: exit status, negative for
    a signal.

    `asked`: it was asked to stop before it ended. `killed`: a fault killed it. `last_words`: the end of its standard
    error.
    """

    id: str
    pid: int
    started_ns: int
    status: int
    asked: bool
    killed: bool = False
    last_words: str = ""


class ServiceFile(Document):
    """`observed/service.json`. `committed`: offsets that the service's group has committed. `ends`: (topic, partition,
    high watermark) of its input when the producers had stopped.

    `output_ends`: the same of its output topic when that was read; () without one. `problem`: why the output could not
    be read completely; '' if it could.
    """

    instances: tuple[InstanceEnd, ...] = ()
    committed: GroupOffsets
    ends: tuple[tuple[str, int, int], ...] = ()
    output_ends: tuple[tuple[str, int, int], ...] = ()
    problem: str = ""

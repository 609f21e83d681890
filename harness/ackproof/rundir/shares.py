"""Share groups of a run: the ledger of their members, and their state at the end.

A member prints the events of docs/share-groups.md to `clients/<id>/lines.jsonl`. When it has ended, the harness
converts these into `ledger/shares/client=<id>/part-000000.parquet`. Times are ns since the run began; -1 is unknown.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final

import pyarrow as pa

from ackproof.rundir.document import Document
from ackproof.rundir.groups import MemberEnd
from ackproof.rundir.schema import required


class Acknowledgement(StrEnum):
    """Acknowledgement of a delivery (Kafka's AcknowledgeType; '' for none): column `ack` of `SHARES`."""

    NONE = ""
    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"
    RENEW = "renew"


class ShareResult(IntEnum):
    """Outcome of an acknowledgement, as far as its member knows it: column `result` of `SHARES`."""

    ACKNOWLEDGED = 0
    REFUSED = 1
    UNKNOWN = 2
    """No answer, or an error after which it may count. Also the result of a delivery without acknowledgement."""


SHARES: Final = required(
    ("group", pa.string()),
    ("member", pa.int32()),
    ("batch", pa.int64()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("producer", pa.int32()),
    ("seq", pa.int64()),
    ("delivery_count", pa.int32()),
    ("acquired_ns", pa.int64()),
    ("delivered_ns", pa.int64()),
    ("ack", pa.string()),
    ("ack_ns", pa.int64()),
    ("answered_ns", pa.int64()),
    ("result", pa.int8()),
    ("error", pa.string()),
)
"""One row per delivery of a record to a member, in the order of delivery; a renewed record is delivered again.

`batch`: number of the poll. `delivered_ns`: time at which the poll returned. `acquired_ns`: earliest time at which the
broker can have acquired the record for the member. `ack`: an `Acknowledgement`. `ack_ns`: time at which the member gave
it. `answered_ns`: time of its answer. `result`: a `ShareResult`. `error`: name of the answer's error; '' for none."""


class ShareGroupEnd(Document):
    """State of a share group at the end of the run. `rested`: its members ran and got no record for so long that all
    acquisition locks had expired.

    `waited_s`: seconds for which the run waited for that. `dead_letters`: number of records in its dead-letter topic;
    -1 without such a topic, or if it could not be read.
    """

    group: str
    rested: bool
    waited_s: float
    dead_letters: int = -1


class SharesFile(Document):
    """`observed/shares.json`: share groups and members at the end of the run. Runs without `workload.share_groups` have
    no such file."""

    groups: tuple[ShareGroupEnd, ...] = ()
    members: tuple[MemberEnd, ...] = ()

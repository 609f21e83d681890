"""The liveness rows of the table of anomalies (`rundir.anomalies`): things that do not recover. Each holds if
it lasted for its bound after the last healing."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple


class LivenessRow(NamedTuple):
    """One row of the table, with the fields of `AnomalyClass`."""

    name: str
    unit: Literal["CLUSTER", "PARTITION", "REPLICA", "CLIENT"]
    singular: str
    short: str
    wording: str
    plural: str = ""
    columns: tuple[str, ...] = ("detail",)


LIVENESS_ROWS: Final = (
    LivenessRow(
        name="no-controller",
        unit="CLUSTER",
        singular="cluster without a controller",
        plural="clusters without a controller",
        short="a majority of the controllers runs, and none is active",
        wording="No controller is active, although a majority of them runs.",
    ),
    LivenessRow(
        name="leaderless",
        unit="PARTITION",
        singular="leaderless partition",
        short="has no leader, and gets none",
        wording="The partition has no leader.",
    ),
    LivenessRow(
        name="hanging-transaction",
        unit="PARTITION",
        singular="partition with a hanging transaction",
        plural="partitions with a hanging transaction",
        short="its last stable offset stays behind the high watermark, and no coordinator will end that transaction",
        wording="The last stable offset stays where it is, and no coordinator has that transaction open.",
        columns=("offset", "detail"),
    ),
    LivenessRow(
        name="stuck-replica",
        unit="REPLICA",
        singular="stuck replica",
        short="its broker runs unfenced, and it does not return to the ISR",
        wording="Its broker runs unfenced, it is not in the ISR, and its log end does not approach the leader's.",
    ),
    LivenessRow(
        name="stuck-reassignment",
        unit="PARTITION",
        singular="stuck reassignment",
        short="the controller lists its reassignment, which makes no progress",
        wording="The controller lists a reassignment, and no log end of a replica that it adds moves.",
    ),
    LivenessRow(
        name="stuck-producer",
        unit="CLIENT",
        singular="stuck producer",
        short="gets no acknowledgement where another producer does",
        wording="It gets no acknowledgement where the partition has a leader and a full ISR, and a probe does.",
        columns=("producer", "detail"),
    ),
    LivenessRow(
        name="stuck-reader",
        unit="CLIENT",
        singular="stuck reader",
        short="gets no records where another reader does",
        wording="It gets no records where the partition has a leader, and a probe at its isolation gets further.",
    ),
)
"""The gravest first."""

"""The classes of anomalies of consumer groups: rows of the table in `rundir.anomalies`, the gravest first."""

from __future__ import annotations

from functools import partial
from typing import Final

from ackproof.rundir.anomaly_terms import Anomaly, AnomalyClass, Concern, RuledBy, Unit

_group = partial(
    AnomalyClass, ruled_by=RuledBy.GROUP, concern=Concern.PROCESSING, unit=Unit.INPUT, proves=True
)
"""Make a class of a consumer group. Its findings name group and member too (`schema.GROUP_FINDINGS`)."""

GROUP_ROWS: Final = (
    _group(
        name=Anomaly.UNDELIVERED,
        proves=False,
        singular="record that no member processed",
        plural="records that no member processed",
        short="its group committed past it, and no member processed it",
        wording="It is there, its group committed past it, no member processed it, and no reset passed over it.",
    ),
    _group(
        name=Anomaly.TORN_OUTPUT,
        proves=False,
        singular="torn output",
        short="its input is committed without its output, or the reverse",
        wording=(
            "Of a transactional group: its group committed past it and its output is not there at read_committed, or "
            "the output is there and the group did not commit past it."
        ),
    ),
    _group(
        name=Anomaly.DOUBLED_OUTPUT,
        singular="doubled output",
        short="more than once in the output",
        wording="The output has more intact copies of it at read_committed than the input.",
    ),
    _group(
        name=Anomaly.LOST_COMMIT,
        unit=Unit.COMMIT,
        proves=False,
        singular="lost commit",
        short="acknowledged, and in no replica's log",
        wording="The coordinator acknowledged it, and no replica's log of `__consumer_offsets` has it.",
        columns=("offset", "detail"),
    ),
    _group(
        name=Anomaly.REGRESSED_COMMIT,
        unit=Unit.COMMIT,
        singular="regressed commit",
        short="the group's offset went back below it",
        wording=(
            "It was acknowledged, and after it the group found a lower offset, or a lower one was accepted; no reset "
            "explains that."
        ),
        columns=("offset", "detail"),
    ),
    _group(
        name=Anomaly.ZOMBIE_COMMIT,
        unit=Unit.COMMIT,
        singular="zombie commit",
        short="accepted from a member whose generation was over",
        wording="It was accepted although the coordinator's rules refuse its member's generation or epoch.",
        columns=("offset", "detail"),
    ),
    _group(
        name=Anomaly.TWO_OWNERS,
        singular="record of two owners",
        plural="records of two owners",
        short="processed while two members were acknowledged as owners of its partition",
        wording=(
            "A member processed it between its assignment and its last accepted commit of the partition, and another "
            "member did so with a record of the partition in the same time."
        ),
    ),
    _group(
        name=Anomaly.REDELIVERED,
        singular="record processed again",
        plural="records processed again",
        short="processed more than once",
        wording="Members processed it more than once; aborted transactions do not count.",
    ),
    _group(
        name=Anomaly.SKIPPED_BY_RESET,
        proves=False,
        singular="record skipped by a reset",
        plural="records skipped by a reset",
        short="a reset of a member's position passed over it",
        wording="It is there, no member processed it, and a member's position was reset from below it to above it.",
    ),
)

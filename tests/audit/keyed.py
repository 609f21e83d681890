"""The records that a compacted log need not hold, for the plain audit (reference.py)."""

from __future__ import annotations


def alike(place, identity, copies, produced, keys):
    """Return the intact copies and the acknowledged rows of the key of `identity` in the partition `place`."""
    count, _ = keys[identity[0]]

    def like_it(where, whose, which):
        return where == place and whose == identity[0] and which % count == identity[1] % count

    there = [copy for copy in copies if copy.intact and like_it(copy.place, *copy.identity)]
    acked = [
        row
        for row in produced
        if row.outcome == 0 and like_it((row.topic, row.partition), row.producer, row.seq)
    ]
    return there, acked


def superseded(identity, offset, count, every, there, acked):
    """Return whether a record may be compacted away. `there` and `acked` are the result of `alike`.

    True if a later record of its key was acknowledged or is in the final read. A tombstone may also go if no earlier
    record of its key is left. `count`: number of the producer's keys. `every`: every Nth record of a key is a tombstone
    (0: none is). Records acknowledged without an offset are compared by seq.
    """

    def deletes(seq):
        return every > 0 and seq // count % every == every - 1

    seq = identity[1]
    if offset < 0:
        seqs = [copy.identity[1] for copy in there] + [row.seq for row in acked]
        return any(other > seq for other in seqs) or (deletes(seq) and seq in seqs and not there)
    if any(row.seq > seq and row.offset < 0 for row in acked):
        return True
    if any(at > offset for at in (*(copy.offset for copy in there), *(row.offset for row in acked))):
        return True
    deleted = any(row.offset == offset and deletes(row.seq) for row in acked)
    return deleted and all(copy.offset >= offset for copy in there)


def retaken(row, copies, produced):
    """Return whether another record has the offset of `row`. Compaction never gives an offset to another record.

    The other record is in the final read, or was acknowledged later at this offset.
    """
    place = row.topic, row.partition
    if row.offset < 0:
        return False

    def answered(one):
        return (one.done_ns if one.done_ns >= 0 else one.sent_ns), one.producer, one.seq

    return any(copy.spot == (*place, row.offset) for copy in copies) or any(
        other.outcome == 0 and (other.topic, other.partition, other.offset) == (*place, row.offset)
        and answered(other) > answered(row)
        for other in produced
    )  # fmt: skip

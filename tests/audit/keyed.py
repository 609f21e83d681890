"""What a compacted log need not hold, for the plain audit (reference.py): as slow, and as plain."""

from __future__ import annotations


def alike(place, identity, copies, produced, keys):
    """Copies that are intact, and acknowledged rows, of the key of a record, at its place."""
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
    """A later record of its key was acknowledged or is there; or it is a tombstone, and none before it is there.

    What was acknowledged without an offset goes by its seq.
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
    """Another record is there at its offset, or was acknowledged there later: compaction gives no offset away."""
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

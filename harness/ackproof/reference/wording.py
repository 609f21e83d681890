"""States of partitions in words: the replay and the explanation tell them alike."""

from __future__ import annotations

from ackproof_reference.metadata import NO_LEADER, Metadata, Partition


def in_braces(nodes: tuple[int, ...]) -> str:
    """Nodes as a set."""
    return "{" + ", ".join(map(str, nodes)) + "}"


def plain(partition: Partition) -> str:
    """A partition's state on one line."""
    text = (
        f"leader {partition.leader} in epoch {partition.leader_epoch}, partition epoch {partition.epoch}, "
        f"replicas {list(partition.replicas)}, ISR {in_braces(partition.isr)}"
    )
    if partition.elr:
        text += f", ELR {in_braces(partition.elr)}"
    if partition.last_known_leader != NO_LEADER:
        text += f", last known leader {partition.last_known_leader}"
    if partition.adding or partition.removing:
        text += f", adding {in_braces(partition.adding)}, removing {in_braces(partition.removing)}"
    return text + (", recovering" if partition.recovering else "")


def state_of(metadata: Metadata) -> str:
    """A partition and the brokers, as the state before a step is told."""
    brokers = "; ".join(
        f"broker {entry.broker} "
        + ("fenced" if entry.fenced else "in controlled shutdown" if entry.stopping else "active")
        + f" (epoch {entry.epoch})"
        for entry in metadata.brokers
    )
    return f"{plain(metadata.partition)}; {brokers}"

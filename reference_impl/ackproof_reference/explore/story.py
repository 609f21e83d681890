"""A counterexample for readers: numbered sentences, and what each step changed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from ackproof_reference.broker import Follower, Leader, Process
from ackproof_reference.explore.scope import Budget, Client
from ackproof_reference.explore.search import Finding, Told
from ackproof_reference.log import Log
from ackproof_reference.metadata import Metadata


def tell(finding: Finding, way: Sequence[Told], *, details: bool = False) -> Iterator[str]:
    """The lines of a story; with `details` every changed cell under its step."""
    for number, line in enumerate(way, 1):
        to = f" → {line.happening.target}" if line.happening.target else ""
        yield f"{number:3}. {line.happening.actor}{to}: {line.happening.text}"
        if details:
            for name, _, after in line.changed:
                if not isinstance(after, Budget):
                    yield f"       {name}: {shown(after)}"
    yield f"  ✗  {finding.kind}: {finding.text}"


def shown(value: Hashable) -> str:
    """A cell's value in short."""
    if isinstance(value, Log):
        batches = " ".join(f"{batch.base}:e{batch.epoch}#{batch.sequence}" for batch in value.batches)
        return f"[{batches}] high watermark {value.high_watermark}, flushed {value.flushed}"
    if isinstance(value, Process):
        return _memory(value)
    if isinstance(value, Metadata):
        partition = value.partition
        fenced = [entry.broker for entry in value.brokers if entry.fenced]
        return (
            f"leader {partition.leader} epoch {partition.leader_epoch} ISR {list(partition.isr)} "
            f"ELR {list(partition.elr)} partition epoch {partition.epoch} fenced {fenced}"
        )
    if isinstance(value, Client):
        return f"sent {value.sent}, acknowledged {list(value.acked)}, read {list(value.read)}"
    return "nothing under way" if value is None else str(value)


def _memory(process: Process) -> str:
    role = process.role
    if not process.up:
        return "down"
    if isinstance(role, Leader):
        ends = ", ".join(f"{entry.replica} at {entry.end}" for entry in role.progress)
        pending = f", proposes {list(role.pending)}" if role.pending is not None else ""
        return f"leads epoch {role.epoch} from {role.start}, ISR {list(process.partition.isr)}{pending}; knows {ends}"
    if isinstance(role, Follower):
        return f"follows {role.leader} in epoch {role.epoch}" + (", truncating" if role.truncating else "")
    return f"incarnation {process.epoch}, knows of no partition"

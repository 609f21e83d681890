"""State of a partition at one moment of a script: part of the event `script-step`."""

from __future__ import annotations

from pydantic import Field

from ackproof.rundir.document import Document


class ScriptState(Document):
    """State of a partition and its replicas at one moment of a script: a fault that leads brokers through given steps,
    one at a time. Epochs, offsets and `acked` are differences to the state before the first step.

    `leader` -1: no leader. `elr`: eligible leader replicas (KIP-966). `down`: brokers without a process. `ends`: log
    end offsets. `acked`: number of acknowledged records. Dicts are keyed by broker; a missing key means unknown.
    """

    leader: int = -1
    epoch: int = 0
    partition_epoch: int = 0
    isr: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    fenced: tuple[int, ...] = ()
    down: tuple[int, ...] = ()
    believed: dict[int, int] = Field(default_factory=dict)
    """Leader epoch that each broker's own replica has."""
    ends: dict[int, int] = Field(default_factory=dict)
    high_watermarks: dict[int, int] = Field(default_factory=dict)
    acked: int = 0

    def __str__(self) -> str:
        def by_broker(values: dict[int, int]) -> str:
            return ", ".join(f"{broker}: {value}" for broker, value in sorted(values.items())) or "none"

        leader = f"broker {self.leader}" if self.leader >= 0 else "no broker"
        parts = [f"{leader} leads in epoch {self.epoch}", f"ISR {list(self.isr)}"]
        parts += [f"ELR {list(self.elr)}"] if self.elr else []
        parts += [f"fenced {list(self.fenced)}"] if self.fenced else []
        parts += [f"down {list(self.down)}"] if self.down else []
        return "; ".join(
            [
                *parts,
                f"epochs of replicas {by_broker(self.believed)}",
                f"log ends {by_broker(self.ends)}",
                f"high watermarks {by_broker(self.high_watermarks)}",
                f"{self.acked} acked",
            ]
        )

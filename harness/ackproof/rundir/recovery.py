"""`observed/recovery.json`: what had not recovered when a run was over, and what the cluster said of it.

Only a run that was watched has one: those of older versions, and runs of the model, count no liveness class.
"""

from __future__ import annotations

from ackproof.rundir.documents import Document
from ackproof.rundir.partition import TopicPartition


class Unrecovered(Document):
    """One partition, replica or client that did not recover within its bound. Offsets and ids are -1 where unknown."""

    anomaly: str
    topic: str = ""
    partition: int = -1
    node: int = -1
    """The replica that stays behind."""
    client: str = ""
    number: int = -1
    """Of a client: its number in the ledgers."""
    seen: str
    """What was seen of it, in words."""
    for_s: float
    """How long nothing of it had moved when the watch ended."""
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment adds."""
    log_end: int = -1
    """The replica's own log end."""
    leader_end: int = -1
    high_watermark: int = -1
    last_stable: int = -1
    offline: tuple[int, ...] = ()
    """Replicas of brokers that run and do not list it in any of their log dirs."""
    throttled: bool = False
    """A replication throttle was in force, as the broker's own settings say."""
    stopped: bool = False
    """The client's process stood still (SIGSTOP)."""
    producer_id: int = -1
    coordinator: str = ""
    """The state of its transaction at the coordinator, as Kafka spells it; '' where no coordinator knows it."""
    reason: str = ""
    """What the broker's own log says of it."""

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class RecoveryFile(Document):
    """`bounds`: how long each class had, in seconds. `running`: the brokers that ran when the watch ended."""

    bounds: dict[str, float]
    waited_s: float
    running: tuple[int, ...] = ()
    unrecovered: tuple[Unrecovered, ...] = ()
    undecided: tuple[str, ...] = ()
    """What had not recovered, and is not called stuck: it still moved, or no class speaks of it."""

    def of(self, anomaly: str) -> tuple[Unrecovered, ...]:
        """Those of one class."""
        return tuple(one for one in self.unrecovered if one.anomaly == anomaly)

"""Rules: every variant of the protocol as a switch, the protections that can be switched off, and presets by release.

A rule is read where it acts (`leader.py`, `follower.py`, `controller.py`, `election.py`); this module only
says what it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum


class Truncation(Enum):
    """Method by which a follower makes its log agree with a new leader's."""

    HIGH_WATERMARK = "to its own high watermark (before KIP-101)"
    EPOCH = "to the end of its last epoch, asked once (KIP-101, 0.11)"
    WALK_BACK = "walking back epoch by epoch (KIP-279, 2.0)"
    ON_FETCH = "as the answer to a fetch that names its last epoch (KIP-595, 2.7)"


@dataclass(frozen=True)
class Rules:
    """One variant of the protocol with the settings of one topic. The defaults are Kafka 4.3 and later.

    Most fields are switches: True if the sentence below the field holds in this variant. The release behind a KIP or an
    issue is the first one in which it holds."""

    # Settings of the topic and the brokers.
    min_insync: int = 1
    unclean_election: bool = False
    max_fetch_batches: int = 1
    """Greatest number of batches in one fetch response; 1 gives the most interleavings."""

    # Logs.
    truncation: Truncation = Truncation.ON_FETCH
    fetch_fencing: bool = True
    """A fetch carries the follower's current leader epoch, and a leader in another epoch refuses it (KIP-320)."""
    match_responses: bool = True
    """A follower drops a response to a fetch it would not send now (AbstractFetcherThread.processFetchRequest)."""
    bounded_high_watermark: bool = True
    """A follower's high watermark never passes its own log end (UnifiedLog.maybeUpdateHighWatermark)."""

    checkpointed_at_once: bool = True
    """A broker starts with the high watermark that it had when it ended. Off: perhaps with an older one, because the
    checkpoint is written every five seconds (replica.high.watermark.checkpoint.interval.ms)."""

    # The leader.
    replicated_by_next_fetch: bool = True
    """A record counts as replicated when the follower fetches the offset after it, not when it was sent."""
    maximal_isr: bool = True
    """While an ISR change is in flight, the high watermark waits for all members of both ISRs (KIP-497)."""
    strict_min_isr: bool = True
    """The high watermark stands still while the ISR is smaller than min.insync.replicas (KAFKA-15583, 3.7)."""
    expand_from_epoch_start: bool = True
    """A replica joins the ISR only after it has reached the start of the leader's epoch (KIP-320's fourth
    rule).
    """
    reset_followers: bool = True
    """A new leader knows nothing of its followers' logs until they fetch in its epoch (Replica.resetReplicaState)."""
    notice_skipped_epochs: bool = True
    """A leader that learns in one step that it was deposed and elected again forgets its followers' log ends, and
    refuses its waiting producers. Off: it keeps both, as Kafka does if both changes come in one delta
    (Partition.makeLeader: `isNewLeader`)."""

    # The controller.
    alter_partition: bool = True
    """The ISR is changed by a request to the controller (KIP-497, 2.7); off: the leader writes the state
    node itself."""
    partition_epoch_check: bool = True
    """An ISR change must name the newest partition epoch, else it is refused (compare and set on the version)."""
    broker_epoch_check: bool = True
    """An ISR change names the incarnation of every member, and old ones are refused (KIP-903, 3.5)."""
    fencing: bool = True
    """Fenced and stopping brokers may not join the ISR (KIP-841, 3.3)."""
    elr: bool = True
    """Eligible leader replicas: a replica that left an ISR below its minimum can still be elected (KIP-966,
    4.1).
    """
    unclean_shutdown_detection: bool = True
    """With ELR, a broker that comes back from an unclean stop leaves ISR and ELR (KIP-966, 4.0)."""
    last_known_leader_unfenced: bool = True
    """The last known leader is elected only while it is neither fenced nor stopping (KAFKA-19522, 4.1)."""
    last_known_when_leaderless: bool = True
    """With ELR, the last known leader is written when nobody leads any more; off, as in 4.0: when the ISR is empty."""
    completes_past_kept: bool = True
    """A reassignment that removes no more replicas than it adds ends when the added ones are in the ISR. Those that it
    keeps need not be (KAFKA-19975, 4.3); off: it ends when the whole target is in the ISR."""
    assignment_order: bool = True
    """Leaders are taken in assignment order (KAFKA-1503, 0.8.2); off: the first of the ISR as it was written."""
    moves_from_all: bool = True
    """A reassignment that replaces another starts from all present replicas; off: those being added are
    dropped (ZooKeeper).
    """
    bump_on_shrink: bool = False
    """The leader epoch rises whenever the ISR shrinks (before metadata version 3.6, and in ZooKeeper mode)."""

    # Producers.
    idempotence: bool = True
    """The leader drops a batch whose sequence it already holds (KIP-98); only for producers that ask for it."""
    verify_transactions: bool = True
    """A partition asks the coordinator before it opens a transaction in its log (KIP-890, first part, 3.6)."""
    bump_every_transaction: bool = True
    """Each transaction has its own producer epoch, if the client's protocol supports that (KIP-890, second
    part, 4.0).
    """
    strict_markers: bool = True
    """With an epoch per transaction, a marker with the transaction's own epoch is refused: it is a late marker of the
    transaction before (KAFKA-19446, 4.2)."""
    coordinator_epochs: bool = True
    """A marker is refused if its producer has a marker of a newer coordinator
    (ProducerAppendInfo.checkCoordinatorEpoch)."""

    def effective_min_isr(self, replicas: int) -> int:
        """Return min.insync.replicas, at most the number of replicas (Partition.effectiveMinIsr)."""
        return min(self.min_insync, replicas)

    @property
    def leads_once(self) -> bool:
        """True if a leader that died never leads again in the same epoch, because no fenced broker is
        elected.
        """
        return self.last_known_leader_unfenced or not self.elr


PROTECTIONS: Mapping[str, Mapping[str, object]] = {
    "eligible leader replicas": {"elr": False},
    "strict minimum ISR": {"strict_min_isr": False},
    "unclean shutdown leaves the ELR": {"unclean_shutdown_detection": False},
    "broker epochs": {"broker_epoch_check": False},
    "maximal ISR": {"maximal_isr": False},
    "expansion from the epoch's start": {"expand_from_epoch_start": False},
    "truncation by epoch": {"truncation": Truncation.HIGH_WATERMARK},
    "walking back": {"truncation": Truncation.EPOCH},
    "fetch fencing": {"fetch_fencing": False},
    "clean elections only": {"unclean_election": True},
    "partition epoch compare and set": {"partition_epoch_check": False},
    "assignment order": {"assignment_order": False},
    "replicated by the next fetch": {"replicated_by_next_fetch": False},
    "bounded high watermark": {"bounded_high_watermark": False},
    "unfenced last known leader": {"last_known_leader_unfenced": False},
    "forgotten followers": {"reset_followers": False},
    "matched responses": {"match_responses": False},
    "sequence numbers": {"idempotence": False},
    "noticed epochs": {"notice_skipped_epochs": False},
}
"""By name of a protection: the fields of `Rules`, with the values that switch it off."""


def without(rules: Rules, *names: str) -> Rules:
    """Return the rules with these protections switched off. `names`: keys of `PROTECTIONS`. Raises KeyError for another
    name."""
    for name in names:
        rules = replace(rules, **PROTECTIONS[name])  # type: ignore[arg-type]
    return rules


class GroupProtocol(Enum):
    """Rebalance protocol of a consumer group."""

    EAGER = "classic: members give all up before they rejoin"
    COOPERATIVE = "classic: members keep what they have while they rejoin (KIP-429)"
    CONSUMER = "members are reconciled by heartbeats (KIP-848)"


class CommitMode(Enum):
    """Moment at which a member of a consumer group commits its offsets."""

    BEFORE = "before it processes"
    AFTER = "after it has processed"
    TIMED = "what it has processed, at any time, and before it gives the partition up"
    AT_DELIVERY = "what it was handed, at any time (librdkafka: enable.auto.commit)"
    TRANSACTION = "in a transaction with its output"


@dataclass(frozen=True)
class GroupRules:
    """The rules of consumer groups, with the settings of one group. The defaults are Kafka 4.3 and later.

    A switch is True if the sentence below the field holds."""

    protocol: GroupProtocol = GroupProtocol.CONSUMER
    commit: CommitMode = CommitMode.AFTER
    group_metadata: bool = True
    """A transaction names member and generation (KIP-447)."""
    static: bool = False
    """Members have a group.instance.id: one that comes back takes over its entry (KIP-345)."""
    stable_fetch: bool = True
    """OffsetFetch waits for the marker of a pending offset (KIP-447); off: it does not wait, as for a consumer with
    isolation.level read_uncommitted."""
    accept_since_assignment: bool = True
    """KIP-848: a commit may name any member epoch since the one at which the partition was assigned, while
    the member holds it (KIP-1251, 4.3); off: only the member's present epoch."""
    epoch_per_transaction: bool = True
    """Each transaction has its own producer epoch, so that no late request of an older one is taken (KIP-890)."""

    # Not of any release: for planted bugs.
    check_generation: bool = True
    """The coordinator checks member and generation of a commit; off: it accepts a commit of any member and
    generation."""
    load_offsets: bool = True
    """A new coordinator loads the committed offsets from the log; off: it begins with an empty log."""
    load_shift: int = 0
    """Number, possibly negative, that a new coordinator adds to the committed offset; 0: it adds nothing."""


_GROUPS_43 = GroupRules()
_GROUPS_40 = replace(_GROUPS_43, accept_since_assignment=False)
_GROUPS_39 = replace(_GROUPS_40, protocol=GroupProtocol.EAGER, epoch_per_transaction=False)

GROUP_VERSIONS: Mapping[str, GroupRules] = {
    "3.9": _GROUPS_39,
    **dict.fromkeys(("4.0", "4.1", "4.2"), _GROUPS_40),
    **dict.fromkeys(("4.3", "4.4"), _GROUPS_43),
}
"""Rules of consumer groups by release line. Those of 3.9 hold for classic groups of every older release since 2.5."""


def group_rules_of(version: str) -> GroupRules:
    """Return the rules of consumer groups of a Kafka release such as "4.3.1" or "3.9.2-zk". They are those of the
    newest known release line that is not above it; before 4.0 those of 3.9.

    Raises ValueError if `version` is not a release, is `-zk` from 4.0 on, or is older than KIP-447 (2.5).
    """
    wanted, _ = _parsed(version)
    if wanted < (2, 5):
        raise ValueError(f"no rules for consumer groups of Kafka {version}: they begin with 2.5")
    known = [name for name in GROUP_VERSIONS if _parsed(name)[0] <= wanted]
    return GROUP_VERSIONS[max(known or ["3.9"], key=lambda name: _parsed(name)[0])]


_KRAFT_43 = Rules()
_KRAFT_42 = replace(_KRAFT_43, completes_past_kept=False)
_KRAFT_41 = replace(_KRAFT_42, strict_markers=False)
_KRAFT_40 = replace(
    _KRAFT_41,
    elr=False,
    unclean_shutdown_detection=False,
    last_known_leader_unfenced=False,
    last_known_when_leaderless=False,
)
_KRAFT_37 = replace(_KRAFT_40, bump_every_transaction=False)
_KRAFT_36 = replace(_KRAFT_37, strict_min_isr=False)
_KRAFT_35 = replace(_KRAFT_36, bump_on_shrink=True, verify_transactions=False)
_KRAFT_33 = replace(_KRAFT_35, broker_epoch_check=False)
_ZK_27 = replace(_KRAFT_33, fencing=False, moves_from_all=False)
_ZK_37 = replace(_ZK_27, strict_min_isr=True, broker_epoch_check=True, verify_transactions=True)
_ZK_21 = replace(_ZK_27, truncation=Truncation.WALK_BACK, alter_partition=False)
_ZK_20 = replace(_ZK_21, fetch_fencing=False, expand_from_epoch_start=False)
_ZK_011 = replace(_ZK_20, truncation=Truncation.EPOCH)
_ZK_010 = replace(_ZK_011, truncation=Truncation.HIGH_WATERMARK, unclean_election=True, idempotence=False)
_ZK_08 = replace(_ZK_010, assignment_order=False)

VERSIONS: Mapping[str, Rules] = {
    "0.8": _ZK_08,
    "0.10": _ZK_010,
    "0.11": _ZK_011,
    "2.0": _ZK_20,
    "2.1": _ZK_21,
    "2.7": _ZK_27,
    "3.7-zk": _ZK_37,
    "3.3": _KRAFT_33,
    "3.5": _KRAFT_35,
    "3.6": _KRAFT_36,
    "3.7": _KRAFT_37,
    "4.0": _KRAFT_40,
    "4.1": _KRAFT_41,
    "4.2": _KRAFT_42,
    "4.3": _KRAFT_43,
}
"""Rules by the first release that has them, with its default settings: with KRaft, unless the name ends in -zk.
Releases before 2.8 have ZooKeeper only."""


def rules_of(version: str, *, elr: bool | None = None) -> Rules:
    """Return the rules of a Kafka release such as "4.3.1" or "3.9-zk": the rules of the newest known release not above
    it.

    `elr` overrides the release's default of `elr` and `unclean_shutdown_detection`; None keeps it. Raises ValueError if
    `version` is not a release, is older than each release in `VERSIONS` with its mode (KRaft or ZooKeeper), or ends in
    -zk from 4.0 on."""
    wanted, zookeeper = _parsed(version)
    known = [name for name in VERSIONS if _parsed(name)[0] <= wanted and _parsed(name)[1] is zookeeper]
    if not known:
        raise ValueError(f"no rules for Kafka {version}: known are {', '.join(VERSIONS)}")
    rules = VERSIONS[max(known, key=lambda name: _parsed(name)[0])]
    if elr is None:
        return rules
    return replace(rules, elr=elr, unclean_shutdown_detection=elr)


def _parsed(version: str) -> tuple[tuple[int, ...], bool]:
    """Parse a version such as `4.1` or `3.9-zk`: return its numbers, and True if it runs with ZooKeeper (`-zk`, or
    below 2.8). Raises ValueError for text of another form, and for ZooKeeper mode from 4.0 on."""
    number, _, mode = version.partition("-")
    try:
        parts = tuple(int(part) for part in number.split("."))
    except ValueError:
        raise ValueError(f"{version!r} is no version of Kafka") from None
    if mode not in {"", "zk"}:
        raise ValueError(f"{version!r} is no version of Kafka")
    if mode and parts >= (4,):
        raise ValueError(f"Kafka {number} has no ZooKeeper mode: 3.9 was the last with it; write 3.9-zk")
    return parts, mode == "zk" or parts < (2, 8)

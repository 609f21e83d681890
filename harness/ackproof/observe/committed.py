"""Asks for committed offsets at the end of a run, and reads them from the replicas' logs.

The coordinator of a group is the leader of one partition of `__consumer_offsets`. It answers OffsetFetch from memory;
the logs have the records that it replayed to get there (org.apache.kafka.coordinator.group.OffsetMetadataManager,
kafka.coordinator.group.GroupMetadataManager). Read both at rest: no client commits any more.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Final, TypeAlias

from ackproof.base.errors import WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster.disks.log import Record
from ackproof.cluster.protocol import Cluster
from ackproof.cluster.queries import PartitionState
from ackproof.network.wire import Question, WireError, check
from ackproof.observe.offsets_log import LogWalk, find_replicas, marker_commits, read_at_rest
from ackproof.observe.replica_logs import LogDir
from ackproof.rundir.clock import RunClock
from ackproof.rundir.committed import OFFSETS_TOPIC, CommittedFile, GroupOffsets, OffsetsLog
from ackproof.rundir.layout import COMMITS, CaseDir
from ackproof.rundir.observed import read_commits
from ackproof.rundir.partition import TopicPartition

_ANSWER_WITHIN_S: Final = 15.0
"""Time-out in seconds for the answer of a group's coordinator, which may be loading, moving or waiting for a
transaction to end."""
_OFFSET_FETCH: Final = 7
"""Version of OffsetFetch: the first with `require_stable`, and every release from 2.5 on has it."""
_COMMIT_KEYS: Final = frozenset({0, 1})
"""Versions of OffsetCommitKey. Keys of groups and members begin with other numbers."""
_VALUE: Final = struct.Struct(">hq")
"""Beginning of OffsetCommitValue in every version: the version, and the offset."""
OffsetKey: TypeAlias = tuple[str, str, int]
"""Group, topic, partition."""


def collect_committed(
    cluster: Cluster, log_dirs: Sequence[LogDir], run: CaseDir, clock: RunClock, stop: Event | None = None
) -> None:
    """Record the committed offsets of each group for which a live reader committed, as its coordinator answers. Record
    also the offsets in the replicas' logs of these groups' partitions of `__consumer_offsets`.

    Writes `observed/committed.json`; does nothing in a run without commits. Nothing is raised for a coordinator that
    does not answer or a log that cannot be read: the file has the reason. Raises `Interrupted` when `stop` is set,
    `BadInput` for a broken `commits.jsonl`, OSError if the file cannot be written.
    """
    lines = (line for path in sorted(run.clients.glob(f"*/{COMMITS}")) for line in read_commits(path))
    groups = sorted({line.group for line in lines})
    if not groups:
        return
    t_ns = clock.now()
    answers = tuple(ask_coordinator(cluster, group, stop, _ANSWER_WITHIN_S) for group in groups)
    wanted = {answer.partition for answer in answers if answer.partition >= 0}
    logs = tuple(_read_log(*replica) for replica in find_replicas(log_dirs, wanted))
    file = CommittedFile(t_ns=t_ns, groups=answers, logs=logs)
    file.save(run.committed)


# -- OffsetFetch ----------------------------------------------------------------------------------------------------


def partition_of_group(group: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` that holds a group: Utils.abs(hashCode) modulo the number of
    partitions."""
    code = 0
    units = group.encode("utf-16-be")
    for number in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[number : number + 2], "big")) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def ask_coordinator(
    cluster: Cluster, group: str, stop: Event | None = None, within_s: float = _ANSWER_WITHIN_S
) -> GroupOffsets:
    """Return the committed offsets of a group, without partitions that have none. Ask until its coordinator answers, or
    for `within_s` seconds. Without an answer, and at once if the topic `__consumer_offsets` does not exist, the result
    has a `reason`. Raises `Interrupted` when `stop` is set."""
    answer = GroupOffsets(group=group, reason="no broker was asked")

    def look() -> bool:
        nonlocal answer
        answer = _ask_once(cluster, group, cluster.topic_state([OFFSETS_TOPIC]))
        # Without the topic there is nothing to wait for: the first request for a coordinator creates it.
        return not answer.reason or answer.partition < 0

    with suppress(WaitTimeout):
        wait_until(
            look,
            what=f"the coordinator of {group} to answer",
            timeout_s=within_s,
            interval_s=0.2,
            stop=stop,
        )
    return answer


def _ask_once(cluster: Cluster, group: str, states: Mapping[TopicPartition, PartitionState]) -> GroupOffsets:
    if not states:
        return GroupOffsets(group=group, reason=f"there is no topic {OFFSETS_TOPIC}")
    place = TopicPartition(OFFSETS_TOPIC, partition_of_group(group, len(states)))
    state = states.get(place)
    if state is None or state.leader < 0:
        return GroupOffsets(group=group, partition=place.partition, reason=f"{place} has no leader")
    answer = GroupOffsets(group=group, partition=place.partition, coordinator=state.leader, isr=state.isr)
    link = cluster.running_links().get(state.leader)
    if link is None:
        return answer.model_copy(update={"reason": f"broker {state.leader}, the coordinator, does not run"})
    question = Question("OffsetFetch", _OFFSET_FETCH, group_id=group, topics=None, require_stable=True)
    try:
        response = link.ask(question)
        check(f"broker {state.leader}, the coordinator", response.error_code)
        offsets = []
        for topic in response.topics:
            for row in topic.partitions:
                check(f"offset of {topic.name}/{row.partition_index}", row.error_code)
                if row.committed_offset >= 0:
                    offsets.append((topic.name, row.partition_index, row.committed_offset))
    except WireError as error:
        return answer.model_copy(update={"reason": str(error)})
    return answer.model_copy(update={"offsets": tuple(sorted(offsets))})


# -- logs -----------------------------------------------------------------------------------------------------------


def _read_log(node: int, partition: int, folder: Path) -> OffsetsLog:
    found, reason = read_at_rest(folder, replay_offsets)
    log_end, offsets = found or (-1, {})
    rows = tuple((*key, offset) for key, offset in sorted(offsets.items()))
    return OffsetsLog(node=node, partition=partition, log_end=log_end, offsets=rows, reason=reason)


def replay_offsets(paths: Sequence[Path]) -> tuple[int, dict[OffsetKey, int]]:
    """Return the log end offset (-1 without a batch), and the committed offsets by (group, topic, partition), from one
    replica's log of `__consumer_offsets`.

    `paths`: its segments in order. Offsets of a transaction count from its commit marker on, unless a commit of the
    same key that was appended later is already in force. Raises OSError, and ValueError and `struct.error` for damaged
    batches and records.
    """
    newest: dict[OffsetKey, tuple[int, int]] = {}
    pending: dict[int, dict[OffsetKey, tuple[int, int]]] = {}
    log_end = -1
    for batch, records in LogWalk(paths).batches():
        log_end = batch.last + 1
        for record in records:
            if batch.control:
                ended = pending.pop(batch.producer_id, {})
                if marker_commits(record):
                    for owned, value in ended.items():
                        newest[owned] = max(newest.get(owned, value), value, key=_appended_at)
            elif (key := _offset_key(record)) is None:
                continue
            elif record.value is None:
                newest.pop(key, None)
            else:
                value = (_VALUE.unpack_from(record.value)[1], record.offset)
                held = pending.setdefault(batch.producer_id, {}) if batch.transactional else newest
                held[key] = value
    return log_end, {key: offset for key, (offset, _) in newest.items()}


def _appended_at(value: tuple[int, int]) -> int:
    return value[1]


def _offset_key(record: Record) -> OffsetKey | None:
    """Return group, topic and partition of an offset commit's key; None for a record of another kind."""
    key = record.key
    if key is None or int.from_bytes(key[:2], "big") not in _COMMIT_KEYS:
        return None
    names, at = [], 2
    for _ in range(2):
        (size,) = struct.unpack_from(">h", key, at)
        names.append(key[at + 2 : at + 2 + size].decode())
        at += 2 + size
    return names[0], names[1], struct.unpack_from(">i", key, at)[0]

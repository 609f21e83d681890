"""Findings that a client library or a setting explains: the excuses of `rundir.guarantees`, record by record.

Each needs evidence in the run: the times of the attempt, the leader epochs and producer ids in the logs on disk, the
observed leaders, the clocks that faults set. Without it nothing is excused.

With idempotence, a broker knows a copy by producer id, producer epoch and sequence. A client takes a new epoch when it
gives up on records that it had sent. It also takes one when a batch is refused as out of sequence because the one
before it failed. Then it sends again all that was in flight to any partition, and no broker can recognize these as
copies (librdkafka: INTRODUCTION.md, "Idempotent Producer", and its issue 4953; the Java client since KIP-360 too).
Another producer id excuses only records that were in flight when their client gave up on something. Two copies within
one producer epoch are excused only if the leader may have forgotten the producer id (producer.id.expiration.ms); else
the broker is to blame.

Without idempotence and with retries 0, records are excused that were in flight so long that the client may have sent
them again; copies only if they are in different leader epochs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackproof.clients.contract import client_adapter
from ackproof.experiment.promises import id_expiry_ms, settings_in_force
from ackproof.rundir import storage
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.anomaly_terms import Inversion
from ackproof.rundir.arrow import rows_of
from ackproof.rundir.guarantees import LIBRARIES, Excuse, Resend
from ackproof.rundir.ledger import ledger_rows, parts
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import FINDINGS, PRODUCED

if TYPE_CHECKING:
    from ackproof.experiment.case import Case
    from ackproof.judge.facts import Facts

_CHECK_INTERVAL: Final = "producer.id.expiration.check.interval.ms"
_CHECK_INTERVAL_MS: Final = 600_000
_SLACK_MS: Final = 60_000
"""Longest time before the run's first moment at which a broker may have started."""
_NO_SESSION: Final = (-1, -1)
"""(producer id, producer epoch) of a batch of a producer without idempotence."""
_REPORTED_NS: Final = 1_000_000_000
"""Time within which a client reports the outcomes of all attempts that it gave up together."""

Key = tuple[int, int]
"""Identity of a record: producer and seq."""


class _Attempt(NamedTuple):
    """Times at which a record was sent and its outcome reported, in ns since the run's start; `done_ns` -1: never."""

    sent_ns: int
    done_ns: int

    def lasted_s(self) -> float:
        """Return the seconds from sending to the report; infinite if there was no report."""
        return np.inf if self.done_ns < 0 else (self.done_ns - self.sent_ns) / 1e9


class _Batch(NamedTuple):
    """Fields of the header of a batch on disk."""

    last_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    max_timestamp_ms: int

    @property
    def session(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch


def excused(facts: Facts) -> Mapping[str, Mapping[Excuse, int]]:
    """Return, by class and excuse, how many findings do not count: the client library or a setting explains them.

    Classes that have no excuse under the settings of the run, or no findings, are missing or empty. Raises OSError,
    ArrowException or `BadInput` for a broken file.
    """
    producers, counts = facts.case.experiment.workload.producers, facts.audit.counts
    if producers.idempotence:
        if not counts.get(Anomaly.DUPLICATE):
            return {}
        found = {
            Excuse.PRODUCER_EPOCH: count_new_producer_epochs(facts),
            Excuse.FORGOTTEN_ID: _forgotten(facts),
        }
        return {Anomaly.DUPLICATE: found}
    if producers.retries != 0 or producers.acks == "0":
        return {}
    found_again: dict[str, Mapping[Excuse, int]] = {
        anomaly: {Excuse.SENT_AGAIN: _sent_again(facts, anomaly)}
        for anomaly in (Anomaly.REORDERED, Anomaly.DISPLACED)
        if counts.get(anomaly)
    }
    copies = {Excuse.NEW_LEADER: _by_a_new_leader(facts)} if counts.get(Anomaly.DUPLICATE) else {}
    return {**found_again, Anomaly.DUPLICATE: copies}


def find_places(facts: Facts, anomaly: str) -> Set[TopicPartition]:
    """Return the partitions that have findings of a class. For the class `reordered`, only inversions of two
    acknowledged records count. Raises OSError and ArrowException for a broken file."""
    return _findings(facts, anomaly).keys()


def count_torn_by_loss(facts: Facts) -> int:
    """Return the number of torn transactions that lack only lost records. Such a transaction is not counted again,
    because its records count as lost.

    A finding names one missing record of its transaction: if possible, one that is not lost. So a transaction counts
    here if the named record is lost. Raises OSError and ArrowException for a broken file.
    """
    lost = _findings(facts, Anomaly.LOST)
    torn = _findings(facts, Anomaly.TORN_TRANSACTION)
    return sum((found & lost[place]).total() for place, found in torn.items())


def count_new_producer_epochs(facts: Facts) -> int:
    """Count `duplicate` findings whose copies a broker cannot recognize: the producer sent them again in a new producer
    epoch. A new producer id counts only for records that were in flight when the producer gave up on some record.

    Returns 0 without the logs on disk: only they have the producer epochs. Raises OSError, ArrowException or `BadInput`
    for a broken file.
    """
    if not facts.run.replica_batches.exists():
        return 0
    copies_of = _findings(facts, Anomaly.DUPLICATE)
    given_up = _in_flight_when_given_up(facts, {key for copies in copies_of.values() for key in copies})
    count = 0
    for place, copies in copies_of.items():
        log = _Log(facts, place)
        for key, offsets in _offsets(facts, place, copies).items():
            epochs: set[tuple[int, int]] = set()
            for batch in map(log.batch_at, offsets):
                session = _NO_SESSION if batch is None else batch.session
                one_id = all(session[0] == producer_id for producer_id, _ in epochs)
                if session != _NO_SESSION and (one_id or key in given_up):
                    epochs.add(session)
            count += min(copies[key], max(0, len(epochs) - 1))
    return count


def _in_flight_when_given_up(facts: Facts, keys: Collection[Key]) -> frozenset[Key]:
    """Return those of the given records (`keys`) that were in flight when their producer gave up on some record, or
    were reported at most 1 s before. It gave up on a record when it reported an indeterminate outcome."""
    names = ["producer", "seq", "sent_ns", "done_ns", "outcome"]
    unknown = pc.field("outcome") == int(Outcome.INDETERMINATE)
    wanted = pc.field("seq").isin(sorted({seq for _, seq in keys}))
    table = ledger_rows(facts.run.produced, names, wanted | unknown)
    given_up = table.filter(unknown)
    who, when = (given_up[name].to_numpy() for name in ("producer", "done_ns"))
    times = {producer: np.sort(when[who == producer]) for producer in {producer for producer, _ in keys}}
    return frozenset(
        (producer, seq)
        for producer, seq, sent_ns, done_ns, _ in rows_of(table.filter(wanted), *names)
        if (producer, seq) in keys
        # an attempt that was never reported was in flight for ever
        and _has_between(times[producer], sent_ns, done_ns + _REPORTED_NS if done_ns >= 0 else np.inf)
    )


def _has_between(times: np.ndarray, begin: int, end: float) -> bool:
    position = int(np.searchsorted(times, begin))
    return position < len(times) and bool(times[position] <= end)


def _by_a_new_leader(facts: Facts) -> int:
    """Return the number of duplicates whose copies are in different leader epochs, and that were in flight long enough
    to be sent again; 0 without the logs on disk, which have the epochs."""
    least_s, count = _resend_after_s(facts.case), 0
    every = _findings(facts, Anomaly.DUPLICATE)
    attempts_of = _attempts(facts, every)
    for place, copies in every.items():
        attempts, log = attempts_of[place], _Log(facts, place)
        for key, offsets in _offsets(facts, place, copies).items():
            epochs = {batch.leader_epoch for batch in map(log.batch_at, offsets) if batch is not None}
            if key in attempts and attempts[key].lasted_s() >= least_s:
                count += min(copies[key], max(0, len(epochs) - 1))
    return count


def _sent_again(facts: Facts, anomaly: Anomaly) -> int:
    """Return the number of findings of a class about records that the client may have sent again.

    Such a record was in flight for at least `resend_after_s` of the client's adapter: before that, the library sends no
    record again. It must also have been in flight for `request_wait_s`, the longest time that the client waits for an
    answer. This second condition is dropped if the client may have looked for another leader sooner. It may have done
    so if samples show several leader epochs of the partition. The same goes for a fault that answers with an error that
    makes the client look (`Resend.UNCOUNTED`).
    """
    least_s = _resend_after_s(facts.case)
    producers = facts.case.experiment.workload.producers
    adapter = client_adapter(producers.client.library)
    waits_s = adapter.request_wait_s(adapter.producer_config(producers, "", ""))
    errors = LIBRARIES[producers.client.library].errors
    uncounted = {row.name for row in errors if row.code > 0 and row.resend is Resend.UNCOUNTED}
    # a fault answered with an error after which the client looks for another leader
    if any(getattr(fault, "error", None) in uncounted for fault in facts.case.faults):
        waits_s = 0.0
    count = 0
    every = _findings(facts, anomaly)
    attempts_of = _attempts(facts, every)
    for place, found in every.items():
        changed = len({sample.leader_epoch for sample in facts.samples_of.get(place, ())} - {-1}) > 1
        reached = 0.0 if changed else waits_s
        attempts = attempts_of[place]
        count += sum(
            number
            for key, number in found.items()
            if key in attempts and attempts[key].lasted_s() >= max(least_s, reached)
        )
    return count


def _forgotten(facts: Facts) -> int:
    """Return the number of duplicates within one producer epoch that came when the leader may have forgotten their
    producer id; 0 without the logs on disk.

    It may have forgotten an id that had appended nothing for longer than its expiry. In addition, brokers must have
    checked expiry by then, or another leader must have appended the copy.
    """
    spec, count = facts.case.experiment, 0
    every = _findings(facts, Anomaly.DUPLICATE)
    attempts_of = _attempts(facts, every)
    for place, copies in every.items():
        settings = settings_in_force(spec, place.topic)
        expiry_ms = min(id_expiry_ms(one.config) for one in settings)
        check_ms = min(int(one.config.get(_CHECK_INTERVAL, _CHECK_INTERVAL_MS)) for one in settings)
        by_leader = not all(one.stamped_when_sent for one in settings)
        attempts, log = attempts_of[place], _Log(facts, place)
        for key, offsets in _offsets(facts, place, copies).items():
            if key not in attempts:
                continue
            attempt, first = attempts[key], log.batch_at(offsets[0])
            ended_ns = attempt.done_ns if attempt.done_ns >= 0 else facts.events[-1].t_ns
            sessions = set() if first is None else {first.session}
            for offset in offsets[1:]:
                batch, before = log.batch_at(offset), log.batch_before(offset)
                if batch is None or first is None:
                    continue
                new = batch.session not in sessions  # no broker can recognize it: `count_new_producer_epochs`
                sessions.add(batch.session)
                if new or before is None:
                    continue
                checked = check_ms <= ended_ns / 1e6 + _SLACK_MS or batch.leader_epoch != first.leader_epoch
                idle_ms = float(batch.max_timestamp_ms - before.max_timestamp_ms)
                if not by_leader:
                    idle_ms += (ended_ns - attempt.sent_ns) / 1e6
                    idle_ms += _clock_lead_ms(facts, place, batch.leader_epoch, attempt.sent_ns, ended_ns)
                count += checked and idle_ms >= expiry_ms
    return count


def _clock_lead_ms(facts: Facts, place: TopicPartition, epoch: int, since_ns: int, until_ns: int) -> float:
    """Return by how many ms, at most, faults had set the clock of an epoch's leader ahead between `since_ns` and
    `until_ns`; 0 if none had. Jumps add up."""
    leaders = {
        sample.leader for sample in facts.samples_of.get(place, ()) if sample.leader_epoch == epoch
    } - {-1}
    lead_s = 0.0
    for fault in facts.case.faults:
        life = facts.faults.get(fault.number)
        if life is None or not leaders & set(life.nodes):
            continue
        over = np.inf if life.over is None else life.over
        if life.asked <= until_ns and over >= since_ns:
            lead_s += max(0.0, fault.clock_shift)
    return lead_s * 1000


class _Log:
    """The batches of a partition, from the replica with the longest log; none without the logs on disk."""

    def __init__(self, facts: Facts, place: TopicPartition) -> None:
        self._first: np.ndarray = np.empty(0, np.int64)
        self._batches: list[_Batch] = []
        if not facts.run.replica_batches.exists():
            return
        mine = facts.logs.of_partition(place)
        if mine.num_rows == 0:
            return
        longest = mine["node"][int(np.argmax(mine["last_offset"].to_numpy()))].as_py()
        mine = facts.logs.of_replica(place, longest).sort_by("first_offset")
        self._first = mine["first_offset"].to_numpy()
        self._batches = [_Batch(*row) for row in rows_of(mine, *_Batch._fields)]

    def _index(self, offset: int) -> int:
        index = int(np.searchsorted(self._first, offset, side="right")) - 1
        return index if index >= 0 and offset <= self._batches[index].last_offset else -1

    def batch_at(self, offset: int) -> _Batch | None:
        index = self._index(offset)
        return self._batches[index] if index >= 0 else None

    def batch_before(self, offset: int) -> _Batch | None:
        """Return the last batch before the one at this offset with the same producer id and epoch; None if there is
        none, if no batch has this offset, or if its producer has no id."""
        index = self._index(offset)
        if index < 0 or self._batches[index].producer_id < 0:
            return None
        session = self._batches[index].session
        return next((one for one in reversed(self._batches[:index]) if one.session == session), None)


def _findings(facts: Facts, anomaly: str) -> Mapping[TopicPartition, Counter[Key]]:
    """Return how often a class has findings of each record, by partition. For the class `reordered`, only inversions of
    two acknowledged records count."""
    names = ["topic", "partition", "producer", "seq", "detail"]
    table = storage.read_rows(facts.run.finding_parts, names, pc.field("class") == anomaly, FINDINGS)
    found: dict[TopicPartition, Counter[Key]] = defaultdict(Counter)
    for topic, partition, producer, seq, detail in rows_of(table, *names):
        if anomaly != Anomaly.REORDERED or detail == Inversion.BOTH_ACKED:
            found[TopicPartition(topic, partition)][producer, seq] += 1
    return found


def _attempts(
    facts: Facts, keys: Mapping[TopicPartition, Mapping[Key, int]]
) -> Mapping[TopicPartition, Mapping[Key, _Attempt]]:
    """Return the send and report times of these records, by partition and record, from one pass over the ledger.
    Records that it lacks are missing."""
    found: dict[TopicPartition, dict[Key, _Attempt]] = {place: {} for place in keys}
    if not keys:
        return found
    names = ["topic", "partition", "producer", "seq", "sent_ns", "done_ns"]
    wanted = pc.field("seq").isin(sorted({seq for mine in keys.values() for _, seq in mine}))
    table = storage.read_rows(parts(facts.run.produced), names, wanted, PRODUCED)
    for topic, partition, producer, seq, sent_ns, done_ns in rows_of(table, *names):
        if (place := TopicPartition(topic, partition)) in found:
            found[place][producer, seq] = _Attempt(sent_ns, done_ns)
    return found


def _offsets(facts: Facts, place: TopicPartition, keys: Mapping[Key, int]) -> Mapping[Key, Sequence[int]]:
    """Return the offsets at which the final read has each of these records, ascending. Records that it lacks are
    missing."""
    found: dict[Key, list[int]] = defaultdict(list)
    rows = facts.final_rows.read_partition(place)
    rows = rows.filter(pc.is_in(rows["seq"], pa.array(sorted({seq for _, seq in keys}), pa.int64())))
    for producer, seq, offset in rows_of(rows, "producer", "seq", "offset"):
        if (producer, seq) in keys:
            found[producer, seq].append(offset)
    return {key: sorted(offsets) for key, offsets in found.items()}


def _resend_after_s(case: Case) -> float:
    producers = case.experiment.workload.producers
    adapter = client_adapter(producers.client.library)
    return adapter.resend_after_s(adapter.producer_config(producers, "", ""))

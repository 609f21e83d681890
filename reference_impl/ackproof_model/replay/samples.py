"""Checks samples of the logs against the replayed epochs: high watermarks, and the log ends of replicas that join ISRs.

A sample names leader and epoch as brokers reported them, perhaps late. It counts only if the metadata log agrees for
that time.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from operator import attrgetter
from typing import Final

from ackproof.rundir.model import ForbiddenStep
from ackproof.rundir.observed import Sample
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.replicas import Replica
from ackproof_model.replay.account import Account, plain
from ackproof_model.replay.observed import Life, Moment, Observed, answered_ns
from ackproof_reference.metadata import NO_LEADER

MARGIN_NS: Final = 300_000_000
"""Tolerance in ns between controllers' times, which follow the wall clock, and the run's monotonic clock."""


def replay_samples(observed: Observed, account: Account) -> None:
    """Check the samples, and the epochs of the logs on disk, against the incarnations in the metadata log;
    add forbidden steps to `account`. Without comparable clocks it does nothing.
    """
    if observed.clocks:
        return
    # A node that started or ended: its log may be another one afterwards.
    touched = {node: [event.t_ns for event in life.events] for node, life in observed.lifelines.nodes.items()}
    for place, lives in account.lives.items():
        for number, life in enumerate(lives):
            samples = _of_a_life(observed, place, lives, number)
            current = list(_current(samples, life.history))
            account.replayed += len(current)
            account.forbidden += _high_watermarks(place, current, touched)
            account.forbidden += _expansions(place, life.history, current, touched)
            logs = _logs(observed, place, life)
            account.forbidden += _epochs(place, life.history, logs)
            account.forbidden += _committed(observed, place, life.history, current, logs)


def _of_a_life(
    observed: Observed, place: TopicPartition, lives: Sequence[Life], number: int
) -> Sequence[Sample]:
    """Return the samples of incarnation `number` of a partition. Samples do not name their incarnation. Brokers may
    report an earlier incarnation for a while; these samples are left out."""
    begin = answered_ns(observed, place[0], lives, number)
    removal = lives[number].removal
    return [
        sample
        for sample in observed.samples.get(place, ())
        if (number == 0 or sample.t_ns >= begin) and (removal is None or sample.t_ns < removal.t_ns)
    ]


def _logs(observed: Observed, place: TopicPartition, life: Life) -> Sequence[Replica]:
    """Return the replicas' logs of one incarnation; of a deleted one, the logs that brokers had not removed yet."""
    if life.removal is None:
        return observed.replicas_of(place, life.topic_id)
    return [one for one in observed.deleted.get(place, ()) if life.topic_id and one.topic_id == life.topic_id]


def _between(times: Sequence[int], begin: int, end: int) -> bool:
    return any(begin <= time <= end for time in times)


def _current(samples: Sequence[Sample], history: Sequence[Moment]) -> Iterator[tuple[Sample, Moment]]:
    """Yield each sample whose leader and leader epoch agree with the metadata log at its time, with the state of the
    partition in that log."""
    starts = [moment.t_ns for moment in history]
    for sample in samples:
        at = bisect_right(starts, sample.t_ns) - 1
        if at < 0:
            continue
        partition = history[at].partition
        if (sample.leader, sample.leader_epoch) == (partition.leader, partition.leader_epoch):
            yield sample, history[at]


def _high_watermarks(
    place: TopicPartition, current: Sequence[tuple[Sample, Moment]], touched: Mapping[int, Sequence[int]]
) -> Iterator[ForbiddenStep]:
    told = [pair for pair in current if pair[0].high_watermark >= 0 and pair[0].leader != NO_LEADER]
    for (before, _), (after, moment) in pairwise(told):
        one_reign = (before.leader, before.leader_epoch) == (after.leader, after.leader_epoch)
        if not one_reign or after.high_watermark >= before.high_watermark:
            continue
        if _between(touched.get(after.leader, ()), before.t_ns, after.t_ns):
            continue
        yield ForbiddenStep(
            rule="high watermark went back",
            text=f"{place}: on leader {after.leader} in epoch {after.leader_epoch} the high watermark "
            f"went from {before.high_watermark} back to {after.high_watermark}",
            state_before=f"{plain(moment.partition)}; high watermark {before.high_watermark}, log ends "
            f"{before.log_ends}",
            source="Partition.maybeIncrementLeaderHW; UnifiedLog.maybeIncrementHighWatermark",
            offset=moment.offset,
            t_ns=after.t_ns,
            topic=place.topic,
            partition=place.partition,
        )


def _expansions(
    place: TopicPartition,
    history: Sequence[Moment],
    current: Sequence[tuple[Sample, Moment]],
    touched: Mapping[int, Sequence[int]],
) -> Iterator[ForbiddenStep]:
    """Yield a forbidden step for each replica that joined the ISR, without a change of the leader epoch, and lacked
    records below the high watermark.

    None of its later log end offsets may be below a high watermark that was sampled before it joined. In one leader
    epoch a follower's log does not become shorter, even after the follower has left the ISR.

    `current`: the samples that agree with the metadata log (`_current`). `touched`: by node, the times in ns at which
    its process started or ended. After such a time the log may be another one, so the replica's later samples do not
    count. A replica without any sample that counts is not checked."""
    for before, now in pairwise(history):
        joined = set(now.partition.isr) - set(before.partition.isr)
        if not joined or now.partition.leader_epoch != before.partition.leader_epoch:
            continue
        epoch = now.partition.leader_epoch
        of_epoch = [sample for sample, _ in current if sample.leader_epoch == epoch]
        marks = [sample.high_watermark for sample in of_epoch if sample.t_ns <= now.t_ns - MARGIN_NS]
        highest = max(marks, default=-1)
        for node in sorted(joined):
            low = _lowest(node, now, history, of_epoch, touched)
            if low is not None and low.log_ends[node] < highest:
                yield ForbiddenStep(
                    rule="ISR expansion below the high watermark",
                    text=f"{place}: broker {node} joined the ISR in epoch {epoch}, and its log ended at "
                    f"{low.log_ends[node]} even afterwards; the high watermark had been {highest} before",
                    state_before=f"{plain(before.partition)}; high watermark {highest}",
                    source="KIP-320, KIP-497; Partition.isFollowerInSync",
                    offset=now.offset,
                    t_ns=now.t_ns,
                    topic=place.topic,
                    partition=place.partition,
                )


def _lowest(
    node: int,
    joined: Moment,
    history: Sequence[Moment],
    of_epoch: Sequence[Sample],
    touched: Mapping[int, Sequence[int]],
) -> Sample | None:
    """Return the sample with the node's lowest log end offset after it joined the ISR. None if no sample counts.

    `joined`: the state of the partition with which it joined. `history`: all states, oldest first. `of_epoch`: samples
    of the same leader epoch, in order of time. `touched`: by node, the times in ns at which its process started or
    ended. Samples count until the next such time, and while the node is a replica."""
    left = next(
        (one.t_ns for one in history if one.t_ns > joined.t_ns and node not in one.partition.replicas),
        math.inf,
    )
    # A broker is asked again once it has answered: an answer is newer than the one before it was taken. The first
    # one after a pause may be as old as the pause.
    later = of_epoch[bisect_left(of_epoch, joined.t_ns + MARGIN_NS, key=attrgetter("t_ns")) :]
    answers = (sample for sample in later if node in sample.log_ends)
    next(answers, None)
    until = min([left, *(t_ns for t_ns in touched.get(node, ()) if t_ns >= joined.t_ns - MARGIN_NS)])
    seen = takewhile(lambda sample: sample.t_ns < until, answers)
    return min(seen, key=lambda sample: sample.log_ends[node], default=None)


def _committed(
    observed: Observed,
    place: TopicPartition,
    history: Sequence[Moment],
    current: Sequence[tuple[Sample, Moment]],
    replicas: Sequence[Replica],
) -> Iterator[ForbiddenStep]:
    """Yield a forbidden step for the first leader epoch that began below a high watermark sampled in an earlier epoch.
    A leader that is elected from the ISR has all records below the high watermark, whatever acks is.

    An epoch is excused if a leader since that sample was elected uncleanly. It is excused, too, if a fault may have
    removed records from the disk of such a leader.

    `replicas`: logs on disk, which show where an epoch began: each replica has that offset from the leader of the
    epoch."""
    told = [sample for sample, _ in current if sample.leader != NO_LEADER]
    for epoch, start in sorted({(entry.epoch, entry.start) for one in replicas for entry in one.epochs}):
        earlier = [sample for sample in told if sample.leader_epoch < epoch]
        seen = max(earlier, key=lambda sample: sample.high_watermark, default=None)
        if seen is None or seen.high_watermark <= start:
            continue
        since = [one for one in history if seen.leader_epoch < one.partition.leader_epoch <= epoch]
        if not since or not all(one.clean for one in since):
            continue
        elected = next(one for one in since if one.partition.leader_epoch == since[-1].partition.leader_epoch)
        if observed.cut_before({one.partition.leader for one in since}, elected.t_ns):
            continue
        yield ForbiddenStep(
            rule="committed records cut",
            text=f"{place}: the high watermark was {seen.high_watermark} in epoch {seen.leader_epoch}, and broker "
            f"{elected.partition.leader}, elected cleanly ({elected.cause}), began epoch {epoch} at {start}",
            state_before=f"broker {seen.leader} led in epoch {seen.leader_epoch}, ISR {list(seen.isr)}; high "
            f"watermark {seen.high_watermark}, log ends {seen.log_ends}",
            source="KIP-101, KIP-966; Partition.maybeIncrementLeaderHW",
            offset=elected.offset,
            t_ns=elected.t_ns,
            topic=place.topic,
            partition=place.partition,
        )
        return


def _epochs(
    place: TopicPartition, history: Sequence[Moment], replicas: Sequence[Replica]
) -> Iterator[ForbiddenStep]:
    """Yield a forbidden step for each log whose epochs do not rise with its offsets, or that has an epoch in which
    nobody led."""
    led = {moment.partition.leader_epoch for moment in history if moment.partition.leader != NO_LEADER}
    for replica in replicas:
        strange = [entry.epoch for entry in replica.epochs if entry.epoch not in led]
        falling = any(
            one.epoch >= two.epoch or one.start > two.start for one, two in pairwise(replica.epochs)
        )
        if not strange and not falling:
            continue
        what = f"epoch {strange[0]}, in which nobody led" if strange else "epochs that do not rise"
        yield ForbiddenStep(
            rule="epochs of a log",
            text=f"{place}: the log of broker {replica.node} has {what}",
            state_before=", ".join(f"epoch {entry.epoch} from {entry.start}" for entry in replica.epochs),
            source="KIP-101; LeaderEpochFileCache.assign",
            topic=place.topic,
            partition=place.partition,
        )

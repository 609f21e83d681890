"""Anomaly classes: which are forbidden, by the prediction or else by the settings, and how many findings count against
the run.

Names of this module, for one class: `apart` are its predictions about single partitions. `whole` is the number of all
its findings. `count` is the number of findings on other partitions than `apart`; the rulings of the topics decide about
them. `against` is the number of findings in `count` that make the run fail: their topic does not permit the class, and
no excuse covers them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import reduce
from operator import or_

import pyarrow.compute as pc

from ackproof.experiment.experiment import ExpectSpec
from ackproof.experiment.promises import Promises, Ruling, rule
from ackproof.judge.excuses import count_torn_by_loss, find_places
from ackproof.judge.facts import Facts
from ackproof.judge.groups import combine, judge_class
from ackproof.judge.liveness import judge_liveness
from ackproof.judge.opinion import Opinion, breaks, stays_open
from ackproof.rundir.anomalies import GROUP_CLASSES, LIVENESS, REMOVED, TABLE, TRACED, Anomaly, count_text
from ackproof.rundir.anomaly_terms import GRAVEST_FIRST, Chance, Concern, Inversion, RuledBy
from ackproof.rundir.arrow import rows_of
from ackproof.rundir.documents import ClassJudgement
from ackproof.rundir.guarantees import Excuse
from ackproof.rundir.model import PredictedClass, PredictionFile
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import fault_name


def opinions_on(classes: Iterable[ClassJudgement]) -> Iterator[Opinion]:
    """Yield a `breaks` opinion (a promise is broken) for each forbidden class that has findings.

    Yield an `open` opinion (undecided) for each class with findings that is neither forbidden nor allowed,
    and whose prediction is unknown. Classes about groups are left out (`judge.groups`).
    """
    for one in classes:
        if one.anomaly in GROUP_CLASSES:
            continue  # `judge.groups.opinions_on_groups` speaks of each group
        name, numbers = f"{one.anomaly}: {count_text(one.count, one.anomaly)}", {"count": one.count}
        if one.count and one.forbidden:
            text, proven = f"{name}. Forbidden: {one.why}", proves_itself(one.anomaly)
            yield breaks(text, proven=proven, subject=one.anomaly, numbers=numbers)
        elif one.count and one.forbidden is None and one.predicted == Chance.UNKNOWN:
            text = f"{name}. Neither forbidden nor allowed: {one.why}"
            yield stays_open(text, subject=one.anomaly, numbers=numbers)


def judged_classes(facts: Facts) -> Iterator[ClassJudgement]:
    """Yield the judgement on each anomaly class that the audit counted: its count and whether it is
    forbidden.

    If settings differ by topic, only findings on topics where the class is forbidden count against the run.
    """
    experiment = facts.case.experiment
    topics = {topic: Promises.from_experiment(facts.case.planned, topic) for topic in experiment.topics}
    for anomaly, whole in facts.audit.counts.items():
        if anomaly in LIVENESS:
            yield judge_liveness(facts, anomaly, whole)
            continue
        if anomaly in GROUP_CLASSES:
            yield combine(anomaly, whole, judge_class(facts, anomaly))
            continue
        apart = facts.prediction.find_partitions(anomaly) if whole else ()
        count = whole - facts.count(anomaly, _on_partitions(apart)) if apart else whole
        rulings = {
            topic: ruling(
                facts.prediction, _judged_as(facts, anomaly, promises), topic, promises, experiment.expect
            )
            for topic, promises in topics.items()
        }
        forbidden = {
            topic: topics[topic] for topic, one in rulings.items() if one.chance is Chance.IMPOSSIBLE
        }
        if forbidden and count:
            one = _forbidden(
                facts, anomaly, count, rulings[next(iter(forbidden))], forbidden, topics.keys(), apart
            )
        else:
            said = _strictest_ruling(facts, anomaly, count, rulings, topics, apart)
            not_seen = count == 0 and said.predicted is Chance.POSSIBLE
            why = f"possible, not seen: {said.why}" if not_seen else said.text
            if anomaly in REMOVED and count:
                why = facts.why_removed(anomaly) or why
            one = ClassJudgement(
                anomaly=anomaly,
                count=count,
                forbidden=said.forbidden,
                why=why,
                predicted=said.predicted or "",
            )
        if one.forbidden and count and TABLE[anomaly].concern is Concern.TRANSACTIONS:
            one = _judge_transactions(facts, one)
        if count != whole:
            one = _with_those_apart(facts, one, apart, whole)
        searched = any(found.explored and found.anomaly == anomaly for found in facts.prediction.classes)
        used = facts.prediction.reductions if one.predicted and searched else None
        yield one.model_copy(update={"reductions": used})


def _judge_transactions(facts: Facts, one: ClassJudgement) -> ClassJudgement:
    """Add reasons to the judgement of a forbidden class about transactions (`one`), and return it. The class
    `torn-transaction` (readers see a part of a transaction) may also turn out to be allowed, or undecided.

    It is allowed if every torn transaction lacks only records that count as lost: `lost` judges the loss. It is
    undecided after a fault of a disk, which can remove a marker or the record of a commit. But if a coordinator's log
    says that it skipped a marker (KAFKA-20734), the class stays forbidden.
    """
    is_torn = one.anomaly == Anomaly.TORN_TRANSACTION  # in partitions other than that of its finding, too
    skipped = sorted(facts.unmarked if is_torn else facts.unmarked & find_places(facts, one.anomaly))
    whys = [one.why]
    if skipped:
        whys.append(
            f"a coordinator skipped a marker of {skipped[0]}, which had no leader, says its log (KAFKA-20734)"
        )
    if not is_torn:
        return one.model_copy(update={"why": "; ".join(whys)})
    if by_loss := count_torn_by_loss(facts):
        whys.append(f"{by_loss} of {one.count} lack only records that count as lost")
    if by_loss == one.count:
        return one.model_copy(update={"forbidden": False, "why": whys[-1], "predicted": ""})
    if skipped or (fault := facts.disk_fault) is None:
        return one.model_copy(update={"why": "; ".join(whys)})
    whys.append(
        f"fault {fault_name(fault.number)} ({fault.kind}) may have taken a marker, or the record of a commit"
    )
    return one.model_copy(update={"forbidden": None, "why": "; ".join(whys[1:]), "predicted": Chance.UNKNOWN})


def _judged_as(facts: Facts, anomaly: str, promises: Promises) -> str:
    """Return the class by whose rules a class is judged: the class itself, with one exception.

    Audits of older versions have no class `deleted` and count the records of a deleted topic as lost. Such a loss is
    judged as `vanished`.
    """
    older = Anomaly.DELETED not in facts.audit.counts
    return Anomaly.VANISHED if older and promises.dropped and anomaly == Anomaly.LOST else anomaly


def _with_those_apart(
    facts: Facts, rest: ClassJudgement, apart: Sequence[PredictedClass], whole: int
) -> ClassJudgement:
    """Return the judgement of a class on all partitions. `rest`: its judgement on all partitions but those in `apart`,
    which have predictions of their own. `whole`: number of findings on all partitions.

    If findings in `rest` are forbidden or undecided, so is the class. Findings on a partition in `apart` are permitted
    on two conditions. The prediction for the partition says possible, and the replay of the run traces all missing
    records to the steps that removed them. Otherwise the findings leave the class undecided.
    """
    traced = all(found.explained == found.count for found in facts.replay.classes if found.anomaly in TRACED)
    traced &= any(found.anomaly == Anomaly.LOST for found in facts.replay.classes)
    unreplayed = facts.replay.not_replayed[:1] if not traced else ()
    words, opens = [], False
    for one in apart:
        if seen := facts.count(rest.anomaly, _on_partitions([one])):
            known = traced and one.chance is Chance.POSSIBLE
            opens |= not known
            said = "predicted possible" if known else "of which nothing can be said"
            if one.chance is Chance.POSSIBLE and unreplayed:
                said = f"not traced to the step that removed them ({unreplayed[0]})"
            words.append(f"{seen} of {whole} are on {', '.join(one.partitions)}, {said}: {one.why}")
    if rest.count and rest.forbidden is not False:
        opens |= rest.forbidden is None
        words.insert(0, rest.why)
    forbidden = True if rest.count and rest.forbidden else None if opens else False
    chance = rest.predicted if forbidden else Chance.UNKNOWN if opens else Chance.POSSIBLE
    return ClassJudgement(
        anomaly=rest.anomaly, count=whole, forbidden=forbidden, why="; ".join(words), predicted=chance
    )


def _forbidden(
    facts: Facts,
    anomaly: str,
    count: int,
    first: Ruling,
    forbidden: Mapping[str, Promises],
    topics: Set[str],
    apart: Sequence[PredictedClass],
) -> ClassJudgement:
    """Return the judgement of a class that some topics forbid (`forbidden`). The class is forbidden if at least one
    finding may be on a topic that does not permit the class, and no excuse covers this finding. `first`: the ruling of
    the first of these topics."""
    against = _count_against(facts, anomaly, count, forbidden, topics - forbidden.keys(), apart)
    why = first.text
    excuses = _excuses(facts, anomaly, first, forbidden.values()) if first.excuses and against else {}
    excused = min(sum(excuses.values()), against)
    against -= excused
    told = "; ".join(f"{number} {text}" for text, number in excuses.items())
    if excused and not against:
        why = told
    elif excused:
        why += f"; {told}"
    if against != count and (against or not excused):
        why += f" ({against} of {count} stand against that)"
    if anomaly == Anomaly.LOST:
        why += unappended(facts)
    return ClassJudgement(
        anomaly=anomaly, count=count, forbidden=against > 0, why=why, predicted=first.predicted or ""
    )


def _excuses(facts: Facts, anomaly: str, ruling: Ruling, promises: Iterable[Promises]) -> Mapping[str, int]:
    found = facts.excused.get(anomaly, {})
    forgets = next((one.forgets_ids for one in promises if one.forgets_ids), "")
    words = {Excuse.FORGOTTEN_ID: f"{Excuse.FORGOTTEN_ID} ({forgets})"}
    return {words.get(one, one.value): found[one] for one in ruling.excuses if found.get(one)}


def _strictest_ruling(
    facts: Facts,
    anomaly: str,
    count: int,
    rulings: Mapping[str, Ruling],
    topics: Mapping[str, Promises],
    apart: Sequence[PredictedClass],
) -> Ruling:
    """Return the strictest ruling of the topics on a class.

    Topics with an unknown prediction are left out if the class has findings, and none of them is on such a topic.
    """
    unknown = {topic: topics[topic] for topic, one in rulings.items() if one.predicted is Chance.UNKNOWN}
    elsewhere = topics.keys() - unknown.keys()
    if count and unknown and _count_against(facts, anomaly, count, unknown, elsewhere, apart) == 0:
        return strictest([one for one in rulings.values() if one.predicted is not Chance.UNKNOWN])
    return strictest(list(rulings.values()))


def strictest(rulings: Sequence[Ruling]) -> Ruling:
    """Return the first ruling that forbids the class; if none forbids it, the first that leaves it undecided; else the
    first. `rulings`: at least one."""
    return max(rulings, key=lambda one: GRAVEST_FIRST.index(one.chance))


def _count_against(
    facts: Facts,
    anomaly: str,
    count: int,
    forbidden: Mapping[str, Promises],
    permitting: Set[str],
    apart: Sequence[PredictedClass],
) -> int:
    """Return the number of findings of a class that lie on no topic in `permitting`. `count`: number of its findings on
    all topics. Neither number has findings on the partitions in `apart`, which have predictions of their own.

    `forbidden`: all other topics. If the class is about the order of records (`RuledBy.ORDER`) and one of these topics
    is without idempotence, only inversions of two acknowledged records count.
    """
    row = TABLE.get(anomaly)
    acked_only = row is not None and row.ruled_by is RuledBy.ORDER
    acked_only &= not all(promises.idempotence for promises in forbidden.values())
    if not permitting and not acked_only:
        return count
    wanted = pc.scalar(True)
    if permitting:
        wanted &= ~pc.field("topic").isin(sorted(permitting))
    if acked_only:
        wanted &= pc.field("detail") == Inversion.BOTH_ACKED.value
    wanted &= ~_on_partitions(apart)
    return facts.count(anomaly, wanted)


def _on_partitions(apart: Sequence[PredictedClass]) -> pc.Expression:
    places = [TopicPartition.parse(name) for one in apart for name in one.partitions]
    return reduce(
        or_,
        ((pc.field("topic") == place.topic) & (pc.field("partition") == place.partition) for place in places),
        pc.scalar(False),
    )


def proves_itself(anomaly: str) -> bool:
    """Return True if one finding of this class, where it is forbidden, makes the verdict FAIL even if
    evidence is missing elsewhere.
    """
    row = TABLE.get(anomaly)
    return row is not None and row.proves


def ruling(
    prediction: PredictionFile,
    anomaly: str,
    topic: str,
    promises: Promises,
    expects: Sequence[ExpectSpec],
) -> Ruling:
    """Return the ruling on the class `anomaly` for one topic (forbidden, allowed or unknown), with the reason.

    The settings (`promises`) decide classes that are not about a loss of records (`RuledBy.LOSS`). For the others, the
    prediction decides if it says possible or impossible.

    If there is no prediction, the settings decide, and `expects` can only make the ruling unknown. It does so if it has
    a bound on the class, unless the settings forbid the class and no bound demands a finding. A prediction that the
    settings alone made counts as none.

    If the prediction is unknown, so is the ruling, with one exception. The class is forbidden if a search made the
    prediction (`explored`), the settings forbid the class, and no bound demands a finding.
    """
    usual, row = rule(anomaly, promises), TABLE.get(anomaly)
    if row is None or row.ruled_by is not RuledBy.LOSS:
        return usual  # no prediction decides it
    bounds = [expect.bounds[anomaly] for expect in expects if anomaly in expect.bounds]
    demanded = any(bound.lowest > 0 for bound in bounds)
    found = prediction.find_class(anomaly, topic)
    if found is None or _is_by_settings(found, usual):
        if not bounds or (usual.chance is Chance.IMPOSSIBLE and not demanded):
            return usual
        return Ruling(Chance.UNKNOWN, "the experiment's expectation decides; there is no prediction")
    if found.chance is Chance.POSSIBLE and found.story:
        cause = usual.why if usual.chance is not Chance.IMPOSSIBLE else "the observed faults permit it"
        return Ruling(found.chance, f"{cause} (model: {len(found.story)}-step counterexample)", found.chance)
    if found.chance is not Chance.UNKNOWN:
        return Ruling(found.chance, found.why, found.chance, lead=f"predicted {found.chance}: ")
    if usual.chance is Chance.IMPOSSIBLE and not demanded and found.explored:
        return Ruling(usual.chance, f"{usual.why}; no way to it was found: {found.why}", found.chance)
    return Ruling(Chance.UNKNOWN, f"the prediction is unknown: {found.why}", found.chance)


def _is_by_settings(found: PredictedClass, usual: Ruling) -> bool:
    """Return True if the settings alone made the prediction `found`. A file of an older version does not record that
    (`by_settings` None). Then True means that no search made it, and its reason is that of the settings (`usual`)."""
    if found.by_settings is None:
        return not found.explored and found.why == usual.why
    return found.by_settings


def unappended(facts: Facts) -> str:
    """Describe lost records that were acknowledged without an offset, as the end of a sentence; '' with acks=0, or
    without such records. The text names the partitions whose logs show the following cause.

    A leader without state of a producer id accepts any first sequence (ProducerAppendInfo.checkSequence). If a later
    batch reaches this leader first, it answers the earlier batches with DUPLICATE_SEQUENCE_NUMBER, although it never
    appended them. Clients count that answer as success.
    """
    if facts.case.experiment.workload.producers.acks == "0":
        return ""
    count = facts.count(Anomaly.LOST, pc.field("offset") < 0)
    if not count:
        return ""
    said = f"; {count} of them were acknowledged without an offset, as duplicates are"
    return said + "".join(_begun_late(facts) if facts.replicas is not None else ())


def _begun_late(facts: Facts) -> Iterator[str]:
    """Yield, as the end of a sentence, each partition and producer id whose first batch on disk does not begin the id:
    sequence and leader epoch are above 0. That leader knew nothing of the id."""
    wanted = (pc.field("producer_id") >= 0) & (pc.field("topic").isin(list(facts.case.experiment.topics)))
    rows = facts.batches.filter(wanted).sort_by("first_offset")
    seen: set[tuple[str, int, int]] = set()
    names = ("topic", "partition", "producer_id", "base_sequence", "leader_epoch", "first_offset")
    for topic, partition, who, sequence, epoch, offset in rows_of(rows, *names):
        if (topic, partition, who) not in seen and sequence > 0 and epoch > 0:
            yield (
                f", and {topic}/{partition} has producer id {who} from sequence {sequence} on, at offset {offset}: the "
                f"leader of epoch {epoch} had nothing of it, and took that for its first"
            )
        seen.add((topic, partition, who))

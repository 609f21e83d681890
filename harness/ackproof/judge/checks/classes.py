"""What is said of each class that the audit counted: forbidden, allowed or not judged, and how many stand against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Final

import pyarrow.compute as pc
import pyarrow.dataset as ds

from ackproof.experiment.promises import Promises, Ruling
from ackproof.judge.copies import WHY as SENT_AGAIN
from ackproof.judge.facts import Facts
from ackproof.judge.forbidden import acked_inversions_only, proves_itself, ruling
from ackproof.judge.opinion import Opinion, breaks, stays_open
from ackproof.reference.predict.cases import promises_for
from ackproof.rundir.anomalies import Anomaly, Inversion
from ackproof.rundir.documents import ClassJudgement
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.prediction import Chance
from ackproof_reference.chance import GRAVEST_FIRST

_FORBIDDEN: Final = {Chance.IMPOSSIBLE: True, Chance.POSSIBLE: False, Chance.UNKNOWN: None}


def opinions_on(classes: Iterable[ClassJudgement]) -> Iterator[Opinion]:
    """A class that is forbidden and seen breaks; one that is seen and of which nobody knows stays open."""
    for one in classes:
        text = f"{one.anomaly}: {one.count}, and {one.why}"
        if one.count and one.forbidden:
            yield breaks(text, proven=proves_itself(one.anomaly))
        elif one.count and one.forbidden is None and one.predicted == Chance.UNKNOWN:
            yield stays_open(text)


def judged_classes(facts: Facts) -> Iterator[ClassJudgement]:
    """Each class with its count, over all topics."""
    experiment = facts.case.experiment
    topics = {topic: promises_for(facts.case, topic) for topic in experiment.topics}
    for anomaly, count in facts.audit.counts.items():
        rulings = {
            topic: ruling(facts.prediction, anomaly, topic, promises, experiment.expect)
            for topic, promises in topics.items()
        }
        forbidden = {
            topic: topics[topic] for topic, one in rulings.items() if one.chance is Chance.IMPOSSIBLE
        }
        if forbidden and count:
            yield _forbidden(facts, anomaly, count, rulings[next(iter(forbidden))], forbidden, topics.keys())
        else:
            said = _said(facts.run, anomaly, count, rulings, topics)
            not_seen = count == 0 and said.predicted is Chance.POSSIBLE
            why = said.why.removeprefix("predicted possible: ") if not_seen else said.why
            yield ClassJudgement(
                anomaly=anomaly,
                count=count,
                forbidden=_FORBIDDEN[said.chance],
                why=f"possible, not seen: {why}" if not_seen else why,
                predicted=said.predicted or "",
            )


def _forbidden(
    facts: Facts,
    anomaly: str,
    count: int,
    first: Ruling,
    forbidden: Mapping[str, Promises],
    topics: Set[str],
) -> ClassJudgement:
    """A class that was seen and that some topics forbid: it counts where it is not on a topic that permits it."""
    against = _count_against(facts.run, anomaly, count, forbidden, permitting=topics - forbidden.keys())
    why = first.why
    if anomaly == Anomaly.DUPLICATE and (excused := min(facts.sent_again, against)):
        against -= excused
        why += f"; {excused} were {SENT_AGAIN}"
    if against != count:
        why += f" ({against} of {count} stand against that)"
    return ClassJudgement(
        anomaly=anomaly, count=count, forbidden=against > 0, why=why, predicted=first.predicted or ""
    )


def _said(
    run: CaseDir,
    anomaly: str,
    count: int,
    rulings: Mapping[str, Ruling],
    topics: Mapping[str, Promises],
) -> Ruling:
    """The strictest ruling of those topics that count: what is unknown on one is open only if it was seen there."""
    unknown = {topic: topics[topic] for topic, one in rulings.items() if one.predicted is Chance.UNKNOWN}
    elsewhere = topics.keys() - unknown.keys()
    if count and unknown and _count_against(run, anomaly, count, unknown, permitting=elsewhere) == 0:
        return strictest([one for one in rulings.values() if one.predicted is not Chance.UNKNOWN])
    return strictest(list(rulings.values()))


def strictest(rulings: Sequence[Ruling]) -> Ruling:
    """The first of those that forbid, else of those that do not judge, else of those that allow."""
    return max(rulings, key=lambda one: GRAVEST_FIRST.index(one.chance))


def _count_against(
    run: CaseDir, anomaly: str, count: int, forbidden: Mapping[str, Promises], *, permitting: Set[str]
) -> int:
    """How many of the findings of a class do not stand on topics that permit it: a topic nobody knows forbids it."""
    acked_only = any(acked_inversions_only(anomaly, promises) for promises in forbidden.values())
    if not permitting and not acked_only:
        return count
    findings = ds.dataset(run.findings, format="parquet")
    wanted = pc.field("class") == anomaly
    if permitting:
        wanted &= ~pc.field("topic").isin(sorted(permitting))
    if acked_only:
        wanted &= pc.field("detail") == Inversion.BOTH_ACKED.value
    return int(findings.count_rows(filter=wanted))

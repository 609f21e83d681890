"""What the configuration of a consumer group promises, by class of anomalies.

The table is `group_promises.txt`: of the rows of a class, the first whose commit mode, client and conditions fit
decides. `python -m ackproof.experiment.group_promises` prints `docs/group-promises.md`; a test compares both.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Set
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from ackproof.experiment.client import JAVA
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.group import GroupSpec
from ackproof.experiment.promises import Ruling
from ackproof.rundir.anomalies import GROUP_CLASSES
from ackproof.rundir.model import Chance

_ANY: Final = "any"
_FIRST_ASYNC: Final = 4
"""Major release of kafka-clients from which on its consumer of KIP-848 commits only what it returned (KAFKA-18641)."""


class Condition(StrEnum):
    """A condition of rows of the table. The value is its name there."""

    NO_METADATA = "no metadata"
    LATEST = "latest"
    EARLY_CONSUMER = "early consumer"
    KILLED = "killed"
    OPERATOR = "operator"
    INPUT = "input"
    OUTSIDE = "outside"
    OFFSETS = "offsets"
    UNSURE = "unsure"
    RESET = "reset"
    IN_LOG = "in log"
    OUTSIDER = "outsider"
    REPEATED = "repeated"
    STALE = "stale"


_LOSING: Final = {"offsets.commit.required.acks", "offsets.retention.minutes"}
"""Settings of brokers by which the offsets topic may lose commits."""
OF_SETTINGS: Final = frozenset({Condition.NO_METADATA, Condition.LATEST, Condition.EARLY_CONSUMER})
"""Conditions that the settings of a group decide. A run decides the others, most of them by its faults."""
_MEANING: Final = {
    Condition.NO_METADATA: "`group_metadata: false`",
    Condition.LATEST: "`start: latest` or `reset: latest`",
    Condition.EARLY_CONSUMER: "`protocol: consumer` with kafka-clients below 4.0",
    Condition.KILLED: "a fault killed a member",
    Condition.OPERATOR: "a fault set the group's offsets, or deleted them or their topic",
    Condition.INPUT: "the input may have lost records that members were handed: unclean election, a deleted topic, a "
    "loss that is predicted or found",
    Condition.OUTSIDE: "a fault is a command of yours, whose effects are not known",
    Condition.OFFSETS: "`offsets.commit.required.acks` is not -1; an unclean election on the group's partition of "
    "`__consumer_offsets`; a disk fault where that has one replica; or offsets expired",
    Condition.UNSURE: "a disk fault, a clock that was set, ZooKeeper with faults, or a hole in the metadata log",
    Condition.RESET: "a member's position was reset to a lower offset",
    Condition.IN_LOG: "each reset that skipped began at a committed offset for which the final read has a record",
    Condition.OUTSIDER: "a commit that was not refused had no generation, before the call or after its answer",
    Condition.REPEATED: "on each partition with a finding, a lower offset in the log is a second copy of a commit, or "
    "one without an answer or a generation",
    Condition.STALE: "the partition of `__consumer_offsets` had more than one leader, its log has no lower offset, and "
    "nobody was told less than the first of them knew",
}
_RULINGS: Final = {
    "forbidden": Chance.IMPOSSIBLE,
    "allowed": Chance.POSSIBLE,
    "not judged": Chance.UNKNOWN,
}


class GroupPromise(NamedTuple):
    """A row of the table. `commits`, `clients`: those that it is about, or `any`. `ruling`: impossible is forbidden,
    possible allowed, unknown not judged. `tried`: the attack by which the row was tested."""

    anomaly: str
    commits: tuple[str, ...]
    clients: tuple[str, ...]
    conditions: frozenset[Condition]
    ruling: Chance
    words: str
    source: str
    tried: str

    def is_about(self, spec: GroupSpec) -> bool:
        """Return True if the row is about groups with this commit mode and client."""
        return bool({_ANY, spec.commit} & {*self.commits}) and bool({_ANY, spec.library} & {*self.clients})


def _read_table(text: str) -> tuple[tuple[GroupPromise, ...], tuple[tuple[str, ...], ...]]:
    """Parse the promises, and the rows on healthy behaviour. The comments of the file name the columns."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    promises = tuple(
        GroupPromise(
            *(anomaly, tuple(commits.split(", ")), tuple(clients.split(", "))),
            *(frozenset(map(Condition, filter(None, conditions.split(", ")))), _RULINGS[ruling]),
            *(words, source, tried),
        )
        for kind, *row in cells
        if kind == "promise"
        for anomaly, commits, clients, conditions, ruling, words, source, tried in (row,)
    )
    return promises, tuple(tuple(row) for kind, *row in cells if kind == "healthy")


PROMISES, HEALTHY = _read_table(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))
"""The promises of all classes, in the order in which they are tried; and for each class, what healthy groups show that
looks like it, and why that is no finding."""


def conditions_of(spec: GroupSpec, kafka_release: str) -> dict[Condition, str]:
    """Return the conditions that hold by the settings of a group, each with the settings in words.

    `kafka_release`: release of its client library, '' if it is not the Java client.
    """
    found: dict[Condition, str] = {}
    if not spec.group_metadata:
        found[Condition.NO_METADATA] = "group_metadata: false"
    if "latest" in (spec.start, spec.resolved_reset):
        found[Condition.LATEST] = f"start: {spec.start}, reset: {spec.resolved_reset}"
    major = kafka_release.split(".")[0]
    early = spec.library == JAVA and spec.protocol == "consumer"
    if early and major.isdecimal() and int(major) < _FIRST_ASYNC:
        found[Condition.EARLY_CONSUMER] = f"kafka-clients {kafka_release}"
    return found


def find_promise(anomaly: str, spec: GroupSpec, conditions: Set[Condition]) -> GroupPromise:
    """Return the row that decides on a class for a group under which these conditions hold. Raises KeyError for a
    class that is none of groups."""
    for row in PROMISES:
        if row.anomaly == anomaly and row.is_about(spec) and row.conditions <= conditions:
            return row
    raise KeyError(anomaly)


def rule_group(anomaly: str, spec: GroupSpec, conditions: Mapping[Condition, str]) -> Ruling:
    """Return the ruling on a class for a group. `conditions`: those that hold, each with its cause in words."""
    row = find_promise(anomaly, spec, conditions.keys())
    causes = [conditions[one] for one in Condition if one in row.conditions and conditions[one]]
    source = f" ({row.source})" if row.source else ""
    why = f"commit: {spec.commit}: {row.words}{source}" + (f": {'; '.join(causes)}" if causes else "")
    return Ruling(row.ruling, why, Chance.UNKNOWN if row.ruling is Chance.UNKNOWN else None)


def may_happen(anomaly: str, experiment: ExperimentSpec) -> bool:
    """Return True if some group of an experiment may show a class without breaking a promise, under some condition.

    Without faults only conditions of the settings hold, or those of the offsets topic.
    """
    cluster = experiment.cluster
    settings = {name for config in (cluster.config, *cluster.broker_config.values()) for name in config}
    without_faults = {Condition.OFFSETS} if settings & _LOSING else set()
    for spec in experiment.workload.groups.values():
        release = spec.client.release_for(experiment.cluster.kafka)
        holding = set(conditions_of(spec, release))
        holding |= set(Condition) - OF_SETTINGS if experiment.faults else without_faults
        for row in PROMISES:
            fits = row.anomaly == anomaly and row.is_about(spec) and row.conditions <= holding
            if fits and row.ruling is not Chance.IMPOSSIBLE:
                return True
    return False


_INTRODUCTION: Final = """\
# What consumer groups promise

Generated by `python -m ackproof.experiment.group_promises`; a test holds both equal. The table decides which
[classes of anomalies](anomalies.md) a [group](groups.md) may show. Of the rows of a class, the first that fits the
group's `commit` and client, and whose conditions all hold, decides. *allowed* is reported and does not fail the run.
*not judged* leaves the verdict open. A prediction of the reference implementation refines a row: what it finds
possible, with the steps that lead there, is allowed.

Refused commits are in no class: healthy groups have them in every rebalance.

| condition | holds if |
|---|---|"""
_HEALTHY: Final = """
## What healthy groups show, and why it is no finding

| class | healthy behaviour that looks like it | why it is not counted, or not forbidden |
|---|---|---|"""


def markdown() -> str:
    """Return the text of `docs/group-promises.md`."""
    names = {chance: name for name, chance in _RULINGS.items()}
    lines = [_INTRODUCTION, *(f"| {one} | {_MEANING[one]} |" for one in Condition)]
    rows: dict[str, list[GroupPromise]] = defaultdict(list)
    for row in PROMISES:
        rows[row.anomaly].append(row)
    for anomaly in GROUP_CLASSES:
        lines += ["", f"## `{anomaly}`", ""]
        lines += [
            "| commit | client | if | ruling | promise | source | tried by |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in rows[anomaly]:
            conditions = ", ".join(one for one in Condition if one in row.conditions)
            cells = (", ".join(row.commits), ", ".join(row.clients), conditions, names[row.ruling])
            lines.append(f"| {' | '.join((*cells, row.words, row.source, row.tried))} |")
    lines.append(_HEALTHY)
    lines += [f"| `{anomaly}` | {looks} | {why} |" for anomaly, looks, why in HEALTHY]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(markdown())

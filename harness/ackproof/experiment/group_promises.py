"""Guarantees that the configuration of a consumer group gives, by class of anomalies.

The table is `group_promises.txt`: of the rows of a class, the first whose commit mode, client and conditions fit
decides. `python -m ackproof.experiment.group_promises` prints `docs/group-promises.md`; a test compares both.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.group import GroupSpec
from ackproof.experiment.promises import Ruling
from ackproof.rundir.anomalies import GROUP_CLASSES
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.guarantees import LIBRARIES, AutoCommit, Fact

_ANY: Final = "any"


class Condition(StrEnum):
    """Condition of a promise in `group_promises.txt`, such as `killed`: a fault killed a member. The value is its name
    in that file, whose lines of kind `condition` say when each condition holds."""

    NO_METADATA = "no metadata"
    LATEST = "latest"
    AT_DELIVERY = "at delivery"
    UNKNOWN_COMMITS = "unknown commits"
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
_OF_LIBRARY: Final = {
    AutoCommit.AT_DELIVERY: Condition.AT_DELIVERY,
    AutoCommit.UNKNOWN: Condition.UNKNOWN_COMMITS,
}
"""Conditions that the client library of a group decides, by what its automatic commit covers."""
OF_SETTINGS: Final = frozenset({Condition.NO_METADATA, Condition.LATEST, *_OF_LIBRARY.values()})
"""Conditions that depend on the settings of a group alone. All others depend on the run, most of them on its faults."""
_RULINGS: Final = {
    "forbidden": Chance.IMPOSSIBLE,
    "allowed": Chance.POSSIBLE,
    "not judged": Chance.UNKNOWN,
}


class GroupPromise(NamedTuple):
    """A promise of `group_promises.txt` about one class of anomalies. It applies to the commit modes `commits` and the
    client libraries `clients` (or `any`), if all `conditions` hold.

    `ruling`: impossible means forbidden, possible allowed, unknown not judged. `words`: the promise; `source`: where
    Kafka makes it. `tried`: the attack by which the promise was tested.
    """

    anomaly: str
    commits: tuple[str, ...]
    clients: tuple[str, ...]
    conditions: frozenset[Condition]
    ruling: Chance
    words: str
    source: str
    tried: str

    def fits(self, anomaly: str, spec: GroupSpec, conditions: Set[Condition]) -> bool:
        """Return True if this row applies to an anomaly class in a group under these conditions."""
        of_group = {_ANY, spec.commit} & {*self.commits} and {_ANY, spec.client.library} & {*self.clients}
        return self.anomaly == anomaly and bool(of_group) and self.conditions <= conditions


def _read_promises(rows: Iterable[Sequence[str]]) -> Iterator[GroupPromise]:
    """Yield the promises in these lines of `group_promises.txt`. A line that names several classes of anomalies,
    separated by commas, gives one promise for each class. The header of the file names the columns."""
    for classes, commits, clients, conditions, ruling, *words in rows:
        holding = frozenset(map(Condition, filter(None, conditions.split(", "))))
        of_groups = (tuple(commits.split(", ")), tuple(clients.split(", ")), holding, _RULINGS[ruling])
        for anomaly in classes.split(", "):
            yield GroupPromise(anomaly, *of_groups, *words)


_ROWS: Final = defaultdict(list)
"""Rows of the file by kind: promises, conditions, and healthy behaviour."""
for _line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
    if not _line.startswith("#"):
        _kind, *_row = (cell.strip() for cell in _line.split("|"))
        _ROWS[_kind].append(_row)
PROMISES: Final = tuple(_read_promises(_ROWS["promise"]))
"""The promises of all classes, in file order. For each class, the first promise that fits a group decides."""
HEALTHY: Final = tuple(tuple(row) for row in _ROWS["healthy"])
"""Rows (anomaly class, what healthy groups show that looks like it, why that is no finding)."""


def conditions_of(spec: GroupSpec) -> dict[Condition, str]:
    """Return the conditions that hold because of the settings of a group, each with these settings in words; '' for
    those of its client library."""
    found: dict[Condition, str] = {}
    if not spec.group_metadata:
        found[Condition.NO_METADATA] = "group_metadata: false"
    if "latest" in (spec.start, spec.resolved_reset):
        found[Condition.LATEST] = f"start: {spec.start}, reset: {spec.resolved_reset}"
    covered = AutoCommit(LIBRARIES[spec.client.library].facts[Fact.AUTO_COMMIT])
    return found | ({_OF_LIBRARY[covered]: ""} if covered in _OF_LIBRARY else {})


def find_promise(anomaly: str, spec: GroupSpec, conditions: Set[Condition]) -> GroupPromise:
    """Return the first row that applies to an anomaly class in a group under these conditions. Raises StopIteration if
    there is none, as for an unknown class."""
    return next(row for row in PROMISES if row.fits(anomaly, spec, conditions))


def rule_group(anomaly: str, spec: GroupSpec, conditions: Mapping[Condition, str]) -> Ruling:
    """Return the ruling on an anomaly class in a group: forbidden, allowed or not judged, and why. `conditions`:
    conditions that hold → their causes in words. Raises StopIteration for a class without a row."""
    row = find_promise(anomaly, spec, conditions.keys())
    causes = [conditions[one] for one in Condition if one in row.conditions and conditions[one]]
    source = f" ({row.source})" if row.source else ""
    why = f"commit: {spec.commit}: {row.words}{source}" + (f": {'; '.join(causes)}" if causes else "")
    return Ruling(row.ruling, why, Chance.UNKNOWN if row.ruling is Chance.UNKNOWN else None)


def may_happen(anomaly: str, experiment: ExperimentSpec) -> bool:
    """Return True if a group of the experiment may show an anomaly class without breaking a guarantee.

    A condition that the settings of a group decide holds if these settings say so. Conditions that only a run decides,
    such as a killed member, count as possible if the experiment has faults. Without faults, only one of them counts as
    possible: the offsets topic loses commits (`Condition.OFFSETS`). It does if the experiment sets a broker setting of
    `_LOSING`.
    """
    cluster = experiment.cluster
    settings = {name for config in (cluster.config, *cluster.broker_config.values()) for name in config}
    without_faults = {Condition.OFFSETS} if settings & _LOSING else set()
    for spec in experiment.workload.groups.values():
        holding = set(conditions_of(spec))
        holding |= set(Condition) - OF_SETTINGS if experiment.faults else without_faults
        rows = (row for row in PROMISES if row.fits(anomaly, spec, holding))
        if any(row.ruling is not Chance.IMPOSSIBLE for row in rows):
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
    """Return the text of `docs/group-promises.md`, generated from the tables in `group_promises.txt`."""
    names = {chance: name for name, chance in _RULINGS.items()}
    lines = [_INTRODUCTION, *(f"| {name} | {meaning} |" for name, meaning in _ROWS["condition"])]
    rows: dict[str, list[GroupPromise]] = defaultdict(list)
    for row in PROMISES:
        rows[row.anomaly].append(row)
    for anomaly in GROUP_CLASSES:
        lines += [
            "",
            f"## `{anomaly}`",
            "",
            "| commit | client | if | ruling | promise | source | tried by |",
        ]
        lines.append("|---|---|---|---|---|---|---|")
        for row in rows[anomaly]:
            conditions = ", ".join(one for one in Condition if one in row.conditions)
            cells = (", ".join(row.commits), ", ".join(row.clients), conditions, names[row.ruling])
            lines.append(f"| {' | '.join((*cells, row.words, row.source, row.tried))} |")
    lines.append(_HEALTHY)
    lines += [f"| `{anomaly}` | {looks} | {why} |" for anomaly, looks, why in HEALTHY]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(markdown())

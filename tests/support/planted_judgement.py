"""Planted runs of consumer groups with the audit's findings, in the form that the judge reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from ackproof.experiment.backends import Ability
from ackproof.faults.groups.kinds import ResetOffsets
from ackproof.judge.facts import Facts
from ackproof.judge.groups import judge_class, opinions_on_groups
from ackproof.quantities.metadata_log import MetadataLog
from ackproof.rundir.anomalies import GROUP_CLASSES
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.documents import AuditFile, FinalReadFile, GroupCounts, PartitionRead, RecordCounts
from ackproof.rundir.groups import GroupsFile
from ackproof.rundir.metadata import LogEnded, PartitionChanged
from ackproof.rundir.model import ConformanceFile, PredictionFile
from ackproof.rundir.parts import mark_end
from ackproof.rundir.schema import GROUP_FINDINGS
from planted_groups import PlantedGroups
from run_directory import to_table, write_run
from written_group import LOG_PARTITION, TOPIC


def leaders(
    *leaders: tuple[int, tuple[int, ...]],
    replicas: tuple[int, ...] = (1, 2, 3),
    at_ms: int = 0,
    topic: str = "__consumer_offsets",
) -> MetadataLog:
    """Return the metadata log of one partition, by default that of the group's offsets. `leaders`: leader and ISR of
    each epoch. `at_ms`: wall-clock time of the first record."""
    records: list[Any] = [
        PartitionChanged(
            offset=at, epoch=1, timestamp_ms=at_ms + at, topic=topic, partition=LOG_PARTITION,
            leader=leader, leader_epoch=at, partition_epoch=at, replicas=replicas, isr=isr,
        )
        for at, (leader, isr) in enumerate(leaders)
    ]  # fmt: skip
    ended = LogEnded(offset=len(records), epoch=1, timestamp_ms=0, records=len(records))
    return MetadataLog.from_records([*records, ended], simulated=False, kraft=True)


QUIET = ((1, (1, 2, 3)),)
MOVED = (*QUIET, (2, (2, 3)))
UNCLEAN = ((1, (1,)), (2, (2,)))


def fault(kind: str = "kill", *asks: Ability, unpredictable: str = "") -> Any:
    return SimpleNamespace(
        kind=kind, number=1, ASKS=frozenset(asks), UNPREDICTABLE=unpredictable, clock_shift=0.0,
        drops=lambda _: False,
    )  # fmt: skip


RESET = ResetOffsets.model_construct(number=1, group="billing", to="earliest", topic=None)


@dataclass
class Run:
    """A planted run, with the findings of the audit. `log`: the metadata log. `killed`: clients of members that were
    killed. `config`: further settings of the cluster. `change`: changes the file of groups before it is written."""

    path: Path
    planted: PlantedGroups
    found: dict[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Findings by class, each as (partition, offset)."""
    log: MetadataLog = field(default_factory=lambda: leaders(*QUIET))
    faults: tuple[Any, ...] = ()
    killed: tuple[str, ...] = ()
    config: dict[str, str] = field(default_factory=dict)
    prediction: PredictionFile = field(default_factory=PredictionFile)
    change: Callable[[GroupsFile], GroupsFile] = lambda file: file

    def facts(self) -> Facts:
        run = self.planted.write(self.path)
        for folder in run.deliveries.glob("client=*"):
            mark_end(folder)
        file = GroupsFile.load(run.groups)
        members = tuple(
            one.model_copy(update={"killed": True, "status": -9} if one.client in self.killed else {})
            for one in file.members
        )
        reads = tuple(
            PartitionRead(
                topic=TOPIC, partition=number, start=0, end=self.planted.records, epoch=0, epoch_after=0,
                position=self.planted.records, complete=True,
            )
            for number in range(self.planted.partitions)
        )  # fmt: skip
        write_run(
            self.path,
            groups=self.change(file.model_copy(update={"members": members})),
            findings=self._findings(),
            audit_json=self._audit(),
            conformance_json=ConformanceFile(),
            prediction_json=self.prediction,
            timeline=(),
            final_read=FinalReadFile(complete=True, partitions=reads),
        )
        facts = Facts.read(run)
        facts.__dict__["metadata_log"] = self.log
        cluster = facts.case.experiment.cluster
        cluster = cluster.model_copy(update={"config": {**cluster.config, **self.config}})
        spec = facts.case.experiment.model_copy(update={"cluster": cluster})
        case = SimpleNamespace(experiment=spec, planned=facts.case.planned, faults=self.faults)
        object.__setattr__(facts, "case", case)
        return facts

    def _findings(self) -> pa.Table:
        rows = [
            {
                "class": name, "topic": TOPIC, "partition": partition, "offset": offset, "seq": offset,
                "group": self.planted.group,
            }
            for name, places in self.found.items()
            for partition, offset in places
        ]  # fmt: skip
        return to_table(rows, GROUP_FINDINGS)

    def _audit(self) -> AuditFile:
        counts = {name: len(self.found.get(name, ())) for name in GROUP_CLASSES}
        return AuditFile(
            counts=counts,
            records=RecordCounts(),
            complete=True,
            groups=(GroupCounts(group=self.planted.group, counts=counts),),
            findings=("part-0.parquet",),
        )


def planted_group(**changes: Any) -> PlantedGroups:
    return PlantedGroups(records=60, partitions=2, **changes)


def ruled(run: Run, anomaly: str) -> tuple[Chance, str]:
    """Return the ruling on a class with the sentence of its opinion. IMPOSSIBLE: Kafka may not show it. POSSIBLE: it is
    allowed, and the sentence is ''. UNKNOWN: undecided."""
    ((name, one),) = judge_class(run.facts(), anomaly)
    texts = [opinion.text for opinion in opinions_on_groups([(name, one)])]
    chance = {True: Chance.IMPOSSIBLE, False: Chance.POSSIBLE, None: Chance.UNKNOWN}[one.forbidden]
    return chance, texts[0] if texts else ""

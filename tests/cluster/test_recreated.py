"""Tests of a topic that is deleted and created again under load, on real brokers: every loss is explained, a lie is
not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.judge.oracle import replay_run
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import MetadataRecord, PartitionChanged, read_metadata, write_metadata
from ackproof.rundir.outcome import Outcome, Verdict

from .helpers import run_experiment

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

EXPERIMENT = """\
name: recreated
cluster: {{{cluster}, brokers: 3}}
topics:
  orders: {{partitions: 2, replication_factor: 3, config: {{min.insync.replicas: 2}}}}
workload:
  producers: {{count: 2, idempotence: false, rate: 1000/s}}
  consumers: {{live: 1}}
  duration: 6s
matrix:
  workload.producers.acks: [1, all]
faults:
  - recreate: {{topic: orders}}
    at: 2s
"""


@pytest.fixture(
    scope="module",
    params=['kafka: "4.4.0", controllers: 1', 'kafka: "3.9.2", mode: zookeeper'],
    ids=["kraft", "zookeeper"],
)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[CaseDir]]:
    folder = tmp_path_factory.mktemp("recreated")
    batch, printed = run_experiment(folder, EXPERIMENT.format(cluster=request.param))
    cases = BatchFile.load(batch.batch_json).cases
    assert [case.verdict for case in cases] == [Verdict.PASS] * 2, printed
    yield [CaseDir(batch.path / case.run) for case in cases]


def _copy(run: CaseDir, folder: Path) -> CaseDir:
    shutil.copytree(run.path, folder, ignore=shutil.ignore_patterns("nodes", "clients"))
    return CaseDir(folder)


def test_each_step_is_allowed_and_each_loss_is_traced_to_the_deletion(runs: list[CaseDir]) -> None:
    for run in runs:
        file = replay_run(run)
        lost, gone = (
            next(one for one in file.classes if one.anomaly == name) for name in ("lost", "deleted")
        )
        assert file.forbidden is None, file.forbidden
        assert (lost.count, gone.not_replayed, file.present, file.not_replayed) == (0, 0, 0, ())
        assert gone.count == gone.explained == gone.deleted == sum(one.acked for one in file.deletions) > 100
        assert {(one.partition, one.by) for one in file.deletions} == {
            (0, "fault 1 (recreate)"),
            (1, "fault 1 (recreate)"),
        }
        assert sum(one.either for one in file.deletions) == file.either_way


def test_an_election_out_of_the_isr_of_the_second_incarnation_is_named(
    runs: list[CaseDir], tmp_path: Path
) -> None:
    run = _copy(runs[0], tmp_path / "run")
    records: list[MetadataRecord] = list(read_metadata(run.metadata_log))
    last = [one for one in records if isinstance(one, PartitionChanged) and one.topic == "orders"][-1]
    other = next(node for node in last.replicas if node != last.leader)

    def later(decided: PartitionChanged, by: int, **changed: object) -> PartitionChanged:
        told = {
            "offset": records[-1].offset + by,
            "timestamp_ms": records[-1].timestamp_ms + by,
            "partition_epoch": decided.partition_epoch + 1,
        }
        return decided.model_copy(update={**told, "changed": ("isr",), **changed})

    # Two stay in sync, min.insync.replicas: nobody becomes eligible outside of the ISR.
    shrunk = later(last, 1, isr=tuple(node for node in last.isr if node != other))
    lie = later(shrunk, 2, leader=other, leader_epoch=last.leader_epoch + 1, isr=(other,))
    write_metadata(run.metadata_log, [*records, shrunk, lie])
    file = replay_run(run)
    assert file.forbidden is not None
    assert (file.forbidden.rule, file.forbidden.offset) == ("election out of the ISR", lie.offset)


def test_an_ack_of_the_second_incarnation_above_what_it_kept_is_found(
    runs: list[CaseDir], tmp_path: Path
) -> None:
    for number, original in enumerate(runs):
        run = _copy(original, tmp_path / str(number))
        part = max(run.produced.glob("client=*/part-*.parquet"))
        table = pq.read_table(part)
        acked = np.flatnonzero(table["outcome"].to_numpy() == int(Outcome.ACKED))[-1]
        offsets = table["offset"].to_numpy().copy()
        offsets[acked] += 1_000_000
        place = table.schema.get_field_index("offset")
        pq.write_table(table.set_column(place, "offset", pa.array(offsets, pa.int64())), part)
        file = replay_run(run)
        assert file.forbidden is not None
        assert file.forbidden.rule == "ack above what its epoch kept"
        assert str(offsets[acked]) in file.forbidden.text

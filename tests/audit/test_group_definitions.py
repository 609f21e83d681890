"""Tests of the audit of consumer groups: single definitions, and missing or wrong files."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ackproof.audit import group_planning, group_records
from ackproof.audit.units import Limits
from ackproof.judge import prepare_audit
from ackproof.rundir.anomalies import GROUP_CLASSES
from ackproof.rundir.groups import GroupsFile, MembershipEvent
from planted_groups import PlantedGroups

from .group_agreement import CUT, agree, audit_groups
from .local import audited


def change_state(group, state):
    group.deliveries.columns["state"][105] = state


def process_again(group, state):
    group.plant_redelivered(2, 105)
    group.deliveries.extra[-1]["state"] = state


def change_identity(group, _):
    group.deliveries.columns["seq"][105] += 1000


def truncate(group, to):
    """Replace records 190 to 199 of partition 0 as after a truncation. Its member was reset to offset `to`."""
    group.final.columns["seq"][190:200] += 10_000
    group.member_event(
        MembershipEvent.RESET, 0, 0, group.over_ns, from_offset=200, offset=to, why="_LOG_TRUNCATION"
    )


def join_again(group, generations):
    """Set the generations (before, after) of the member that made a commit while the group had generation 2."""
    group.commits.columns["generation"][3], group.commits.columns["generation_after"][3] = generations


def commit_old(group, decision):
    group.plant_zombie(3)
    group.log.extra[-1]["decision"] = decision


def double_input(group, copies):
    """Give the last record of partition 0 the identity of record 105, so that it is in the input twice. `copies`:
    number of additional copies of it in the output."""
    row = group.final.row(105)
    last = group.final.row(group.records - 1)
    group.final.there[group.records - 1] = False
    group.final.extra.append({**last, **{name: row[name] for name in ("producer", "seq")}})
    group.deliveries.columns["producer"][group.records - 1] = row["producer"]
    group.deliveries.columns["seq"][group.records - 1] = row["seq"]
    group.copies.columns["producer"][group.records - 1] = row["producer"]
    group.copies.columns["seq"][group.records - 1] = row["seq"]
    group.plant_doubled(0, 105, copies)


@pytest.mark.parametrize(
    ("plant", "value", "expected"),
    [
        (change_state, 0, {"undelivered": 1}),
        (change_state, 2, {"undelivered": 1}),
        (change_state, 3, {}),
        (process_again, 1, {"redelivered": 1}),
        (process_again, 2, {}),
        (process_again, 3, {}),
        (change_identity, 0, {"undelivered": 1}),
        (truncate, 0, {"undelivered": 10}),
        (truncate, 196, {"skipped-by-reset": 6, "undelivered": 4}),
        (join_again, (1, 2), {}),
        (join_again, (2, 1), {}),
        (join_again, (1, 1), {"zombie-commit": 1}),
        (commit_old, 1, {"lost-commit": 1}),
        (commit_old, 2, {}),
        (double_input, 0, {}),
        (double_input, 1, {"doubled-output": 1}),
    ],
)
def test_what_a_definition_counts(tmp_path, plant, value, expected):
    group = PlantedGroups(output=True)
    plant(group, value)
    assert +Counter(agree(group.write(tmp_path / "run").path).groups[0].counts) == expected


@pytest.mark.parametrize(
    ("commit", "later", "count"),
    [("after", 0, 0), ("after", -1, 1), ("after", 1, 1), ("transaction", 0, 1), ("transaction", 1, 1)],
)
def test_a_generation_that_is_reported_after_the_commit(tmp_path, commit, later, count):
    """A member may commit with a generation that it reports later, if the group had that generation.

    `later`: the reported generation minus the newest. A transaction names the generation reported before it.
    """
    group = PlantedGroups(commit=commit, output=commit == "transaction")
    group.plant_zombie(3)
    row = group.commits.extra[-1]
    group.member_event(
        MembershipEvent.ASSIGNED, row["member"], -1, row["done_ns"], generation=group.generation + later
    )
    counts = agree(group.write(tmp_path / "run").path).groups[0].counts
    assert +Counter(counts) == +Counter({"zombie-commit": count})


def test_ownerships_overlap_at_their_ends():
    first, second = group_records._Ownership(0, 5, 1), group_records._Ownership(5, 9, 2)
    assert list(group_records._find_overlapping([first, second])) == [(first, second)]


@pytest.mark.parametrize("column", ["generation", "generation_after"])
def test_a_commit_without_a_generation_makes_no_owner(tmp_path, column):
    group = PlantedGroups(commit="transaction", output=True)
    group.plant_two_owners(3, 105)
    group.commits.extra[-1][column] = -1
    file = agree(group.write(tmp_path / "run").path)
    assert +Counter(file.groups[0].counts) == {"redelivered": 1}


@pytest.mark.parametrize(("epoch", "expected"), [(-1, {"zombie-commit": 40}), (-2, {})])
def test_a_member_that_left(tmp_path, epoch, expected):
    """Epoch -2: a static member left, and its successor may take its place. -1: the member left for good."""
    group = PlantedGroups(protocol="consumer", kafka="4.2.1")
    group.log_record(90, "member", epoch=epoch, member_id="m0")
    assert +Counter(agree(group.write(tmp_path / "run").path).groups[0].counts) == expected


def test_a_group_that_migrates_to_classic(tmp_path):
    """Tombstones of the members and of the group's epoch end KIP-848. From then on generations decide."""
    group = PlantedGroups(protocol="consumer", kafka="4.2.1")
    for member in range(2):
        group.log_record(90 + member, "member", epoch=-1, member_id=f"m{member}")
    group.log_record(92, "group", epoch=-1)
    group.log_record(93, "group", epoch=2)
    group.plant_zombie(3)
    file = agree(group.write(tmp_path / "run").path)
    assert +Counter(file.groups[0].counts) == {"zombie-commit": 1}


def test_a_classic_group_that_migrates(tmp_path):
    """Epochs decide from the first member epoch on. A group epoch that no member has makes no zombie."""
    group = PlantedGroups(protocol="consumer", kafka="4.2.1")
    group.protocol = "classic"
    group.log_record(90, "group", epoch=99)
    assert not +Counter(agree(group.write(tmp_path / "run").path).groups[0].counts)


@pytest.mark.parametrize("cut", [(1,), (2, 3), (1, 2, 3)])
def test_histories_that_are_not_whole(tmp_path, cut):
    """With a cut log, lost-commit is not counted. With no whole log, zombie-commit is not counted either."""
    group = PlantedGroups()
    group.plant_regressed_log(1, 5)
    run = group.write(tmp_path / "run")
    file = GroupsFile.load(run.groups)
    histories = [one.model_copy(update={"cleaned": one.node in cut}) for one in file.histories]
    file.model_copy(update={"histories": tuple(histories)}).save(run.groups)
    (counts,) = agree(run.path).groups
    gone = {"lost-commit"} if len(cut) < 3 else {"lost-commit", "zombie-commit"}
    assert set(GROUP_CLASSES) - counts.counts.keys() == gone
    assert len(counts.reasons) == 1


def test_the_log_of_the_coordinator_is_the_history_if_it_is_whole(tmp_path):
    """The offset goes back only in the log of node 1. The logs of the other nodes are longer."""
    group = PlantedGroups()
    group.plant_regressed_log(1, 5)
    run = group.write(tmp_path / "run")
    lower = group.commits.extra[-1]["number"]
    log = pq.read_table(run.offsets_log)
    elsewhere = pc.and_(pc.not_equal(log["node"], 1), pc.equal(log["number"], lower))
    at = log.schema.get_field_index("offset")
    higher = pc.add(log["offset"], pc.multiply(pc.cast(elsewhere, pa.int64()), 10))
    pq.write_table(log.set_column(at, log.schema.field(at), higher), run.offsets_log)
    for coordinator, expected in ((1, 1), (2, 0)):
        file = GroupsFile.load(run.groups)
        ends = [one.model_copy(update={"log_end": one.log_end + one.node}) for one in file.histories]
        committed = file.groups[0].committed.model_copy(update={"coordinator": coordinator})
        group_end = file.groups[0].model_copy(update={"committed": committed})
        file.model_copy(update={"histories": tuple(ends), "groups": (group_end,)}).save(run.groups)
        found, _ = audit_groups(run.path)
        assert found.groups[0].counts["zombie-commit"] == found.groups[0].counts["lost-commit"] == 0
        assert (found.groups[0].counts["regressed-commit"] > 0) is bool(expected)


@pytest.mark.parametrize("limits", [Limits(), CUT], ids=["whole", "cut"])
def test_statistics_that_lie(tmp_path, monkeypatch, limits):
    """The statistics of a row group name partition 0 alone, and the row group has others, too."""
    honest = group_planning._row_group

    def lie(number, footer, trusted):
        found = honest(number, footer, trusted)
        return replace(found, topic="orders", spans={"partition": (0, 0)}) if trusted else found

    monkeypatch.setattr(group_planning, "_row_group", lie)
    group = PlantedGroups(records=60)
    group.plant_undelivered(2, 25)
    assert +Counter(agree(group.write(tmp_path / "run").path, limits).groups[0].counts) == group.expected


def test_a_null_is_refused(tmp_path):
    run = PlantedGroups(records=20).write(tmp_path / "run")
    path = run.deliveries / "client=g0" / "part-000000.parquet"
    rows = pq.read_table(path, partitioning=None)
    at = rows.schema.get_field_index("seq")
    holes = pa.array([None, *rows["seq"].to_pylist()[1:]], pa.int64())
    pq.write_table(rows.set_column(at, pa.field("seq", pa.int64()), holes), path, write_statistics=False)
    prepare_audit([run.path])
    (result,) = audited([run.path])
    assert result.file is None
    assert "column seq has a null" in result.reasons[0]


@pytest.mark.parametrize(
    ("ledger", "left"),
    [
        ("deliveries", set(GROUP_CLASSES) - {"undelivered", "skipped-by-reset"}),
        ("commits", set(GROUP_CLASSES) - {"lost-commit", "regressed-commit"}),
        ("membership", {"redelivered", "doubled-output", "lost-commit"}),
    ],
)
def test_a_part_that_is_missing(tmp_path, ledger, left):
    run = PlantedGroups(records=20, output=True).write(tmp_path / "run")
    (run.ledger / ledger / "client=g1" / "part-000000.parquet").unlink()
    prepare_audit([run.path])
    (result,) = audited([run.path])
    assert result.file is not None
    assert result.reasons == (f"ledger/{ledger}/client=g1: no part",)
    assert result.file.groups[0].counts.keys() == left


def test_digests_of_the_ledgers(tmp_path):
    run = PlantedGroups(records=20).write(tmp_path / "run")
    file, _ = audit_groups(run.path)
    parts = sorted(run.ledger.glob("*/client=g*/part-*.parquet"))
    assert len(parts) == 6
    for path in parts:
        assert file.counted[str(path.relative_to(run.path))] == hashlib.sha256(path.read_bytes()).hexdigest()

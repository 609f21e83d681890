"""The audit of consumer groups: planted classes alone and together, and whatever Hypothesis changes in a run, against
the plain implementation (group_reference.py)."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ackproof.audit import group_planning, group_records
from ackproof.audit.units import Limits
from ackproof.judge import prepare_audit
from ackproof.rundir.anomalies import GROUP_CLASSES
from ackproof.rundir.groups import GroupsFile
from ackproof.rundir.layout import CaseDir
from planted_groups import PlantedGroups

from .group_reference import count_groups
from .local import audited

EXAMPLES = int(os.environ.get("ACKPROOF_EXAMPLES", "60"))
CUT = Limits(whole_rows=0, split_rows=500, slice_rows=250, range_rows=400, task_rows=500)
"""Every pass is cut into units."""
PLANTS = {
    "undelivered": lambda group, at: group.plant_undelivered(0, at),
    "skipped-by-reset": lambda group, at: group.plant_reset(1, at, at + 3),
    "redelivered": lambda group, at: group.plant_redelivered(2, at, 2),
    "torn-output": lambda group, at: group.plant_torn(3, at),
    "doubled-output": lambda group, at: group.plant_doubled(2, at + 1, 2),
    "lost-commit": lambda group, at: group.plant_lost_commit(0, at // group.batch),
    "regressed-commit": lambda group, at: group.plant_regressed_log(1, at // group.batch),
    "zombie-commit": lambda group, _: group.plant_zombie(3),
    "two-owners": lambda group, at: group.plant_two_owners(3, at + 5),
    "position": lambda group, at: group.plant_regressed_position(2, at // group.batch),
}


def audit_groups(folder: Path, limits: Limits | None = None):
    """The audited file, and the findings as the reference names them."""
    prepare_audit([folder])
    (result,) = audited([folder], limits=limits)
    assert result.file is not None, result.reasons
    found = Counter()
    for path in CaseDir(folder).finding_parts:
        for row in pq.read_table(path, partitioning=None).to_pylist():
            if row["class"] in GROUP_CLASSES:
                found[
                    tuple(row[name] for name in ("class", "topic", "partition", "producer", "seq", "offset"))
                ] += 1
                assert row["group"] == "billing"
                assert row["detail"]
    return result.file, found


def agree(folder: Path, limits: Limits | None = None):
    """Both find the same in a run with one group. Return the audited file."""
    file, found = audit_groups(folder, limits)
    (counts,) = file.groups
    expected = +count_groups(folder)["billing"]
    assert found == Counter({key: n for key, n in expected.items() if key[0] in counts.counts})
    sums = Counter()
    for key, count in found.items():
        sums[key[0]] += count
    assert counts.counts == {name: sums[name] for name in counts.counts}
    assert {name: file.counts[name] for name in counts.counts} == counts.counts
    return file


@pytest.fixture(params=[Limits(), CUT], ids=["whole", "cut"])
def limits(request):
    return request.param


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("commit", ["before", "after", "timed", "auto", "transaction"])
def test_a_healthy_group_has_no_finding(tmp_path, commit, protocol, limits):
    file = agree(
        PlantedGroups(commit=commit, protocol=protocol, output=True).write(tmp_path / "run").path, limits
    )
    (counts,) = file.groups
    assert not any(counts.counts.values())
    assert (counts.input, counts.delivered, counts.processed, counts.output) == (800, 800, 800, 800)
    assert (counts.accepted, counts.refused, counts.unknown) == (80, 0, 0)
    assert counts.counts.keys() == set(GROUP_CLASSES) - (
        {"lost-commit", "regressed-commit", "zombie-commit", "two-owners"} if commit == "auto" else set()
    )


@pytest.mark.parametrize("name", PLANTS)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_class_is_found_alone(tmp_path, name, protocol, limits):
    group = PlantedGroups(commit="transaction", protocol=protocol, kafka="4.2.1")
    PLANTS[name](group, 100)
    file = agree(group.write(tmp_path / "run").path, limits)
    assert +Counter(file.groups[0].counts) == group.expected
    assert group.expected


def change_state(group, state):
    group.deliveries.columns["state"][105] = state


def change_identity(group, _):
    group.deliveries.columns["seq"][105] += 1000


def join_again(group, generations):
    """A commit while the generation was 2: the generation of its member before and after the call."""
    group.commits.columns["generation"][3], group.commits.columns["generation_after"][3] = generations


def commit_old(group, decision):
    group.plant_zombie(3)
    group.log.extra[-1]["decision"] = decision


def double_input(group, copies):
    """Record 105 was produced twice, and its last offset has its identity."""
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
        (change_identity, 0, {"undelivered": 1}),
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


def test_a_classic_group_that_migrates(tmp_path):
    """From its first member epoch on, epochs decide: a group epoch that no member has yet makes no zombie."""
    group = PlantedGroups(protocol="consumer", kafka="4.2.1")
    group.protocol = "classic"
    group.log_record(90, "group", epoch=99)
    assert not +Counter(agree(group.write(tmp_path / "run").path).groups[0].counts)


@pytest.mark.parametrize("cut", [(1,), (2, 3), (1, 2, 3)])
def test_histories_that_are_not_whole(tmp_path, cut):
    """Node 1 is the coordinator. Its log lacks a commit that the others have, if it is whole."""
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
    """The offset goes back in the log of node 1 alone; those of the others are longer."""
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


def test_statistics_that_lie(tmp_path, monkeypatch, limits):
    """A row group said to hold partition 0 alone holds others too."""
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


def plant_all(group: PlantedGroups, blocks: int) -> PlantedGroups:
    """Each class in batches of its own, `blocks` times."""
    free = random.Random(1).sample(range(1, group.batches - 3), len(PLANTS) * blocks)
    for number, name in enumerate(list(PLANTS) * blocks):
        PLANTS[name](group, free[number] * group.batch)
    return group


@pytest.mark.parametrize(
    "records",
    [500, 2500, *(pytest.param(n, marks=pytest.mark.nightly) for n in (25_000, 250_000))],
)
def test_all_classes_are_found_together(tmp_path, records):
    group = plant_all(PlantedGroups(records=records, commit="transaction"), blocks=1 if records < 2500 else 4)
    run = group.write(tmp_path / "run", row_group_size=max(100, records // 10))
    for limits in (Limits(), Limits(whole_rows=0, slice_rows=records, range_rows=records, task_rows=1)):
        file, _ = audit_groups(run.path, limits)
        assert +Counter(file.groups[0].counts) == group.expected


TABLES = ("deliveries", "commits", "membership", "log", "final", "copies")
CHANGES = {
    "offset": (-20, -5, -1, 1, 5),
    "from_offset": (-20, 20),
    "member": (-1, 1),
    "producer": (1, -1),
    "seq": (1, -4),
    "generation": (-1, 1),
    "generation_after": (-1, 1),
    "epoch": (-2, -1, 1),
    "state": (-1, 1, 2),
    "result": (1, 2),
    "decision": (1, 2),
    "number": (-1, 1, 10**9),
    "begun_ns": (-15_000_000, -1_000_000, 1_000_000, 15_000_000),
    "done_ns": (1_000_000, 15_000_000),
    "processed_ns": (-15_000_000, 15_000_000),
    "t_ns": (-30_000_000, 30_000_000, 100_000_000),
    "partition": (-1, 1),
}


def disturb(group: PlantedGroups, rng: random.Random, changes: int) -> None:
    """Drop, repeat and change rows, anywhere."""
    for _ in range(changes):
        table = getattr(group, rng.choice(TABLES))
        rows = table.extra if (rng.random() < 0.3 or not table.length) else None
        if rows is None:
            at = rng.randrange(table.length)
            row = table.row(at)
            if rng.random() < 0.7:
                table.there[at] = False
        elif rows:
            at = rng.randrange(len(rows))
            row = dict(rows[at])
            if rng.random() < 0.7:
                del rows[at]
        else:
            continue
        how = rng.random()
        if how < 0.2:
            continue
        names = [name for name in CHANGES if name in row]
        for name in rng.sample(names, rng.randrange(0, 3)) if how < 0.9 else ():
            row = {**row, name: row[name] + rng.choice(CHANGES[name])}
        if table is group.log:
            while any(row["log_offset"] == other["log_offset"] for other in group.log.extra):
                row["log_offset"] += 1
            row["log_offset"] += rng.choice([0, 0, 1])
            if rng.random() < 0.2:
                removed = {"record": "removed", "offset": -1, "member": -1, "number": -1}
                row = {**row, **rng.choice([removed, {"record": "commit"}])}
        clip(row, group)
        table.extra.append(row)


def clip(row: dict, group: PlantedGroups) -> None:
    """Keep a row in its contract."""
    limits = {
        "partition": (0 if "assignment" in row or row.get("event") != "closed" else -1, group.partitions - 1),
        "state": (0, 3), "result": (0, 2), "decision": (0, 2), "generation": (-1, 99),
        "generation_after": (-1, 99), "epoch": (-1, 99), "number": (-1 if "log_offset" in row else 0, 10**12),
        "offset": (-1 if "log_offset" in row or "event" in row else 0, 10**9), "from_offset": (-1, 10**9),
        "member": (-1 if "log_offset" in row else 0, group.members - 1), "producer": (-1, 99), "seq": (-1, 10**9),
        "begun_ns": (1, 10**15), "t_ns": (1, 10**15),
    }  # fmt: skip
    for name, (least, most) in limits.items():
        if name in row:
            row[name] = min(max(row[name], least), most)
    if "begun_ns" in row:
        row["done_ns"] = -1 if row["result"] == 2 else max(row["done_ns"], row["begun_ns"])
    if row.get("record") in ("group", "member"):
        row["decision"] = 0


@st.composite
def groups(draw) -> PlantedGroups:
    """A group with planted classes and disturbed rows."""
    commit = draw(st.sampled_from(["after", "after", "timed", "transaction", "auto"]))
    group = PlantedGroups(
        records=draw(st.sampled_from([20, 60, 200])),
        partitions=draw(st.integers(1, 4)),
        members=draw(st.integers(2, 3)),
        commit=commit,
        protocol=draw(st.sampled_from(["classic", "consumer"])),
        kafka=draw(st.sampled_from(["4.2.1", "4.4.0"])),
        output=draw(st.booleans()),
        transactional=draw(st.booleans()),
        whole=draw(st.booleans()),
        batch=draw(st.sampled_from([1, 3, 10])),
        spec=draw(st.sampled_from(["", "isolation: read_uncommitted"])),
        unanswered=draw(st.sampled_from(["", "", "", "no coordinator"])),
        problem=draw(st.sampled_from(["", "", "", "cut"])),
    )
    rng = random.Random(draw(st.integers(0, 2**32)))
    for name in draw(st.lists(st.sampled_from(list(PLANTS)), max_size=4)):
        at = rng.randrange(1, max(2, group.batches - 1)) * group.batch
        if group.partitions == 4 and group.records == 200 and (group.output or "output" not in name):
            PLANTS[name](group, min(at, 180))
    for partition in list(group.committed):
        if rng.random() < 0.3:
            group.committed[partition] += rng.choice([-30, -10, -3, 5])
    disturb(group, rng, draw(st.integers(0, 40)))
    numbers = {(row["member"], row["number"], row["partition"]) for row in group.commits.extra}
    kept = [row for row in group.commits.extra if (row["member"], row["number"], row["partition"]) in numbers]
    group.commits.extra = unique(kept, group)
    return group


def unique(rows: list[dict], group: PlantedGroups) -> list[dict]:
    """A member gives each of its commits a number of its own."""
    base = group.commits.columns
    seen = {
        (int(base["member"][at]), int(base["number"][at]), int(base["partition"][at]))
        for at in range(group.commits.length)
        if group.commits.there[at]
    }
    found = []
    for row in rows:
        name = (row["member"], row["number"], row["partition"])
        if name not in seen:
            found.append(row)
        seen.add(name)
    return found


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(group=groups(), cut=st.booleans(), size=st.sampled_from([30, 1000]))
def test_both_say_the_same(group: PlantedGroups, cut: bool, size: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ackproof-groups-"))
    try:
        run = group.write(folder / "run", row_group_size=size)
        agree(run.path, CUT if cut else None)
    finally:
        shutil.rmtree(folder)

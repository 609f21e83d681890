"""The audit of consumer groups and the plain one (group_reference.py) find the same in planted and drawn runs."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ackproof.audit import group_records
from ackproof.audit.units import Limits
from ackproof.rundir.anomalies import GROUP_CLASSES
from planted_groups import PLANTS, PlantedGroups

from .group_agreement import CUT, agree, audit_groups

EXAMPLES = int(os.environ.get("ACKPROOF_EXAMPLES", settings.default.max_examples))


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


@pytest.mark.parametrize(
    "records",
    [500, 2500, *(pytest.param(n, marks=pytest.mark.nightly) for n in (25_000, 250_000))],
)
def test_all_classes_are_found_together(tmp_path, records):
    group = PlantedGroups(records=records, commit="transaction")
    group.plant_all(blocks=1 if records < 2500 else 4)
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
    """Drop, repeat or change `changes` rows of the group's tables at random."""
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
    """Bring the values of a row into the ranges that its schema allows."""
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
    """Draw a group with up to four planted classes and up to 40 disturbed rows."""
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
    """Return `rows` without those that repeat the member, number and partition of another commit."""
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
@given(
    group=groups(),
    cut=st.booleans(),
    options=st.sampled_from([{}, {"row_group_size": 30}]),
    gaps=st.integers(0, 2),
)
def test_both_say_the_same(group: PlantedGroups, cut: bool, options: dict[str, int], gaps: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ackproof-groups-"))
    try:
        run = group.write(folder / "run", **options)
        with patch.object(group_records, "_GAPS", gaps):
            agree(run.path, CUT if cut else None)
    finally:
        shutil.rmtree(folder)

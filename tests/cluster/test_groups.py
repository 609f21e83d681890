"""Tests of consumer groups on real brokers: the members' ledgers against the coordinator's offsets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ackproof.clients.group_ledgers import PART
from ackproof.plan import load
from ackproof.plan.cases import cases
from ackproof.run.case import run_case
from ackproof.run.phases import CaseOptions
from ackproof.rundir import storage
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.groups import CommitResult, GroupEnd, GroupsFile, MembershipEvent, ProcessingState
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.parts import has_end
from ackproof.rundir.timeline import Event

pytestmark = pytest.mark.cluster

EXPERIMENT = """\
name: groups
cluster: {{brokers: 1, combined: true}}
topics: {{orders: {{partitions: 3, replication_factor: 1}}}}
workload:
  producers: {{rate: 300/s}}
  duration: 4s
  groups:
    {groups}
faults: [{faults}]
"""
COMMITS = ("before", "after", "timed", "auto", "transaction")
PROTOCOLS = ("classic, assignor: range", "classic, assignor: cooperative-sticky", "consumer")
KILL = "{at: 2s, kill_client: {client: member(0)}, restart_after: 500ms}"


class Silent:
    """Watcher that ignores all events."""

    def event(self, event: Event) -> None:
        pass

    def live(self, acked: int, read: int, isr: str) -> None:
        pass


def group(protocol: str, commit: str, further: str = "") -> str:
    output = f", output: copies-{commit}" if commit in ("timed", "transaction") else ""
    fields = f"members: 2, protocol: {protocol}, commit: {commit}, commit_every: 300ms, batch: 20"
    return f"{commit}: {{{fields}{output}{further}}}"


def run(folder: Path, groups: list[str], faults: str = "") -> CaseDir:
    file = folder / "groups.yaml"
    file.write_text(EXPERIMENT.format(groups="\n    ".join(groups), faults=faults), encoding="utf-8")
    (case,) = cases(load(file))
    directory = CaseDir(folder / "case")
    run_case(case, directory, CaseOptions(str(folder), ""), Silent())
    return directory


def ledger(folder: Path, name: str) -> pa.Table:
    """Return the rows of one group in the ledgers of all members below `folder`."""
    whole = pa.concat_tables(
        storage.read_table(path).replace_schema_metadata() for path in sorted(folder.glob(f"client=*/{PART}"))
    )
    return whole.filter(pc.equal(whole["group"], name))


def highest_accepted(commits: pa.Table) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for row in commits.filter(pc.equal(commits["result"], CommitResult.ACCEPTED.value)).to_pylist():
        place = row["topic"], row["partition"]
        found[place] = max(row["offset"], found.get(place, 0))
    return found


def check(directory: CaseDir, end: GroupEnd, *, loses: bool = False) -> Counter[int]:
    """Check that the group read its input to the end, that ledger and coordinator agree, and that each record was
    processed (with `loses`: not all were). Return the number of deliveries by state."""
    assert end.caught_up, end
    ends = {(topic, partition): offset for topic, partition, offset in end.ends}
    fetched = {(topic, partition): offset for topic, partition, offset in end.committed.offsets}
    assert fetched == ends and min(ends.values()) > 100
    commits = ledger(directory.commits_ledger, end.group)
    if end.group != "auto":
        assert highest_accepted(commits) == fetched
    else:
        assert commits.num_rows == 0
    deliveries = ledger(directory.deliveries, end.group)
    assert min(deliveries["seq"].to_pylist()) == 0 and min(deliveries["generation"].to_pylist()) > 0
    done = deliveries.filter(pc.equal(deliveries["state"], ProcessingState.EFFECTIVE.value))
    processed = {
        (row["partition"], row["offset"]) for row in done.select(["partition", "offset"]).to_pylist()
    }
    assert (len(processed) < sum(ends.values())) is loses
    if end.output_ends:
        assert end.problem == ""
        output = storage.read_table(directory.group_output(end.group))
        assert set(output["seq"].to_pylist()) == set(deliveries["seq"].to_pylist())
    return Counter(deliveries["state"].to_pylist())


def test_groups_come_to_the_end_of_their_input(tmp_path: Path) -> None:
    """A classic group that commits before processing, with a killed member, and a transactional group of KIP-848."""
    slow = ", record_time: 5ms"
    groups = [group(PROTOCOLS[0], "before", slow), group(PROTOCOLS[2], "transaction")]
    directory = run(tmp_path, groups, KILL)
    file = GroupsFile.load(directory.groups)
    states = {end.group: check(directory, end, loses=end.group == "before") for end in file.groups}
    lost = states["before"][ProcessingState.NOT_PROCESSED]
    assert 0 < lost <= 20, "a batch, committed and not processed"
    killed, *others = file.members
    assert (killed.client, killed.killed, killed.status) == ("g0", True, -9)
    assert {(one.asked, one.killed, one.status) for one in others} == {(True, False, 0)}, others
    for one in file.members:
        ends = {
            has_end(folder / f"client={one.client}")
            for folder in (directory.deliveries, directory.commits_ledger, directory.membership)
        }
        assert ends == {not one.killed}
    listed = [(one.id, one.kind, one.group, one.killed) for one in CaseFile.load(directory.case_json).clients]
    assert ("g0", "member", "before", True) in listed and ("g4", "member", "before", False) in listed


@pytest.mark.nightly  # the test above is the same with two modes of commits
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_mode_of_commits(tmp_path: Path, protocol: str) -> None:
    directory = run(tmp_path, [group(protocol, commit) for commit in COMMITS])
    for end in GroupsFile.load(directory.groups).groups:
        check(directory, end)
        events = Counter(ledger(directory.membership, end.group)["event"].to_pylist())
        assert events[MembershipEvent.CLOSED] == 2 and events[MembershipEvent.POSITION] >= 3, events


@pytest.mark.nightly  # the first test replaces a dynamic member
@pytest.mark.parametrize("protocol", [PROTOCOLS[0], PROTOCOLS[2]])
def test_a_static_member_is_replaced(tmp_path: Path, protocol: str) -> None:
    """The successor has the instance id of the killed member; with KIP-848 it joins only after that member's session
    has ended."""
    directory = run(tmp_path, [group(protocol, "after", ", static: true, record_time: 2ms")], KILL)
    file = GroupsFile.load(directory.groups)
    assert check(directory, file.groups[0])[ProcessingState.EFFECTIVE] > 300
    assert [one.instance for one in file.members] == [f"ackproof-after-{slot}" for slot in (0, 1, 0)]
    assert [one.status for one in file.members] == [-9, 0, 0]

"""A plain second implementation of the classes of consumer groups, written from docs/groups.md. Tests compare both."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq

from ackproof.rundir.groups import GroupsFile, GroupsPlanFile
from ackproof.rundir.layout import CaseDir

LATEST = 1 << 62


def rows_of(*paths: Path) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(**row)
        for path in paths
        if path.exists()
        for row in pq.read_table(path, partitioning=None).to_pylist()
    ]


def count_groups(folder: Path) -> dict[str, Counter[tuple]]:
    """Return how often each group has (class, topic, partition, producer, seq, offset), by the name of the group."""
    run = CaseDir(folder)
    file = GroupsFile.load(run.groups)
    return {
        plan.group: _Group(run, file, plan).count() for plan in GroupsPlanFile.load(run.groups_plan).groups
    }


class _Group:
    def __init__(self, run, file, plan):
        self.plan, self.found = plan, Counter()
        (end,) = [one for one in file.groups if one.group == plan.group]
        self.answered = not end.committed.reason
        self.committed = {(topic, partition): offset for topic, partition, offset in end.committed.offsets}
        ledgers = (run.deliveries, run.commits_ledger, run.membership)
        self.deliveries, self.commits, self.events = (
            [row for row in rows_of(*folder.glob("*/*.parquet")) if row.group == plan.group]
            for folder in ledgers
        )
        self.events.sort(key=lambda row: row.t_ns)
        self.log = [row for row in rows_of(run.offsets_log) if row.group == plan.group]
        histories = [one for one in file.histories if one.partition == end.committed.partition]
        whole = [one.node for one in histories if one.whole]
        self.all_whole = bool(histories) and len(whole) == len(histories)
        self.history = None
        if whole:
            self.history = end.committed.coordinator if end.committed.coordinator in whole else min(whole)
        phase = 3 if plan.committed_read else 1
        self.there = {}
        for row in rows_of(*run.consumed.glob("*/*.parquet")):
            if row.phase == phase and row.intact and row.topic in plan.topics:
                self.there.setdefault((row.topic, row.partition, row.offset), row)
        self.output = [
            row for row in rows_of(run.group_output(plan.group)) if row.producer >= 0 and row.seq >= 0
        ]
        self.whole_output = not end.problem

    def find(self, anomaly, row, **other):
        value = {"topic": "", "producer": -1, "seq": -1, "offset": -1, **vars(row), **other}
        self.found[
            (anomaly, *(value[name] for name in ("topic", "partition", "producer", "seq", "offset")))
        ] += 1

    def count(self):
        self.resets = defaultdict(list)
        for row in self.events:
            if row.event == "reset":
                self.resets[row.topic, row.partition].append(row)
        if self.answered:
            self.undelivered()
        self.redelivered()
        if self.answered and self.plan.commit == "transaction" and self.whole_output:
            self.torn()
        self.doubled()
        if self.plan.commit != "auto":
            if self.all_whole:
                self.lost()
            if self.history is not None:
                self.zombies()
            for place in {(row.topic, row.partition) for row in self.commits}:
                self.regressed(place)
            for place in {(row.topic, row.partition) for row in self.deliveries}:
                self.two_owners(place)
        return self.found

    def passed(self, row, fork=LATEST):
        """Return whether a reset passed over the record. `fork`: first offset that a backward reset passes over."""
        return any(
            (reset.from_offset if reset.from_offset < reset.offset else fork) <= row.offset < reset.offset
            for reset in self.resets[row.topic, row.partition]
        )

    def forks(self):
        """Return the first offset by (topic, partition) where a delivered record is not that of the final read."""
        found = {}
        for row in self.deliveries:
            one = self.there.get((row.topic, row.partition, row.offset))
            if one is not None and (one.producer, one.seq) != (row.producer, row.seq):
                place = row.topic, row.partition
                found[place] = min(row.offset, found.get(place, LATEST))
        return found

    def past(self, row):
        return row.offset < self.committed.get((row.topic, row.partition), 0)

    def undelivered(self):
        processed = {
            (row.topic, row.partition, row.offset, row.producer, row.seq)
            for row in self.deliveries
            if row.state in (1, 3)
        }
        forks = self.forks()
        for row in self.there.values():
            if (
                self.past(row)
                and (row.topic, row.partition, row.offset, row.producer, row.seq) not in processed
            ):
                passed = self.passed(row, forks.get((row.topic, row.partition), LATEST))
                self.find("skipped-by-reset" if passed else "undelivered", row)

    def redelivered(self):
        seen = set()
        for row in self.deliveries:
            if row.state == 1:
                what = (row.topic, row.partition, row.offset, row.producer, row.seq)
                if what in seen:
                    self.find("redelivered", row)
                seen.add(what)

    def torn(self):
        copies = {(row.producer, row.seq) for row in self.output}
        for row in self.there.values():
            copied = (row.producer, row.seq) in copies
            if copied != self.past(row) and not (self.past(row) and self.passed(row)):
                self.find("torn-output", row)

    def doubled(self):
        allowed = Counter((row.producer, row.seq) for row in self.there.values())
        seen = Counter()
        for row in sorted(self.output, key=lambda row: (row.partition, row.offset)):
            what = (row.producer, row.seq)
            seen[what] += 1
            if seen[what] > max(1, allowed[what]):
                self.find("doubled-output", row, topic=self.plan.output)

    def lost(self):
        logged, unnamed = set(), set()
        for row in self.log:
            if row.record == "commit" and row.decision != 1:
                logged.add((row.topic, row.partition, row.member, row.number))
                if row.member < 0:
                    unnamed.add((row.topic, row.partition, row.offset))
        for row in self.commits:
            if (
                row.result == 0
                and (row.topic, row.partition, row.member, row.number) not in logged
                and (row.topic, row.partition, row.offset) not in unnamed
            ):
                self.find("lost-commit", row)

    # Zombies: what the coordinator knew when the log got the commit.

    def zombies(self):
        by_name = {(row.topic, row.partition, row.member, row.number): row for row in self.commits}
        generation, epochs, owned, zombies, kip_848 = None, {}, {}, set(), False
        history = [row for row in self.log if row.node == self.history]
        for row in sorted(history, key=lambda row: row.log_offset):
            if row.record == "group":
                generation = row.epoch
                kip_848 = kip_848 and row.epoch >= 0
            elif row.record == "member":
                kip_848 = kip_848 or row.epoch >= 0
                if owned.get(row.member_id, (None,))[-1] != row.log_offset:
                    had = dict(owned[row.member_id][0]) if row.member_id in owned else {}
                    before = owned[row.member_id][1] if row.member_id in owned else {}
                    owned[row.member_id] = ({}, {**before, **had}, row.log_offset)
                epochs[row.member_id] = row.epoch
                if row.partition >= 0:
                    owned[row.member_id][0][row.topic, row.partition] = (row.offset, row.log_offset)
            elif row.record == "commit" and row.decision == 0 and row.member >= 0:
                commit = by_name.get((row.topic, row.partition, row.member, row.number))
                if commit is not None and self.is_zombie(
                    commit, generation, epochs if kip_848 else None, owned
                ):
                    zombies.add((row.topic, row.partition, row.member, row.number))
        for name in zombies:
            self.find("zombie-commit", by_name[name])

    def is_zombie(self, commit, generation, epochs, owned):
        if commit.transaction:
            sent = commit.generation
        else:
            sent = commit.generation_after if commit.generation_after >= commit.generation else -1
        if sent < 0:
            return False
        if epochs is None:
            over = max(commit.begun_ns, commit.done_ns)
            own = [row for row in self.events if row.member == commit.member and row.event == "assigned"]
            later = [row.generation for row in own if row.t_ns >= over][:1]
            if generation is None or sent >= generation:
                return False
            return commit.transaction or generation not in later
        name = self.member_id(commit)
        if name is None or name not in epochs:
            return False
        if epochs[name] == -1:
            return True
        if sent >= epochs[name]:
            return False
        return not (
            self.plan.assignment_epochs
            and self.is_assigned((commit.topic, commit.partition), name, sent, owned)
        )

    def member_id(self, commit):
        """Return the id that the member had during the call. None: unknown, or it changed."""
        if commit.done_ns < 0:
            return None
        named = [row for row in self.events if row.member == commit.member and row.member_id]
        before = [row.member_id for row in named if row.t_ns <= commit.begun_ns]
        after = [row.member_id for row in named if row.t_ns <= commit.done_ns]
        return before[-1] if before and before[-1] == after[-1] else None

    def is_assigned(self, place, name, sent, owned):
        """Return whether the member got the partition by epoch `sent`, and no other member since (Kafka 4.3)."""
        now, before, _ = owned[name]
        if place in now:
            return now[place][0] <= sent
        if place not in before or before[place][0] > sent:
            return False
        since = before[place][1]
        return not any(
            other != name and place in (both := {**its[1], **its[0]}) and both[place][1] > since
            for other, its in owned.items()
        )

    # Regressions.

    def observations(self, place):
        """Yield (earliest time of the request, its answer, offset) of each OffsetFetch; that after the run last."""
        assigned = {}
        if self.plan.commit != "transaction" or self.plan.isolation == "read_committed":
            for row in self.events:
                if (row.topic, row.partition) != place:
                    continue
                if row.event == "assigned":
                    assigned[row.member] = row.t_ns
                elif row.event == "position" and row.member in assigned:
                    yield assigned[row.member], row.t_ns, row.offset
        if self.answered:
            yield LATEST, LATEST, self.committed.get(place, -1)

    def regressed(self, place):
        mine = [row for row in self.commits if (row.topic, row.partition) == place]
        log = [
            row
            for row in self.log
            if (row.topic, row.partition) == place and row.record in ("commit", "removed")
        ]
        if self.history is None:
            self.regressed_by_time(place, mine, log)
        else:
            log = [row for row in log if row.node == self.history and row.decision == 0]
            self.regressed_by_log(place, mine, sorted(log, key=lambda row: row.log_offset))

    def explained(self, place, commit, since, until):
        return any(
            since <= reset.t_ns <= until and reset.offset <= commit.offset for reset in self.resets[place]
        )

    def regressed_by_log(self, place, mine, log):
        accepted = {(row.member, row.number): row for row in mine if row.result == 0}
        order = []  # (offset, accepted commit or None, whether it is its first record)
        seen = set()
        for row in log:
            name = (row.member, row.number) if row.record == "commit" and row.member >= 0 else None
            commit = accepted.get(name)
            first = commit is not None and name not in seen
            seen.add(name)
            order.append((-1 if row.record == "removed" else row.offset, commit, first, row.log_offset))
        ranked = [(entry[1].done_ns, entry[3]) for entry in order if entry[2]]
        missing = sorted(
            (row for name, row in accepted.items() if name not in seen), key=lambda row: row.done_ns
        )
        placed = [
            (row.offset, row, True, max((at for done, at in ranked if done < row.begun_ns), default=-1))
            for row in missing
        ]
        order = sorted([*order, *placed], key=lambda entry: entry[3])  # stable: the log first
        told = defaultdict(list)
        for asked, t_ns, offset in self.observations(place):
            known = [at for at, entry in enumerate(order) if entry[2] and entry[1].done_ns < asked]
            if not known or offset >= order[known[-1]][0]:
                continue
            later = [
                entry
                for entry in order[known[-1] + 1 :]
                if entry[0] == offset and (entry[1] is None or entry[1].begun_ns <= t_ns)
            ]
            if not later:
                told[known[-1]].append(offset)
        state, owner = None, None
        for at, (offset, commit, first, _) in enumerate(order):
            if owner is not None and first and offset < state:
                together = (
                    owner.member == commit.member
                    and owner.begun_ns <= commit.done_ns
                    and commit.begun_ns <= owner.done_ns
                )
                if not together and not self.explained(place, commit, owner.begun_ns, commit.begun_ns):
                    self.find("regressed-commit", owner)
            state, owner = offset, commit
            for lower in told[at]:
                if lower < state:
                    self.find("regressed-commit", commit)
                    state = lower

    def regressed_by_time(self, place, mine, log):
        accepted = [row for row in mine if row.result == 0]
        names = {(row.member, row.number) for row in accepted}
        late = [(row.begun_ns, row.offset) for row in mine if row.result == 2]
        late += [
            (0, -1 if row.record == "removed" else row.offset)
            for row in log
            if (row.member, row.number) not in names
        ]
        entries = [(row.begun_ns, row.done_ns, row.offset, row) for row in accepted]
        entries += [(*told, None) for told in self.observations(place)]
        for entry in entries:
            begun, done, offset, commit = entry
            before = [other for other in entries if other[1] < begun]
            latest = max((other[0] for other in before), default=None)
            last = [other for other in before if other[1] >= latest]
            if not last or min(other[2] for other in last) <= offset:
                continue
            low = min(other[2] for other in last)
            candidates = sorted((other for other in last if other[2] == low), key=lambda other: other[1])
            named, since = candidates[0][3], candidates[0][0]
            lower = [
                other[2]
                for other in entries
                if other is not entry and other[3] is not None and other[0] <= done and other[1] >= begun
            ]
            lower += [value for at, value in late if at <= done]
            if commit is not None:
                if self.explained(place, commit, since, begun) or any(value <= offset for value in lower):
                    continue
            elif offset in lower:
                continue
            if named is None:
                known = [row for row in accepted if row.done_ns < begun and row.offset >= low]
                if not known:
                    continue
                named = max(known, key=lambda row: row.done_ns)
            self.find("regressed-commit", named)

    # Two owners.

    def two_owners(self, place):
        spans = []
        begun_at = {}
        for row in self.events:
            here = (row.topic, row.partition) == place
            if row.member in begun_at and (
                row.event == "closed" or (here and row.event in ("revoked", "lost", "assigned"))
            ):
                spans.append((row.member, begun_at.pop(row.member), row.t_ns))
            if here and row.event == "assigned":
                begun_at[row.member] = row.t_ns
        spans += [(member, begin, LATEST) for member, begin in begun_at.items()]
        owned = []
        for member, begin, end in spans:
            begun = [
                row.begun_ns
                for row in self.commits
                if (row.topic, row.partition, row.member, row.result) == (*place, member, 0)
                and min(row.generation, row.generation_after) >= 0
                and begin <= row.begun_ns <= end
            ]
            if begun:
                owned.append((member, begin, max(begun)))
        rows = [row for row in self.deliveries if (row.topic, row.partition) == place and row.state in (1, 3)]
        found = {}
        for one, begin, end in owned:
            for two, other_begin, other_end in owned:
                if one == two:
                    continue
                low, high = max(begin, other_begin), min(end, other_end)
                inside = [row for row in rows if low <= row.processed_ns <= high]
                mine = [row for row in inside if row.member == one]
                if mine and any(row.member == two for row in inside):
                    found.update({(row.offset, row.producer, row.seq): row for row in mine})
        for row in found.values():
            self.find("two-owners", row)

"""Makes a run directory with one consumer group: healthy by default, with a method to plant each anomaly class.

`expected` has the counts that the audit must find. Plants do not interfere if each gets a batch of records of its
own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ackproof.rundir.groups import MembershipEvent, OffsetsRecord
from healthy_group import HealthyGroup
from written_group import TOPIC


@dataclass
class PlantedGroups(HealthyGroup):
    """Content of a run directory with planted findings; `write` writes it. `expected`: number of findings by class."""

    expected: Counter[str] = field(default_factory=Counter)

    def plant_all(self, blocks: int = 1) -> None:
        """Plant each class that the group can have, `blocks` times, each in a batch of its own."""
        plants = [plant for name, plant in PLANTS.items() if self.output or "output" not in name] * blocks
        free = random.Random(1).sample(range(1, self.batches - 3), len(plants))
        for plant, batch in zip(plants, free, strict=True):
            plant(self, batch * self.batch)

    def plant_undelivered(self, partition: int, offset: int) -> None:
        """Plant a record that was not delivered, so no member processed it."""
        self.deliveries.there[partition * self.records + offset] = False
        self.expected["undelivered"] += 1

    def plant_reset(self, partition: int, first: int, end: int) -> None:
        """Plant a reset: a member that should have continued at offset `first` was reset to `end`."""
        at = partition * self.records + np.arange(first, end)
        self.deliveries.there[at] = False
        if self.output:
            self.copies.there[at] = False
        when = self.deliveries.columns["delivered_ns"][partition * self.records + first].item()
        self.member_event(
            MembershipEvent.RESET, partition % self.members, partition, when,
            from_offset=first, offset=end, why="OFFSET_OUT_OF_RANGE",
        )  # fmt: skip
        self.expected["skipped-by-reset"] += end - first

    def plant_redelivered(self, partition: int, offset: int, times: int = 1) -> None:
        """Plant a record that its member got and processed `times` times more."""
        for number in range(1, times + 1):
            row = self.deliveries.row(partition * self.records + offset)
            later = {name: row[name] + number * 1000 for name in ("delivered_ns", "processed_ns")}
            self.deliveries.extra.append({**row, **later})
        self.expected["redelivered"] += times

    def plant_torn(self, partition: int, offset: int) -> None:
        """Plant a record of a transactional group that is missing in the output."""
        self.copies.there[partition * self.records + offset] = False
        self.expected["torn-output"] += 1

    def plant_uncommitted_output(self, partition: int, count: int) -> None:
        """Plant `count` records at the end of a partition that are in the output although the group's last commit is
        missing. That also counts as one regressed commit."""
        self.committed[partition] = self.records - count
        self.expected["torn-output"] += count
        self.expected["regressed-commit"] += 1

    def plant_doubled(self, partition: int, offset: int, times: int = 1) -> None:
        """Plant a record that is in the output `times` times more."""
        row = self.copies.row(partition * self.records + offset)
        for _ in range(times):
            self.copies.extra.append({**row, "offset": self.records + len(self.copies.extra)})
        self.expected["doubled-output"] += times

    def plant_lost_commit(self, partition: int, batch: int) -> None:
        """Plant an accepted commit that no log has. It must not be the last one of the partition."""
        at = partition * self.batches + batch
        member, number = (self.commits.columns[name][at] for name in ("member", "number"))
        self.log.there[self.log.find(member=member, number=number)] = False
        self.expected["lost-commit"] += 1

    def plant_regressed_log(self, partition: int, batch: int) -> None:
        """Plant an accepted commit of a lower offset after the commit of a batch."""
        at = partition * self.batches + batch
        row = self.commits.row(at)
        number = 10**6 + len(self.commits.extra)
        (where,) = self.log.find(member=row["member"], number=row["number"])
        times = {"begun_ns": row["done_ns"] + 1000, "done_ns": row["done_ns"] + 2000}
        self.commits.extra.append({**row, **times, "number": number, "offset": row["offset"] - 5})
        record = self.log.row(where)
        self.log.extra.append(
            {**record, "log_offset": record["log_offset"] + 1, "decided_at": -1, "producer_id": -1,
             "offset": record["offset"] - 5, "number": number}
        )  # fmt: skip
        self.expected["regressed-commit"] += 1

    def plant_regressed_position(self, partition: int, batch: int) -> None:
        """Plant a new assignment at which a member gets a lower offset than was accepted for a batch."""
        row = self.commits.row(partition * self.batches + batch)
        when = row["done_ns"] + 1000
        self.member_event(MembershipEvent.REVOKED, row["member"], partition, when)
        self.member_event(MembershipEvent.ASSIGNED, row["member"], partition, when + 1000)
        self.member_event(
            MembershipEvent.POSITION, row["member"], partition, when + 2000, offset=row["offset"] - 3
        )
        self.expected["regressed-commit"] += 1

    def plant_zombie(self, partition: int) -> None:
        """Plant an accepted commit with an older generation after the last one, at the same offset."""
        row = self.commits.row(partition * self.batches + self.batches - 1)
        number = 10**6 + len(self.commits.extra)
        old = {"generation": 0, "generation_after": 0, "number": number}
        at = self.over_ns + len(self.commits.extra) * 1000
        self.commits.extra.append({**row, **old, "begun_ns": at, "done_ns": at + 500})
        self.log_record(
            self.log_end, OffsetsRecord.COMMIT, topic=TOPIC, partition=partition, offset=row["offset"],
            member=row["member"], number=number, generation=0,
        )  # fmt: skip
        self.expected["zombie-commit"] += 1

    def plant_two_owners(self, partition: int, offset: int) -> None:
        """Plant a second owner: another member is assigned the partition 1 µs before the record's processing, processes
        the record too, and commits 1 µs after it. The commit is accepted. The record counts as redelivered and for two
        owners. So would other records that the owner processes in these microseconds."""
        at = partition * self.records + offset
        row = self.deliveries.row(at)
        other, when = (row["member"] + 1) % self.members, row["processed_ns"]
        self.member_event(MembershipEvent.ASSIGNED, other, partition, when - 1000)
        self.member_event(MembershipEvent.REVOKED, other, partition, when + 3000)
        times = {"delivered_ns": when - 500, "processed_ns": when + 500}
        self.deliveries.extra.append({**row, **times, "member": other})
        batch = offset // self.batch
        of_batch = self.commits.row(partition * self.batches + max(0, batch - 1))
        number = 10**6 + len(self.commits.extra)
        self.commits.extra.append(
            {**of_batch, "member": other, "number": number, "begun_ns": when + 1000, "done_ns": when + 2000}
        )
        (where,) = self.log.find(member=of_batch["member"], number=of_batch["number"])
        record = self.log.row(where)
        self.log.extra.append(
            {**record, "log_offset": record["log_offset"] + 1, "decided_at": -1, "producer_id": -1,
             "member": other, "number": number}
        )  # fmt: skip
        self.expected["two-owners"] += 1
        self.expected["redelivered"] += 1


PLANTS: Mapping[str, Callable[[PlantedGroups, int], None]] = {
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

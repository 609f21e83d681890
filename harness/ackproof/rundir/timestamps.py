"""`timestamps.json`: the timestamps that records of a partition may have, computed before the audit
(`ackproof.judge.timestamps`). The audit counts records with other timestamps as corrupted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from ackproof.base.errors import BadInput
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition


@dataclass(frozen=True, slots=True)
class TimestampRule:
    """Timestamps that records of one partition may have, for either value of `message.timestamp.type`. A record must
    have one of them."""

    topic: str
    partition: int
    sent_from_ns: int | None
    """CreateTime: ns since the Unix epoch from which `sent_ns` and `done_ns` count. A record has the whole millisecond
    of `sent_ns`. None: the type was never in force."""
    appended_ms: tuple[int, int] | None
    """LogAppendTime: first and last ms of the run since the Unix epoch, by any broker's clock. None: the type was
    never in force."""

    unsure_ns: int | None = None
    """CreateTime: by how many ns a record's timestamp may lie before `sent_ns` or after `done_ns`, because the client
    library set it in between. None: the timestamp is exact."""

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def write_timestamps(run: CaseDir, rules: Iterable[TimestampRule]) -> None:
    """Write `timestamps.json` of a run: the rules that the audit applies. Raises OSError if it cannot be written."""
    text = json.dumps({"timestamps": [asdict(rule) for rule in rules]}, indent=1)
    run.timestamps_json.write_text(text, encoding="utf-8")


def read_timestamps(run: CaseDir) -> Mapping[TopicPartition, TimestampRule]:
    """Return the rules by partition; empty if the run has no such file. Raises `BadInput` if the file cannot be
    read."""
    try:
        found = [TimestampRule(**rule) for rule in json.loads(run.timestamps_json.read_bytes())["timestamps"]]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{run.timestamps_json}: cannot be read: {error}") from error
    return {rule.place: rule for rule in found}

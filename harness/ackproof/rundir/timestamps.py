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
    """Timestamps that records of one partition may have, under each `message.timestamp.type` that was in force.

    CreateTime: `sent_from_ns` is the time, in ns since the Unix epoch, from which `sent_ns` and `done_ns` count. If
    `unsure_ns` is None, the timestamp is the whole millisecond of `sent_ns`. Otherwise the client library set it. It
    lies at most `unsure_ns` before `sent_ns` and at most `unsure_ns` after `done_ns`. LogAppendTime: `appended_ms` are
    the first and last ms of the run since the Unix epoch, by any broker's clock.

    `sent_from_ns` or `appended_ms` is None if its type was never in force. If both types were, a timestamp of either is
    allowed.
    """

    topic: str
    partition: int
    sent_from_ns: int | None
    appended_ms: tuple[int, int] | None

    unsure_ns: int | None = None

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

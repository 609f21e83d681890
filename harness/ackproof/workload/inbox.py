"""The events file of a client, read by the parent as it grows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ackproof.rundir.timeline import ClientReset, Note


@dataclass(frozen=True)
class Line:
    """One event of a client. `topic` '' and `partition` -1: of no particular partition."""

    t_ns: int
    topic: str
    partition: int
    what: ClientReset | Note


class Inbox:
    """Reads whole lines, each once. A line that is torn (its client was killed over it) is passed over."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def read(self) -> list[Line]:
        """What has come since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            raw = file.read()
        whole = raw[: raw.rfind(b"\n") + 1]
        self._at += len(whole)
        return [line for text in whole.splitlines() if (line := _parse(text)) is not None]


def _parse(text: bytes) -> Line | None:
    try:
        raw = json.loads(text)
        what = (ClientReset if raw["kind"] == "reset" else Note).model_validate(raw["detail"])
        return Line(int(raw["t_ns"]), str(raw["topic"]), int(raw["partition"]), what)
    except (ValueError, KeyError, TypeError):
        return None

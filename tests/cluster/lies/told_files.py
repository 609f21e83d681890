"""Lies planted after a run in files other than its ledgers: a line or a number is changed, and the run is sealed again.

Each changed file can still be read, but another file contradicts it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from ackproof.rundir.layout import CaseDir

from .ledger_files import reseal

Line = dict[str, object]
Lines = list[Line]


def tell(run: CaseDir, lie: str) -> None:
    """Plant one lie of `TOLD` in a run, and seal the run again. Raises AssertionError if the lie changes nothing."""
    name, change, _ = TOLD[lie]
    path = run.path / name
    before = path.read_text(encoding="utf-8")
    after = _lines(before, change) if path.suffix == ".jsonl" else _document(before, change)
    assert after != before, lie
    path.write_text(after, encoding="utf-8")
    reseal(run)


def _lines(text: str, change: Callable[[Lines], Lines]) -> str:
    changed = change([json.loads(line) for line in text.splitlines()])
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in changed)


def _document(text: str, change: Callable[[Lines], Lines]) -> str:
    (changed,) = change([json.loads(text)])
    return json.dumps(changed, indent=1)


def _with(wanted: Callable[[Line], bool], **said: object) -> Callable[[Lines], Lines]:
    return lambda lines: [{**line, **said} if wanted(line) else line for line in lines]


def _without(wanted: Callable[[Line], bool]) -> Callable[[Lines], Lines]:
    return lambda lines: [line for line in lines if not wanted(line)]


def _of_first(key: str, **said: object) -> Callable[[Lines], Lines]:
    """Return a change that sets these fields in the first element of the list under a key."""

    def change(lines: Lines) -> Lines:
        (document,) = lines
        first, *others = list(document[key])  # type: ignore[call-overload]
        return [{**document, key: [{**first, **said}, *others]}]

    return change


def _kind(kind: str) -> Callable[[Line], bool]:
    return lambda line: line.get("kind") == kind


def _metadata_record_gone(lines: Lines) -> Lines:
    return [*lines[:10], *lines[11:]]


TOLD: Final[dict[str, tuple[str, Callable[[Lines], Lines], str]]] = {
    "metadata-gap": ("observed/metadata.jsonl", _metadata_record_gone, "metadata log"),
    "metadata-end": ("observed/metadata.jsonl", lambda lines: lines[:-1], "metadata log"),
    "leader": ("observed/partitions.jsonl", _with(lambda _: True, leader=2, isr=[2]), "orders/"),
    "leader-epoch": ("observed/partitions.jsonl", _with(lambda _: True, leader_epoch=7), "epoch 7"),
    "high-watermark": (
        "observed/partitions.jsonl",
        _with(lambda _: True, high_watermark=9_999_999),
        "9999999",
    ),
    "pulses": ("observed/pulse.jsonl", _with(lambda _: True, sent=7), "the pulses count 7 records sent"),
    "client-end": ("timeline.jsonl", _without(_kind("client-ended")), "client"),
    "node-start": ("timeline.jsonl", _without(lambda line: line.get("node") == 2), "node"),
    "phases": ("timeline.jsonl", lambda lines: [*lines[:-1], {**lines[-1], "t_ns": 1}], "timeline"),
    "final-end": ("observed/final-read.json", _of_first("partitions", end=1), "orders/"),
    "final-epoch": ("observed/final-read.json", _of_first("partitions", epoch=5, epoch_after=5), "epoch"),
    "log-end": ("observed/replicas.json", _of_first("replicas", log_end=9_999_999), "9999999"),
    "log-topic": (
        "observed/replicas.json",
        _of_first("replicas", topic_id="00000000-0000-4000-8000-000000000000"),
        "",
    ),
    "seed": ("case.json", _with(lambda _: True, seed=4711), "seed"),
}
"""By name of the lie: the file, the change of its lines (or of its one document), and words of the verdict's reason."""

"""`--soak 6h`: one long load of equal windows. Each window is as long as the file's load and repeats its faults.

The YAML tree of the file is rewritten before it is checked, so that the same checks apply to a file and to its soak.
A storm draws other faults in each window, because its draw depends on the seed and on its fault number.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from ackproof.base.advice import Advice
from ackproof.base.errors import BadInput
from ackproof.base.units import LONGEST, duration_text, parse_duration
from ackproof.experiment.backends import BACKENDS, BackendRow
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.problems import NOWHERE, ListNode, MapNode, Node, ScalarNode, path_text
from ackproof.experiment.spec import WorkloadSpec
from ackproof.plan.axes import matrix_of
from ackproof.plan.diagnostics import Problems
from ackproof.plan.paths import override
from ackproof.plan.reader import MAX_FAULTS, MAX_OF_SOAK

_DURATION: Final = ("workload", "duration")


@dataclass(frozen=True)
class Soak:
    """Options of `--soak`. `text`: duration, such as `6h`. `keep`: number of newest windows that stay on disk; None:
    all."""

    text: str
    keep: int | None = None

    @property
    def seconds(self) -> float:
        """Duration of the soak in seconds. Raises `BadInput` if `text` is no duration."""
        try:
            return parse_duration(self.text)
        except ValueError as error:
            raise BadInput(f"--soak {self.text}: {error}") from error


def soaked(file: str, root: MapNode, soak: Soak) -> MapNode:
    """Return the experiment with its load and faults repeated, window after window, for the duration of the soak.

    A window is as long as the file's load; the soak is rounded to whole windows, of at most 24 h in total. A file with
    a wrong duration or too many faults is returned as it is. `file`: its name in messages. Raises `BadInput` if the
    backend can run no soak, if a fault or the matrix cannot be repeated window by window, if the text of `soak` is no
    duration or is at most half a window, or if all windows together have more than `MAX_OF_SOAK` faults.
    """
    backend = root.entries.get("backend")
    ground = BACKENDS.get(backend.text) if isinstance(backend, ScalarNode) else None
    for text in _no_ground(ground) if ground is not None else ():
        raise BadInput(f"--soak: {file}: {text}")
    for path in matrix_of(Problems(file, root)).paths:
        if path == _DURATION or path[0] == "faults":
            raise BadInput(
                f"--soak: the matrix of {file} varies {path_text(path)}, and a window of a soak has one load and the "
                "same faults; choose one by --set without the matrix"
            )
    workload, faults = root.entries.get("workload"), root.entries.get("faults")
    window = _window_s(workload.entries.get("duration") if isinstance(workload, MapNode) else None)
    entries = faults.items if isinstance(faults, ListNode) else []
    if not window or len(entries) > MAX_FAULTS:
        return root  # reported when the file is read
    length = duration_text(window)
    windows = min(round(soak.seconds / window), int(LONGEST / window))
    if windows < 1:
        raise BadInput(
            f"--soak {soak.text}: a window is as long as the load of {file}, {length}: give at least that"
        )
    if windows * len(entries) > MAX_OF_SOAK:
        longer = duration_text(window * -(-windows * len(entries) // MAX_OF_SOAK))
        raise BadInput(
            f"--soak {soak.text}: {windows} windows of {len(entries)} faults are more than {MAX_OF_SOAK}: "
            f"make a window longer, --set workload.duration={longer}"
        )
    repeated = [
        _shift_fault(file, entry, k, window, len(entries)) for k in range(windows) for entry in entries
    ]
    root = override(root, _DURATION, _duration(windows * window))
    root = override(root, ("soak", "window"), _duration(window))
    if soak.keep is not None:
        root = override(root, ("soak", "keep"), ScalarNode(soak.keep, str(soak.keep), NOWHERE))
    if not isinstance(faults, ListNode):
        return root
    return replace(root, entries=root.entries | {"faults": replace(faults, items=repeated)})


def _no_ground(ground: BackendRow) -> Iterator[str]:
    if ground.simulated:
        yield "a soak shows what time does to processes and disks, and the model has neither: take another backend"
    if ground.foreign:
        yield (
            "a soak awaits between its windows that the cluster is whole, and may delete records there: not on a "
            "cluster that someone else runs"
        )


def _window_s(given: Node | None) -> float | None:
    """Return the seconds of a window, given the duration of the file's load. None or 0 if this duration is wrong."""
    if given is None:
        return WorkloadSpec().duration
    with contextlib.suppress(ValueError):
        return parse_duration(given.text) if isinstance(given, ScalarNode) else None
    return None


def objections_to_soak(spec: ExperimentSpec) -> Iterator[str]:
    """Yield the reasons why the load of a soak cannot be audited window by window."""
    yield from _no_ground(spec.ground)
    if spec.workload.producers.rate is None:
        yield "a soak needs a rate (workload.producers.rate): at full speed the ledgers are written when the load ends"
    if spec.workload.producers.transaction_size is not None:
        yield "transactions are audited at the end of a run alone: a soak has none (transaction_size)"
    if spec.workload.producers.keys is not None:
        yield "what compaction may remove is known at the end of a run alone: a soak has no keys (keys)"
    if spec.workload.consumers.live < 1:
        yield "a soak needs a reader that follows the load (workload.consumers.live: 1)"
    for fault in spec.faults:
        if fault.kind == "recreate":
            yield Advice(
                "a recreated topic has other records at the same offsets",
                "take the fault recreate out of a soak",
            )


def _duration(seconds: float) -> ScalarNode:
    text = duration_text(seconds)
    return ScalarNode(text, text, NOWHERE)


def _shift_fault(file: str, entry: Node, windows: int, window: float, count: int) -> Node:
    """Return a fault of the file for one window. `windows`: number of windows before it, each of `window` seconds and
    with `count` faults.

    Its `at` is moved by that time; its `after` refers to the fault of the same window. Raises `BadInput` for a fault
    that begins in a state (`when`), or whose `at` is not before the end of its window.
    """
    if not isinstance(entry, MapNode):
        return entry  # reported when it is read
    if "when" in entry.entries:
        raise BadInput(
            f"--soak: a fault of {file} begins in a state (when), and not again in each window: use at"
        )
    at, after = entry.entries.get("at"), entry.entries.get("after")
    if isinstance(at, ScalarNode):
        try:
            begins = parse_duration(at.text)
        except ValueError:
            return entry
        if begins >= window:
            raise BadInput(
                f"--soak: a fault of {file} begins at {at.text}, when its window of {duration_text(window)} is over"
            )
        return override(entry, ("at",), replace(_duration(begins + windows * window), mark=at.mark))
    first = after.entries.get("fault") if isinstance(after, MapNode) else None
    if isinstance(first, ScalarNode) and isinstance(first.value, int):
        number = first.value + windows * count
        return override(entry, ("after", "fault"), ScalarNode(number, str(number), first.mark))
    return entry

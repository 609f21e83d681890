"""Deletion of old windows while a soak goes on (`--keep`): those without findings, the oldest first.

Leaders delete the records of a window from the logs (DeleteRecords); then its parts of the ledgers are deleted, each
after an entry in `_DELETED`. Deletion stops for good at the first window with a finding or an incomplete audit. This
window, all later ones, and the one before it, whose acknowledgements may be missing, are kept. Deletion also stops for
good at the first window with live reads of earlier windows (a reader went back or was restarted). Only the audit at the
end checks these reads, and it needs the records.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from ackproof.clients.final_read import Ends
from ackproof.cluster.queries import delete_records
from ackproof.network.wire import Connection, Unreachable, WireError
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import mark_deleted, part_number
from ackproof.rundir.timeline import Note, Timeline
from ackproof.rundir.windows import WindowFile, WindowTask, window_dir, window_json


class Forgetting:
    """Deletes the ledger parts and the records of windows without findings, except the newest `keep` windows.

    `ends(partitions)` asks brokers for leader and log bounds of these partitions. `links()` returns a connection to
    each running broker, by broker id."""

    def __init__(
        self,
        keep: int,
        case: CaseDir,
        ends: Ends,
        links: Callable[[], Mapping[int, Connection]],
        timeline: Timeline,
    ) -> None:
        self._keep, self._case, self._ends, self._links, self._timeline = keep, case, ends, links, timeline
        self._kept: list[tuple[WindowFile, list[Path]]] = []
        """Windows that are not deleted yet, each with its parts of the ledgers."""
        self._held: list[Path] = []
        """Ledger parts of deleted windows that later windows still need."""
        self._ended = False

    def take(self, order: WindowTask, file: WindowFile) -> None:
        """Add an audited window to those that `forget` may delete. After a window with findings, with an incomplete
        audit, or with live reads of earlier windows, later windows are ignored. A note in the timeline says so."""
        if self._ended:
            return
        # Keep each producer's first part: it shows the acknowledgements before the first fault.
        produced = [Path(part) for taken in order.produced.values() for part in taken if part_number(part)]
        self._kept.append((file, [*produced, *map(Path, order.consumed)]))
        if file.late or not _is_clean(file):
            self._ended = True
            if file.late:
                why = f"{file.late} live reads of earlier windows"
            else:
                why = "its audit is incomplete" if file.reasons else "it has findings"
            self._timeline.add(Note(note=f"window {file.number}: {why}; no more windows are deleted"))

    def forget(self) -> None:
        """Delete the windows before the newest `keep`, the oldest first, until a window or the one after it has a
        finding or is incomplete. Delete nothing more once a live reader has read offsets of earlier windows: the audit
        at the end checks such reads, and needs all records for that.

        Each deletion is noted in the timeline. One that a broker refuses or does not answer is noted, and tried again
        with the next window. Raises OSError for a file that cannot be written, ArrowException for a damaged part of a
        ledger.
        """
        if self._kept and self._kept[-1][0].late:
            return  # live reads of unknown earlier windows: stop for good
        while len(self._kept) > self._keep and all(_is_clean(file) for file, _ in self._kept[:2]):
            oldest, parts = self._kept[0]
            try:
                asked = self._by_leader(oldest)
                # Record the deletion before requesting it: one leader may obey and the next may fail.
                oldest.model_copy(update={"deleted": True}).save(window_json(self._case, oldest.number))
                for link, offsets in asked:
                    delete_records(link, offsets)
            except WireError as error:
                why = f"not all of its records are deleted yet: {error}"
                self._timeline.add(Note(note=f"window {oldest.number}: {why}"))
                return
            self._delete_parts(oldest, parts)
            self._timeline.add(Note(note=f"window {oldest.number}: deleted, as it has no findings"))
            del self._kept[0]

    def _delete_parts(self, window: WindowFile, parts: list[Path]) -> None:
        """Delete the files of this window, and the ledger parts of the window that was deleted before it.

        The files are those of the follower, the reader that read the window back. `parts`, the window's own ledger
        parts, are kept until the next call. They may have acknowledgements of later offsets, whose records exist until
        the next window is deleted.

        A part in `WindowFile.pinned` of the newest window is kept longer: it has lost records, or acknowledged attempts
        at offsets that were not read back yet."""
        pinned = {
            (client_folder(f"p{producer}"), chunk)
            for producer, chunks in self._kept[-1][0].pinned.items()
            for chunk in chunks
        }
        for part in self._held:
            if (part.parent.name, part_number(part)) not in pinned:
                mark_deleted(part.parent, part)
        self._held = [part for part in self._held if part.exists()] + parts
        folder = window_dir(self._case, window.number)
        for tree in (folder.ledger, folder.clients):
            shutil.rmtree(tree, ignore_errors=True)

    def _by_leader(self, file: WindowFile) -> list[tuple[Connection, Mapping[TopicPartition, int]]]:
        """Return a pair for each leader to ask with DeleteRecords: its connection, and the new log start offsets of its
        partitions. Partitions that start there already are left out.

        Raises `Unreachable` if a partition has no leader that answers.
        """
        places = [one.place for one in file.read]
        ends, links = self._ends(places), self._links()
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for one in file.read:
            end = ends.get(one.place)
            if end is None or end.leader not in links:
                raise Unreachable(f"{one.place} has no leader that answers")
            if end.start < one.end:
                by_leader.setdefault(end.leader, {})[one.place] = one.end
        return [(links[leader], offsets) for leader, offsets in by_leader.items()]


def _is_clean(window: WindowFile) -> bool:
    """Return True if the window was audited completely and without findings. Findings of class `surfaced` do not count:
    an attempt with an unknown outcome may have written its record, whatever the configuration."""
    return not window.reasons and window.counts.keys() <= {Anomaly.SURFACED}

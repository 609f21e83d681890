"""One client process, as the harness handles it: start it, ask it to stop, read its events."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ackproof.base.errors import BadInput
from ackproof.base.processes import Child, RunTag
from ackproof.clients.channel import FREE, STOP, SharedCounters
from ackproof.clients.command.events import STOP_LINE
from ackproof.clients.command.translation import Translation
from ackproof.clients.contract import (
    SETTINGS,
    ConfigValue,
    ProducerSettings,
    ReaderSettings,
    client_adapter,
)
from ackproof.clients.instances import end_of_output, start_process
from ackproof.rundir.documents import Client
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import ClientReset, Note, Timeline

_TAIL: Final = 2000


@dataclass
class Handle:
    """One client process, seen from the harness. `control`: writing end of its control pipe, -1 once closed.

    `expected`: True once it was asked to stop, so that a clean exit is expected. `killed`: True once the harness killed
    it, so that any exit is expected. `succeeded`: True once another producer has taken over its transactional id and
    fences it; it is then not replaced. `fenced`: the library's message when it ended after that, '' before.
    `started_ns`: start of the process on CLOCK_MONOTONIC.
    """

    client: Client
    settings: ProducerSettings | ReaderSettings
    child: Child
    counters: SharedCounters
    folder: Path
    control: int
    expected: bool = False
    killed: bool = False
    succeeded: bool = False
    fenced: str = ""
    started_ns: int = 0
    translation: Translation | None = None
    """Translator of a user's program's lines into the journal; None for a client of a library."""
    status: int | None = None
    """Exit status of the process once it has ended (negative: the signal that ended it); None before."""
    _copied: int = 0
    """Number of bytes of the client's events file that are in the timeline already."""

    def count(self, topic: str | None, partition: int | None) -> int:
        """Return the number of records acknowledged (producer) or read (reader) so far. `topic` None: of all topics,
        whatever `partition` is. `partition` None: of all partitions of the topic.
        """
        if topic is None:
            return self.counters.total()
        counted = zip(self.settings.places, self.counters.counts, strict=True)
        return sum(
            count for place, count in counted if place.topic == topic and partition in (None, place.partition)
        )

    @property
    def breach(self) -> str:
        """Text on the first way in which a user's program broke the rules for programs (docs/clients.md); '' if it
        kept to them, and for clients of a library."""
        found = None if self.translation is None else self.translation.breach
        return "" if found is None else f"it breaks the contract of docs/clients.md: {found}"

    def follow_program(self) -> None:
        """Translate what a user's program printed since the last call into its journal; kill it if it broke the
        rules of docs/clients.md. Does nothing for a client of a library."""
        if self.translation is None:
            return
        self.translation.follow()
        if self.breach:
            self.child.signal(signal.SIGKILL)

    def end_program(self, status: int) -> None:
        """Translate the last lines of a user's program that has ended. `status`: its exit status, negative for a
        signal. Does nothing for a client of a library."""
        if self.translation is not None:
            self.translation.end(status)

    def copy_events(self, timeline: Timeline) -> None:
        """Copy new events of the client into the timeline: complete lines, each once.

        A torn line (the client was killed while writing it) and a line of unknown form are skipped. Once another
        producer has taken over this one's transactional id (`succeeded`), `fenced` gets the reason of its end, also if
        the library names another error: the coordinator's epoch is the proof that it was fenced.
        """
        path = self.folder / "events.jsonl"
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._copied)
            raw = file.read()
        whole = raw[: raw.rfind(b"\n") + 1]
        self._copied += len(whole)
        for line in whole.splitlines():
            try:
                event = json.loads(line)
                kind, detail = event["kind"], event["detail"]
                if kind == "problem":
                    detail = {"note": f"cannot read: {detail['reason']}"}
                what = (ClientReset if kind == "reset" else Note).model_validate(detail)
                t_ns, topic, partition = int(event["t_ns"]), str(event["topic"]), int(event["partition"])
            except (ValueError, KeyError, TypeError):
                continue
            if isinstance(what, ClientReset) and self.succeeded:
                self.fenced = what.reason
            timeline.add(
                what,
                client=self.client.id,
                topic=topic or None,
                partition=None if partition < 0 else partition,
                t_ns=t_ns,
            )

    def tail(self) -> str:
        """Return the last characters of the client's output, at most 2,000; '' if it wrote none."""
        return end_of_output(self.folder, _TAIL)

    def ask_to_stop(self) -> None:
        """Ask the client to close, and set `expected`. Does nothing more if the client has ended. Raises OSError after
        `release`."""
        self.expected = True
        with suppress(BrokenPipeError):
            os.write(self.control, STOP_LINE if self.translation is not None else STOP)

    def free(self) -> None:
        """Let an on-demand producer send at its rate from now on. Does nothing if the producer has ended."""
        with suppress(OSError):
            os.write(self.control, FREE)

    def release(self) -> None:
        """Close the harness's end of the control pipe. Call it after the process has ended."""
        if self.control >= 0:
            os.close(self.control)
            self.control = -1


def _client_of(settings: ProducerSettings | ReaderSettings) -> Client:
    """Return the client with these settings in the form in which `case.json` lists it."""
    topics = tuple(dict.fromkeys(place.topic for place in settings.places))
    if isinstance(settings, ProducerSettings):
        return Client(
            id=settings.client,
            kind="producer",
            producer=settings.producer,
            topics=topics,
            library=settings.library,
            library_version=settings.library_version,
            keys=settings.keys,
            tombstone_every=settings.tombstone_every,
            stamps=None if settings.command else settings.stamps,
        )
    return Client(
        id=settings.client,
        kind="reader" if settings.ends is None else "final",
        reader=settings.reader,
        topics=topics,
        library=settings.library,
        library_version=settings.library_version,
        isolation=settings.isolation,
    )


def verify_config(
    library: str,
    kind: Literal["producer", "consumer"],
    config: Mapping[str, ConfigValue],
    hidden: Mapping[str, str],
) -> None:
    """Raise `BadInput` if the library refuses a configuration, or cannot use the hidden settings. `kind`: whether the
    configuration is a producer's or a consumer's."""
    adapter = client_adapter(library)
    try:
        adapter.security_text(hidden)
    except BadInput as error:
        raise BadInput(f"workload.{kind}s.client: {error}") from error
    why = adapter.objection(kind, config, hidden)
    if why is not None:
        raise BadInput(f"workload.{kind}s: {library} refuses the settings: {why}")


def start_client(
    settings: ProducerSettings | ReaderSettings, tag: RunTag, hidden: Mapping[str, str]
) -> Handle:
    """Start a client process of a run and return its handle. Its settings file, counters and output are in its folder.

    `hidden`: library settings with secrets, which no file may hold. Raises `BadInput` if the program cannot be
    started.
    """
    name = settings.process if isinstance(settings, ReaderSettings) else settings.client
    folder = CaseDir(tag.case_dir).clients / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / SETTINGS
    settings.write(path)
    adapter = client_adapter(settings.library)
    command = (
        adapter.producer_command(settings, path)
        if isinstance(settings, ProducerSettings)
        else adapter.reader_command(settings, path)
    )
    counters = SharedCounters(folder / "counters", len(settings.places), create=True)
    started_ns = time.monotonic_ns()
    translation = Translation(settings, counters, folder, started_ns) if settings.command else None
    child, writing = start_process(
        command,
        tag,
        name,
        folder,
        folder if translation is None else Path(),
        prints=translation is not None,
        what=f"client {name}",
        hidden=adapter.security_text(hidden) if hidden else None,
    )
    return Handle(
        *(_client_of(settings), settings, child, counters, folder, writing),
        started_ns=started_ns,
        translation=translation,
    )

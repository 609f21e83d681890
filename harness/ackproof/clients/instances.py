"""Starts processes of a run (`start_process`), and manages those of a service and of groups (`Instances`). The latter
print events (docs/clients.md), except instances of a service of level 0."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ackproof.base.errors import BadInput, WaitTimeout
from ackproof.base.processes import (
    Child,
    ClientProcess,
    RunTag,
    end_all,
    find_client,
    find_members,
    signal_all,
    spawn,
)
from ackproof.base.wait import wait_until
from ackproof.clients.command.events import LINES, STOP_LINE
from ackproof.clients.command.output import LAST_WORDS
from ackproof.clients.contract import CONTROL_FD, HIDDEN_FD, hide

_OUTPUT: Final = "output.log"
"""File in a process's folder with its standard error; with its standard output too if it prints no events."""


def start_process(
    command: Sequence[str],
    tag: RunTag,
    name: str,
    folder: Path,
    cwd: Path,
    *,
    prints: bool,
    what: str,
    hidden: str | None,
) -> tuple[Child, int]:
    """Start a process of a run, with its output in `folder`. Return the process, and the descriptor of the writing end
    of its control pipe. Once that descriptor is closed, the process reads end of file: the harness is gone.

    `prints`: True if the process prints events; its standard input is then the control pipe. Otherwise `CONTROL_FD` has
    the pipe's descriptor. `hidden`: secret text that the process can read from the descriptor in `HIDDEN_FD`. `name`:
    the client's id. `what`: name of the process for an error message. Raises `BadInput` if it cannot be started.
    """
    reading, writing = os.pipe()
    inherited = {} if prints else {CONTROL_FD: reading}
    output = folder / _OUTPUT
    try:
        if hidden is not None:
            inherited[HIDDEN_FD] = hide(hidden)
        child = spawn(
            command,
            run=tag,
            role=name,
            cwd=cwd,
            stdout=folder / LINES if prints else output,
            stderr=output if prints else None,
            stdin=reading if prints else subprocess.DEVNULL,
            env={variable: str(descriptor) for variable, descriptor in inherited.items()},
            pass_fds=tuple(inherited.values()),
        )
    except OSError as error:
        os.close(writing)
        raise BadInput(f"{what}: {command[0]} cannot be started: {error.strerror}") from error
    except BaseException:
        os.close(writing)
        raise
    finally:
        for descriptor in {reading, *inherited.values()}:
            os.close(descriptor)
    return child, writing


def end_of_output(folder: Path, length: int) -> str:
    """Return the last characters of the output of the process with this folder, at most `length`; '' if it has none."""
    output = folder / _OUTPUT
    return output.read_text(errors="replace")[-length:].strip() if output.exists() else ""


@dataclass
class Instance:
    """One process of a service or group. `started_ns`: its start on CLOCK_MONOTONIC. `control`: writing end of its
    standard input, -1 once closed. `tells`: True if it prints events and stops on the line `stop`; False: it is stopped
    by SIGTERM. `asked`: True once it was asked to stop. `successor`: id of the process that replaced it, if any."""

    id: str
    child: Child
    started_ns: int
    folder: Path
    control: int
    tells: bool
    asked: bool = False
    killed: bool = False
    """True once the harness killed the process, for a fault or because the run failed."""
    successor: str | None = None

    def stop(self) -> None:
        """Ask the process to stop, by a line on its standard input or by SIGTERM. Does nothing if it has ended."""
        if self.child.poll() is not None:
            return
        self.asked = True
        if not self.tells:
            self.child.signal(signal.SIGTERM)
            return
        with suppress(BrokenPipeError):
            os.write(self.control, STOP_LINE)

    def end(self) -> int:
        """Kill the process if it still runs, close its standard input, and return its exit status."""
        status = self.child.poll()
        if status is None:
            status = self.child.kill()
        if self.control >= 0:
            os.close(self.control)
            self.control = -1
        return status

    @property
    def commit_in_flight_s(self) -> float:
        """Seconds since the process printed the event `commit`, if this is its last line, so that the call has not
        returned; else 0."""
        path = self.folder / LINES
        last = path.read_bytes().rpartition(b"\n")[0].rpartition(b"\n")[2]
        with suppress(ValueError):  # a program may print anything
            if last.startswith(b"{") and json.loads(last).get("e") == "commit":
                return time.time() - path.stat().st_mtime
        return 0.0

    @property
    def silent_s(self) -> float:
        """Seconds since the process last wrote to its event file or to its standard error; since its start if it wrote
        nothing."""
        written = (self.folder / LINES, self.folder / _OUTPUT)
        return time.time() - max(file.stat().st_mtime for file in written if file.exists())

    @property
    def last_words(self) -> str:
        """The last characters of the process's standard error, at most `LAST_WORDS`; '' if it wrote none."""
        return end_of_output(self.folder, LAST_WORDS)

    def outcome(self) -> dict[str, Any]:
        """Kill the process if it still runs. Return pid, started_ns, status, asked, killed and last_words: the fields
        that `rundir.service.InstanceEnd` and `rundir.groups.MemberEnd` share."""
        return {
            "pid": self.child.pid,
            "started_ns": self.started_ns,
            "status": self.end(),
            "asked": self.asked,
            "killed": self.killed,
            "last_words": self.last_words,
        }


class Instances:
    """Processes of a service or of groups, also those that have ended, in order of start (`instances`). Implements the
    protocol `faults.context.Processes`; a subclass adds `start_instance`, which `replace` calls. For an unknown id
    `members` returns [] and `signal` does nothing; other methods raise KeyError."""

    def __init__(self, tag: RunTag) -> None:
        self.instances: list[Instance] = []
        self._tag = tag
        self._lock = threading.RLock()

    def launch(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        cwd: Path,
        *,
        tells: bool,
        of: str,
        hidden: str | None = None,
    ) -> Instance:
        """Start a process and add it to `instances`. `name`: its id. `of`: field of the experiment that has its
        command, such as `workload.service`, for the message of an error.

        `tells`: whether it prints events. `hidden`: secret text that it can read from the descriptor in `HIDDEN_FD`.
        Raises `BadInput` if it cannot be started.
        """
        folder.mkdir(parents=True, exist_ok=True)
        started_ns = time.monotonic_ns()
        child, writing = start_process(
            command, self._tag, name, folder, cwd, prints=True, what=of, hidden=hidden
        )
        instance = Instance(name, child, started_ns, folder, writing, tells)
        with self._lock:
            self.instances.append(instance)
        return instance

    def start_instance(self, after: Instance | None = None) -> Instance:
        """Start one more process, and return it. `after`: the process that it replaces; None: it replaces no process.
        Subclasses implement this method."""
        raise NotImplementedError

    def dead(self) -> Iterator[Instance]:
        """Yield the processes that ended without being asked or killed."""
        for one in self.instances:
            if one.child.poll() is not None and not one.asked and not one.killed:
                yield one

    def stop_all(self, timeout_s: float) -> None:
        """Ask all processes to stop, and wait until they have ended, at most `timeout_s` seconds. Late processes keep
        running."""
        for one in self.instances:
            one.stop()
        with suppress(WaitTimeout):
            wait_until(
                lambda: all(one.child.poll() is not None for one in self.instances),
                what="the programs to stop",
                timeout_s=timeout_s,
            )

    # -- for faults (`faults.context.Processes`) ---------------------------------------------------------------------

    def find(self, client_id: str) -> Instance:
        """Return the process with this id. Raises KeyError for an unknown id."""
        return {one.id: one for one in self.instances}[client_id]

    def running(self) -> dict[str, ClientProcess]:
        """Return the processes that run, by id, in the order of their start."""
        return {
            one.id: ClientProcess(one.id, one.child.pid, one.child.started)
            for one in self.instances
            if one.child.poll() is None
        }

    def members(self, client_id: str) -> list[ClientProcess]:
        """Return the living processes of this id: the process that was started, and those that it started."""
        return find_client(self._tag.run_id, client_id)

    def kill(self, client_id: str) -> None:
        """Send SIGKILL to a process and to the processes that it started, and wait until they have ended. Raises
        `WaitTimeout` if the process itself is not gone in 10 s."""
        instance = self.find(client_id)
        instance.killed = True
        end_all(find_members(self._tag.run_id, client_id))
        instance.child.kill()

    def signal(self, client_id: str, number: int) -> None:
        """Send the signal `number` to all processes of this id."""
        signal_all(find_members(self._tag.run_id, client_id), number)

    def replace(self, client_id: str) -> str:
        """Start a process in place of one that has ended, unless it was replaced already. Return the id of the
        replacement."""
        with self._lock:
            instance = self.find(client_id)
            if instance.successor is None:
                instance.successor = self.start_instance(instance).id
            return instance.successor

    def successor(self, client_id: str) -> str | None:
        """Return the id of the last process in this one's chain of replacements; its own id if it was not replaced.
        None if that last process was killed."""
        instance = self.find(client_id)
        while instance.successor is not None:
            instance = self.find(instance.successor)
        return None if instance.killed else instance.id

    def at_work(self, client_id: str) -> bool:
        """Return True if a process runs and, if it prints events, has printed something."""
        instance = self.find(client_id)
        lines = instance.folder / LINES
        return instance.child.poll() is None and (not instance.tells or lines.stat().st_size > 0)

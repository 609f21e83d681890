"""Child processes of runs, and how they are found again. Linux only.

Every child has marks in its environment (`RunTag.environment`), and its own children inherit them. So any process with
the right to read them can find the child, even after a kill -9 of the harness.

A pid *and* a start time identify a process, so no signal goes to a reused pid. The start time counts clock ticks since
boot (field 22 of /proc/PID/stat). Signals to processes that are not our children go through a pidfd, which closes the
gap between the check and the signal.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

from ackproof.base.errors import WaitTimeout

ProcessState = Literal["running", "stopped", "zombie", "gone"]

_PROC = Path("/proc")
RUN, BATCH, CASE, ROLE, OWNER = (f"ACKPROOF_{name}" for name in ("RUN", "BATCH", "DIR", "ROLE", "OWNER"))
_END_ROUNDS = 5


@dataclass(frozen=True)
class RunTag:
    """Marks that the child processes of one run carry in their environment: the run's id, and its folders as
    absolute paths."""

    run_id: str
    batch_dir: Path
    case_dir: Path

    def environment(self, role: str) -> dict[str, str]:
        """Return the environment variables that mark a child of this process. `role`: the child's role, such as
        `broker-1`."""
        return {
            RUN: self.run_id,
            BATCH: str(self.batch_dir.absolute()),
            CASE: str(self.case_dir.absolute()),
            ROLE: role,
            OWNER: f"{os.getpid()}:{started(os.getpid())}",
        }


@dataclass(frozen=True)
class Marks:
    """Marks of a run, read from a process's environment.

    `directory`: folder of the case. `role`: what the process is, such as `broker-1`. `owner_pid`: process id
    of the harness that set the marks. `owner_alive`: True if that harness still runs.
    """

    run_id: str
    directory: Path
    role: str
    owner_pid: int
    owner_alive: bool


def read_marks(variables: Mapping[str, str]) -> Marks | None:
    """Return the marks in an environment; None if it has none, or incomplete ones. The role may be ''."""
    pid, _, start = variables.get(OWNER, "").partition(":")
    if not (RUN in variables and CASE in variables and pid.isdigit() and start.isdigit()):
        return None
    alive = is_alive(int(pid), int(start))
    return Marks(variables[RUN], Path(variables[CASE]), variables.get(ROLE, ""), int(pid), alive)


class Child:
    """A process that this process started; it leads its own session. Thread-safe. `role`: its mark, such as `broker-1`.
    `started`: its start time, in clock ticks since boot.

    A child that has ended stays a zombie and keeps its pid until `poll`, `signal`, `wait` or `kill` reaps it.
    """

    def __init__(self, process: subprocess.Popen[bytes], role: str) -> None:
        self.pid = process.pid
        self.role = role
        self.started = started(process.pid) or 0
        self._process = process
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit status (negative: the signal that ended it), or None if it still runs. Reaps the process if
        it has ended."""
        with self._lock:
            return self._process.poll()

    def signal(self, number: int) -> bool:
        """Send a signal to this process only. Return False if it has already ended."""
        with self._lock:
            if self._process.poll() is not None:
                return False
            os.kill(self.pid, number)
            return True

    def kill(self, timeout_s: float = 10.0) -> int:
        """Send SIGKILL, wait until the process is gone, and return its exit status. Raises `WaitTimeout` if it is not
        gone after `timeout_s` seconds."""
        self.signal(signal.SIGKILL)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float) -> int:
        """Wait until the process has ended, reap it, and return its exit status (negative: the signal that ended it).
        Raises `WaitTimeout` after `timeout_s` seconds."""
        with _pidfd(self.pid, self.started) as descriptor:
            if descriptor is not None:
                _await_exit(descriptor, timeout_s)
        status = self.poll()
        if status is None:
            raise WaitTimeout(
                f"waited {timeout_s:g} s for {self.role} (pid {self.pid}) to end; it is {self.state()}"
            )
        return status

    def state(self) -> ProcessState:
        """Return the kernel's state of the process, without reaping it: running, stopped (all its threads),
        zombie or gone."""
        return process_state(self.pid, self.started)


@dataclass(frozen=True)
class ClientProcess:
    """A running client: its id in the ledgers, its pid and start time (clock ticks since boot)."""

    id: str
    pid: int
    started: int


@dataclass(frozen=True)
class MarkedProcess(Marks):
    """A process that carries the marks of a run of this or another harness. `started`: clock ticks since boot."""

    pid: int
    started: int


Ended: TypeAlias = tuple[list[MarkedProcess], list[tuple[MarkedProcess, str]]]
"""Processes that have ended, and those that could not be ended, each with the reason."""


def spawn(
    argv: Sequence[str],
    *,
    run: RunTag,
    role: str,
    cwd: Path,
    stdout: Path,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    stdin: int = subprocess.DEVNULL,
    stderr: Path | None = None,
) -> Child:
    """Start a child with the marks of `run` and `role`, in its own session (Ctrl-C reaches only the harness).

    `env` is added to this process's environment. Standard output is appended to the file `stdout`, whose folder is
    created. Standard error is appended to the file `stderr`; without it, to `stdout`. Standard input is empty, or the
    descriptor `stdin`. The child inherits the descriptors `pass_fds`, so a file lock on one of them stays held until
    the child has ended too. Raises OSError if the program cannot be started, or the folder `cwd` does not exist.
    """
    stdout.parent.mkdir(parents=True, exist_ok=True)
    with stdout.open("ab") as output, (stdout if stderr is None else stderr).open("ab") as errors:
        process = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env={**os.environ, **(env or {}), **run.environment(role)},
            stdin=stdin,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            pass_fds=tuple(pass_fds),
        )
    return Child(process, role)


def find_children(run_id: str | None = None) -> list[MarkedProcess]:
    """Return every living process that carries the marks of a run, sorted by pid. `run_id`: only of this run; None: of
    any run. Processes whose environment this user may not read are not found. The caller, its ancestors and zombies are
    left out."""
    ancestors = {pid := os.getpid()}
    while pid > 1 and (fields := _stat(_PROC / str(pid))) is not None:
        pid = int(fields[1])
        ancestors.add(pid)
    found = [
        child
        for pid in sorted(int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
        if pid not in ancestors and (child := _marked(pid)) is not None
    ]
    return [child for child in found if run_id is None or child.run_id == run_id]


def find_members(run_id: str, role: str) -> list[MarkedProcess]:
    """Return the living processes of one role in a run, sorted by pid: the process that was started, and the processes
    that it started."""
    return [child for child in find_children(run_id) if child.role == role]


def find_client(run_id: str, client_id: str) -> list[ClientProcess]:
    """Return the living processes of a client in a run, sorted by pid: the client's own process and the processes that
    it started. Empty if none lives."""
    return [
        ClientProcess(client_id, member.pid, member.started) for member in find_members(run_id, client_id)
    ]


def signal_all(found: Iterable[MarkedProcess], number: int) -> None:
    """Send the signal `number` to each process that still runs. Raises PermissionError at the first process of another
    user; the processes after it get no signal."""
    for child in found:
        with suppress(ProcessLookupError), _pidfd(child.pid, child.started) as descriptor:
            if descriptor is not None:
                signal.pidfd_send_signal(descriptor, number)


def end_all(found: Iterable[MarkedProcess], timeout_s: float = 10.0) -> Ended:
    """Send SIGKILL to the `found` processes, then wait until they have ended, at most `timeout_s` seconds for
    each.

    Returns two lists: the processes that have ended, and (process, reason) for each that has not. A process that has
    already ended gets no signal, even if its pid was reused. Removes attach sockets of killed JVMs.
    """
    gone: list[MarkedProcess] = []
    left: list[tuple[MarkedProcess, str]] = []
    killed: list[MarkedProcess] = []
    for child in found:
        try:
            with _pidfd(child.pid, child.started) as descriptor:
                if descriptor is not None:
                    # SIGKILL comes first: a stopped process then dies without running another instruction (a resumed
                    # leader would acknowledge the requests in its socket). SIGCONT is for the case that it is traced.
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    signal.pidfd_send_signal(descriptor, signal.SIGCONT)
            killed.append(child)
        except ProcessLookupError:
            gone.append(child)
        except PermissionError:
            left.append((child, "it belongs to another user"))
    for child in killed:
        with _pidfd(child.pid, child.started) as descriptor:
            if descriptor is None or _await_exit(descriptor, timeout_s):
                gone.append(child)
                remove_attach_socket(child.pid)
            else:
                left.append((child, f"still there {timeout_s:g} s after SIGKILL"))
    return gone, left


def remove_attach_socket(pid: int) -> None:
    """Remove the socket that a JVM leaves in /tmp if it was killed after another JVM had attached to it. Call it only
    for a process that has ended: a JVM whose socket is gone prints no thread dump any more."""
    Path(f"/tmp/.java_pid{pid}").unlink(missing_ok=True)


def end_children(which: Callable[[MarkedProcess], bool], timeout_s: float = 10.0) -> Ended:
    """Kill all marked processes that `which` accepts, and those that they start meanwhile, until none is found. Looks
    for them at most five times; processes that start later are not killed. Returns two lists: the processes that have
    ended, and (process, reason) for each that has not. `timeout_s`: longest wait for one process, in seconds."""
    gone: list[MarkedProcess] = []
    left: dict[tuple[int, int], tuple[MarkedProcess, str]] = {}
    for _ in range(_END_ROUNDS):
        targets = [
            child for child in find_children() if (child.pid, child.started) not in left and which(child)
        ]
        if not targets:
            break
        ended, stuck = end_all(targets, timeout_s)
        gone += ended
        left.update({(child.pid, child.started): (child, why) for child, why in stuck})
    return gone, list(left.values())


def started(pid: int) -> int | None:
    """Return the start time of a process or zombie, in clock ticks since boot; None if there is no such process."""
    fields = _stat(_PROC / str(pid))
    return None if fields is None else int(fields[19])


def process_state(pid: int, start: int) -> ProcessState:
    """Return the state of the process with this pid and start time. It is "stopped" only if all its threads are
    stopped. It is "gone" if there is no such process, also if another process has the pid by now."""
    fields = _stat(_PROC / str(pid))
    if fields is None or int(fields[19]) != start:
        return "gone"
    if fields[0] in "ZXx":
        return "zombie"
    threads = map(_stat, _threads(pid)) if fields[0] in "Tt" else ()
    stopped = [thread is None or thread[0] in "TtZXx" for thread in threads]
    return "stopped" if fields[0] in "Tt" and all(stopped) else "running"


def context_switches(pid: int) -> int:
    """Return the number of context switches, voluntary and involuntary, of all threads that a process has now; 0 if it
    has ended."""
    count = 0
    for thread in _threads(pid):
        try:
            text = (thread / "status").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        count += sum(int(line.split()[1]) for line in text.splitlines() if "ctxt_switches:" in line)
    return count


def is_alive(pid: int, start: int) -> bool:
    """Return True if the process with this pid and start time still runs; a zombie does not."""
    return process_state(pid, start) in ("running", "stopped")


def mark() -> str:
    """Return `NAMESPACE-PID-START` of this process, for the names of its temporary files and folders: `left_behind`
    finds those of processes that have ended. NAMESPACE: see `here`."""
    return f"{here()}-{os.getpid()}-{started(os.getpid())}"


@lru_cache
def here() -> str:
    """Return an id of this boot and pid namespace. A folder may be shared with processes of another one, of which
    nothing here tells whether they live."""
    boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return hashlib.sha256(f"{boot} {(_PROC / 'self/ns/pid').readlink()}".encode()).hexdigest()[:8]


def left_behind(folder: Path, prefix: str) -> list[Path]:
    """Return the entries of a folder whose name has this prefix and the mark of a process that has ended (`mark`).
    Entries of another pid namespace, or from before the last boot, are left out."""
    marked = re.compile(re.escape(f"{prefix}{here()}") + r"-([0-9]+)-([0-9]+)(?![0-9])")
    found = [(path, marked.match(path.name)) for path in folder.glob(f"{prefix}*")]
    return [path for path, by in found if by is not None and not is_alive(int(by[1]), int(by[2]))]


def _stat(process: Path) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third (state) on; None if the process has ended. The second field
    may contain blanks and parentheses."""
    try:
        text = (process / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def _threads(pid: int) -> list[Path]:
    try:
        return list((_PROC / str(pid) / "task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []


def _marked(pid: int) -> MarkedProcess | None:
    """Return the process with this pid if it lives and its environment has the marks of a run; else None. Also None if
    this user may not read its environment."""
    try:
        start = started(pid)
        raw = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None  # it has ended, or is a kernel thread, or another user's
    entries = (entry.partition(b"=") for entry in raw.split(b"\0") if entry.startswith(b"ACKPROOF_"))
    marks = read_marks({name.decode(): os.fsdecode(value) for name, _, value in entries})
    if marks is None or start is None or not is_alive(pid, start):
        return None
    return MarkedProcess(**vars(marks), pid=pid, started=start)


@contextmanager
def _pidfd(pid: int, start: int) -> Iterator[int | None]:
    """Yield a descriptor (pidfd) of the process with this pid and start time; None if it has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    try:
        # The descriptor belongs to the process that has the pid now: is it still the same one?
        yield descriptor if started(pid) == start else None
    finally:
        os.close(descriptor)


def _await_exit(descriptor: int, timeout_s: float) -> bool:
    """Block until the process ends (its pidfd becomes readable). Return False if `timeout_s` seconds passed first."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))

"""Child processes of a run: found by their environment from any process, ended by process id and start time."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ackproof.base import processes
from ackproof.base.errors import WaitTimeout
from ackproof.base.processes import (
    Child,
    MarkedProcess,
    RunTag,
    end_all,
    end_children,
    find_children,
    here,
    left_behind,
    mark,
    spawn,
)
from ackproof.base.wait import wait_until

SLEEP = "import time; time.sleep(600)"
# a child that has a child, and says when both are there
FAMILY = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("ready", flush=True)
time.sleep(600)
"""
# a harness: starts one child with a grandchild, says its run's children are there, waits to be killed
HARNESS = """
import sys, time
from pathlib import Path
from ackproof.base.processes import RunTag, spawn
folder = Path(sys.argv[2])
tag = RunTag(sys.argv[1], folder, folder / "case")
spawn([sys.executable, "-c", sys.argv[3]], run=tag, role="broker-1", cwd=folder, stdout=folder / "out")
time.sleep(600)
"""


def end(found: MarkedProcess) -> bool:
    """End a process; return True if it has ended."""
    return not end_all([found])[1]


@pytest.fixture
def tag(tmp_path: Path) -> Iterator[RunTag]:
    """Mark of a new run. All its processes are ended after the test."""
    run = RunTag(f"test-{uuid.uuid4().hex}", tmp_path, tmp_path / "case")
    yield run
    end_children(lambda child: child.run_id == run.run_id)


def start(tag: RunTag, program: str = SLEEP, role: str = "sleeper") -> Child:
    out = tag.batch_dir / f"{role}.out"
    child = spawn([sys.executable, "-c", program], run=tag, role=role, cwd=tag.batch_dir, stdout=out)
    # Popen returns when exec has closed its pipe; the kernel shows the new environment a moment later.
    environment = Path(f"/proc/{child.pid}/environ")

    def marked() -> bool:
        try:
            return bool(environment.read_bytes())
        except ProcessLookupError:
            return True  # it has ended already

    wait_until(marked, what="the marks of the child", timeout_s=20)
    return child


def await_text(path: Path, text: str) -> None:
    wait_until(lambda: path.is_file() and text in path.read_text(), what=f"{text!r} in {path}", timeout_s=20)


def test_is_found_with_its_marks_from_any_folder(
    tag: RunTag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(tag, role="broker-3")
    monkeypatch.chdir("/")
    (found,) = find_children(tag.run_id)
    assert found == MarkedProcess(
        pid=child.pid,
        started=child.started,
        run_id=tag.run_id,
        directory=tmp_path / "case",
        role="broker-3",
        owner_pid=os.getpid(),
        owner_alive=True,
    )
    assert os.getsid(child.pid) == child.pid, "Ctrl-C at the harness's terminal must not reach it"
    child.kill()
    assert find_children(tag.run_id) == []


def test_poll_reaps_and_tells_the_status(tag: RunTag) -> None:
    child = start(tag, "raise SystemExit(7)")
    wait_until(lambda: child.state() == "zombie", what="its end", timeout_s=20)
    assert find_children(tag.run_id) == [], "a zombie runs no more"
    assert child.poll() == 7
    assert child.state() == "gone"
    assert child.poll() == 7
    assert child.signal(signal.SIGTERM) is False
    assert child.wait(0) == 7


def test_signals_and_states(tag: RunTag) -> None:
    child = start(tag)
    assert child.state() == "running"
    assert child.signal(signal.SIGSTOP)
    wait_until(lambda: child.state() == "stopped", what="a stopped child", timeout_s=10)
    assert child.poll() is None
    assert child.signal(signal.SIGCONT)
    wait_until(lambda: child.state() == "running", what="a running child", timeout_s=10)
    child.signal(signal.SIGTERM)
    assert child.wait(10) == -signal.SIGTERM


def test_a_threaded_child_is_stopped_only_as_a_whole(tag: RunTag) -> None:
    threads = (
        "import threading, time\nfor _ in range(20): threading.Thread(target=time.sleep, args=(600,)).start()"
    )
    child = start(tag, threads)
    wait_until(
        lambda: len(list(Path(f"/proc/{child.pid}/task").iterdir())) > 20, what="its threads", timeout_s=20
    )
    child.signal(signal.SIGSTOP)
    wait_until(lambda: child.state() == "stopped", what="a stopped child", timeout_s=10)
    states = [
        (thread / "stat").read_text().rpartition(")")[2].split()[0]
        for thread in Path(f"/proc/{child.pid}/task").iterdir()
    ]
    assert set(states) == {"T"}
    child.kill()


def test_kill_ends_a_stopped_child(tag: RunTag) -> None:
    child = start(tag)
    child.signal(signal.SIGSTOP)
    assert child.kill() == -signal.SIGKILL
    assert child.kill() == -signal.SIGKILL, "again is no error"


def test_waiting_is_bounded(tag: RunTag) -> None:
    child = start(tag)
    with pytest.raises(
        WaitTimeout, match=rf"waited 0.05 s for sleeper \(pid {child.pid}\) to end; it is running"
    ):
        child.wait(0.05)
    child.kill()


def test_output_goes_to_the_file_and_is_appended(tag: RunTag, tmp_path: Path) -> None:
    program = "import sys; print('out'); print('err', file=sys.stderr); print(repr(sys.stdin.read()))"
    for _ in range(2):
        start(tag, program, role="talker").wait(20)
    assert sorted((tmp_path / "talker.out").read_text().split()) == sorted(["out", "err", "''"] * 2)


def test_environment_is_added_to_ours(tag: RunTag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_US", "1")
    program = "import os; print(os.environ['FROM_US'], os.environ['MORE'], os.environ['ACKPROOF_ROLE'])"
    child = spawn(
        [sys.executable, "-c", program],
        run=tag,
        role="r",
        cwd=tmp_path,
        stdout=tmp_path / "deep" / "out",
        env={"MORE": "2"},
    )
    assert child.wait(20) == 0
    assert (tmp_path / "deep" / "out").read_text() == "1 2 r\n"


def test_a_lock_passed_on_is_held_until_the_child_is_dead(tag: RunTag, tmp_path: Path) -> None:
    path = tmp_path / "lease"
    with path.open("w") as ours:
        fcntl.flock(ours, fcntl.LOCK_EX)
        child = spawn(
            [sys.executable, "-c", SLEEP],
            run=tag,
            role="r",
            cwd=tmp_path,
            stdout=tmp_path / "out",
            pass_fds=[ours.fileno()],
        )
    with path.open("w") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        child.kill()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_program_that_is_not_there(tag: RunTag, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        spawn(["/no/such/program"], run=tag, role="r", cwd=tmp_path, stdout=tmp_path / "out")


def test_a_pid_that_was_given_to_another_is_not_signalled(tag: RunTag) -> None:
    child = start(tag)
    (found,) = find_children(tag.run_id)
    former = replace(found, started=found.started - 1)
    assert end(former), "who had this pid before is gone"
    assert processes.process_state(child.pid, former.started) == "gone"
    assert child.state() == "running"
    child.kill()


def test_end_waits_until_it_is_gone_even_if_stopped(tag: RunTag) -> None:
    child = start(tag)
    child.signal(signal.SIGSTOP)
    wait_until(lambda: child.state() == "stopped", what="a stopped child", timeout_s=10)
    (found,) = find_children(tag.run_id)
    assert end(found)
    assert child.state() == "zombie", "it is ours to reap"
    assert child.poll() == -signal.SIGKILL
    assert end(found), "again is no error"


def test_what_cannot_be_ended_is_reported(tag: RunTag, monkeypatch: pytest.MonkeyPatch) -> None:
    child = start(tag)
    (found,) = find_children(tag.run_id)

    def refuse(_descriptor: int, _number: int) -> None:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(signal, "pidfd_send_signal", refuse)
        assert end(found) is False
        ended = end_children(lambda each: each.run_id == tag.run_id)
        assert ended == ([], [(found, "it belongs to another user")])
        patched.setattr(signal, "pidfd_send_signal", lambda _descriptor, _number: None)
        assert end_all([found], timeout_s=0.05) == ([], [(found, "still there 0.05 s after SIGKILL")])
    child.kill()


def test_grandchildren_carry_the_marks_too(tag: RunTag, tmp_path: Path) -> None:
    child = start(tag, FAMILY, role="family")
    await_text(tmp_path / "family.out", "ready")
    assert len(find_children(tag.run_id)) == 2
    child.kill()
    (grandchild,) = find_children(tag.run_id)
    assert grandchild.role == "family"
    assert end(grandchild)
    assert find_children(tag.run_id) == []


def test_a_harness_killed_hard_leaves_nothing_that_is_not_found(tag: RunTag, tmp_path: Path) -> None:
    harness = subprocess.Popen([sys.executable, "-c", HARNESS, tag.run_id, str(tmp_path), FAMILY])
    await_text(tmp_path / "out", "ready")
    found = find_children(tag.run_id)
    assert len(found) == 2
    assert all(child.owner_alive and child.owner_pid == harness.pid for child in found)

    harness.kill()
    wait_until(lambda: not find_children(tag.run_id)[0].owner_alive, what="its end", timeout_s=10)

    ended, left = end_children(lambda child: child.run_id == tag.run_id and not child.owner_alive)
    assert ({child.pid for child in ended}, left) == ({child.pid for child in found}, [])
    assert find_children(tag.run_id) == []
    harness.wait()


def test_what_starts_while_we_end_is_ended(tag: RunTag, tmp_path: Path) -> None:
    """The child starts further children until it is ended; none of them is left."""
    program = f"""
import subprocess, sys, time
print("ready", flush=True)
while True:
    subprocess.Popen([sys.executable, "-c", {SLEEP!r}])
    time.sleep(0.02)
"""
    child = start(tag, program, role="family")
    await_text(tmp_path / "family.out", "ready")
    end_children(lambda found: found.run_id == tag.run_id)
    assert find_children(tag.run_id) == []
    assert child.wait(10) == -signal.SIGKILL


def test_a_name_that_looks_like_a_status_is_read_right(tag: RunTag, tmp_path: Path) -> None:
    """The second field of /proc/PID/stat is the process name, which may contain any text."""
    program = f"open('/proc/self/comm', 'w').write('a) T 1 (b'); print('ready', flush=True); {SLEEP}"
    child = start(tag, program)
    await_text(tmp_path / "sleeper.out", "ready")
    assert child.state() == "running"
    assert processes.started(child.pid) == child.started
    child.kill()


def test_no_process_no_start_time() -> None:
    assert processes.started(2**22 + 1) is None
    assert processes.process_state(2**22 + 1, 1) == "gone"
    assert processes.is_alive(os.getpid(), processes.started(os.getpid()) or 0)
    assert not processes.is_alive(os.getpid(), 1)


@pytest.mark.parametrize(
    "marks",
    [
        {"ACKPROOF_RUN": "x"},
        {"ACKPROOF_RUN": "x", "ACKPROOF_DIR": "/x", "ACKPROOF_OWNER": "me"},
        {"ACKPROOF_RUN": "x", "ACKPROOF_DIR": "/x", "ACKPROOF_OWNER": "1:"},
    ],
)
def test_marks_that_are_not_whole_are_nobodys(marks: dict[str, str]) -> None:
    """A process that happens to have a variable of this name must not be found, or it would be killed."""
    stranger = subprocess.Popen([sys.executable, "-c", SLEEP], env={**os.environ, **marks})
    try:
        assert stranger.pid not in {child.pid for child in find_children()}
    finally:
        stranger.kill()
        stranger.wait()


def test_what_another_pid_namespace_has_in_a_shared_folder_is_not_left_behind(tmp_path: Path) -> None:
    gone = f"{here()}-4194305-1"
    names = [f"work-{one}-x" for one in (mark(), gone, "0123abcd-4194305-1", "4194305-1")]
    for name in names:
        (tmp_path / name).mkdir()
    assert left_behind(tmp_path, "work-") == [tmp_path / f"work-{gone}-x"]

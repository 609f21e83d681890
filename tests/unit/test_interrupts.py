"""Ctrl-C and SIGTERM during a clean-up: the signal is not lost, and the clean-up is not cut short."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ackproof.base.errors import WaitTimeout
from ackproof.base.wait import first_interrupt, interrupts_wait, sigterm_as_interrupt
from ackproof.plan.cases import cases, load
from ackproof.run.case import CaseRun
from ackproof.run.phases import CaseOptions
from ackproof.rundir.layout import CaseDir


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Set Python's own handler for SIGINT during the test, because pyspark replaces it in the process of the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_comes_meanwhile_is_raised_afterwards(number: int) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_wait():
        os.kill(os.getpid(), number)
        done.append("cleaned up")
    assert done == ["cleaned up"]
    assert signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_asks_and_the_second_interrupts(number: int) -> None:
    with sigterm_as_interrupt(), pytest.raises(KeyboardInterrupt), first_interrupt() as asked:
        assert not asked.is_set()
        os.kill(os.getpid(), number)
        assert asked.is_set()
        os.kill(os.getpid(), number)


def test_whoever_was_not_asked_is_interrupted_as_before() -> None:
    with first_interrupt() as asked:
        pass
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    assert not asked.is_set()


def test_an_error_does_not_hide_it() -> None:
    """An interrupt has precedence over an error: after an error the next case runs, an interrupt ends the batch."""
    with pytest.raises(KeyboardInterrupt), interrupts_wait():
        os.kill(os.getpid(), signal.SIGINT)
        raise ValueError("the case failed")


def test_nothing_is_raised_when_nothing_came() -> None:
    with interrupts_wait():
        pass
    with pytest.raises(ValueError, match="the case failed"), interrupts_wait():
        raise ValueError("the case failed")


def test_who_ignores_interrupts_is_left_in_peace() -> None:
    """A process that ignores SIGINT, such as a background job of a shell, keeps ignoring it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_wait():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_the_block_starts_is_not_hit() -> None:
    """Ctrl-C in a terminal reaches the whole process group. Children must not inherit a blocked SIGINT."""
    with interrupts_wait():
        code = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "True\n"


def test_another_thread_has_no_signals_to_hold() -> None:
    seen = []

    def work() -> None:
        with interrupts_wait():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_sigterm_is_an_interrupt_too() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_as_interrupt():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("fails", [False, True])
def test_ctrl_c_while_a_case_is_taken_down_ends_the_batch(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("name: x\ntopics: {t: {}}\nworkload: {duration: 1s}\n", encoding="utf-8")
    ended = []

    def end(self: CaseRun) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        ended.append(self.run_id)

    class Watcher:
        def event(self, event: object) -> None:
            pass

    monkeypatch.setattr(CaseRun, "end_everything", end)
    options = CaseOptions(batch=str(tmp_path), installed=None, replay="")  # type: ignore[arg-type]
    with (
        pytest.raises(KeyboardInterrupt),
        CaseRun(cases(load(file))[0], CaseDir(tmp_path / "case"), options, Watcher()) as one,  # type: ignore[arg-type]
    ):
        if fails:
            raise RuntimeError("the case failed")
    assert ended == [one.run_id]


class Part:
    """Fake part of a run, which records its end in `ended`. The part with the name `groups` raises `WaitTimeout`."""

    def __init__(self, name: str, ended: list[str]) -> None:
        self.name, self.ended = name, ended

    def stop(self) -> None:
        self.ended.append(self.name)
        if self.name == "groups":
            raise WaitTimeout("waited for a member to end")

    abort = heal_all = remove_data = stop


def test_a_member_that_cannot_be_ended_leaves_no_broker(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("name: x\ntopics: {t: {}}\nworkload: {duration: 1s}\n", encoding="utf-8")
    options = CaseOptions(batch=str(tmp_path), installed=None, replay="")  # type: ignore[arg-type]
    one: Any = CaseRun(cases(load(file))[0], CaseDir(tmp_path / "case"), options, None)  # type: ignore[arg-type]
    ended: list[str] = []
    for name in ("cluster", "sampler", "groups", "workload", "driver"):
        setattr(one, name, Part(name, ended))
    with pytest.raises(WaitTimeout):
        one.end_everything()
    assert ended == ["driver", "workload", "groups", "sampler", "cluster", "cluster"]

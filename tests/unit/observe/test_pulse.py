"""Tests of `PulseRecorder`, which records the load of the machine once a second from the kernel's counters."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from ackproof.observe import pulse as watching
from ackproof.observe.pulse import Counts, PulseRecorder, _look, _Machine, _pulse
from ackproof.rundir.clock import RunClock
from ackproof.rundir.observed import Pulse, read_pulses
from ackproof.rundir.timeline import Timeline, read_timeline


def _watched(tmp_path: Path, seconds: float) -> list[Pulse]:
    began = time.monotonic()

    def counts() -> Counts:
        done = int((time.monotonic() - began) * 10)
        return Counts(done, 100 * done, 90 * done)

    with Timeline(tmp_path / "timeline.jsonl", RunClock.start()) as timeline:
        taker = PulseRecorder(tmp_path / "pulse.jsonl", timeline, counts)
        taker.start()
        threading.Event().wait(seconds)
        taker.stop()
        taker.stop()
    return read_pulses(tmp_path / "pulse.jsonl")


def test_a_line_each_second_and_one_at_the_end(tmp_path: Path) -> None:
    pulses = _watched(tmp_path, 2.3)
    assert 3 <= len(pulses) <= 4
    assert sum(one.looks for one in pulses) == pulses[-1].sent // 100 >= 22
    assert (pulses[-1].sent, pulses[-1].acked) == (pulses[-1].acked // 90 * 100, pulses[-1].sent // 100 * 90)
    for one in pulses[1:]:
        assert all(-1 <= share <= 1 for share in (one.busy, one.stolen, one.cpu_pressure, one.io_pressure))
    assert 0 <= pulses[1].busy <= 1, "/proc/stat is there on every Linux"


def test_a_busy_processor_is_seen(tmp_path: Path) -> None:
    """A thread spins for 1.5 s."""
    end = time.monotonic() + 1.5
    spinning = threading.Thread(target=lambda: [None for _ in iter(lambda: time.monotonic() < end, False)])
    spinning.start()
    pulses = _watched(tmp_path, 1.5)
    spinning.join()
    assert max(one.busy for one in pulses) > 0.05


def test_what_a_second_comes_to() -> None:
    """In these two seconds 40 of 200 ticks are busy and 10 stolen. Tasks waited 1 s for the processor and 3 s for the
    disk."""
    before = _Machine(100.0, (1000, 500, 50), (0, 7_000_000, -1))
    now = _Machine(102.0, (1200, 540, 60), (1_000_000, 10_000_000, -1))
    seen = _pulse(RunClock.start(), Counts(25, 300, 200), 10, before, now, 0.25)
    assert (seen.looks, seen.sent, seen.acked, seen.late_ms) == (15, 300, 200, 250.0)
    assert (seen.busy, seen.stolen) == (0.2, 0.05)
    assert sorted((seen.cpu_pressure, seen.io_pressure, seen.memory_pressure)) == [-1.0, 0.5, 1.0]
    still = _pulse(RunClock.start(), Counts(0, 0, 0), 0, now, now, 0.0)
    assert (still.busy, still.stolen, still.cpu_pressure) == (-1, -1, -1)


def test_the_kernels_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of the line `cpu`: user nice system idle iowait irq softirq steal, then guest times, which user and nice
    include."""
    (tmp_path / "stat").write_text("cpu  10 20 30 400 50 6 7 80 9 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    (tmp_path / "cpu").write_text(
        "some avg10=1.00 avg60=2.00 avg300=3.00 total=12345\nfull avg10=0 total=9\n"
    )
    (tmp_path / "io").write_text("nothing that is known\n")
    monkeypatch.setattr(watching, "Path", lambda name: tmp_path / name.rpartition("/")[2])
    seen = _look()
    assert seen.ticks == (603, 603 - 400 - 50 - 80, 80)
    assert dict(zip(watching._RESOURCES, seen.waited_us, strict=True)) == {
        "cpu": 12345,
        "io": -1,
        "memory": -1,
    }


def test_its_end_is_told(tmp_path: Path) -> None:
    def counts() -> Counts:
        raise RuntimeError("no counters")

    with Timeline(tmp_path / "timeline.jsonl", RunClock.start()) as timeline:
        taker = PulseRecorder(tmp_path / "pulse.jsonl", timeline, counts)
        taker.start()
        taker.stop()
    (event,) = read_timeline(tmp_path / "timeline.jsonl")[0]
    assert event.detail == {"note": "watching the machine ended: RuntimeError: no counters"}


def test_torn_lines_are_passed_over(tmp_path: Path) -> None:
    whole = Pulse(t_ns=1, late_ms=0, looks=1, sent=2, acked=2)
    (tmp_path / "pulse.jsonl").write_text(f'{whole.model_dump_json()}\n{{"t_ns": 2, "la')
    assert read_pulses(tmp_path / "pulse.jsonl") == [whole]
    assert read_pulses(tmp_path / "none.jsonl") == []

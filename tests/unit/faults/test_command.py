"""Faults by a user's commands: confirmed only if the check failed before, bounded in time, and no process is left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ackproof.base.errors import BadInput, FaultNotConfirmed
from ackproof.base.processes import RunTag, find_children
from ackproof.experiment.triggers import TimeTrigger
from ackproof.faults.command import CommandFault, CommandInjection, require
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import Aim

Make = Callable[..., CommandInjection]
RUN = "test-command"


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that makes the injection of a fault. The fault is in effect while the file `dark` exists."""
    dark = tmp_path / "dark"

    def build(**changed: Any) -> CommandInjection:
        fields: dict[str, Any] = {
            "inject": sh(f"touch {dark}; echo dark now"),
            "check": sh(f"test -e {dark}"),
            "heal": sh(f"rm {dark}"),
            "timeout": 2.0,
            **changed,
        }
        fault = CommandFault(
            number=1, trigger=TimeTrigger(0.0), **{k: v for k, v in fields.items() if v is not None}
        )
        cluster: Any = SimpleNamespace(bootstrap="a:1")
        node: Any = SimpleNamespace(id=2)
        aim = Aim({"role": (node,)})  # type: ignore[dict-item]
        return CommandInjection(
            fault, aim, FaultContext(cluster, threading.Event(), tag=RunTag(RUN, tmp_path, tmp_path))
        )

    return build


def test_it_bites_and_is_mended_and_what_it_said_is_kept(make: Make, tmp_path: Path) -> None:
    one = make()
    assert "dark now" in one.inject()
    assert "status 0" in one.confirm()
    assert "rm" in one.heal()
    assert "status 1" in one.confirm_healed()
    assert (
        sorted(path.name[-10:] for path in (tmp_path / "commands").iterdir())
        == sorted(["-check.log", "inject.log", "-check.log", "1-heal.log", "-check.log"])
        or len(list((tmp_path / "commands").iterdir())) == 5
    )


def test_words_are_filled_in(make: Make) -> None:
    said = make(inject=["echo", "{bootstrap} {nodes} {other}"]).inject()
    assert "a:1 2 {other}" in said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"check": ["true"]}, "says yes before anything was done"),
        ({"inject": ["true"], "timeout": 0.6}, "check to say yes"),
        ({"inject": sh("echo no; exit 3")}, "inject failed.*status 3: no"),
        ({"inject": sh("sleep 60"), "timeout": 0.4}, "took more than 0.4 s and was killed"),
        ({"inject": ["/nowhere/at-all"]}, "No such file"),
        ({"heal_check": ["true"]}, "says mended while it is broken"),
    ],
)
def test_duds_are_not_believed(make: Make, changed: dict[str, Any], said: str) -> None:
    one = make(**changed)
    with pytest.raises(FaultNotConfirmed, match=said):
        one.inject()
        one.confirm()
    assert not find_children(RUN), "what took too long is gone, and so is what it started"


def test_healing_that_does_not_mend_is_seen(make: Make) -> None:
    one = make(heal=["true"], timeout=0.6)
    one.inject()
    one.confirm()
    one.heal()
    with pytest.raises(FaultNotConfirmed, match="check to say no"):
        one.confirm_healed()


def test_what_was_never_begun_is_not_mended(make: Make, tmp_path: Path) -> None:
    one = make(check=["true"], heal=sh(f"touch {tmp_path / 'mended'}"))
    with pytest.raises(FaultNotConfirmed):
        one.inject()
    assert one.heal() == one.confirm_healed() == "nothing was done"
    assert not (tmp_path / "mended").exists()


def test_programs_that_are_not_there_are_told_before_the_start(make: Make) -> None:
    require([make().fault])
    with pytest.raises(BadInput, match="no program 'at-all-nowhere'"):
        require([make(heal=["at-all-nowhere"]).fault])

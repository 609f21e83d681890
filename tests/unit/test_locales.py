"""Paths with umlauts in locales without UTF-8: accepted, or refused before anything starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ackproof.base import environment as locales
from ackproof.base.errors import BadInput

GOOD = "name: t\ntopics:\n  orders: {}\nworkload: {duration: 1s}\n"
CHILD = (
    "import os, sys; sys.stdout.buffer.write(os.fsencode(f\"{os.environ['LC_ALL']} {os.listdir('.')[0]}\"))"
)
ASKS = f"""\
import subprocess, sys
from ackproof.base.environment import restart_in_utf8
restart_in_utf8()
assert sys.getfilesystemencoding() == "utf-8"
print(sys.argv[1], flush=True)
subprocess.run([sys.executable, "-c", {CHILD!r}], check=True)
"""
WITHOUT_UTF8 = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def _in_locale(words: list[str], folder: Path, more: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C", **more}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize("more", [{}, WITHOUT_UTF8], ids=["mode", "no mode"])
def test_this_process_and_its_children_take_names_for_utf8(tmp_path: Path, more: dict[str, str]) -> None:
    folder = tmp_path / "ü"
    (folder / "ö").mkdir(parents=True)
    done = _in_locale([sys.executable, "-c", ASKS, "ä"], folder, more)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    # A terminal gets what it knows; so does nobody lose the rest.
    assert first == (b"\\xe4" if more else "ä".encode())
    assert second == "C.UTF-8 ö".encode()


@pytest.mark.parametrize("more", [{}, WITHOUT_UTF8], ids=["mode", "no mode"])
def test_a_command_takes_files_with_umlauts(tmp_path: Path, more: dict[str, str]) -> None:
    (tmp_path / "ä.yaml").write_text(GOOD)
    done = _in_locale([str(Path(sys.executable).with_name("ackproof")), "plan", "ä.yaml"], tmp_path, more)
    assert done.returncode == 0, done.stderr
    assert b"topics (partitions" in done.stdout


def test_where_there_is_no_locale_with_utf8_paths_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locales, "_UTF8", ("no_such",))
    monkeypatch.setattr(locales.locale, "getencoding", lambda: "ANSI_X3.4-1968")
    monkeypatch.setenv("PYTHONUTF8", "1")
    monkeypatch.setattr(sys, "argv", ["ackproof", "run", "x.yaml"])
    locales.use_utf8_in_children()
    monkeypatch.setattr(sys, "argv", ["ackproof", "run", "ä.yaml"])
    with pytest.raises(BadInput, match="install one"):
        locales.use_utf8_in_children()

"""`traces`, the check for leftovers of tests, finds planted ones: a process, a folder, a table of rules and a mount."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import traces


def test_nothing_new_nothing_left() -> None:
    before = traces.look()
    assert traces.left(before, before) == []


def test_a_marked_process_and_a_folder_are_seen() -> None:
    before = traces.look()
    folder = Path(tempfile.mkdtemp(prefix="ackproof-planted-"))
    words = [sys.executable, "-c", "print(flush=True); input()"]
    marked = {**os.environ, "ACKPROOF_RUN": "planted"}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=marked) as process:
        assert process.stdout is not None
        process.stdout.readline()
        left = traces.left(before, traces.look())
        process.communicate(b"\n")
    folder.rmdir()
    assert any(line.startswith(f"process: {process.pid} ") for line in left)
    assert f"temporary folder: {folder.name}" in left
    assert not [
        line for line in traces.left(before, traces.look()) if "planted" in line or str(process.pid) in line
    ]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="tables of rules need root and nft")
def test_a_table_of_rules_is_seen() -> None:
    before = traces.look()
    subprocess.run(["nft", "add", "table", "ip", "ackproof_planted"], check=True)
    try:
        left = traces.left(before, traces.look())
    finally:
        subprocess.run(["nft", "delete", "table", "ip", "ackproof_planted"], check=True)
    assert "table of rules: table ip ackproof_planted" in left


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_mount_is_seen(tmp_path: Path) -> None:
    before = traces.look()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "planted", tmp_path], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        left = traces.left(before, traces.look())
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert f"mount: planted {tmp_path}" in left

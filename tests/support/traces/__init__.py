"""Finds what the harness and its faults leave on a machine, by a comparison of its state before and after.

The state is read from the kernel and the container engine, not from the harness's own records."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

Traces: TypeAlias = Mapping[str, frozenset[str]]
"""By sort (process, mount, loop device, link, qdisc, table of rules, network namespace, container, …): the names of all
things of that sort."""

ENGINE = Path("/var/run/docker.sock")
_MARK, _ROLE = b"ACKPROOF_RUN=", b"ACKPROOF_ROLE="


def look() -> Traces:
    """Return what is on the machine now. A sort whose tool is missing is left out: then nothing can have made a thing
    of that sort."""
    found = {
        "process": _processes(),
        "mount": _mounts(),
        "loop device": _loops(),
        "link": _names(Path("/sys/class/net")),
        "network namespace": _names(Path("/run/netns")),
        "temporary folder": _folders(),
    }
    if shutil.which("tc"):
        found["qdisc"] = _lines("tc", "qdisc", "show")
    if shutil.which("nft"):
        found["table of rules"] = _lines("nft", "list", "tables")
    if (
        shutil.which("docker")
        and ENGINE.exists()
        and _lines("docker", "version", "--format", "{{.Server.Version}}")
    ):
        found["container"] = _lines("docker", "ps", "--all", "--format", "{{.ID}} {{.Names}}")
        found["network"] = _lines("docker", "network", "ls", "--format", "{{.ID}} {{.Name}}")
        found["volume"] = _lines("docker", "volume", "ls", "--format", "{{.Name}}")
    return found


def left(before: Traces, after: Traces) -> list[str]:
    """Return a line for each trace in `after` that `before` lacks, such as `process: java`."""
    return [
        f"{sort}: {name}"
        for sort, names in after.items()
        for name in sorted(names - before.get(sort, frozenset()))
    ]


def _processes() -> frozenset[str]:
    """Return the processes that a harness marked: pid, command, run and role. The Spark that the tests of this process
    share is left out."""
    found = set()
    own = f"ACKPROOF_OWNER={os.getpid()}:".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environ = (folder / "environ").read_bytes()
            all_marks = environ.split(b"\0")
            shared = b"ACKPROOF_ROLE=spark" in all_marks and any(mark.startswith(own) for mark in all_marks)
            if int(folder.name) != os.getpid() and _MARK in environ and not shared:
                marks = [mark.decode() for mark in all_marks if mark.startswith((_MARK, _ROLE))]
                found.add(" ".join([folder.name, (folder / "comm").read_text().strip(), *sorted(marks)]))
        except OSError:
            continue  # gone since it was listed, or another user's
    return frozenset(found)


def _folders() -> frozenset[str]:
    """Return the harness's temporary folders, without those of this process, which are in use."""
    found = (path.name for path in Path(tempfile.gettempdir()).glob("ackproof-*") if path.is_dir())
    return frozenset(name for name in found if f"-{os.getpid()}-" not in name)


def _mounts() -> frozenset[str]:
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return frozenset(" ".join(line.split()[:2]) for line in lines)


def _loops() -> frozenset[str]:
    return frozenset(
        f"{file.parents[1].name} {file.read_text().strip()}"
        for file in Path("/sys/block").glob("loop*/loop/backing_file")
    )


def _names(folder: Path) -> frozenset[str]:
    return frozenset(path.name for path in folder.iterdir()) if folder.is_dir() else frozenset()


def _lines(*words: str) -> frozenset[str]:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return frozenset(done.stdout.splitlines()) if done.returncode == 0 else frozenset()

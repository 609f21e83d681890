"""toxiproxy-server: from the PATH, else built by Go from its module (into the cache, once)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from ackproof.base.cache import cache_root
from ackproof.base.errors import MissingTool
from ackproof.base.processes import RunTag, spawn
from ackproof.base.wait import wait_until
from ackproof.provision.cache import build_once
from ackproof.provision.failure import ProvisionFailed
from ackproof.provision.progress import Progress, ProgressSink, ignore

VERSION: Final = "2.12.0"
NAME: Final = "toxiproxy-server"
INSTALL: Final = (
    f"put {NAME} {VERSION} on the PATH (https://github.com/Shopify/toxiproxy/releases), "
    "or install Go 1.23 or newer, which builds it"
)
_MODULE: Final = "github.com/Shopify/toxiproxy/v2"
_SUM: Final = "h1:d1x++lYZg/zijXPPcv7PH0MvHMzEI5aX/YuUi/Sw+yg="
"""Go's checksum of the module's files in this version, which the built program carries."""
_GO_AT: Final = "/usr/local/go/bin"
"""Where Go's own installer puts it, on the PATH or not."""
_TIMEOUT_S: Final = 600.0


def toxiproxy_server(progress: ProgressSink = ignore) -> Path:
    """The program, built if need be (some 10 to 45 s, once). Raises `MissingTool`, `ProvisionFailed`."""
    found = shutil.which(NAME)
    if found is not None:
        return Path(found).absolute()
    return build_once(_cached(), lambda folder: _build(folder, progress), progress) / NAME


def where() -> str:
    """Where it is, or how it will be had, in words. Raises `MissingTool`; builds nothing."""
    found = shutil.which(NAME)
    if found is not None:
        return found
    if _cached().exists():
        return str(_cached() / NAME)
    return f"not there yet; {_go()} builds {VERSION} when links are to be broken"


def _cached() -> Path:
    return cache_root() / f"toxiproxy-{VERSION}"


def _go() -> Path:
    found = shutil.which("go", path=f"{os.environ.get('PATH', '')}:{_GO_AT}")
    if found is None:
        raise MissingTool(NAME, "faults of links go through it", INSTALL)
    return Path(found)


def _build(folder: Path, progress: ProgressSink) -> None:
    go = _go()
    progress(Progress("download", f"building {NAME} {VERSION} with Go, this once: some 10 to 45 s"))
    output = folder / "go.log"
    child = spawn(
        [str(go), "install", f"{_MODULE}/cmd/server@v{VERSION}"],
        run=RunTag(f"provision-{os.getpid()}", folder, folder),
        role="go",
        cwd=folder,
        stdout=output,
        env={"GOBIN": str(folder), "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"},
    )
    try:
        wait_until(
            lambda: child.poll() is not None,
            what=f"Go to build {NAME}",
            timeout_s=_TIMEOUT_S,
            interval_s=0.1,
        )
        status = child.poll()
    finally:
        child.kill()
    built = folder / "server"
    if status != 0 or not built.exists():
        said = " ".join(output.read_text(encoding="utf-8", errors="replace").split())
        raise ProvisionFailed(f"Go could not build {NAME} {VERSION} (exit {status}): {said[-300:]}")
    _verify(go, built)
    built.rename(folder / NAME)
    output.unlink()


def _verify(go: Path, program: Path) -> None:
    """It was made from exactly the files of this version."""
    told = subprocess.run(
        [str(go), "version", "-m", str(program)], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    wanted = ["mod", _MODULE, f"v{VERSION}", _SUM]
    if not any(line.split() == wanted for line in told.splitlines()):
        raise ProvisionFailed(f"{NAME} was not built from {_MODULE} v{VERSION} as it is locked")

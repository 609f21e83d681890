"""The life of a run's Toxiproxy server: a child like any other, found by its marks."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ackproof.base.errors import WaitTimeout
from ackproof.base.processes import Child, RunTag, spawn
from ackproof.base.wait import wait_until
from ackproof.cluster.network.failure import LinkError
from ackproof.cluster.network.toxiproxy import Toxiproxy

START_WITHIN_S: Final = 20.0
ROLE: Final = "toxiproxy"


class ProxyServer:
    """A server that listens at `host`:`port`; `start`, then `api`, at last `end`."""

    def __init__(self, binary: Path, host: str, port: int, *, folder: Path, tag: RunTag) -> None:
        self.log = folder / "toxiproxy.log"
        self.api = Toxiproxy(host, port)
        self._argv = [str(binary), "-host", host, "-port", str(port)]
        self._folder = folder
        self._tag = tag
        self._child: Child | None = None

    def start(self, *, lease_descriptor: int) -> None:
        """Start it; returns when it answers. It holds the lease of the cluster's addresses. Raises `LinkError`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._child = spawn(
            self._argv,
            run=self._tag,
            role=ROLE,
            cwd=self._folder,
            stdout=self.log,
            pass_fds=(lease_descriptor,),
        )

        def answers() -> bool:
            self.check()
            try:
                return bool(self.api.version())
            except LinkError:
                return False

        try:
            wait_until(answers, what="toxiproxy-server to answer", timeout_s=START_WITHIN_S, interval_s=0.01)
        except WaitTimeout as error:
            raise LinkError(str(error)) from error

    @property
    def pid(self) -> int | None:
        """Its process, None before the start."""
        return None if self._child is None else self._child.pid

    def check(self) -> None:
        """Raises `LinkError` when it has ended by itself."""
        status = None if self._child is None else self._child.poll()
        if status is not None:
            raise LinkError(f"toxiproxy-server ended by itself (exit {status}): {self._last_words()}")

    def end(self) -> None:
        """SIGKILL, and wait until it is gone. All that it held in its proxies goes with it."""
        if self._child is not None:
            self._child.kill()

    def _last_words(self) -> str:
        try:
            return " ".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-2:])
        except OSError:
            return "it said nothing"

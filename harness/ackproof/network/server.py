"""A server that links go through, as a child like any other: it is started, asked whether it still runs, and ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from ackproof.base.errors import WaitTimeout
from ackproof.base.processes import Child, RunTag, spawn
from ackproof.base.wait import wait_until
from ackproof.network.mesh import LinkError

START_WITHIN_S: Final = 20.0


class LinkServer(ABC):
    """`start`, then whatever it is for, at last `end`."""

    NAME: ClassVar[str]
    """In errors."""
    ROLE: ClassVar[str]
    """By which it is found again."""

    def __init__(self, argv: Sequence[str], *, log: Path, tag: RunTag) -> None:
        self.log = log
        self._argv = list(argv)
        self._tag = tag
        self._child: Child | None = None
        self._lease_descriptor = -1

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it takes orders. Raises `LinkError` as long as it does not."""

    def start(self, *, lease_descriptor: int) -> None:
        """Start it; returns when it answers. It holds the lease of the cluster's addresses. Raises `LinkError`."""
        self._lease_descriptor = lease_descriptor
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._child = spawn(
            self._argv,
            run=self._tag,
            role=self.ROLE,
            cwd=self.log.parent,
            stdout=self.log,
            pass_fds=(lease_descriptor,),
        )

        def answers() -> bool:
            self.check()
            try:
                return self._answers()
            except LinkError:
                return False

        try:
            wait_until(answers, what=f"{self.NAME} to answer", timeout_s=START_WITHIN_S, interval_s=0.01)
        except WaitTimeout as error:
            raise LinkError(str(error)) from error

    def check(self) -> None:
        """Raises `LinkError` when it has ended by itself."""
        status = None if self._child is None else self._child.poll()
        if status is not None:
            raise LinkError(f"{self.NAME} ended by itself (exit {status}): {self._last_words()}")

    def end(self) -> None:
        """SIGKILL, and wait until it is gone. All that it held goes with it."""
        if self._child is not None:
            self._child.kill()

    def _last_words(self) -> str:
        try:
            return " ".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-2:])
        except OSError:
            return "it said nothing"

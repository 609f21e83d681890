"""Byteman rules in the code of a running node: the agent is attached to its JVM when the first rule is loaded.

The start-up and the command line of a node stay as they are. The agent then listens at one address for the rest of the
JVM's life. It takes requests as text (LOAD, DELETE, LIST), and ends each answer with OK.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster.node import ProcessNode
from ackproof.network.addresses import Address
from ackproof.provision.byteman import byteman_install_jar, byteman_jar
from ackproof.provision.java import Java

HOLD_SUFFIX: Final = ".hold"
ANSWERS_WITHIN_S: Final = 20.0
"""Time-out in seconds for an answer of the agent. A load rewrites a class: 0.1 to 0.5 s, on a busy machine more."""
_DUMPED_WITHIN_S: Final = 10.0
_DUMP_BEGINS: Final = "Full thread dump "
_DUMP_ENDS: Final = "JNI global refs"
_BLANK: Final = re.compile(r"\n\s*\n")


class CodeAgent(ABC):
    """Byteman's agent in the JVM of one node (`Cluster.code_agent`): faults in code load and delete rules through it,
    hold threads, and read the JVM's thread dump. A backend says how to reach the JVM.

    `version`: the Kafka release that the node runs. `classpath`: the jars of that release on this machine.
    """

    def __init__(self, node: ProcessNode, version: str, classpath: Sequence[Path]) -> None:
        self.node = node
        self.version = version
        self.classpath = tuple(classpath)

    # -- added by a backend -------------------------------------------------------------------------------------------

    @abstractmethod
    def _install(self) -> str:
        """Attach the agent to the node's JVM; return what the installer said. Raises OSError or
        `subprocess.SubprocessError` if the installer cannot be run or takes too long."""

    @abstractmethod
    def _ask(self, request: str) -> str:
        """Send a request to the agent and return its answer; '' if no agent listens or answers."""

    @abstractmethod
    def output(self) -> str:
        """Return what the node's JVM has printed so far."""

    # -- rules --------------------------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Attach the agent if the node's JVM has none. Raises `FaultNotConfirmed` if it does not answer afterwards,
        `EngineFailed` if the node's container cannot be reached, and as `byteman_jar` does."""
        if self._ask("VERSION\n"):
            return
        try:
            said = self._install()
        except (OSError, subprocess.SubprocessError) as error:
            said = str(error)
        try:
            wait_until(lambda: self._ask("VERSION\n"), what="the agent", timeout_s=5.0)
        except WaitTimeout:
            shown = " ".join(said.split())[-300:] or "no message"
            raise FaultNotConfirmed(
                f"Byteman's agent could not be attached to node {self.node.id}: {shown}"
            ) from None

    def load(self, name: str, rules: str) -> None:
        """Load `rules`, in Byteman's language and with a line break at the end, as the script `name`. Raises
        `FaultNotConfirmed` if the agent does not accept them."""
        answer = self._ask(f"LOAD\nSCRIPT {name}\n{rules}ENDSCRIPT\nENDLOAD\n")
        if "install rule" not in answer or "ERROR" in answer or "EXCEPTION" in answer:
            raise FaultNotConfirmed(f"node {self.node.id} does not take the rule: {_short(answer)}")

    def delete(self, name: str, rules: str) -> None:
        """Delete the `rules` that were loaded as the script `name`. Raises `FaultNotConfirmed` if the agent does not
        answer, be it to the question for its list, or if that list of rules still contains the text `name`."""
        answer = self._ask(f"DELETE\nSCRIPT {name}\n{rules}ENDSCRIPT\nENDDELETE\n")
        listed = self.list() if answer else ""
        if not listed or name in listed:
            raise FaultNotConfirmed(f"node {self.node.id} does not remove the rule: {_short(answer)}")

    def list(self) -> str:
        """Return the agent's list of rules, each with the methods that it was put into and its errors; '' if the agent
        does not answer.
        """
        return self._ask("LIST\n")

    # -- threads that wait at a FIFO ----------------------------------------------------------------------------------

    def hold_threads(self, key: str) -> None:
        """Create the FIFO `KEY.hold` in the node's folder. A Byteman rule can make a thread of the node open the FIFO
        for reading: the thread then waits until `release_threads`. Raises OSError, also if the FIFO exists."""
        os.mkfifo(self._fifo(key))

    def release_threads(self, key: str) -> None:
        """Let the threads that wait at the FIFO of `key` go on, and remove the FIFO. Call it once no more threads can
        arrive. Does nothing if there is no FIFO."""
        fifo = self._fifo(key)
        try:
            # fails where nobody waits
            os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno not in (errno.ENXIO, errno.ENOENT):
                raise
        fifo.unlink(missing_ok=True)

    def _fifo(self, key: str) -> Path:
        return self.node.files.folder / f"{key}{HOLD_SUFFIX}"

    # -- the JVM's own view -------------------------------------------------------------------------------------------

    def dump_threads(self) -> tuple[str, ...]:
        """Return the thread dump that the JVM prints on SIGQUIT, split at blank lines: one text for each thread,
        and some for other parts of the dump. Raises `FaultNotConfirmed` if the JVM prints none."""
        seen = len(self.output())
        self.node.send_signal(signal.SIGQUIT)

        def dump() -> str | None:
            begins, found, rest = self.output()[seen:].partition(_DUMP_BEGINS)
            del begins
            return rest if found and _DUMP_ENDS in rest else None

        try:
            text = wait_until(dump, what="the threads", timeout_s=_DUMPED_WITHIN_S, interval_s=0.05)
        except WaitTimeout:
            raise FaultNotConfirmed(
                f"node {self.node.id} printed no thread dump within {_DUMPED_WITHIN_S:g} s"
            ) from None
        return tuple(_BLANK.split(text))


def installer(java: str, jars: Iterable[str], address: Address, pid: int | None) -> list[str]:
    """Return the command that attaches the agent to the JVM `pid`, to listen at `address`. `java`: path of the Java
    launcher. `jars`: paths of Byteman's jars, and `pid`: process id of the JVM, as that launcher sees them."""
    flags = ("-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", "-cp", ":".join(jars))
    main, (host, port) = "org.jboss.byteman.agent.install.Install", address
    return [java, *flags, main, "-h", host, "-p", str(port), str(pid)]


def _short(answer: str) -> str:
    return " ".join(answer.split())[-300:] or "no answer"


class LocalCodeAgent(CodeAgent):
    """Byteman's agent in a JVM of this machine. `address`: address at which the agent listens, on the node's own leased
    IP."""

    def __init__(
        self, node: ProcessNode, version: str, classpath: Sequence[Path], java: Java, address: Address
    ) -> None:
        super().__init__(node, version, classpath)
        self._java, self._address = java, address

    def _install(self) -> str:
        jars = (str(byteman_install_jar()), str(byteman_jar()))
        command = installer(str(self._java.path), jars, self._address, self.node.pid)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ANSWERS_WITHIN_S * 2, check=False
        )
        return done.stdout + done.stderr

    def _ask(self, request: str) -> str:
        try:
            with socket.create_connection(self._address, 2.0) as link:
                link.settimeout(ANSWERS_WITHIN_S)
                link.sendall(request.encode())
                return _read_answer(link)
        except OSError:
            return ""

    def output(self) -> str:
        return self.node.files.stdout.read_text(encoding="utf-8", errors="replace")


def _read_answer(link: socket.socket) -> str:
    answer = b""
    while not answer.endswith(b"OK\n") and (more := link.recv(1 << 16)):
        answer += more
    return answer.decode("utf-8", "replace") if answer.endswith(b"OK\n") else ""

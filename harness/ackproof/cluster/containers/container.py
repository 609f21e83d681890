"""A node's container, the process in it, and Byteman's agent in that process.

The container is made once, and started again after each end of the process.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import docker.errors
from docker.constants import DEFAULT_DOCKER_API_VERSION
from docker.models.containers import Container
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from ackproof.base.errors import BadInput, WaitTimeout
from ackproof.base.processes import ProcessState, RunTag, process_state, started
from ackproof.base.wait import wait_until
from ackproof.cluster.code_rules import CodeAgent, installer
from ackproof.cluster.containers.engine import (
    TIMEOUT_S,
    Engine,
    EngineFailed,
    EngineLost,
    labels,
    with_engine_errors,
)
from ackproof.cluster.node import ProcessNode
from ackproof.network.addresses import Address
from ackproof.provision.byteman import byteman_install_jar, byteman_jar
from docker import types

testcontainers_config.ryuk_disabled = True  # `ackproof clean` finds leftovers by their labels

UNKNOWN_STATUS: Final = 255
"""Exit status of a process whose exit status the engine does not report."""
_TOLD_WITHIN_S: Final = 10.0
"""Time-out in seconds for the engine to report the exit status of an ended process. Usually it takes milliseconds."""
_FREEZES: Final = 10
_UNFROZEN: Final = "unable to freeze"
"""Part of runc's error message: after a thousand looks the control group was not frozen (cgroups/fs/freezer.go)."""
_ENDED_BY: Final = {
    128 + number: -number for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)
}
"""Exit status of a container (128 + signal) → negated number of the signal that ended it. SIGTERM is not among them: a
JVM then exits by itself with status 143."""


NODE_FOLDER: Final = "/mnt/node"
"""The node's folder in its container, the working folder."""
_CONFIG: Final = "/opt/kafka/config"
"""Folder in the container where the image's start script writes Kafka's settings; it is `config` in the node's
folder."""
_PROC: Final = Path("/proc")
_GROUPS: Final = Path("/sys/fs/cgroup")


class NodeContainer:
    """A container of a run. Its files belong to the user of the harness. Methods raise `EngineFailed` if the engine
    refuses a call or does not answer.

    `role`: the node's name. `hostname`: its name for the other containers. `folder`: the node's folder on this machine.
    `address`: fixed, in the subnet of `network`; None: the engine chooses it. `published`: port in the container →
    address and port of this machine. `command`: command to run in the container; (): the image's own command.
    """

    def __init__(
        self,
        engine: Engine,
        tag: RunTag,
        *,
        image: str,
        role: str,
        hostname: str,
        network: str,
        environment: Mapping[str, str],
        folder: Path,
        published: Mapping[int, tuple[str, int]],
        address: str | None = None,
        command: Sequence[str] = (),
    ) -> None:
        self.role = role
        self._output = folder / "stdout.log"
        config = folder / "config"
        config.mkdir(parents=True, exist_ok=True)
        endpoint = types.EndpointConfig(DEFAULT_DOCKER_API_VERSION, aliases=[hostname], ipv4_address=address)
        self._made = (
            DockerContainer(image, docker_client_kw={"timeout": TIMEOUT_S})
            .with_name(f"ackproof-{tag.run_id}-{role}")
            .with_envs(**environment, **tag.environment(role))
            .with_kwargs(
                labels=labels(tag, role),
                hostname=hostname,
                user=engine.user,
                working_dir=NODE_FOLDER,
                mounts=[
                    types.Mount(NODE_FOLDER, str(folder), type="bind"),
                    types.Mount(_CONFIG, str(config), type="bind"),
                ],
                network=network,
                networking_config={network: endpoint},
            )
        )
        if command:
            self._made.with_command(list(command))
        # testcontainers types a port as a number; the engine takes the address too
        ports: dict[str, object] = self._made.ports  # type: ignore[assignment]
        ports.update({f"{port}/tcp": where for port, where in published.items()})

    @property
    def container(self) -> Container:
        """The docker SDK's object of the container. Raises `ContainerStartException` before the first `start`."""
        return self._made.get_wrapped_container()

    @with_engine_errors
    def start(self) -> ContainerProcess:
        """Start the container; create it first if needed. Return its first process."""
        if self._made._container is None:
            self._made.start()
        else:
            self.container.start()
        self.container.reload()
        return ContainerProcess(self, int(self.container.attrs["State"]["Pid"]))

    @with_engine_errors
    def status(self) -> int | None:
        """Return the container's exit status as the engine reports it, None while it runs."""
        self.container.reload()
        state = self.container.attrs["State"]
        return None if state["Running"] else int(state["ExitCode"])

    @with_engine_errors
    def send(self, number: int) -> bool:
        """Send a signal to the container's first process. SIGSTOP freezes the container, SIGCONT thaws it. Return False
        if it has ended."""
        try:
            if number == signal.SIGSTOP:
                _freeze(self.container)
            elif number == signal.SIGCONT:
                self.container.unpause()
            else:
                self.container.kill(signal=number)
        except docker.errors.NotFound:
            return False
        except docker.errors.APIError as error:
            said = str(error.explanation)
            if "is not running" in said or "not paused" in said or "is already paused" in said:
                return "is not running" not in said
            raise
        return True

    @with_engine_errors
    def run(self, command: Sequence[str]) -> str:
        """Run a command in the running container, and return its output (both streams), whatever its exit status."""
        said = self.container.exec_run(list(command)).output
        return said.decode("utf-8", "replace") if isinstance(said, bytes) else ""

    @with_engine_errors
    def output(self) -> str:
        """Return what the container has printed so far."""
        return bytes(self.container.logs()).decode("utf-8", "replace")

    @with_engine_errors
    def save_output(self) -> None:
        """Write the container's output so far to `stdout.log` in the node's folder."""
        self._output.write_bytes(self.container.logs())

    @with_engine_errors
    def remove(self) -> None:
        """Remove the container, and close the connection to the engine. A container that still runs is killed."""
        self.container.remove(force=True, v=True)
        self.close()

    def close(self) -> None:
        """Close the connection to the engine; the container stays."""
        self._made.get_docker_client().client.close()


def _freeze(container: Container) -> None:
    """Pause the container; try at most 10 times (`_FREEZES`) while the container runtime reports "unable to freeze".
    Raises docker's `APIError` for another error, or if the last attempt fails too.

    The runtime gives up after a fraction of a second if at each look a thread was being created or waited in the
    kernel.
    """
    for _ in range(_FREEZES - 1):
        try:
            container.pause()
        except docker.errors.APIError as error:
            if _UNFROZEN not in str(error.explanation):
                raise
        else:
            return
    container.pause()


class ContainerProcess:
    """The first process of a container: a `NodeProcess`, with its pid on this machine. `pid` 0: the process had ended
    before the engine reported it."""

    def __init__(self, container: NodeContainer, pid: int) -> None:
        self.container = container
        self.pid = pid
        self.role = container.role
        self.started = (started(pid) or 0) if pid else 0
        self._status: int | None = None

    def poll(self) -> int | None:
        if self._status is None and process_state(self.pid, self.started) in ("gone", "zombie"):
            status = self._ask()
            with contextlib.suppress(EngineFailed, OSError):
                self.container.save_output()
            self._status = _ENDED_BY.get(status, status)
        return self._status

    def signal(self, number: int) -> bool:
        try:
            return self.state() != "gone" and self.container.send(number)
        except EngineLost:
            # SIGKILL is how everything ends, and this user may have the right to it
            if number != signal.SIGKILL or not self._kill_past_the_engine():
                raise
            return True

    def wait(self, timeout_s: float) -> int:
        wait_until(
            lambda: self.poll() is not None,
            what=f"{self.role} (pid {self.pid}) to end",
            timeout_s=timeout_s,
            interval_s=0.005,
            state=self.state,
        )
        return self._status if self._status is not None else UNKNOWN_STATUS

    def state(self) -> ProcessState:
        # Of the process, and of the control group that freezes it.
        state = process_state(self.pid, self.started)
        return "stopped" if state == "running" and is_frozen(self.pid) else state

    def _ask(self) -> int:
        def status() -> tuple[int] | None:  # which is true for status 0, too
            status = self.container.status()
            return None if status is None else (status,)

        try:
            what = f"the engine to see the end of {self.role}"
            (ended,) = wait_until(status, what=what, timeout_s=_TOLD_WITHIN_S)
        except (EngineFailed, WaitTimeout):
            return UNKNOWN_STATUS
        return ended

    def _kill_past_the_engine(self) -> bool:
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        try:
            if started(self.pid) == self.started:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        finally:
            os.close(descriptor)
        return True


def is_frozen(pid: int, proc: Path = _PROC, groups: Path = _GROUPS) -> bool:
    """Return True if a process is in a frozen control group (version 1 or 2), as after `docker pause`. Return False if
    there is no such process. `proc`, `groups`: folders where the kernel shows processes and control groups."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    for line in lines:
        _, controllers, path = line.split(":", 2)
        below = path.lstrip("/")
        if controllers == "freezer":
            return _says(groups / "freezer" / below / "freezer.state", "FROZEN")
        if not controllers:
            events = groups / below / "cgroup.events"
            if events.exists():
                return _says(events, "frozen 1")
    return False


def _says(file: Path, line: str) -> bool:
    try:
        return line in file.read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError, OSError):
        return False


_PLAIN: Final = re.compile(r"[a-z0-9._-]+")
_RUNS: Final = re.compile(r"[._-]{2,}")


def settings_as_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings as variables: `num.io.threads` → `KAFKA_NUM_IO_THREADS`; `_` becomes `__`, `-` becomes `___`.

    Raises `BadInput` for a key that these rules cannot express: the image turns names into lower case.
    """
    if unfit := [key for key in settings if not _PLAIN.fullmatch(key) or _RUNS.search(key)]:
        raise BadInput(
            f"the setting {unfit[0]} cannot be given to a container: only small letters, digits and single . _ - "
            "pass through a variable KAFKA_*"
        )
    return {
        f"KAFKA_{key.replace('_', '__').replace('-', '___').replace('.', '_').upper()}": value
        for key, value in settings.items()
    }


_AGENT: Final = Address("127.0.0.1", 9196)
"""Address of the agent on the loopback of its container."""
_EXCHANGE: Final = (
    f'exec 3<>/dev/tcp/{_AGENT.host}/{_AGENT.port} && cat "$0" >&3 && '
    'while IFS= read -r line <&3; do printf "%s\\n" "$line"; [ "$line" != OK ] || break; done'
)
"""Program of bash: sends a file to the agent and prints its answer, which ends with OK."""


class ContainerCodeAgent(CodeAgent):
    """Byteman's agent in the JVM of a container, whose first process is the JVM. The agent listens on the container's
    loopback; all commands to it run inside the container (exec)."""

    def __init__(
        self, node: ProcessNode, version: str, classpath: Sequence[Path], container: NodeContainer
    ) -> None:
        super().__init__(node, version, classpath)
        self._container = container

    def _install(self) -> str:
        jars = []
        for jar in (byteman_install_jar(), byteman_jar()):
            shutil.copyfile(jar, self.node.files.folder / jar.name)
            jars.append(f"{NODE_FOLDER}/{jar.name}")
        return self._container.run(installer("java", jars, _AGENT, 1))

    def _ask(self, request: str) -> str:
        file = self.node.files.folder / f"agent-{threading.get_ident()}.request"
        file.write_text(request, encoding="utf-8")
        try:
            answer = self._container.run(["bash", "-c", _EXCHANGE, f"{NODE_FOLDER}/{file.name}"])
        except EngineFailed:
            return ""
        finally:
            file.unlink()
        return answer if answer.endswith("OK\n") else ""

    def output(self) -> str:
        return self._container.output()

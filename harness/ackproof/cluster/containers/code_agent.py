"""Byteman rules in the code of a node in a container. All commands to its JVM run inside the container (exec)."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ackproof.cluster.code_rules import INSTALLER, CodeAgent
from ackproof.cluster.containers.container import NODE_FOLDER, NodeContainer
from ackproof.cluster.containers.engine import EngineFailed
from ackproof.cluster.node import ProcessNode
from ackproof.provision.byteman import byteman_install_jar, byteman_jar

_PORT: Final = 9196
"""Port of the agent on the loopback of its container."""
_EXCHANGE: Final = (
    f'exec 3<>/dev/tcp/127.0.0.1/{_PORT} && cat "$0" >&3 && '
    'while IFS= read -r line <&3; do printf "%s\\n" "$line"; [ "$line" != OK ] || break; done'
)
"""Program of bash: sends a file to the agent and prints its answer, which ends with OK."""


class ContainerCodeAgent(CodeAgent):
    """Byteman's agent in the JVM of a container, whose first process is the JVM. The agent listens on the container's
    loopback."""

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
        command = ["java", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", "-cp", ":".join(jars)]
        return self._container.run([*command, INSTALLER, "-h", "127.0.0.1", "-p", str(_PORT), "1"])

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

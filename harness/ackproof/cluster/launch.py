"""Files and command line of a node's JVM.

No formatting JVM is started for a run: a node's `meta.properties` is written here, and the controllers' copy of
`bootstrap.checkpoint` (which switches the cluster's features on) was made once by provisioning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ackproof.base.processes import Child, RunTag, spawn
from ackproof.cluster.addresses import Route, hosts_file
from ackproof.cluster.backends.process.node import NodeFiles
from ackproof.cluster.layout import Layout
from ackproof.cluster.metadata.choice import metadata_of
from ackproof.cluster.properties import render, settings
from ackproof.provision.jars import KafkaJars
from ackproof.provision.java import Java
from ackproof.provision.jvm import java_command

Role = Literal["broker", "controller"]


@dataclass(frozen=True)
class Installation:
    """What provisioning made ready. `archives` by role; a role without one starts slowly."""

    java: Java
    jars: KafkaJars
    archives: Mapping[Role, Path]
    checkpoint: Path


def write_files(
    layout: Layout, node_id: int, files: NodeFiles, installed: Installation, cluster_id: str
) -> None:
    """Lay out the node's folder for its first start. Raises `BadInput` for settings that cannot be."""
    files.folder.mkdir(parents=True, exist_ok=True)
    values = settings(layout, node_id, files.data.name)
    files.properties.write_text(render(values), encoding="utf-8")
    lay_data(layout, node_id, files, installed, cluster_id)


def lay_data(
    layout: Layout, node_id: int, files: NodeFiles, installed: Installation, cluster_id: str
) -> None:
    """What the node's empty data folders must hold for it to start in this cluster, as if just formatted."""
    metadata_of(layout.spec).lay_data(layout, node_id, files.data, installed.checkpoint, cluster_id)


def write_hosts(layout: Layout, node_id: int, files: NodeFiles, route: Route) -> None:
    """The names that the node's JVM knows. Read by the JVM at each look-up."""
    text = hosts_file(node_id, layout.node_ids, route, layout.addresses.node(node_id))
    files.hosts.write_text(text, encoding="utf-8")


def command(layout: Layout, files: NodeFiles, installed: Installation, role: Role) -> list[str]:
    """The command line. `role`: whose archive fits it; `broker` for a combined node too. All paths below
    the node's folder are relative to it: it is the working folder."""
    archive = installed.archives.get(role)
    flags = [
        # Room for all that a start allocates: fewer collections, 6 % less CPU until the node is up.
        f"-Xmn{min(40, (layout.spec.heap >> 20) // 3)}m",
        "-XX:+ExitOnOutOfMemoryError",
        f"-Djdk.net.hosts.file={files.hosts.name}",
        *([f"-XX:SharedArchiveFile={archive}"] if archive is not None else []),
    ]
    return java_command(
        installed.java,
        installed.jars,
        metadata_of(layout.spec).main(broker=role == "broker"),
        [files.properties.name],
        log=Path(files.log.name),
        heap_bytes=layout.spec.heap,
        flags=flags,
    )


def launch(
    argv: list[str],
    files: NodeFiles,
    *,
    tag: RunTag,
    name: str,
    lease_descriptor: int,
    env: Mapping[str, str] | None = None,
) -> Child:
    """Start the JVM. It inherits the lock of the cluster's addresses; `env` is added to our own environment."""
    return spawn(
        argv, run=tag, role=name, cwd=files.folder, stdout=files.stdout, env=env, pass_fds=(lease_descriptor,)
    )

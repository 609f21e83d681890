"""Files that `kafka-storage format` writes, made without starting a JVM for each run.

`StorageTool format` writes a few hundred bytes of `bootstrap.checkpoint`: the features that a new cluster switches
on. They name no cluster and no node, so one copy serves the controllers of every cluster of that version.
"""

from __future__ import annotations

import re
import shutil
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from ackproof.base.errors import BadInput
from ackproof.provision.cache import build_once, run_program
from ackproof.provision.jars import KafkaJars
from ackproof.provision.java import Java
from ackproof.provision.jvm import STORAGE_TOOL, java_command, jvm_flags, logging_flags
from ackproof.provision.progress import Progress, ProgressSink, ProvisionFailed, ignore

CHECKPOINT = "bootstrap.checkpoint"
_SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
"""File that the tool writes from 4.4 on (KIP-1170), instead of `bootstrap.checkpoint`. Controllers read either name."""

_FORMAT_TIMEOUT_S = 60.0
_FEATURE = re.compile(r"[a-z][a-z.]*")


def bootstrap_checkpoint(
    jars: KafkaJars,
    java: Java,
    *,
    features: Mapping[str, int] | None = None,
    progress: ProgressSink = ignore,
) -> Path:
    """Return the checkpoint file to copy into the metadata log folder of every new controller.

    `features`: levels other than the release's own, such as `{"eligible.leader.replicas.version": 0}`. The file is made
    once per Kafka build and features (0.5 s). Raises `BadInput` for a malformed feature, and with Kafka's message if
    formatting with `features` fails. Raises `ProvisionFailed` if formatting fails and there are no `features`,
    `WaitTimeout` if it takes too long.
    """
    wanted = dict(sorted((features or {}).items()))
    for name, level in wanted.items():
        if not _FEATURE.fullmatch(name) or level < 0:
            raise BadInput(f"{name}={level} is not a feature and its level")
    key = ",".join(f"{name}={level}" for name, level in wanted.items()) or "default"
    target = jars.home / "checkpoints" / key
    build_once(target, lambda folder: _format(jars, java, wanted, folder, progress), progress)
    return target / CHECKPOINT


def new_cluster_id() -> str:
    """Return a random cluster id as Kafka writes it: 16 bytes in URL-safe base 64, without padding. The id never begins
    with a dash, as in Kafka's `Uuid.randomUuid`: a command line would take it for an option."""
    while (name := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return name


def meta_properties(cluster_id: str, node_id: int) -> str:
    """Return the text of `meta.properties` for a log dir of this node."""
    return f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\n"


def _format(
    jars: KafkaJars, java: Java, features: Mapping[str, int], folder: Path, progress: ProgressSink
) -> None:
    progress(Progress(f"Kafka {jars.version}: formatting the metadata of a new cluster"))
    work = folder / "work"
    work.mkdir()
    (work / "server.properties").write_text(
        "process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:9093\n"
        f"listeners=CONTROLLER://127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\nlog.dirs={work / 'data'}\n",
        encoding="utf-8",
    )
    arguments = ["format", "-t", new_cluster_id(), "-c", str(work / "server.properties")]
    for name, level in features.items():
        arguments += ["--feature", f"{name}={level}"]
    command = java_command(
        java, jars, STORAGE_TOOL, arguments, [*jvm_flags(), *logging_flags(jars.version, work / "tool.log")]
    )
    what = f"Kafka {jars.version} to format"
    status, output = run_program(command, work, role="storage-tool", what=what, timeout_s=_FORMAT_TIMEOUT_S)
    made = next(filter(Path.is_file, (work / "data" / name for name in (CHECKPOINT, _SNAPSHOT))), None)
    if status != 0 or made is None:
        said = " ".join(output.split())[-600:]
        if features:
            asked = ", ".join(f"{name}={level}" for name, level in features.items())
            raise BadInput(f"Kafka {jars.version} cannot be formatted with {asked}: {said}")
        raise ProvisionFailed(f"Kafka {jars.version} cannot be formatted (exit {status}): {said}")
    made.rename(folder / CHECKPOINT)
    shutil.rmtree(work)

"""What marks a container, network or volume as ours, and whose it is; all that carries marks, found and removed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import docker.errors
from docker.models.containers import Container
from docker.models.networks import Network
from docker.models.volumes import Volume

from ackproof.base.processes import RunTag, is_alive, started
from ackproof.cluster.containers.engine import Engine, spoken

Kind = Literal["container", "network", "volume"]

RUN: Final = "ackproof.run"
BATCH: Final = "ackproof.run.batch"
CASE: Final = "ackproof.case"
ROLE: Final = "ackproof.role"
OWNER: Final = "ackproof.owner"


def labels(tag: RunTag, role: str) -> dict[str, str]:
    """The labels of something that the present process makes for a run."""
    return {
        RUN: tag.run_id,
        BATCH: str(tag.batch_dir.absolute()),
        CASE: str(tag.case_dir.absolute()),
        ROLE: role,
        OWNER: f"{os.getpid()}:{started(os.getpid())}",
    }


@dataclass(frozen=True)
class Marks:
    """Labels, read back. `owned`: the harness that made it lives."""

    run_id: str
    directory: Path
    role: str
    owned: bool


def marks(found: Mapping[str, str] | None) -> Marks | None:
    """What labels say; None if they are not a run's."""
    read = found or {}
    pid, _, start = read.get(OWNER, "").partition(":")
    if not (RUN in read and CASE in read and pid.isdigit() and start.isdigit()):
        return None
    return Marks(read[RUN], Path(read[CASE]), read.get(ROLE, ""), is_alive(int(pid), int(start)))


@dataclass(frozen=True)
class Thing:
    """One container, network or volume of a run."""

    kind: Kind
    name: str
    marks: Marks
    _self: Container | Network | Volume

    def remove(self) -> None:
        """Remove it; a container is killed first, its anonymous volumes go with it. Nothing if it is gone."""
        try:
            match self._self:
                case Container() as container:
                    container.remove(force=True, v=True)
                case Network() as network:
                    network.remove()
                case Volume() as volume:
                    volume.remove(force=True)
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            # somebody else is removing it: it will be gone
            if error.status_code != 409 or "already in progress" not in str(error.explanation):
                raise


@spoken
def find(engine: Engine, run_id: str | None = None) -> list[Thing]:
    """Everything that carries marks (of one run, if given): containers, then networks, then volumes."""
    label: dict[str, str | list[str] | bool] = {"label": RUN if run_id is None else f"{RUN}={run_id}"}
    things: list[tuple[Kind, str, dict[str, str] | None, Container | Network | Volume]] = []
    # sparse: one that goes away while it is being listed is no error
    for container in engine.client.containers.list(all=True, sparse=True, ignore_removed=True, filters=label):
        names = container.attrs.get("Names") or [str(container.id)]
        things.append(("container", names[0].lstrip("/"), container.attrs.get("Labels"), container))
    things += [
        ("network", str(network.name), network.attrs.get("Labels"), network)
        for network in engine.client.networks.list(filters={"label": str(label["label"])})
    ]
    things += [
        ("volume", str(volume.name), volume.attrs.get("Labels"), volume)
        for volume in engine.client.volumes.list(filters={"label": str(label["label"])})
    ]
    return [
        Thing(kind, name, found, thing)
        for kind, name, labels, thing in things
        if (found := marks(labels)) is not None
    ]


@spoken
def remove(engine: Engine, which: Callable[[Marks], bool], run_id: str | None = None) -> list[Thing]:
    """Remove what `which` accepts: containers at once, then what they stood on. What was removed."""
    things = [thing for thing in find(engine, run_id) if which(thing.marks)]
    containers = [thing for thing in things if thing.kind == "container"]
    if containers:
        with ThreadPoolExecutor(max_workers=min(8, len(containers))) as pool:
            list(pool.map(Thing.remove, containers))
    for thing in things:
        if thing.kind != "container":
            thing.remove()
    return things

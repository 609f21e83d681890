"""Everything in an engine that carries the marks of a run: found, and removed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import docker.errors
from docker.models.containers import Container
from docker.models.networks import Network
from docker.models.volumes import Volume

from ackproof.cluster.containers.engine import Engine, spoken
from ackproof.cluster.containers.labels import RUN, Marks, marks

Kind = Literal["container", "network", "volume"]


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

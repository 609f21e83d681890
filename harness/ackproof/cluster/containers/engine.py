"""The container engine of this machine, through the docker SDK: its errors, networks, labels, and leftovers of runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import wraps
from typing import Final, Literal, ParamSpec, TypeVar

import docker.errors
import requests
import urllib3
from docker.errors import APIError, DockerException
from docker.models.containers import Container
from docker.models.networks import Network
from docker.models.volumes import Volume
from docker.types import IPAMConfig, IPAMPool

import docker
from ackproof.base import processes
from ackproof.base.errors import AckproofError, BadInput, MissingTool
from ackproof.base.processes import Marks, RunTag, read_marks
from ackproof.cluster.containers.presence import engine_address, refusal

INSTALL: Final = "apt-get install docker.io"
TIMEOUT_S: Final = 60
"""Time-out in seconds of one call to the engine. A container starts in 0.3 s, on a loaded machine in some seconds."""

_TAKEN: Final = ("overlaps", "already exists", "conflicts with")
_SDK_ERRORS: Final = (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, DockerException)

P = ParamSpec("P")
T = TypeVar("T")


class EngineFailed(AckproofError):
    """The container engine refused a call or stopped answering. The text has its message."""


class EngineLost(EngineFailed):
    """The container engine stopped answering."""


def with_engine_errors(call: Callable[P, T]) -> Callable[P, T]:
    """Return a function that calls the given function of the docker SDK. The SDK's errors become `EngineFailed` with
    the engine's message, or `EngineLost` if the engine does not answer."""

    @wraps(call)
    def spoken_call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except APIError as error:
            raise EngineFailed(f"the container engine refuses: {error.explanation or error}") from error
        except _SDK_ERRORS as error:
            raise EngineLost(
                f"the container engine at {engine_address()} does not answer any more: {_last(error)}"
            ) from error

    return spoken_call


class Engine:
    """Connection to a container engine that answers. `rootless`: the engine runs as an ordinary user, who has id 0
    inside containers."""

    def __init__(self, client: docker.DockerClient) -> None:
        self.client = client
        info = client.info()
        self.version = str(info.get("ServerVersion", "unknown"))
        self.rootless = any("rootless" in str(option) for option in info.get("SecurityOptions") or ())

    @property
    def user(self) -> str:
        """`uid:gid` under which nodes run in containers, so that the harness owns their files. It is the harness's own,
        or `0:0` on a rootless engine, which maps root to the harness's user."""
        return "0:0" if self.rootless else f"{os.getuid()}:{os.getgid()}"

    def close(self) -> None:
        self.client.close()


def connect() -> Engine:
    """Connect to the engine that `DOCKER_HOST` names, else to the engine at the usual socket. The caller must `close`
    the returned connection.

    Raises `MissingTool` if no engine is installed, and `BadInput` if the installed engine does not run or this user may
    not use it. The message of either exception is one line.
    """
    address = engine_address()
    reason: BaseException | None = refusal()
    if reason is None:
        try:
            return _connect()
        except _SDK_ERRORS as error:
            reason = _cause(error)
    if isinstance(reason, PermissionError):
        raise BadInput(
            f"the container engine at {address} may not be used by this user; "
            "sudo usermod -aG docker $USER, then log in again"
        )
    said = (
        "nothing listens there"
        if isinstance(reason, (FileNotFoundError, ConnectionRefusedError))
        else _last(reason)
    )
    start = "start it: systemctl start docker, or as root: setsid dockerd --ip=127.0.0.1"
    if shutil.which("dockerd", path="/usr/bin:/usr/sbin:/usr/local/bin") is not None:
        raise BadInput(
            f"backend: docker needs a container engine, and none answers at {address} ({said}); {start}"
        )
    raise MissingTool(
        "a container engine", f"backend: docker needs one; {address}: {said}", f"{INSTALL}, then {start}"
    )


def _connect() -> Engine:
    client = docker.from_env(timeout=TIMEOUT_S)
    try:
        client.ping()
        return Engine(client)
    except BaseException:
        client.close()
        raise


def _cause(error: BaseException) -> BaseException:
    """Return the operating system's error behind an error of the docker SDK, requests or urllib3; the given error if
    there is none."""
    seen: set[int] = set()
    queue: list[BaseException] = [error]
    while queue:
        one = queue.pop(0)
        if isinstance(one, OSError) and not isinstance(one, requests.exceptions.RequestException):
            return one
        if id(one) in seen:
            continue
        seen.add(id(one))
        queue += [
            each for each in (one.__cause__, one.__context__, *one.args) if isinstance(each, BaseException)
        ]
    return error


def _last(error: BaseException) -> str:
    cause = _cause(error)
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return " ".join(str(cause).split())[:200] or type(cause).__name__


def gateway(prefix: str) -> str:
    """Return the address of this machine in a network with the subnet `PREFIX.0/24`."""
    return f"{prefix}.254"


def make_bridge(engine: Engine, name: str, prefixes: Iterable[str], labels: Mapping[str, str]) -> str | None:
    """Create the network of a cluster: a bridge with a fixed subnet, so that a node keeps its address.

    The subnet is the first `PREFIX.0/24` of `prefixes` that overlaps no other network. Return its prefix, None if all
    are taken. `labels`: marks of the run. Raises `EngineFailed` if the engine refuses or does not answer.
    """
    for prefix in prefixes:
        pool = IPAMPool(subnet=f"{prefix}.0/24", gateway=gateway(prefix))
        try:
            with_engine_errors(engine.client.networks.create)(
                name, driver="bridge", ipam=IPAMConfig(pool_configs=[pool]), labels=dict(labels)
            )
        except EngineFailed as error:
            if not any(word in str(error).lower() for word in _TAKEN):
                raise
        else:
            return prefix
    return None


Kind = Literal["container", "network", "volume"]

LABELS: Final = {
    processes.RUN: "ackproof.run",
    processes.BATCH: "ackproof.run.batch",
    processes.CASE: "ackproof.case",
    processes.ROLE: "ackproof.role",
    processes.OWNER: "ackproof.owner",
}
"""Environment variable that marks a run's processes → label that marks its containers, networks and volumes."""


def labels(tag: RunTag, role: str) -> dict[str, str]:
    """Return the marks of a run as labels for a container, network or volume. `role`: its role in the run, such as
    `broker-1`."""
    return {LABELS[name]: value for name, value in tag.environment(role).items()}


def marks(found: Mapping[str, str] | None) -> Marks | None:
    """Return the marks of a run that are in `found`, the labels of a container, network or volume; None if no run of
    ackproof made it. `found` None counts as no labels."""
    return read_marks({name: found[label] for name, label in LABELS.items() if found and label in found})


@dataclass(frozen=True)
class Leftover:
    """A container, network or volume with the marks of a run, which may still be going on. `name`: its name in the
    engine."""

    kind: Kind
    name: str
    marks: Marks
    _self: Container | Network | Volume

    def remove(self) -> None:
        """Remove the container, network or volume; do nothing if it is gone or is being removed already. A running
        container is killed, and its anonymous volumes are removed too. Raises the docker SDK's exceptions."""
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


@with_engine_errors
def find_leftovers(engine: Engine, run_id: str | None = None) -> list[Leftover]:
    """Return all containers, then networks, then volumes with the marks of a run. `run_id`: only of this run; None: of
    all runs. Raises `EngineFailed` if the engine refuses or does not answer."""
    run = LABELS[processes.RUN]
    label: dict[str, str | list[str] | bool] = {"label": run if run_id is None else f"{run}={run_id}"}
    client, same = engine.client, {"label": str(label["label"])}
    leftovers: list[tuple[Kind, str, Container | Network | Volume]] = []
    # sparse: one that goes away while it is being listed is no error
    for container in client.containers.list(all=True, sparse=True, ignore_removed=True, filters=label):
        names = container.attrs.get("Names") or [str(container.id)]
        leftovers.append(("container", names[0].lstrip("/"), container))
    leftovers += [("network", str(network.name), network) for network in client.networks.list(filters=same)]
    leftovers += [("volume", str(volume.name), volume) for volume in client.volumes.list(filters=same)]
    return [
        Leftover(kind, name, found, leftover)
        for kind, name, leftover in leftovers
        if (found := marks(leftover.attrs.get("Labels"))) is not None
    ]


@with_engine_errors
def remove_leftovers(
    engine: Engine, which: Callable[[Marks], bool], run_id: str | None = None
) -> list[Leftover]:
    """Remove the leftovers whose marks `which` accepts, also those of a run that still goes on: containers first, then
    networks and volumes. Return what was removed. `run_id`: consider only leftovers of this run; None: of all runs.
    Raises `EngineFailed` if the engine refuses or does not answer."""
    leftovers = [leftover for leftover in find_leftovers(engine, run_id) if which(leftover.marks)]
    containers = [leftover for leftover in leftovers if leftover.kind == "container"]
    if containers:
        with ThreadPoolExecutor(max_workers=min(8, len(containers))) as pool:
            list(pool.map(Leftover.remove, containers))
    for leftover in leftovers:
        if leftover.kind != "container":
            leftover.remove()
    return leftovers

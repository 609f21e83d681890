"""Builds an image of Kafka without an image registry: from Debian packages, Kafka's jars, and a class-data archive.

The image keeps the conventions of apache/kafka (listed in `recipe/run`), so either image can be used. The base (Debian
with Java) is made once per release of Debian, for all versions of Kafka. A killed build leaves containers and a network
with a run's labels, which `ackproof clean` finds.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from docker.errors import BuildError

from ackproof.base.errors import MissingTool, WaitTimeout
from ackproof.base.processes import RunTag
from ackproof.base.wait import wait_until
from ackproof.cluster.containers.container import (
    NODE_FOLDER,
    ContainerProcess,
    NodeContainer,
    settings_as_environment,
)
from ackproof.cluster.containers.engine import (
    Engine,
    EngineFailed,
    labels,
    make_bridge,
    remove_leftovers,
    with_engine_errors,
)
from ackproof.cluster.containers.images import (
    ARCHIVE,
    JAVA_LABEL,
    KAFKA_LABEL,
    OWN,
    RECIPE_LABEL,
    KafkaImage,
    find_image,
    find_or_pull_image,
    image_for,
)
from ackproof.experiment.kafka import KafkaBuild
from ackproof.provision.checkpoint import new_cluster_id
from ackproof.provision.jars import KafkaJars, kafka_jars, prepare_jars
from ackproof.provision.jvm import jvm_flags, warm_up
from ackproof.provision.progress import Progress, ProgressSink, ProvisionFailed, ignore
from ackproof.provision.releases import is_4
from ackproof.rundir.layout import CaseDir

INSTALL: Final = "apt-get install mmdebstrap"
BASE: Final = "ackproof/base"
_RECIPE: Final = Path(__file__).parent / "recipe"
_PACKAGES: Final = "openjdk-17-jre-headless,ca-certificates"
_BASE_TIMEOUT_S: Final = 900.0
_STEPS: Final = 4


def prepare_image(engine: Engine, build_: KafkaBuild, progress: ProgressSink = ignore) -> KafkaImage:
    """Return the image for nodes of this Kafka. Images for the user's own builds and for patches are made here from
    the jars, unless they exist. Raises `BadInput` if there is no such release, image or build, `MissingTool` without a
    program that is needed. Raises `ProvisionFailed` if the image cannot be made, `EngineFailed` if the engine fails,
    `WaitTimeout` if a step takes too long."""
    if build_.image is not None:
        return find_or_pull_image(engine, build_.image, progress)
    if build_.is_release:
        return image_for(engine, build_.version, progress)
    jars = prepare_jars(build_, progress)
    return _make_image(engine, jars, f"{OWN}:{jars.version}-{jars.digest}", progress)


def build(
    engine: Engine, version: str, progress: ProgressSink = ignore, *, again: bool = False
) -> KafkaImage:
    """Return the image `ackproof/kafka:VERSION`; make it (a minute, 480 MB) unless it exists and was made by this
    recipe.

    `again`: make it in any case. Raises `BadInput` without such a release, `MissingTool` without a program that is
    needed. Raises `ProvisionFailed` if the image cannot be made, `EngineFailed` if the engine fails, `WaitTimeout` if a
    step takes too long.
    """
    return _make_image(engine, kafka_jars(version, progress), f"{OWN}:{version}", progress, again=again)


def _make_image(
    engine: Engine, jars: KafkaJars, reference: str, progress: ProgressSink, *, again: bool = False
) -> KafkaImage:
    version, recipe = jars.version, recipe_of(jars.digest)
    old = find_image(engine, reference)
    if old is not None and old.recipe == recipe and not again:
        return old
    base = _base(engine, progress)
    plain = f"{reference}-{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory(prefix="ackproof-image-") as folder:
        work = Path(folder).resolve()
        tag = RunTag(f"image-{os.getpid()}-{secrets.token_hex(4)}", work, work)
        try:
            progress(Progress(f"Kafka {version}: an image without an archive", 1, _STEPS))
            _build(engine, _context(jars, work), plain, {"BASE": base})
            progress(Progress(f"Kafka {version}: starting brokers for its class-data archive", 2, _STEPS))
            java = _bake(engine, plain, CaseDir(work), tag)
            progress(Progress(f"Kafka {version}: putting it together", 3, _STEPS))
            labels = {KAFKA_LABEL: version, RECIPE_LABEL: recipe, JAVA_LABEL: java}
            context = work / "baked"
            context.mkdir()
            (work / "kafka.jsa").rename(context / "kafka.jsa")
            (context / "kafka.jsa").chmod(0o644)
            (context / "Dockerfile").write_text(f"ARG BASE\nFROM ${{BASE}}\nCOPY kafka.jsa {ARCHIVE}\n")
            _build(engine, context, reference, {"BASE": plain}, labels)
        finally:
            remove_leftovers(engine, lambda marks: True, tag.run_id)
            _forget(engine, plain)
    found = find_image(engine, reference)
    if found is None:
        raise ProvisionFailed(f"{reference} was built, and is not there")
    if old is not None and old.identity != found.identity:
        _forget(engine, old.identity)
    progress(Progress(f"{reference} is ready", _STEPS, _STEPS))
    return found


def recipe_of(digest: str) -> str:
    """Return 12 hexadecimal digits that identify what an image is made of, by which an outdated image is recognized.
    They are a hash over `digest` (`KafkaJars.digest` of the image's jars), the Debian release and packages, and the
    files in `recipe/`."""
    text = digest + _debian() + _PACKAGES
    text += "".join(f"{path.name}{path.read_text(encoding='utf-8')}" for path in sorted(_RECIPE.iterdir()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _debian() -> str:
    """Return the Debian release for an image: this machine's own if it runs Debian, else bookworm."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "bookworm"
    return release.get("VERSION_CODENAME", "bookworm") if release.get("ID") == "debian" else "bookworm"


def _base(engine: Engine, progress: ProgressSink) -> str:
    reference = f"{BASE}:{_debian()}-{hashlib.sha256(_PACKAGES.encode()).hexdigest()[:8]}"
    if find_image(engine, reference) is not None:
        return reference
    tool = shutil.which("mmdebstrap")
    if tool is None:
        raise MissingTool("mmdebstrap", "an image is made of Debian's packages", INSTALL)
    progress(Progress(f"Debian {_debian()} with a Java, from its packages", 0, _STEPS))
    with tempfile.TemporaryDirectory(prefix="ackproof-base-") as folder:
        archive = Path(folder) / "root.tar"
        command = [
            tool,
            "--quiet",
            "--variant=minbase",
            f"--include={_PACKAGES}",
            # the JRE's install script writes there, and minbase has no such folder
            '--essential-hook=mkdir -p "$1/usr/share/man/man1"',
            _debian(),
            str(archive),
        ]
        try:
            made = subprocess.run(
                command, capture_output=True, text=True, timeout=_BASE_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ProvisionFailed(f"mmdebstrap took longer than {_BASE_TIMEOUT_S:g} s") from error
        if made.returncode != 0:
            raise ProvisionFailed(f"mmdebstrap failed: {' '.join(made.stderr.split())[-400:]}")
        repository, tag = reference.split(":")
        with_engine_errors(engine.client.api.import_image_from_file)(
            str(archive), repository=repository, tag=tag
        )
    return reference


def _context(jars: KafkaJars, work: Path) -> Path:
    """Make the folder `plain` below `work`, and return it: the build context with the jars, the Dockerfile and its
    files. Jars keep their times, as a class-data archive is valid only for those."""
    context = work / "plain"
    libs, docker = context / "libs", context / "docker"
    libs.mkdir(parents=True)
    docker.mkdir()
    for jar in jars.classpath:
        shutil.copy2(jar, libs / jar.name)
        (libs / jar.name).chmod(0o644)
    (context / "classpath").write_text(":".join(f"/opt/kafka/libs/{jar.name}" for jar in jars.classpath))
    shutil.copyfile(_RECIPE / "Dockerfile", context / "Dockerfile")
    for name in ("run", "server.properties", "log4j.properties", "log4j2.properties"):
        shutil.copyfile(_RECIPE / name, docker / name)
    logging = (
        "-Dlog4j2.configurationFile=/etc/kafka/docker/log4j2.properties"
        if is_4(jars.version)
        else "-Dlog4j.configuration=file:/etc/kafka/docker/log4j.properties"
    )
    (docker / "logging").write_text(logging + "\n")
    (docker / "run").chmod(0o755)
    return context


@with_engine_errors
def _build(
    engine: Engine,
    context: Path,
    reference: str,
    arguments: dict[str, str],
    labels: dict[str, str] | None = None,
) -> None:
    try:
        engine.client.images.build(
            path=str(context), tag=reference, buildargs=arguments, labels=labels or {}, rm=True, forcerm=True
        )
    except BuildError as error:
        raise ProvisionFailed(f"{reference} cannot be built: {' '.join(str(error).split())[:400]}") from error


def _forget(engine: Engine, reference: str) -> None:
    """Remove an image name and the layers that no other name uses. Does nothing if there is no such image, or if the
    engine refuses because containers use it."""
    if find_image(engine, reference) is not None:
        try:
            with_engine_errors(engine.client.images.remove)(reference)
        except EngineFailed:
            return


_CLIENTS: Final = 9094
_SUBNETS: Final = tuple(f"10.212.{third}" for third in range(1, 255))
_READY_WITHIN_S: Final = 120.0
_ENDS_WITHIN_S: Final = 90.0
_MAIN, _PEER = 1, 2
_VERSION: Final = re.compile(r'version "([^"]+)"')


def _bake(engine: Engine, image: str, work: CaseDir, tag: RunTag) -> str:
    """Make the class-data archive `kafka.jsa` in the folder `work`, with two nodes in containers of `image`. Return the
    version of the image's Java; "unknown" if `java -version` does not print it.

    Containers and network carry the labels of `tag`, and the caller removes them. Raises `ProvisionFailed` if a node
    fails or no archive is written, `WaitTimeout` if the nodes do not start, `EngineFailed` if the engine fails.
    """
    cluster_id = new_cluster_id()
    with socket.socket() as main, socket.socket() as peer:
        for each in (main, peer):
            each.bind(("127.0.0.1", 0))
        # If one is taken meanwhile, the engine refuses it.
        ports = (main.getsockname()[1], peer.getsockname()[1])
    with ExitStack() as open_things:
        network = f"ackproof-{tag.run_id}"
        if make_bridge(engine, network, _SUBNETS, labels(tag, "network")) is None:
            raise ProvisionFailed("no subnet of 10.212.0.0/16 is free")
        served: dict[int, ContainerProcess] = {}
        for node in (_MAIN, _PEER):
            container = _container(engine, image, node, ports, network, work, tag, cluster_id)
            open_things.callback(container.close)
            served[node] = container.start()
        bootstrap = f"127.0.0.1:{ports[_MAIN - 1]}"
        _await_both(bootstrap, served)
        answer = with_engine_errors(served[_MAIN].container.container.exec_run)(["java", "-version"]).output
        found = _VERSION.search(answer.decode("utf-8", "replace") if isinstance(answer, bytes) else "")
        warm_up(bootstrap, leader=_MAIN, follower=_PEER)
        served[_PEER].signal(signal.SIGKILL)
        served[_MAIN].signal(signal.SIGTERM)
        try:
            served[_MAIN].wait(_ENDS_WITHIN_S)
        except WaitTimeout as error:
            raise ProvisionFailed(f"the node that writes the archive does not end: {error}") from error
    archive = work.nodes / str(_MAIN) / "kafka.jsa"
    if not archive.is_file():
        output = (work.nodes / str(_MAIN) / "stdout.log").read_text(encoding="utf-8", errors="replace")
        raise ProvisionFailed(
            f"the image's Java wrote no class-data archive: {' '.join(output.split())[-400:]}"
        )
    archive.rename(work.path / "kafka.jsa")
    return found[1] if found else "unknown"


def _container(
    engine: Engine,
    image: str,
    node: int,
    ports: tuple[int, int],
    network: str,
    work: CaseDir,
    tag: RunTag,
    cluster_id: str,
) -> NodeContainer:
    controller = node == _MAIN
    own, peers = f"node-{node}", f"1@node-{_MAIN}:9093"
    listeners = f"INTERNAL://:9092,EXTERNAL://:{_CLIENTS}" + (",CONTROLLER://:9093" if controller else "")
    settings = {
        "process.roles": "broker,controller" if controller else "broker",
        "node.id": str(node),
        "controller.quorum.voters": peers,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": listeners,
        "advertised.listeners": f"INTERNAL://{own}:9092,EXTERNAL://127.0.0.1:{ports[node - 1]}",
        "log.dirs": f"{NODE_FOLDER}/data",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    # hundreds of warnings about classes that cannot be archived are of no interest
    dump = f"-Xlog:disable -Xlog:all=error:stdout -XX:ArchiveClassesAtExit={NODE_FOLDER}/kafka.jsa"
    flags = jvm_flags()
    environment = {
        **settings_as_environment(settings),
        "CLUSTER_ID": cluster_id,
        "KAFKA_HEAP_OPTS": " ".join(flags[:2]),
        "KAFKA_JVM_PERFORMANCE_OPTS": " ".join(flags[2:]),
        **({"KAFKA_OPTS": dump} if controller else {}),
    }
    return NodeContainer(
        engine,
        tag,
        image=image,
        role=own,
        hostname=own,
        network=network,
        environment=environment,
        folder=work.nodes / str(node),
        published={_CLIENTS: ("127.0.0.1", ports[node - 1])},
    )


def _await_both(bootstrap: str, served: dict[int, ContainerProcess]) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def registered() -> bool:
        for process in served.values():
            if process.poll() is not None:
                logs = with_engine_errors(process.container.container.logs)(tail=10).decode(
                    "utf-8", "replace"
                )
                raise ProvisionFailed(f"{process.role} of the image ended: {' '.join(logs.split())[-400:]}")
        try:
            return len(admin.list_topics(timeout=1).brokers) == len(served)
        except KafkaException:
            return False

    wait_until(registered, what="two brokers of the new image in its metadata", timeout_s=_READY_WITHIN_S)

"""An image of Kafka without an image registry: Debian's packages, Kafka's jars, and a class-data archive.

It keeps the conventions of apache/kafka (`recipe/run` says which), so that either serves. The base (Debian with a
Java) is made once per release and serves all versions of Kafka. Nothing is left but the images: a build that was
killed leaves containers and a network with a run's labels, which `ackproof clean` finds.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from docker.errors import BuildError

from ackproof.base.errors import MissingTool
from ackproof.base.processes import RunTag
from ackproof.cluster.containers import leftovers
from ackproof.cluster.containers.bake import bake
from ackproof.cluster.containers.engine import Engine, EngineFailed, spoken
from ackproof.cluster.containers.images import (
    JAVA_LABEL,
    KAFKA_LABEL,
    OWN,
    RECIPE_LABEL,
    KafkaImage,
    find_or_pull_image,
    have,
    image_for,
)
from ackproof.experiment.kafka import KafkaBuild
from ackproof.provision.jars import KafkaJars, kafka_jars, prepare_jars
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
    """The image that nodes of this Kafka run from: of a build or a patch one that is made here of its jars.

    Raises as `build` and `image_for` do.
    """
    if build_.image is not None:
        return find_or_pull_image(engine, build_.image, progress)
    if build_.is_release:
        return image_for(engine, build_.version, progress)
    jars = prepare_jars(build_, progress)
    return _made(engine, jars, f"{OWN}:{jars.version}-{jars.digest}", progress)


def build(engine: Engine, version: str, progress: ProgressSink = ignore, *, anew: bool = False) -> KafkaImage:
    """The image `ackproof/kafka:VERSION`, made unless it is there and made by this recipe (a minute, 480 MB).

    Raises `BadInput` (no such release), `MissingTool`, `ProvisionFailed`, `EngineFailed`.
    """
    return _made(engine, kafka_jars(version, progress), f"{OWN}:{version}", progress, anew=anew)


def _made(
    engine: Engine, jars: KafkaJars, reference: str, progress: ProgressSink, *, anew: bool = False
) -> KafkaImage:
    version, recipe = jars.version, recipe_of(jars.digest)
    old = have(engine, reference)
    if old is not None and old.recipe == recipe and not anew:
        return old
    base = _base(engine, progress)
    plain = f"{reference}-{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory(prefix="ackproof-image-") as folder:
        work = Path(folder).resolve()
        tag = RunTag(f"image-{os.getpid()}-{secrets.token_hex(4)}", work, work)
        try:
            progress(Progress("image", f"Kafka {version}: an image without an archive", 1, _STEPS))
            _build(engine, _context(jars, work), plain, {"BASE": base})
            progress(
                Progress("image", f"Kafka {version}: starting brokers for its class-data archive", 2, _STEPS)
            )
            java = bake(engine, plain, CaseDir(work), tag)
            progress(Progress("image", f"Kafka {version}: putting it together", 3, _STEPS))
            labels = {KAFKA_LABEL: version, RECIPE_LABEL: recipe, JAVA_LABEL: java}
            _build(engine, _with_archive(work), reference, {"BASE": plain}, labels)
        finally:
            leftovers.remove(engine, lambda marks: True, tag.run_id)
            _forget(engine, plain)
    found = have(engine, reference)
    if found is None:
        raise ProvisionFailed(f"{reference} was built, and is not there")
    if old is not None and old.identity != found.identity:
        _forget(engine, old.identity)
    progress(Progress("image", f"{reference} is ready", _STEPS, _STEPS))
    return found


def recipe_of(digest: str) -> str:
    """Tells images apart that were made of other jars (`KafkaJars.digest`), or by another ackproof."""
    text = digest + debian() + _PACKAGES
    text += "".join(f"{path.name}{path.read_text(encoding='utf-8')}" for path in sorted(_RECIPE.iterdir()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def debian() -> str:
    """The release of Debian that an image is made of: this machine's own where it runs one, else bookworm."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "bookworm"
    return release.get("VERSION_CODENAME", "bookworm") if release.get("ID") == "debian" else "bookworm"


def _base(engine: Engine, progress: ProgressSink) -> str:
    reference = f"{BASE}:{debian()}-{hashlib.sha256(_PACKAGES.encode()).hexdigest()[:8]}"
    if have(engine, reference) is not None:
        return reference
    tool = shutil.which("mmdebstrap")
    if tool is None:
        raise MissingTool("mmdebstrap", "an image is made of Debian's packages", INSTALL)
    progress(Progress("image", f"Debian {debian()} with a Java, from its packages", 0, _STEPS))
    with tempfile.TemporaryDirectory(prefix="ackproof-base-") as folder:
        archive = Path(folder) / "root.tar"
        command = [
            tool,
            "--quiet",
            "--variant=minbase",
            f"--include={_PACKAGES}",
            # the JRE's install script writes there, and minbase has no such folder
            '--essential-hook=mkdir -p "$1/usr/share/man/man1"',
            debian(),
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
        spoken(engine.client.api.import_image_from_file)(str(archive), repository=repository, tag=tag)
    return reference


def _context(jars: KafkaJars, work: Path) -> Path:
    """The folder from which an image is made. Files keep their times: an archive is valid for those."""
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


def _with_archive(work: Path) -> Path:
    context = work / "baked"
    context.mkdir()
    (work / "kafka.jsa").rename(context / "kafka.jsa")
    (context / "kafka.jsa").chmod(0o644)
    (context / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nCOPY kafka.jsa /opt/kafka/kafka.jsa\n")
    return context


@spoken
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
    """A name goes, and with it layers that no image has; nothing happens to one that containers use."""
    if have(engine, reference) is not None:
        try:
            spoken(engine.client.images.remove)(reference)
        except EngineFailed:
            return

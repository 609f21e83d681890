"""Which image a version of Kafka runs from: one made here, else the official one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import docker.errors

from ackproof.base.environment import cache_root
from ackproof.base.errors import AckproofError, BadInput
from ackproof.base.processes import RunTag
from ackproof.cluster.containers.engine import Engine, EngineFailed, connect, labels, spoken
from ackproof.experiment.kafka import DEFAULT
from ackproof.provision.builds import unpack_jars
from ackproof.provision.cache import build_once
from ackproof.provision.progress import Progress, ProgressSink, ignore

OWN: Final = "ackproof/kafka"
OFFICIAL: Final = "apache/kafka"
KAFKA_LABEL: Final = "ackproof.kafka"
RECIPE_LABEL: Final = "ackproof.recipe"
JAVA_LABEL: Final = "ackproof.java"
ARCHIVE: Final = "/opt/kafka/kafka.jsa"
"""Where both images have their class-data archive."""
LIBS: Final = "/opt/kafka/libs"
"""Where they have their jars."""


@dataclass(frozen=True)
class KafkaImage:
    """An image that the engine has. `java`: its version, if the image says. `recipe`: by which it was made here."""

    reference: str
    identity: str
    java: str
    recipe: str


@spoken
def have(engine: Engine, reference: str) -> KafkaImage | None:
    """The image of this name, if the engine has it."""
    try:
        image = engine.client.images.get(reference)
    except docker.errors.ImageNotFound:
        return None
    labels = image.labels or {}
    return KafkaImage(
        reference,
        str(image.short_id),
        java=labels.get(JAVA_LABEL, "of the image"),
        recipe=labels.get(RECIPE_LABEL, ""),
    )


def image_for(engine: Engine, version: str, progress: ProgressSink = ignore) -> KafkaImage:
    """The image for this version: made here, else the official one, fetched where a registry answers.

    Raises `BadInput` with the way out when there is none.
    """
    if (own := have(engine, f"{OWN}:{version}")) is not None:
        return own
    remedy = f"make one without a registry: ackproof image build {version}"
    return find_or_pull_image(engine, f"{OFFICIAL}:{version}", progress, remedy)


def find_or_pull_image(
    engine: Engine,
    reference: str,
    progress: ProgressSink = ignore,
    remedy: str = "docker images lists those that are there",
) -> KafkaImage:
    """The image of this name, fetched where the engine has it not. Raises `BadInput` with the remedy."""
    if (found := have(engine, reference)) is not None:
        return found
    progress(Progress("image", f"fetching {reference}"))
    try:
        spoken(engine.client.images.pull)(reference)
    except EngineFailed as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInput(
            f"there is no image {reference}: the engine has none and cannot fetch it ({reason}); {remedy}"
        ) from error
    if (found := have(engine, reference)) is None:
        raise BadInput(f"{reference} was fetched, and is not there; name one tag")
    return found


def copy_image_jars(reference: str, progress: ProgressSink = ignore) -> Path:
    """The folder of an image's jars, copied into the cache once per image; none of its programs runs for that.

    Raises `BadInput` for an image that does not have them where apache/kafka has.
    """
    engine = connect()
    try:
        image = find_or_pull_image(engine, reference, progress)
        target = cache_root() / f"kafka-image-{image.identity.removeprefix('sha256:')}"
        return build_once(target, lambda folder: _copy_jars(engine, reference, folder, progress), progress)
    finally:
        engine.close()


@spoken
def _copy_jars(engine: Engine, reference: str, folder: Path, progress: ProgressSink) -> None:
    progress(Progress("image", f"copying the jars of {reference}"))
    tag = RunTag(f"image-{os.getpid()}", folder, folder)
    made = engine.client.containers.create(reference, command=["true"], labels=labels(tag, "jars"))
    try:
        stream, _ = made.get_archive(LIBS)
        archive = folder / "libs.tar"
        with archive.open("wb") as file:
            file.writelines(stream)
    except docker.errors.NotFound as error:
        raise BadInput(
            f"{reference} has no {LIBS}: it does not follow the conventions of apache/kafka; give its jars as "
            "{path: …}, and an image is made of them"
        ) from error
    finally:
        made.remove(force=True, v=True)
    unpack_jars(archive, folder)
    archive.unlink()


def look(version: str = DEFAULT) -> str:
    """What the doctor says: the engine and its image of this version, or what is missing. Never an `AckproofError`."""
    try:
        engine = connect()
        try:
            names = [name for name in (f"{OWN}:{version}", f"{OFFICIAL}:{version}") if have(engine, name)]
        finally:
            engine.close()
    except AckproofError as error:
        return f"not there, and needed only for backend: docker: {error}"
    image = (
        names[0]
        if names
        else f"no image of Kafka {version}: fetched at need; without a registry: ackproof image build"
    )
    return f"engine {engine.version}; {image}"

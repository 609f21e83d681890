"""Finds or pulls an image of Kafka: one that `ackproof image build` made, else the official apache/kafka."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import docker.errors

from ackproof.base.environment import cache_root
from ackproof.base.errors import AckproofError, BadInput
from ackproof.base.processes import RunTag
from ackproof.cluster.containers.engine import Engine, EngineFailed, connect, labels, with_engine_errors
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
"""Path of the class-data archive in the images of ackproof and of apache/kafka."""
LIBS: Final = "/opt/kafka/libs"
"""Folder of the jars in the images of ackproof and of apache/kafka."""


@dataclass(frozen=True)
class KafkaImage:
    """An image in the engine. `reference`: its name and tag; `identity`: its short id.

    `java`: version of its Java; the words "of the image" if no label of the image gives it. `recipe`: digest of the
    jars and build files of which ackproof made the image (`build.recipe_of`); '' for other images.
    """

    reference: str
    identity: str
    java: str
    recipe: str


@with_engine_errors
def find_image(engine: Engine, reference: str) -> KafkaImage | None:
    """Return the image of this name, None if the engine does not have it. Raises `EngineFailed` if the engine refuses
    or does not answer."""
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
    """Return the image for this version: an image made by ackproof, else the official one, which is pulled if the
    engine lacks it. Raises `BadInput` with the remedy if it cannot be pulled, `EngineFailed` if the engine does not
    answer."""
    if (own := find_image(engine, f"{OWN}:{version}")) is not None:
        return own
    remedy = f"make one without a registry: ackproof image build {version}"
    return find_or_pull_image(engine, f"{OFFICIAL}:{version}", progress, remedy)


def find_or_pull_image(
    engine: Engine,
    reference: str,
    progress: ProgressSink = ignore,
    remedy: str = "docker images lists those that are there",
) -> KafkaImage:
    """Return the image of this name; pull it if the engine does not have it. Raises `BadInput` if it cannot be pulled,
    with `remedy` at the end of its message; `EngineFailed` if the engine does not answer."""
    if (found := find_image(engine, reference)) is not None:
        return found
    progress(Progress(f"fetching {reference}"))
    try:
        with_engine_errors(engine.client.images.pull)(reference)
    except EngineFailed as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInput(
            f"there is no image {reference}: the engine has none and cannot fetch it ({reason}); {remedy}"
        ) from error
    if (found := find_image(engine, reference)) is None:
        raise BadInput(f"{reference} was fetched, and is not there; name one tag")
    return found


def copy_image_jars(reference: str, progress: ProgressSink = ignore) -> Path:
    """Return a cache folder with the image's jars, copied once per image without running any of its programs.

    Raises `BadInput` if the image cannot be had or keeps its jars elsewhere than apache/kafka. Raises `MissingTool`
    without an engine, `EngineFailed` if the engine refuses or does not answer, `WaitTimeout` if another process copies
    the jars for too long.
    """
    engine = connect()
    try:
        image = find_or_pull_image(engine, reference, progress)
        target = cache_root() / f"kafka-image-{image.identity.removeprefix('sha256:')}"
        return build_once(target, lambda folder: _copy_jars(engine, reference, folder, progress), progress)
    finally:
        engine.close()


@with_engine_errors
def _copy_jars(engine: Engine, reference: str, folder: Path, progress: ProgressSink) -> None:
    progress(Progress(f"copying the jars of {reference}"))
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
    """Return in words, for the doctor, which engine and image of this version are there, or what is missing. Raises
    nothing."""
    try:
        engine = connect()
        try:
            names = [
                name for name in (f"{OWN}:{version}", f"{OFFICIAL}:{version}") if find_image(engine, name)
            ]
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

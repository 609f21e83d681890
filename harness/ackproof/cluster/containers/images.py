"""Which image a version of Kafka runs from: one made here, else the official one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import docker.errors

from ackproof.base.errors import AckproofError, BadInput
from ackproof.cluster.containers.engine import Engine, EngineFailed, connect, spoken
from ackproof.experiment.releases import DEFAULT
from ackproof.provision.progress import Progress, ProgressSink, ignore

OWN: Final = "ackproof/kafka"
OFFICIAL: Final = "apache/kafka"
KAFKA_LABEL: Final = "ackproof.kafka"
RECIPE_LABEL: Final = "ackproof.recipe"
JAVA_LABEL: Final = "ackproof.java"
ARCHIVE: Final = "/opt/kafka/kafka.jsa"
"""Where both images have their class-data archive."""


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
    own, official = f"{OWN}:{version}", f"{OFFICIAL}:{version}"
    for reference in (own, official):
        if (found := have(engine, reference)) is not None:
            return found
    progress(Progress("image", f"fetching {official}"))
    try:
        spoken(engine.client.images.pull)(OFFICIAL, tag=version)
    except EngineFailed as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInput(
            f"there is no image of Kafka {version}: {official} cannot be fetched ({reason}); "
            f"make one without a registry: ackproof image build {version}"
        ) from error
    found = have(engine, official)
    if found is None:
        raise BadInput(f"{official} was fetched, and is not there")
    return found


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

"""Which image a version of Kafka runs from: one made here, else the official one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import docker.errors

from ackproof.containers.engine import Engine, EngineFailed, spoken
from ackproof.errors import BadInput, MissingTool
from ackproof.provision.progress import Progress, ProgressSink, ignore

OWN: Final = "ackproof/kafka"
OFFICIAL: Final = "apache/kafka"
KAFKA_LABEL: Final = "ackproof.kafka"
RECIPE_LABEL: Final = "ackproof.recipe"
JAVA_LABEL: Final = "ackproof.java"
CLOCK_LABEL: Final = "ackproof.libfaketime"
ARCHIVE: Final = "/opt/kafka/kafka.jsa"
"""Where both images have their class-data archive."""
CLOCK_LIBRARY: Final = "/usr/$LIB/faketime/libfaketime.so.1"
"""Where Debian has it; the loader puts the machine's library folder for $LIB."""


@dataclass(frozen=True)
class KafkaImage:
    """An image that the engine has. `own`: made by `ackproof image build`. `java`: its version, if the image says.
    `clocks`: it holds the library by which a clock can be set."""

    reference: str
    identity: str
    own: bool
    java: str
    clocks: bool = False


@spoken
def have(engine: Engine, reference: str) -> KafkaImage | None:
    """The image of this name, if the engine has it."""
    try:
        image = engine.client.images.get(reference)
    except docker.errors.ImageNotFound:
        return None
    labels = image.labels or {}
    return KafkaImage(
        reference=reference,
        identity=str(image.short_id),
        own=KAFKA_LABEL in labels,
        java=labels.get(JAVA_LABEL, "of the image"),
        clocks=CLOCK_LABEL in labels,
    )


def require_clock(image: KafkaImage, version: str) -> None:
    """Raises `MissingTool` where clocks of this image's containers cannot be set."""
    if not image.clocks:
        raise MissingTool(
            "libfaketime",
            f"clock_jump sets the clocks of nodes by it, and the image {image.reference} is without",
            f"ackproof image build {version}",
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

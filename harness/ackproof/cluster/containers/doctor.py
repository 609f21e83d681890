"""What the doctor says of containers: they are needed only for the backend docker."""

from __future__ import annotations

from ackproof.base.errors import AckproofError
from ackproof.cluster.containers.engine import connect
from ackproof.cluster.containers.images import OFFICIAL, OWN, have
from ackproof.experiment.releases import DEFAULT


def look(version: str = DEFAULT) -> str:
    """The engine and its image of this version, or what is missing and how to get it. Never raises `AckproofError`."""
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

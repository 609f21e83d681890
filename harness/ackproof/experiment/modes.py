"""Who keeps a cluster's metadata, as data: what follows from the mode for whoever plans, judges or simulates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True)
class MetadataMode:
    """A row for one `ClusterSpec.mode`."""

    server: str
    """What a node is called that keeps the metadata and holds no partitions."""
    broker_controls: bool
    """Whether the controller is one of the brokers, which the servers elect and which alone takes changes."""
    rules: str
    """What follows a release's number in the name of its rules (`3.9.2-zk`)."""


MODES: Final[Mapping[str, MetadataMode]] = MappingProxyType(
    {
        "kraft": MetadataMode("controller", broker_controls=False, rules=""),
        "zookeeper": MetadataMode("zookeeper", broker_controls=True, rules="-zk"),
    }
)

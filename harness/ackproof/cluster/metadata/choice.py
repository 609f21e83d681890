"""From the mode of a cluster to what keeps its metadata."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ackproof.cluster.metadata.kraft.mode import Kraft
from ackproof.cluster.metadata.protocol import Metadata
from ackproof.cluster.metadata.zookeeper.mode import ZooKeeperMode
from ackproof.experiment.spec import ClusterSpec

_BY_MODE: Final[Mapping[str, Metadata]] = MappingProxyType({"kraft": Kraft(), "zookeeper": ZooKeeperMode()})


def metadata_of(spec: ClusterSpec) -> Metadata:
    """What keeps the metadata of this cluster."""
    return _BY_MODE[spec.mode]

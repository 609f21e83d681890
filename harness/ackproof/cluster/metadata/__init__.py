"""Metadata modes of a cluster, KRaft and ZooKeeper, and decoders of the metadata log that each leaves on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ackproof.cluster.metadata.kraft import Kraft
from ackproof.cluster.metadata.protocol import Metadata
from ackproof.cluster.metadata.zookeeper import ZooKeeperMode
from ackproof.experiment.spec import ClusterSpec
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import LogEnded, write_metadata

_BY_MODE: Final[Mapping[str, Metadata]] = MappingProxyType({"kraft": Kraft(), "zookeeper": ZooKeeperMode()})


def metadata_of(spec: ClusterSpec) -> Metadata:
    """Return the implementation of `Metadata` for the mode of this cluster: KRaft or ZooKeeper."""
    return _BY_MODE[spec.mode]


def write_metadata_log(spec: ClusterSpec, servers: Sequence[Path], run: CaseDir) -> str:
    """Decode the metadata log into `observed/metadata.jsonl`. `servers`: the metadata log folder of each voter or
    ZooKeeper server (`NodeDisk.metadata_dir`).

    Return '' if the file was written, else why not: there is no log, or it cannot be decoded. Raises OSError if the
    file cannot be written.
    """
    try:
        records = list(metadata_of(spec).decode(servers))
    except (ValueError, OSError) as error:  # `NotDecoded`, or a damaged batch
        return f"the metadata log was not decoded: {error}"
    if not records:
        return "there is no metadata log"
    last = records[-1]
    end = LogEnded(
        offset=last.offset + 1, epoch=last.epoch, timestamp_ms=last.timestamp_ms, records=len(records)
    )
    write_metadata(run.metadata_log, [*records, end])
    return ""

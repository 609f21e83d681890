"""The messages of Kafka's protocol that the harness uses, from kafka-python, which is imported at their first use.

kafka-python takes half a second to import, which nobody pays who only reads an experiment. It reads its schemas with
a function that Python 3.11 and 3.12 call deprecated (3.13 took that back): users who turn warnings into errors shall
not suffer for it.
"""

from __future__ import annotations

import threading
import warnings
from importlib import import_module
from typing import Any, Final

_LOADING: Final = threading.Lock()
"""Filters of warnings are the whole process's."""


class _Late:
    """A message, or a function, of kafka-python (which is untyped), imported at its first use."""

    def __init__(self, name: str) -> None:
        self._module, _, self._name = f"kafka.{name}".rpartition(".")
        self._found: Any = None

    def _load(self) -> Any:  # noqa: ANN401
        if self._found is None:
            with _LOADING, warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                self._found = getattr(import_module(self._module), self._name)
        return self._found

    def __call__(self, *values: object, **fields: object) -> Any:  # noqa: ANN401
        return self._load()(*values, **fields)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._load(), name)


calc_crc32c: Final = _Late("record.util.calc_crc32c")
get_sasl_mechanism: Final = _Late("net.sasl.get_sasl_mechanism")
for_code: Final = _Late("errors.for_code")
AlterReplicaLogDirsRequest: Final = _Late("protocol.admin.cluster.AlterReplicaLogDirsRequest")
AlterReplicaLogDirsResponse: Final = _Late("protocol.admin.cluster.AlterReplicaLogDirsResponse")
DescribeClusterRequest: Final = _Late("protocol.admin.cluster.DescribeClusterRequest")
DescribeClusterResponse: Final = _Late("protocol.admin.cluster.DescribeClusterResponse")
DescribeLogDirsRequest: Final = _Late("protocol.admin.cluster.DescribeLogDirsRequest")
DescribeLogDirsResponse: Final = _Late("protocol.admin.cluster.DescribeLogDirsResponse")
DescribeQuorumRequest: Final = _Late("protocol.admin.cluster.DescribeQuorumRequest")
DescribeQuorumResponse: Final = _Late("protocol.admin.cluster.DescribeQuorumResponse")
UpdateFeaturesRequest: Final = _Late("protocol.admin.cluster.UpdateFeaturesRequest")
UpdateFeaturesResponse: Final = _Late("protocol.admin.cluster.UpdateFeaturesResponse")
DescribeConfigsRequest: Final = _Late("protocol.admin.configs.DescribeConfigsRequest")
DescribeConfigsResponse: Final = _Late("protocol.admin.configs.DescribeConfigsResponse")
IncrementalAlterConfigsRequest: Final = _Late("protocol.admin.configs.IncrementalAlterConfigsRequest")
IncrementalAlterConfigsResponse: Final = _Late("protocol.admin.configs.IncrementalAlterConfigsResponse")
AlterPartitionReassignmentsRequest: Final = _Late("protocol.admin.topics.AlterPartitionReassignmentsRequest")
AlterPartitionReassignmentsResponse: Final = _Late(
    "protocol.admin.topics.AlterPartitionReassignmentsResponse"
)
CreateTopicsRequest: Final = _Late("protocol.admin.topics.CreateTopicsRequest")
CreateTopicsResponse: Final = _Late("protocol.admin.topics.CreateTopicsResponse")
DeleteTopicsRequest: Final = _Late("protocol.admin.topics.DeleteTopicsRequest")
DeleteTopicsResponse: Final = _Late("protocol.admin.topics.DeleteTopicsResponse")
DescribeTopicPartitionsRequest: Final = _Late("protocol.admin.topics.DescribeTopicPartitionsRequest")
DescribeTopicPartitionsResponse: Final = _Late("protocol.admin.topics.DescribeTopicPartitionsResponse")
ElectLeadersRequest: Final = _Late("protocol.admin.topics.ElectLeadersRequest")
ElectLeadersResponse: Final = _Late("protocol.admin.topics.ElectLeadersResponse")
ListPartitionReassignmentsRequest: Final = _Late("protocol.admin.topics.ListPartitionReassignmentsRequest")
ListPartitionReassignmentsResponse: Final = _Late("protocol.admin.topics.ListPartitionReassignmentsResponse")
DescribeTransactionsRequest: Final = _Late("protocol.admin.transactions.DescribeTransactionsRequest")
DescribeTransactionsResponse: Final = _Late("protocol.admin.transactions.DescribeTransactionsResponse")
ListOffsetsRequest: Final = _Late("protocol.consumer.offsets.ListOffsetsRequest")
ListOffsetsResponse: Final = _Late("protocol.consumer.offsets.ListOffsetsResponse")
ApiVersionsRequest: Final = _Late("protocol.metadata.api_versions.ApiVersionsRequest")
ApiVersionsResponse: Final = _Late("protocol.metadata.api_versions.ApiVersionsResponse")
MetadataRequest: Final = _Late("protocol.metadata.metadata.MetadataRequest")
MetadataResponse: Final = _Late("protocol.metadata.metadata.MetadataResponse")
SaslAuthenticateRequest: Final = _Late("protocol.sasl.SaslAuthenticateRequest")
SaslAuthenticateResponse: Final = _Late("protocol.sasl.SaslAuthenticateResponse")
SaslHandshakeRequest: Final = _Late("protocol.sasl.SaslHandshakeRequest")
SaslHandshakeResponse: Final = _Late("protocol.sasl.SaslHandshakeResponse")

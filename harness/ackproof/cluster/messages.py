"""The messages of Kafka's protocol that the harness uses, from kafka-python. The only place that imports it.

kafka-python reads its schemas with a function that Python 3.11 and 3.12 call deprecated (3.13 took that back):
users who turn warnings into errors shall not suffer for it.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.errors import for_code
    from kafka.protocol.admin.cluster import (
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
        DescribeClusterRequest,
        DescribeClusterResponse,
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )
    from kafka.protocol.admin.configs import (
        DescribeConfigsRequest,
        DescribeConfigsResponse,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from kafka.protocol.admin.topics import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        CreateTopicsRequest,
        CreateTopicsResponse,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        ElectLeadersRequest,
        ElectLeadersResponse,
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from kafka.protocol.admin.transactions import (
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
    )
    from kafka.protocol.consumer.offsets import ListOffsetsRequest, ListOffsetsResponse
    from kafka.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
    from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse
    from kafka.protocol.sasl import (
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
        SaslHandshakeRequest,
        SaslHandshakeResponse,
    )

__all__ = [
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "AlterReplicaLogDirsRequest",
    "AlterReplicaLogDirsResponse",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "MetadataRequest",
    "MetadataResponse",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "UpdateFeaturesRequest",
    "UpdateFeaturesResponse",
    "for_code",
]

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
        DescribeClusterRequest,
        DescribeClusterResponse,
        DescribeQuorumRequest,
        DescribeQuorumResponse,
    )
    from kafka.protocol.admin.topics import (
        CreateTopicsRequest,
        CreateTopicsResponse,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
    )
    from kafka.protocol.consumer.offsets import ListOffsetsRequest, ListOffsetsResponse
    from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse

__all__ = [
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "MetadataRequest",
    "MetadataResponse",
    "for_code",
]

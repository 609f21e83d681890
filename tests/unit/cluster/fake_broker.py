"""A fake broker that answers the requests of the sampler, and that can be paused."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Any

from ackproof.cluster.queries import PartitionState
from ackproof.network.addresses import Address
from ackproof.network.wire import message
from ackproof.rundir.partition import TopicPartition

DESCRIBE = 75
NOT_LEADER = 6


class FakeBroker:
    """Fake broker at a free port. It answers from `view`, `log_end`, `high_watermark` and `last_stable`, which a test
    may change at any time. Clear `going_on` to pause it. `connections`: number of connections accepted so far."""

    def __init__(self, broker: int, view: dict[TopicPartition, PartitionState]) -> None:
        self.broker = broker
        self.view = view
        self.log_end = 100
        self.high_watermark = 100
        self.last_stable = 100
        self.connections = 0
        self.going_on = threading.Event()
        self.going_on.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self._lines: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self.going_on.set()
        for line in (self._listener, *self._lines):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connections += 1
                self._lines.append(line)
                thread = threading.Thread(target=self._serve, args=(line,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, line: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error):
            while True:
                (length,) = struct.unpack(">i", line.recv(4, socket.MSG_WAITALL))
                data = line.recv(length, socket.MSG_WAITALL)
                self.going_on.wait()
                body = self._answer(data)
                line.sendall(struct.pack(">i", len(body)) + body)

    def _answer(self, data: bytes) -> bytes:
        key, version = struct.unpack_from(">hh", data)
        correlation = data[4:8]
        if key == DESCRIBE:
            return correlation + b"\0" + bytes(self._described().encode(version=version))
        (name_length,) = struct.unpack_from(">h", data, 8)
        request = message("ListOffsetsRequest").decode(data[10 + name_length :], version=version)
        return correlation + bytes(self._offsets(request, version).encode(version=version))

    def _described(self) -> Any:
        kind = message("DescribeTopicPartitionsResponse")
        topic_kind = kind.DescribeTopicPartitionsResponseTopic
        row_kind = topic_kind.DescribeTopicPartitionsResponsePartition
        topics: dict[str, list[Any]] = {}
        for place, state in self.view.items():
            row = row_kind(
                error_code=0,
                partition_index=place.partition,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                eligible_leader_replicas=list(state.eligible),
                last_known_elr=[],
                offline_replicas=[],
                version=0,
            )
            topics.setdefault(place.topic, []).append(row)
        return kind(
            topics=[
                topic_kind(error_code=0, name=name, partitions=rows, version=0)
                for name, rows in topics.items()
            ],
            next_cursor=None,
            version=0,
        )

    def _offsets(self, request: Any, version: int) -> Any:
        kind = message("ListOffsetsResponse")
        topic_kind = kind.ListOffsetsTopicResponse

        def row(topic: str, partition: int) -> Any:
            leads = self.view[TopicPartition(topic, partition)].leader == self.broker
            own = request.replica_id == -2
            offset = self.log_end if own else (self.high_watermark, self.last_stable)[request.isolation_level]
            error = 0 if own or leads else NOT_LEADER
            return topic_kind.ListOffsetsPartitionResponse(
                partition_index=partition,
                error_code=error,
                offset=-1 if error else offset,
                leader_epoch=0,
                version=version,
            )

        return kind(
            topics=[
                topic_kind(
                    name=topic.name,
                    partitions=[row(topic.name, part.partition_index) for part in topic.partitions],
                    version=version,
                )
                for topic in request.topics
            ],
            version=version,
        )

"""A consumer in its group: its assigned partitions, its positions in them, and its generation or member epoch."""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from confluent_kafka import OFFSET_STORED, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from ackproof.clients.contract import MemberSettings
from ackproof.clients.librdkafka.messages import show_error

_ASK_S: Final = 1.0
_POSITIONS_S: Final = 30.0
"""Seconds for which a member asks for the committed offsets of an assignment. After that the library looks them up."""
_METADATA: Final = b"CGMDv2:"
"""Beginning of librdkafka's serialised group metadata; then generation (i32, host order), group, member and instance,
each but the last ending with NUL (rd_kafka_consumer_group_metadata_write)."""
_AT: Final = len(_METADATA)
_NOT_IN_THE_LOG: Final = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._LOG_TRUNCATION,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._NO_OFFSET,
    }
)
Place: TypeAlias = tuple[str, int]


_INSTANCE_IS_TAKEN: Final = "instance ID is still used"
"""Part of the message of UNRELEASED_INSTANCE_ID: librdkafka's fatal error has its code in the text alone."""


class InstanceTaken(Exception):
    """Raised if another member still holds the group.instance.id. In a KIP-848 group, a member that was killed holds it
    until its session ends."""


class MemberFailed(Exception):
    """Raised if a member cannot go on; the text says why."""


class Lines:
    """Buffer of the event lines that a member prints. One `flush` is one write, so that a killed member leaves complete
    lines."""

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._lines: list[str] = []

    def add(self, event: str, **fields: object) -> None:
        """Add an event with these fields to the buffer, stamped with the present time (CLOCK_MONOTONIC ns)."""
        self._lines.append(
            json.dumps({"e": event, "t": time.monotonic_ns(), **fields}, separators=(",", ":"))
        )

    def add_text(self, line: str) -> None:
        self._lines.append(line)

    def flush(self) -> None:
        if self._lines:
            data = ("\n".join(self._lines) + "\n").encode()
            self._lines.clear()
            while data:
                data = data[os.write(self._descriptor, data) :]


class Membership:
    """A consumer that has subscribed to its group's topics. Its callbacks run in the thread that polls.

    `generation`: last known generation or member epoch. `sent_generation`: generation in the next request; -1 once the
    library lost its membership. `positions`: next offset of each assigned partition; -1: none is committed,
    `OFFSET_STORED`: not known. `uncommitted`: next offset to commit of assigned partitions. `revoking` is called with
    partitions before they are given up.
    """

    def __init__(
        self,
        settings: MemberSettings,
        stop: threading.Event,
        lines: Lines,
        revoking: Callable[[set[Place]], None],
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._lines = lines
        self._revoking = revoking
        self._resets: dict[Place, str] = {}
        """Assigned partitions whose position is not in the log, with the library's name of the error."""
        self.member_id = ""
        self.generation = self.sent_generation = -1
        self.positions: dict[Place, int] = {}
        self.uncommitted: dict[Place, int] = {}
        self.client = Consumer({**settings.config, "error_cb": show_error})
        self.client.subscribe(
            list(settings.topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def look(self) -> None:
        """Update member id and generation from the library. Called often: member epochs of KIP-848 change without a
        callback.

        The library has no function for the generation: it is read from the group metadata in binary form.
        """
        raw = self.client.consumer_group_metadata()
        self.sent_generation = -1
        if raw is not None and raw.startswith(_METADATA):
            self.sent_generation = struct.unpack_from("=i", raw, _AT)[0]
            self.member_id = raw[_AT + 4 :].split(b"\0")[1].decode() or self.member_id
        if self.sent_generation > 0:
            self.generation = self.sent_generation

    def nobody(self) -> bytes:
        """Return group metadata without member id and generation, as producers before KIP-447 send it with offsets of a
        transaction."""
        return _METADATA + struct.pack("=i", -1) + self._settings.group.encode() + b"\0\0\x01"

    def tell(self, event: str, **fields: object) -> None:
        """Print an event of the membership, with member id and generation added."""
        self._lines.add(event, m=self.member_id, g=self.generation, **fields)
        self._lines.flush()

    def _tell_change(self, event: str, parts: Sequence[ClientPartition]) -> None:
        self.look()
        self.tell(event, ps=list(map(place_of, parts)))

    def _on_assign(self, _: Consumer, parts: list[ClientPartition]) -> None:
        self._tell_change("assigned", parts)
        found = self.ask_committed(parts)
        self.positions |= found
        for place, offset in found.items():
            if offset == -1:
                self._place(place, "_NO_OFFSET")
        self._assign(found)

    def _on_revoke(self, _: Consumer, parts: list[ClientPartition]) -> None:
        self._revoking(set(map(place_of, parts)))
        self._tell_change("revoked", parts)
        self._forget(parts)

    def _on_lost(self, _: Consumer, parts: list[ClientPartition]) -> None:
        self._tell_change("lost", parts)
        self._forget(parts)

    def _forget(self, parts: Iterable[ClientPartition]) -> None:
        for place in map(place_of, parts):
            for known in (self.positions, self.uncommitted, self._resets):
                known.pop(place, None)

    def ask_committed(self, parts: Sequence[ClientPartition]) -> dict[Place, int]:
        """Ask the coordinator for the group's committed offsets of these partitions, and print them; -1: none is
        committed.

        Without an answer for `_POSITIONS_S` seconds, or once the member is asked to stop, every value is
        `OFFSET_STORED`: the library looks up the offset later.
        """
        places = list(map(place_of, parts))
        until = time.monotonic() + _POSITIONS_S
        while places and time.monotonic() < until and not self._stop.is_set():
            try:
                answers = self.client.committed([ClientPartition(*place) for place in places], _ASK_S)
            except KafkaException as error:
                show_error(error.args[0])
                continue
            if not any(answer.error for answer in answers):
                found = {place_of(answer): max(-1, answer.offset) for answer in answers}
                self.tell("position", os=[[*place, offset] for place, offset in found.items()])
                return found
        return dict.fromkeys(places, OFFSET_STORED)

    def _assign(self, places: Iterable[Place]) -> None:
        """Assign partitions at their positions: with a cooperative protocol in addition to those assigned, else in
        place of all of them. Where a position is negative (`positions`), the library looks for a committed offset, and
        reports an error if it finds none."""
        at = {place: self.positions[place] for place in places}
        parts = [
            ClientPartition(*place, OFFSET_STORED if offset < 0 else offset) for place, offset in at.items()
        ]
        if self._settings.cooperative:
            self.client.incremental_assign(parts)
        else:
            self.client.assign(parts)

    def _place(self, place: Place, why: str) -> bool:
        """Choose a new position for a partition whose position is not in the log, or that has no committed offset, and
        print the reset. `why`: name of the library's error; `_NO_OFFSET`: no offset is committed.

        Return True if the partition can be assigned again. Return False if it must wait: its committed offset is not
        known yet, its leader does not answer, or the member is stopping. Raises `MemberFailed` if the settings allow no
        reset.
        """
        position = self.positions[place]
        if position == OFFSET_STORED or self._stop.is_set():
            return False
        if position >= 0 and why == "_NO_OFFSET":
            return True  # the library found no committed offset, and the coordinator has one by now
        policy = self._settings.start if position < 0 else self._settings.reset
        if policy in ("committed", "error"):
            raise MemberFailed(f"{place[0]}/{place[1]}: cannot go on from offset {position} ({why})")
        try:
            low, high = self.client.get_watermark_offsets(ClientPartition(*place), timeout=_ASK_S)
        except KafkaException as error:
            show_error(error.args[0])
            return False
        to = low if policy == "earliest" else high
        self.tell("reset", topic=place[0], p=place[1], **{"from": position}, to=to, why=why)
        self.positions[place] = to
        self.uncommitted.pop(place, None)
        return True

    def take_errors(self, messages: Iterable[Message]) -> None:
        """Note partitions whose position is not in the log, from the errors among `messages`. Raises `InstanceTaken`,
        and KafkaException for every other fatal error. The rest goes to standard error."""
        for message in messages:
            error, place = message.error(), place_of(message)
            if error is None:
                continue
            if _INSTANCE_IS_TAKEN in error.str():
                raise InstanceTaken
            if error.fatal() or error.code() == KafkaError._FATAL:
                raise KafkaException(error)
            if error.code() in _NOT_IN_THE_LOG and place in self.positions:
                self._resets[place] = "_NO_OFFSET" if self.positions[place] < 0 else error.name()
            else:
                show_error(error)

    def resume(self) -> None:
        """Choose new positions for partitions whose position is not in the log, and assign them again once their
        leaders answer. Raises `MemberFailed` if the settings allow no reset.

        Each new position is printed as an event `reset`, whose field `from` has the former position. If that is not
        known (`OFFSET_STORED`), the coordinator is asked first, and `from` has the committed offset; -1: none.
        """
        unknown = [place for place in self._resets if self.positions[place] == OFFSET_STORED]
        self.positions |= self.ask_committed([ClientPartition(*place) for place in unknown])
        placed = [place for place, why in self._resets.items() if self._place(place, why)]
        for place in placed:
            del self._resets[place]
        if placed and self._settings.cooperative:
            self.client.incremental_unassign([ClientPartition(*place) for place in placed])
            self._assign(placed)
        elif placed:
            self._assign(self.positions)

    def seek(self, place: Place, offset: int) -> None:
        """Move the position of a partition to this offset. Does nothing if the partition is not assigned any more. If
        the library refuses, the position stays and the error goes to standard error."""
        if place in self.positions:
            try:
                self.client.seek(ClientPartition(*place, offset))
            except KafkaException as error:
                show_error(error.args[0])
            else:
                self.positions[place] = offset


def place_of(part: ClientPartition | Message) -> Place:
    """Return (topic, partition) of a record, or of one of the library's partition objects."""
    if isinstance(part, Message):
        return part.topic() or "", part.partition() or 0
    return part.topic, part.partition

"""Tests of Kafka's framing: however the stream is cut, each frame is seen, and bytes that pass are unchanged."""

from __future__ import annotations

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ackproof.experiment.links import APIS
from ackproof.network.requests.frames import (
    PROBE,
    FrameFate,
    FrameStream,
    RequestHead,
    ResponseHead,
    read_request_head,
    read_response_head,
)
from ackproof.network.requests.questions import make_question
from ackproof.network.wire import message

FETCH = 1
SLOWLY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Hypothesis settings without time limits: a busy machine draws frames slowly."""


def request(
    api: int, correlation: int, body: bytes = b"", name: bytes = b"someone", version: int = 3
) -> bytes:
    head = struct.pack(">hhih", api, version, correlation, len(name)) + name
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce(correlation: int, acks: int, rest: bytes = b"", transaction: bytes | None = None) -> bytes:
    named = b"\xff\xff" if transaction is None else struct.pack(">h", len(transaction)) + transaction
    return request(0, correlation, named + struct.pack(">h", acks) + rest)


class Forwarded:
    """Stream that records its frames. `fates`: fate of a frame by its position in the stream; other frames pass."""

    def __init__(self, fates: dict[int, FrameFate] | None = None) -> None:
        self.whole: list[bytes] = []
        self.heads: list[RequestHead] = []
        self.out = bytearray()

        self.fates = fates or {}
        self.stream = FrameStream(read_request_head, self.decide, self.forward)
        self.looks = 0

    def decide(self, head: RequestHead, frame: memoryview | None) -> FrameFate | bytes:
        if frame is not None:
            self.whole.append(bytes(frame))
            return 2 * bytes(frame)
        if self.looks and len(self.whole) < self.looks:
            return FrameFate.LOOK  # asked again: it is not whole yet
        self.heads.append(head)
        fate = self.fates.get(len(self.heads) - 1, FrameFate.PASS)
        self.looks += fate is FrameFate.LOOK
        return fate

    def forward(self, data: memoryview) -> None:
        self.out += data

    def feed(self, data: bytes, cuts: list[int]) -> None:
        begin = 0
        for cut in [*sorted(cuts), len(data)]:
            # a buffer of its own that is written over afterwards, as the loop's is
            piece = bytearray(data[begin:cut])
            self.stream.feed(memoryview(piece))
            piece[:] = bytes(len(piece))
            begin = cut


FRAMES = st.lists(
    st.one_of(
        st.builds(
            request,
            api=st.integers(1, 90),
            correlation=st.integers(-(1 << 31), (1 << 31) - 1),
            body=st.binary(max_size=60),
            name=st.sampled_from([b"", b"x", b"someone", PROBE + b"...", PROBE[:-1]]),
        ),
        st.builds(
            produce,
            correlation=st.integers(0, 9),
            acks=st.sampled_from([-1, 0, 1]),
            rest=st.binary(max_size=60),
            transaction=st.sampled_from([None, b"", b"mine"]),
        ),
    ),
    max_size=8,
)


@SLOWLY
@given(frames=FRAMES, data=st.data())
def test_every_frame_is_seen_and_nothing_is_touched(frames: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frames)
    taken = Forwarded()
    taken.feed(stream, data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    assert bytes(taken.out) == stream
    assert [head.size for head in taken.heads] == [len(frame) for frame in frames]
    assert [head.api for head in taken.heads] == [struct.unpack_from(">h", frame, 4)[0] for frame in frames]
    assert not taken.stream.unframed


@SLOWLY
@given(frames=FRAMES, data=st.data())
def test_what_is_done_to_one_frame_leaves_the_others(frames: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frames)
    fates = {
        place: data.draw(st.sampled_from([FrameFate.PASS, FrameFate.DROP, FrameFate.LOOK]))
        for place in range(len(frames))
    }
    taken = Forwarded(fates)
    taken.feed(stream, data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    times = {FrameFate.PASS: 1, FrameFate.DROP: 0, FrameFate.LOOK: 2}
    assert bytes(taken.out) == b"".join(times[fates[at]] * one for at, one in enumerate(frames))
    assert taken.whole == [one for at, one in enumerate(frames) if fates[at] is FrameFate.LOOK]


@SLOWLY
@given(frames=FRAMES.filter(bool), data=st.data())
def test_what_is_stopped_goes_on_whole(frames: list[bytes], data: st.DataObject) -> None:
    stream, place = b"".join(frames), data.draw(st.integers(0, len(frames) - 1))
    taken = Forwarded({place: FrameFate.STOP})
    taken.stream.feed(memoryview(stream))
    before = b"".join(frames[:place])
    assert bytes(taken.out) == before and taken.stream.stopped
    taken.stream.go_on()
    assert bytes(taken.out) == stream and not taken.stream.stopped


def test_behind_silence_nothing_comes() -> None:
    taken = Forwarded({1: FrameFate.SILENCE})
    frames = [request(FETCH, number) for number in range(3)]
    taken.feed(b"".join(frames), [5, 40])
    assert bytes(taken.out) == frames[0]


@pytest.mark.parametrize(
    "rest", [b"\0\0\0\x05hello there", b"\xff\xff\xff\xff" + bytes(20), b"GET / HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_frame_is_passed_on_and_told(rest: bytes) -> None:
    taken = Forwarded()
    frame = request(FETCH, 1)
    taken.feed(frame + rest, [3, len(frame) + 2])
    taken.feed(b"and more", [])
    assert bytes(taken.out) == frame + rest + b"and more"
    assert taken.stream.unframed


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("acks", [-1, 0, 1])
@pytest.mark.parametrize("transaction", [None, "mine", "x" * 200])
def test_acks_are_read_in_every_version(version: int, acks: int, transaction: str | None) -> None:
    kind = message("ProduceRequest")
    assert version <= kind.max_version, "kafka-python does not know it"
    made = kind(version=version, transactional_id=transaction, acks=acks, timeout_ms=1, topic_data=[])
    made.with_header(correlation_id=5, client_id="someone")
    frame = bytes(made.encode(header=True, framed=True))
    head = read_request_head(memoryview(frame))
    assert head is not None and head.answered is (acks != 0) and head.version == version


@pytest.mark.parametrize("name", [b"ackproof-p0", b"", "ä".encode()])
def test_the_client_id_is_read_once_it_is_whole(name: bytes) -> None:
    frame = request(18, 1, name=name)
    assert name == b"" or read_request_head(memoryview(frame)[: 14 + len(name) - 1]) is None
    head = read_request_head(memoryview(frame))
    assert head is not None and (head.client, head.probe) == (name.decode(), False)


def test_a_response_is_its_correlation_id() -> None:
    frame = memoryview(struct.pack(">ii", 8, 77) + b"body")
    assert read_response_head(frame[:7]) is None
    assert read_response_head(frame) == ResponseHead(12, 77)


@pytest.mark.parametrize("api", APIS)
def test_a_question_is_a_probe_of_its_api(api: str) -> None:
    frame = make_question(api)
    head = read_request_head(memoryview(frame))
    assert head is not None and head.probe and head.answered
    assert (head.api, head.size) == (APIS[api].key, len(frame))


def test_the_keys_are_kafkas() -> None:
    for name, api in APIS.items():
        try:
            known = message(f"{name}Request")
        except (KeyError, FileNotFoundError, ValueError, TypeError):
            continue  # kafka-python has no such message
        assert api.key == known.API_KEY, name

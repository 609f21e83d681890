from __future__ import annotations

import pytest

from ackproof.rundir.payload import FOREIGN, NOBODY, Identity
from ackproof.testing.book import HEADER, decode, encode, identity_of, others

RUN, OTHER = "00" * 8, "ff" * 8


@pytest.mark.parametrize("key", [None, b"", b"key"])
@pytest.mark.parametrize("value", [None, b"", b"value"])
@pytest.mark.parametrize("partition", [-1, 0, 7])
def test_there_and_back(key: bytes | None, value: bytes | None, partition: int) -> None:
    header = encode(RUN, 3, 2**40, "törder", partition, key, value)
    assert decode(RUN, header, key, value) == Identity(3, 2**40, "törder", partition, True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"value"),
        (b"", b"value"),
        (b"key", b"walue"),
        (b"key", None),
        (b"keyv", b"alue"),
        (b"ke", b"yvalue"),
    ],
)
def test_other_content_is_not_intact(key: bytes | None, value: bytes | None) -> None:
    header = encode(RUN, 0, 0, "t", -1, b"key", b"value")
    assert decode(RUN, header, key, value) == Identity(0, 0, "t", -1, False)


def test_nothing_and_a_tombstone_differ() -> None:
    header = encode(RUN, 0, 0, "t", -1, None, b"")
    assert not decode(RUN, header, None, None).intact
    assert not decode(RUN, header, b"", b"").intact


def test_whose_it_is() -> None:
    header = encode(RUN, 0, 0, "t", -1, None, b"v")
    assert decode(OTHER, header, None, b"v") == FOREIGN
    assert decode(OTHER, header, None, b"w") == NOBODY
    assert identity_of(RUN, None, None, b"v") == FOREIGN
    assert identity_of(RUN, [("trace", b"1")], None, b"v") == FOREIGN
    assert identity_of(RUN, [(HEADER, None)], None, b"v") == NOBODY
    assert identity_of(RUN, [("a", b"1"), (HEADER, header)], None, b"v").seq == 0


@pytest.mark.parametrize("cut", range(0, 39, 3))
def test_any_damage_to_the_header_is_seen(cut: int) -> None:
    header = encode(RUN, 1, 2, "topic", 3, b"k", b"v")
    assert decode(RUN, header[:cut], b"k", b"v") == NOBODY
    flipped = bytearray(header)
    flipped[cut % len(header)] ^= 0x10
    seen = decode(RUN, bytes(flipped), b"k", b"v")
    assert seen == NOBODY or not seen.intact


def test_headers_of_others_stay() -> None:
    assert others(None) == []
    assert others({"a": b"1", HEADER: b"x"}) == [("a", b"1")]
    assert others([("a", "1"), ("a", None), (HEADER, b"x")]) == [("a", "1"), ("a", None)]

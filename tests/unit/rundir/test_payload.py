"""Tests that the bulk codec of record values agrees with the plain one on every value."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ackproof.rundir.payload import HEADER_SIZE, Identity, decode, encoder, run_bytes, smallest_size, wrap
from ackproof.rundir.payload_bulk import BulkDecoder, BulkEncoder

RUN = "00112233aabbccdd"
OTHER_RUN = "ffffffffffffffff"
TOPICS = ["orders", "o", "günstig", "payments.eu-1"]

topics = st.sampled_from(TOPICS)
places = st.lists(st.tuples(topics, st.integers(0, 2**31 - 1)), min_size=1, max_size=12)
seqs = st.one_of(st.integers(0, 1000), st.integers(0, 2**63 - 200))


@given(places, st.integers(0, 30), seqs, st.integers(1, 60), st.integers(0, 80), st.integers(0, 2**31 - 1))
def test_encoder(
    where: list[tuple[str, int]], first: int, seq: int, count: int, padding: int, producer: int
) -> None:
    size = max(smallest_size(topic) for topic, _ in where) + padding
    values = BulkEncoder(RUN, producer, where, first, size).values(seq, count)
    assert len(values) == count
    for number, value in enumerate(values, seq):
        topic, partition = where[(number + first) % len(where)]
        assert value == encoder(RUN, producer, topic, partition, size)(number)
        assert decode(RUN, value) == Identity(producer, number, topic, partition, True)


def test_a_value_too_small_for_one_of_the_topics_is_refused() -> None:
    with pytest.raises(ValueError, match="payments"):
        BulkEncoder(RUN, 0, [("o", 0), ("payments.eu-1", 0)], 0, smallest_size("o"))


@st.composite
def value(draw: st.DrawFn) -> bytes | None:
    """Draw a record's value: valid, of another run, with one damaged byte, cut short, random bytes, or None."""
    kind = draw(st.sampled_from(["good", "good", "good", "foreign", "damaged", "cut", "noise", "none"]))
    if kind == "none":
        return None
    if kind == "noise":
        return draw(st.binary(max_size=120))
    topic = draw(topics)
    run = OTHER_RUN if kind == "foreign" else RUN
    producer, partition = draw(st.integers(-(2**31), 2**31 - 1)), draw(st.integers(-(2**31), 2**31 - 1))
    size = draw(st.sampled_from([smallest_size("payments.eu-1"), 100, 101]))
    good = encoder(run, producer, topic, partition, size)(draw(st.integers(-5, 2**63 - 1)))
    if kind == "damaged":
        at = draw(st.integers(0, len(good) - 1))
        return good[:at] + bytes([good[at] ^ draw(st.integers(1, 255))]) + good[at + 1 :]
    if kind == "cut":
        return good[: draw(st.integers(0, len(good)))]
    return good


def agrees(values: Sequence[bytes | None], known: Sequence[str]) -> None:
    decoder = BulkDecoder(RUN, known)
    for _ in range(2):  # the second time topics met on the way are known by name, not by bytes
        decoded = decoder(values)
        seen = [
            Identity(
                int(decoded.producer[at]),
                int(decoded.seq[at]),
                decoder.origins[decoded.origin[at]],
                int(decoded.origin_partition[at]),
                bool(decoded.intact[at]),
            )
            for at in range(len(values))
        ]
        assert seen == [decode(RUN, one) for one in values]


@given(st.lists(value(), max_size=20), st.lists(topics, unique=True))
@example([None], ["orders"])
@example([b""], ["orders"])
@example([bytes(HEADER_SIZE + 4)], ["orders"])
def test_decoder_mixed(values: list[bytes | None], known: list[str]) -> None:
    agrees(values, known)


@given(st.lists(value(), max_size=6), st.lists(topics, unique=True))
def test_decoder_mixed_and_many_of_each_length(values: list[bytes | None], known: list[str]) -> None:
    agrees(values * 31, known)


@given(st.data(), st.integers(1, 20), st.lists(topics, unique=True))
def test_decoder_of_values_of_one_length(data: st.DataObject, count: int, known: list[str]) -> None:
    size = 100
    values = []
    for _ in range(count):
        drawn = data.draw(value()) or b""
        values.append(drawn[:size].ljust(size, b"\0"))
    agrees(values, known)


RUN = "00112233aabbccdd"


@pytest.mark.parametrize("run_id", [RUN[:-2], RUN + "ee", "", "x" * 16])
def test_a_run_has_sixteen_hex_digits(run_id: str) -> None:
    assert run_bytes(RUN) == bytes.fromhex(RUN)
    with pytest.raises(ValueError, match="hex"):
        run_bytes(run_id)


@pytest.mark.parametrize("topic", ["t", "größer"])
def test_a_value_is_as_long_as_it_is_to_be_and_never_too_short(topic: str) -> None:
    least = smallest_size(topic)
    for size in (least, least + 1, least + 1000):
        assert len(encoder(RUN, 1, topic, 0, size)(7)) == size
    with pytest.raises(ValueError, match=f"needs at least {least} bytes, not {least - 1}"):
        encoder(RUN, 1, topic, 0, least - 1)


@pytest.mark.parametrize("first", [None, b"written by another program"])
@pytest.mark.parametrize("values", [40, 3])
def test_json_after_a_tombstone_or_a_plain_value(values: int, first: bytes | None) -> None:
    encode = encoder(RUN, 7, "o", 0, smallest_size("o"))
    found = BulkDecoder(RUN, ["o"])(
        [first, *(wrap(encode(number), "/text", "x") for number in range(values))]
    )
    assert found.seq.tolist() == [-1, *range(values)]

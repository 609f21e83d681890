"""What a payload needs: a run of sixteen hex digits, and room for its header."""

from __future__ import annotations

import pytest

from ackproof.rundir.payload import encoder, run_bytes, smallest_size

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

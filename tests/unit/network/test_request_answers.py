"""Answers that the proxy makes: kafka-python reads of each what was meant, where it knows the message and version."""

from __future__ import annotations

import struct

import pytest

from ackproof.network.requests.contents import ANSWERABLE, ERRORS, error_bodies, read_error
from ackproof.network.wire import kafka_python, message

CODE = ERRORS["NOT_CONTROLLER"]


@pytest.mark.parametrize("api", ANSWERABLE)
def test_what_is_made_is_what_is_read(api: str) -> None:
    for version, body in error_bodies(api, CODE).items():
        frame = struct.pack(">ii", 4 + len(body), 5) + body
        assert read_error(api, version, frame) == CODE
        try:
            kind = message(f"{api}Response")
        except FileNotFoundError:
            continue  # kafka-python has no such message: real brokers read it in the tests of the night
        if version <= kind.max_version:
            read = kind.decode(frame[4:], version=version, header=True)
            assert read.error_code == CODE
            read.with_header(correlation_id=5)
            assert bytes(read.encode(header=True, framed=True)) == frame


_OLD_NAMES = {
    "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
    "MESSAGE_TOO_LARGE": "MESSAGE_SIZE_TOO_LARGE",
    "UNKNOWN_SERVER_ERROR": "UNKNOWN",
}
"""By which kafka-python still calls them."""


def test_the_codes_are_kafkas() -> None:
    kafkas = {name: kafka_python("errors").for_code(code).message for name, code in ERRORS.items()}
    assert kafkas == {name: _OLD_NAMES.get(name, name) for name in ERRORS}

"""Faults of requests, in the words of a file."""

from __future__ import annotations

from typing import Any

import pytest

_NIGHT = pytest.mark.nightly
REQUEST_FAULTS: tuple[Any, ...] = (
    "hold_request: {link: follower(t/0) -> controllers, api: BrokerHeartbeat}",
    pytest.param(
        "hold_request: {link: follower(t/0) -> leader(t/0), api: Fetch, side: response}", marks=_NIGHT
    ),
    "lose_request: {link: clients -> leader(t/0), api: Produce, side: response, times: 1}",
    pytest.param("lose_request: {link: clients -> leader(t/0), api: Produce, share: 50%}", marks=_NIGHT),
    pytest.param("lose_request: {link: follower(t/0) -> leader(t/0), api: Fetch, every: 3}", marks=_NIGHT),
    pytest.param("close_at_request: {link: followers(t/0) -> leader(t/0), api: Fetch}", marks=_NIGHT),
    pytest.param(
        "close_at_request: {link: clients -> leader(t/0), api: Produce, side: response, times: 3}",
        marks=_NIGHT,
    ),
    pytest.param(
        "late_request: {link: brokers -> controllers, api: BrokerHeartbeat, by: 500ms, jitter: 100ms}",
        marks=_NIGHT,
    ),
    pytest.param(
        "late_request: {link: clients -> leader(t/0), api: Produce, side: response, by: 300ms}", marks=_NIGHT
    ),
    pytest.param("repeat_request: {link: clients -> leader(t/0), api: Produce}", marks=_NIGHT),
    pytest.param("repeat_request: {link: brokers -> controllers, api: BrokerHeartbeat}", marks=_NIGHT),
    pytest.param(
        "answer_request: {link: brokers -> controllers, api: BrokerHeartbeat, error: NOT_CONTROLLER, times: 2}",
        marks=_NIGHT,
    ),
    pytest.param(
        "answer_request: {link: follower(t/0) -> leader(t/0), api: Fetch, error: FETCH_SESSION_ID_NOT_FOUND}",
        marks=_NIGHT,
    ),
)
"""Each kind, on each kind of link that it has."""

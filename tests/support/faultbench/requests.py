"""Request faults for the tests of both backends, written as in an experiment file."""

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
        "repeat_request: {link: brokers -> controllers, api: BrokerHeartbeat, by: 700ms}", marks=_NIGHT
    ),
    "hold_request: {link: followers(t/0) -> leader(t/0), api: Fetch, partition: t/0}",
    *(
        pytest.param(f"hold_request: {{link: clients -> leader(t/0), api: Produce, {more}}}", marks=_NIGHT)
        for more in ("topic: t, side: response", "until_held: 1", "overtaken: true, every: 2")
    ),
    pytest.param(
        "lose_request: {link: leader(t/0) -> controllers, api: BrokerHeartbeat, side: response}", marks=_NIGHT
    ),
    pytest.param(
        "late_request: {link: followers(t/0) -> leader(t/0), api: Fetch, by: 300ms, jitter: 50ms, "
        "distribution: normal}",
        marks=_NIGHT,
    ),
    pytest.param(
        "late_request: {link: clients -> leader(t/0), api: Produce, by: 200ms, jitter: 50ms, "
        "distribution: exponential}",
        marks=_NIGHT,
    ),
    pytest.param(
        "answer_request: {link: clients -> leader(t/0), api: Produce, error: NOT_LEADER_OR_FOLLOWER, times: 3}",
        marks=_NIGHT,
    ),
    pytest.param(
        "answer_request: {link: clients -> leader(t/0), api: Produce, side: response, partition: t/0, "
        "error: NOT_ENOUGH_REPLICAS_AFTER_APPEND, times: 3}",
        marks=_NIGHT,
    ),
    pytest.param(
        "answer_request: {link: follower(t/0) -> leader(t/0), api: Fetch, side: response, "
        "error: FETCH_SESSION_ID_NOT_FOUND}",
        marks=_NIGHT,
    ),
    pytest.param(
        "answer_request: {link: brokers -> controllers, api: BrokerHeartbeat, error: NOT_CONTROLLER, times: 2}",
        marks=_NIGHT,
    ),
    pytest.param(
        "answer_request: {link: follower(t/0) -> leader(t/0), api: Fetch, error: FETCH_SESSION_ID_NOT_FOUND}",
        marks=_NIGHT,
    ),
)
"""Request faults of each kind, on links from clients, between brokers, and to controllers. Most run at night only."""

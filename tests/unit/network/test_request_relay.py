"""Tests of the request proxy over real sockets, its loop run step by step: each rule's effect, and its removal."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from ackproof.network.requests.frames import PROBE
from ackproof.network.requests.rules import EVERY_API, PROBED_API, FrameSide, Rule, RuleKind
from request_ground import HEARTBEAT, METADATA, Ground, request, response

CODE = 41


@pytest.fixture
def ground() -> Iterator[Ground]:
    made = Ground()
    yield made
    made.end()


def test_without_a_rule_all_passes(ground: Ground) -> None:
    client, node = ground.connect()
    client.sendall(request(HEARTBEAT, 1) + request(METADATA, 2))
    assert ground.came(node) == request(HEARTBEAT, 1) + request(METADATA, 2)
    node.sendall(response(1) + response(2))
    assert ground.came(client) == response(1) + response(2)


def test_a_large_frame_passes_one_who_is_slow_to_read(ground: Ground) -> None:
    client, node = ground.connect()
    large = request(METADATA, 1, size=8_000_000)
    client.setblocking(True)
    client.settimeout(0.01)
    sent = 0
    got = b""
    while sent < len(large):
        with contextlib.suppress(TimeoutError):
            sent += client.send(large[sent : sent + 500_000])
        ground.turn()
        got += ground.came(node) if sent > 3_000_000 else b""
    while len(got) < len(large):
        got += ground.came(node)
    assert got == large


def test_held_requests_wait_and_go_on_in_order(ground: Ground) -> None:
    client, node = ground.connect()
    other, others_node = ground.connect()
    ground.lay(RuleKind.HOLD)
    frames = [request(METADATA, 1), request(HEARTBEAT, 2), request(METADATA, 3)]
    client.sendall(b"".join(frames))
    other.sendall(request(METADATA, 9))
    assert ground.came(node) == frames[0]
    assert ground.came(others_node) == request(METADATA, 9)
    counted = ground.relay.rules["r"].counted
    assert (counted.matched, counted.hit, counted.holding) == (1, 1, 1)
    ground.relay.lift("r")
    assert ground.came(node) == frames[1] + frames[2]
    assert counted.holding == 0


def test_one_is_released_and_the_next_is_held(ground: Ground) -> None:
    client, node = ground.connect()
    ground.lay(RuleKind.HOLD)
    assert not ground.relay.release("r", "w")
    client.sendall(request(HEARTBEAT, 1) + request(HEARTBEAT, 2))
    assert ground.came(node) == b""
    assert ground.relay.count_held() == {"r": {"w": 1}}
    assert ground.relay.release("r", "w")
    assert ground.came(node) == request(HEARTBEAT, 1)
    assert ground.relay.count_held() == {"r": {"w": 1}}
    assert ground.relay.release("r", "w")
    assert ground.came(node) == request(HEARTBEAT, 2)
    assert ground.relay.count_held() == {"r": {"w": 0}}


def test_what_was_held_for_one_who_hung_up_is_never_released(ground: Ground) -> None:
    client, node = ground.connect()
    other, others_node = ground.connect()
    ground.lay(RuleKind.HOLD)
    client.sendall(request(HEARTBEAT, 1))
    ground.turn()
    other.sendall(request(HEARTBEAT, 2))
    ground.turn()
    client.close()
    assert ground.relay.count_held() == {"r": {"w": 1}}
    assert ground.relay.release("r", "w")
    assert ground.came(others_node) == request(HEARTBEAT, 2)
    with contextlib.suppress(ConnectionResetError):
        assert ground.came(node) == b"closed"
    assert not ground.relay.release("r", "w")
    with pytest.raises(ValueError, match="no rule x"):
        ground.relay.release("x", "w")


@pytest.mark.parametrize("overtaken", [False, True])
def test_a_held_request_can_be_copied_and_stays_held(ground: Ground, overtaken: bool) -> None:
    client, node = ground.connect()
    ground.lay(RuleKind.HOLD, overtaken=overtaken)
    assert ground.relay.copy("r", "w") == b""
    client.sendall(request(HEARTBEAT, 1) + request(HEARTBEAT, 2))
    assert ground.came(node) == b""
    assert ground.relay.copy("r", "w") == request(HEARTBEAT, 1)
    ground.relay.release("r", "w")
    assert ground.came(node) == request(HEARTBEAT, 1)
    assert ground.relay.copy("r", "w") == request(HEARTBEAT, 2)


def test_a_request_that_has_not_come_whole_is_not_copied(ground: Ground) -> None:
    client, _ = ground.connect()
    ground.lay(RuleKind.HOLD)
    client.sendall(request(HEARTBEAT, 1, size=4)[:-1])
    ground.turn()
    assert ground.relay.count_held() == {"r": {"w": 1}}
    assert ground.relay.copy("r", "w") == b""


def test_held_responses_wait(ground: Ground) -> None:
    client, node = ground.connect()
    ground.lay(RuleKind.HOLD, FrameSide.RESPONSE)
    client.sendall(request(METADATA, 1) + request(HEARTBEAT, 2))
    assert ground.came(node)
    node.sendall(response(1) + response(2))
    assert ground.came(client) == response(1)
    ground.relay.lift("r")
    assert ground.came(client) == response(2)


def test_a_lost_request_silences_its_connection_until_it_is_lifted(ground: Ground) -> None:
    client, node = ground.connect()
    ground.lay(RuleKind.LOSE)
    client.sendall(request(METADATA, 1) + request(HEARTBEAT, 2) + request(METADATA, 3))
    assert ground.came(node) == request(METADATA, 1)
    node.sendall(response(1))
    assert ground.came(client) == response(1)
    ground.relay.lift("r")
    assert ground.came(client) == b"closed"


def test_a_lost_response_was_asked_for_all_the_same(ground: Ground) -> None:
    client, node = ground.connect()
    ground.lay(RuleKind.LOSE, FrameSide.RESPONSE, times=1)
    client.sendall(request(HEARTBEAT, 1) + request(METADATA, 2))
    assert ground.came(node) == request(HEARTBEAT, 1) + request(METADATA, 2)
    node.sendall(response(1) + response(2))
    assert ground.came(client) == b""
    client.close()
    assert ground.came(node) == b"closed"


@pytest.mark.parametrize("side", FrameSide)
def test_closed_in_its_place(ground: Ground, side: FrameSide) -> None:
    client, node = ground.connect()
    ground.lay(RuleKind.CLOSE, side)
    client.sendall(request(METADATA, 1) + request(HEARTBEAT, 2))
    if side is FrameSide.RESPONSE:
        assert ground.came(node) == request(METADATA, 1) + request(HEARTBEAT, 2)
        node.sendall(response(1) + response(2))
        assert ground.came(client) == response(1) + b"closed"
    else:
        assert ground.came(client) == b"closed"
        assert ground.came(node) == request(METADATA, 1) + b"closed"


def test_late_by_its_time_and_no_other(ground: Ground) -> None:
    client, node = ground.connect()
    ground.lay(RuleKind.LATE, delay=0.3)
    began = time.monotonic()
    client.sendall(request(METADATA, 1) + request(HEARTBEAT, 2))
    assert ground.came(node) == request(METADATA, 1)
    came = b""
    while not came:
        came = ground.came(node)
    assert came == request(HEARTBEAT, 2)
    assert 0.3 <= time.monotonic() - began < 1.5


def test_repeated_with_one_response(ground: Ground) -> None:
    client, node = ground.connect()
    ground.lay(RuleKind.REPEAT)
    client.sendall(request(HEARTBEAT, 1, size=300_000)[:1000])
    assert ground.came(node) == b""
    client.sendall(request(HEARTBEAT, 1, size=300_000)[1000:] + request(METADATA, 2))
    assert ground.came(node) == 2 * request(HEARTBEAT, 1, size=300_000) + request(METADATA, 2)
    node.sendall(response(1) + response(1) + response(2))
    assert ground.came(client) == response(1) + response(2)


def test_repeated_later_behind_what_came_meanwhile(ground: Ground) -> None:
    client, node = ground.connect()
    ground.lay(RuleKind.REPEAT, delay=0.4)
    began = time.monotonic()
    client.sendall(request(HEARTBEAT, 1) + request(METADATA, 2))
    assert ground.came(node) == request(HEARTBEAT, 1) + request(METADATA, 2)
    node.sendall(response(1) + response(2))
    assert ground.came(client) == response(1) + response(2)
    came = b""
    while not came:
        came = ground.came(node)
    assert came == request(HEARTBEAT, 1)
    assert 0.4 <= time.monotonic() - began < 1.6
    client.sendall(request(METADATA, 3))
    assert ground.came(node) == request(METADATA, 3)
    node.sendall(response(1) + response(3))
    assert ground.came(client) == response(3)


@pytest.mark.parametrize(("kind", "at_once"), [(RuleKind.LATE, 0), (RuleKind.REPEAT, 1)])
def test_what_is_to_come_later_comes_when_the_rule_is_lifted(
    ground: Ground, kind: RuleKind, at_once: int
) -> None:
    client, node = ground.connect()
    ground.lay(kind, delay=60.0)
    client.sendall(request(HEARTBEAT, 1))
    assert ground.came(node) == at_once * request(HEARTBEAT, 1)
    assert ground.relay.rules["r"].counted.holding == 0
    ground.relay.lift("r")
    assert ground.came(node) == request(HEARTBEAT, 1)
    node.sendall((1 + at_once) * response(1))
    assert ground.came(client) == response(1)


@pytest.mark.parametrize(
    ("limits", "passed"),
    [({"times": 2}, [3, 4, 5]), ({"every": 2}, [1, 3, 5]), ({"every": 2, "times": 1}, [1, 3, 4, 5])],
)
def test_only_so_many(ground: Ground, limits: dict[str, int], passed: list[int]) -> None:
    ground.lay(RuleKind.CLOSE, **limits)
    got = []
    for number in range(1, 6):
        client, node = ground.connect()
        client.sendall(request(HEARTBEAT, number))
        if ground.came(node) == request(HEARTBEAT, number):
            got.append(number)
    assert got == passed


def test_a_share_is_drawn(ground: Ground) -> None:
    ground.lay(RuleKind.LATE, share=0.3, delay=0.0, seed=7)
    acting = ground.relay.rules["r"]
    hits = sum(acting.takes(probe=False) for _ in range(2000))
    assert 500 < hits < 700 and acting.counted.hit == hits


@pytest.mark.parametrize("side", FrameSide)
def test_those_of_one_client_alone(ground: Ground, side: FrameSide) -> None:
    client, node = ground.connect()
    ground.lay(RuleKind.CLOSE, side=side, client="ackproof-p1")
    client.sendall(request(HEARTBEAT, 1, name=b"ackproof-p10") + request(HEARTBEAT, 2))
    assert ground.came(node) == request(HEARTBEAT, 1, name=b"ackproof-p10") + request(HEARTBEAT, 2)
    node.sendall(response(1) + response(2))
    assert ground.came(client) == response(1) + response(2)
    counted = ground.relay.rules["r"].counted
    assert (counted.matched, counted.hit) == (0, 0)
    client.sendall(request(HEARTBEAT, 3, name=b"ackproof-p1"))
    if side is FrameSide.RESPONSE:
        assert ground.came(node) == request(HEARTBEAT, 3, name=b"ackproof-p1")
        node.sendall(response(3))
    with contextlib.suppress(ConnectionResetError):
        assert ground.came(client) == b"closed"
    assert (counted.matched, counted.hit) == (1, 1)


def test_a_rule_for_every_api_of_a_client_stops_it_and_no_control(ground: Ground) -> None:
    """The witness's probe is ApiVersions; its control, a probe of another API, passes."""
    client, node = ground.connect()
    ground.lay(RuleKind.HOLD, api=EVERY_API, client="ackproof-p1")
    frames = [request(api, 1, name=b"ackproof-p1") for api in (METADATA, HEARTBEAT)]
    client.sendall(b"".join(frames))
    assert ground.came(node) == b""
    for api, name, passes in (
        (METADATA, b"ackproof-p0", True),
        (METADATA, PROBE + b"...", True),
        (PROBED_API, PROBE + b"...", False),
    ):
        other, others_node = ground.connect()
        other.sendall(request(api, 2, name=name))
        assert (ground.came(others_node) == request(api, 2, name=name)) is passes
    assert ground.relay.rules["r"].counted.holding == 1
    ground.relay.lift("r")
    assert ground.came(node) == b"".join(frames)


def test_questions_are_hit_and_not_counted(ground: Ground) -> None:
    client, node = ground.connect()
    ground.lay(RuleKind.HOLD, times=1)
    for number in range(3):
        one, its_node = ground.connect()
        one.sendall(request(HEARTBEAT, number, name=PROBE + b"..."))
        assert ground.came(its_node) == b""
    client.sendall(request(HEARTBEAT, 9))
    assert ground.came(node) == b""
    counted = ground.relay.rules["r"].counted
    assert (counted.matched, counted.hit, counted.holding) == (1, 1, 1)


def test_those_go_first_that_came_first(ground: Ground) -> None:
    ground.lay(RuleKind.HOLD)
    lines = [ground.connect() for _ in range(3)]
    for number in (2, 0, 1):
        lines[number][0].sendall(request(HEARTBEAT, number) + request(HEARTBEAT, 10 + number))
        assert ground.came(lines[number][1]) == b""
    assert all(ground.relay.release("r", "w") for _ in range(2))
    assert [ground.came(node) for _, node in lines] == [request(HEARTBEAT, 0), b"", request(HEARTBEAT, 2)]
    assert ground.relay.count_held() == {"r": {"w": 3}}
    ground.relay.lift("r")
    assert ground.came(lines[1][1]) == request(HEARTBEAT, 1) + request(HEARTBEAT, 11)


def test_they_go_when_so_many_wait_and_no_other_waits(ground: Ground) -> None:
    ground.lay(RuleKind.HOLD, until_held=2)
    first, its_node = ground.connect()
    second, others_node = ground.connect()
    first.sendall(request(HEARTBEAT, 1))
    assert ground.came(its_node) == b""
    second.sendall(request(HEARTBEAT, 2))
    assert ground.came(its_node) == request(HEARTBEAT, 1)
    assert ground.came(others_node) == request(HEARTBEAT, 2)
    second.sendall(request(HEARTBEAT, 3))
    assert ground.came(others_node) == request(HEARTBEAT, 3)
    asking, asked = ground.connect()
    asking.sendall(request(HEARTBEAT, 3, name=PROBE))
    assert ground.came(asked) == b""


def test_those_behind_overtake_it_and_their_answers_do_not(ground: Ground) -> None:
    client, node = ground.connect()
    ground.lay(RuleKind.HOLD, overtaken=True, times=1)
    client.sendall(request(HEARTBEAT, 1) + request(HEARTBEAT, 2) + request(METADATA, 3, size=5)[:-3])
    assert ground.came(node) == request(HEARTBEAT, 2) + request(METADATA, 3, size=5)[:-3]
    node.sendall(response(2))
    assert ground.came(client) == b""
    ground.relay.lift("r")
    assert ground.came(node) == b""  # not in the midst of another
    client.sendall(request(METADATA, 3, size=5)[-3:])
    assert ground.came(node) == request(METADATA, 3, size=5)[-3:] + request(HEARTBEAT, 1)
    node.sendall(response(3) + response(1))
    assert ground.came(client) == response(1) + response(2) + response(3)
    assert not ground.relay.trouble


def test_an_answer_to_nothing_is_told_and_ends_its_connection(ground: Ground) -> None:
    client, node = ground.connect()
    client.sendall(request(METADATA, 1))
    assert ground.came(node)
    node.sendall(response(5))
    assert ground.came(client) == b"closed"
    assert "5 was answered where 1 was asked" in ground.relay.trouble


def test_answered_in_its_turn_and_not_passed_on(ground: Ground) -> None:
    client, node = ground.connect()
    ground.lay(RuleKind.ANSWER, code=CODE)
    client.sendall(
        request(METADATA, 1) + request(HEARTBEAT, 2) + request(METADATA, 3) + request(HEARTBEAT, 4)
    )
    assert ground.came(node) == request(METADATA, 1) + request(METADATA, 3)
    made = [struct.pack(">iixih4x", 15, number, 0, CODE) for number in (2, 4)]
    assert ground.came(client) == b""
    node.sendall(response(1, 100)[:50])
    assert ground.came(client) == response(1, 100)[:50]
    node.sendall(response(1, 100)[50:] + response(3))
    assert ground.came(client) == response(1, 100)[50:] + made[0] + response(3) + made[1]
    assert not ground.relay.trouble


def test_a_version_without_an_answer_is_passed_on_and_told(ground: Ground) -> None:
    client, node = ground.connect()
    ground.lay(RuleKind.ANSWER, code=CODE)
    newer = request(HEARTBEAT, 2).replace(struct.pack(">hh", HEARTBEAT, 1), struct.pack(">hh", HEARTBEAT, 7))
    client.sendall(newer)
    assert ground.came(node) == newer
    assert "is unknown" in ground.relay.rules["r"].counted.trouble


def test_nobody_behind_is_a_reset(ground: Ground) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        front, nobody = ("127.0.0.9", free.getsockname()[1]), ("127.0.0.10", free.getsockname()[1])
    ground.relay.add("dead", front, nobody)
    with contextlib.closing(socket.create_connection(front)) as client:
        ground.turn()
        client.settimeout(2.0)
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_what_cannot_be_is_refused(ground: Ground) -> None:
    ground.lay(RuleKind.HOLD)
    with pytest.raises(ValueError, match="already"):
        ground.lay(RuleKind.LOSE)
    with pytest.raises(ValueError, match="no way x"):
        ground.relay.lay(Rule("s", RuleKind.HOLD, FrameSide.REQUEST, 1, ("x",)))
    with pytest.raises(ValueError, match="no rule y"):
        ground.relay.lift("y")

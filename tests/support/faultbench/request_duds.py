"""Faults of requests that do nothing: the proxy believes that it does what it was told, and was told something else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from ackproof.cluster.network.requests.rules import Counted
from faultbench.bench import Bench
from faultbench.dud import Dud
from faultbench.spoilt import of_another_api, of_the_other_side, says

_LINK: Final = "link: follower(t/0) -> leader(t/0)"
_REQUESTS: Final = "ackproof.cluster.network.requests.links.RequestLinks"


@contextmanager
def let_go_at_last(bench: Bench) -> Iterator[None]:
    """What its healing has left is not laid for the next."""
    yield
    if (requests := bench.cluster.requests) is not None:
        requests.lift("fault-1")


REQUEST_DUDS: Final[Mapping[str, Dud]] = {
    "hold_request": Dud(
        "hold_request: {link: follower(t/0) -> controllers, api: BrokerHeartbeat}",
        "to show",
        {f"{_REQUESTS}.lay": of_another_api},
        nightly=False,
    ),
    "lose_request": Dud(
        "lose_request: {link: clients -> leader(t/0), api: Produce}",
        "to show",
        {f"{_REQUESTS}.lay": of_another_api},
    ),
    "a response that is lost where the request was to be": Dud(
        f"lose_request: {{{_LINK}, api: Fetch}}", "to show", {f"{_REQUESTS}.lay": of_the_other_side}
    ),
    "close_at_request": Dud(
        f"close_at_request: {{{_LINK}, api: Fetch}}", "to show", {f"{_REQUESTS}.lay": of_another_api}
    ),
    "late_request": Dud(
        f"late_request: {{{_LINK}, api: Fetch, by: 400ms}}",
        "to show",
        {f"{_REQUESTS}.lay": of_another_api},
    ),
    "repeat_request": Dud(
        "repeat_request: {link: clients -> leader(t/0), api: Produce}",
        "to show",
        {f"{_REQUESTS}.lay": of_another_api},
    ),
    "answer_request": Dud(
        f"answer_request: {{{_LINK}, api: Fetch, error: FETCH_SESSION_ID_NOT_FOUND}}",
        "to show",
        {f"{_REQUESTS}.lay": of_another_api},
    ),
    "requests that are not let go": Dud(
        "hold_request: {link: follower(t/0) -> controllers, api: AllocateProducerIds}",
        "to pass again",
        {f"{_REQUESTS}.lift": says(Counted(1, 1))},
        bites=True,
        stage=let_go_at_last,
    ),
    "requests of which none came": Dud(
        f"hold_request: {{{_LINK}, api: OffsetForLeaderEpoch}}", "none came by", bites=True
    ),
}

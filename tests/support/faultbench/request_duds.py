"""Duds of request faults: the proxy gets another rule than the fault asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from ackproof.network.requests.rules import RuleCounts
from faultbench.bench import Bench
from faultbench.dud import Dud
from faultbench.spoilt import of_another_api, of_any_partition, of_the_other_side, right_behind, says

_LINK: Final = "link: follower(t/0) -> leader(t/0)"
_REQUESTS: Final = "ackproof.network.requests.links.RequestLinks"


@contextmanager
def let_go_at_last(bench: Bench) -> Iterator[None]:
    """After the block, remove the rule that the dud's healing has left."""
    yield
    if (requests := bench.cluster.requests) is not None:
        requests.lift("fault-1")


_WORDS: Final = {
    "hold_request": "",
    "lose_request": "",
    "close_at_request": "",
    "late_request": ", by: 400ms",
    "repeat_request": "",
    "answer_request": ", error: {error}",
}
_GROUPS: Final = {
    "Produce": ("clients -> leader(t/0)", "NOT_LEADER_OR_FOLLOWER"),
    "Fetch": ("follower(t/0) -> leader(t/0)", "FETCH_SESSION_ID_NOT_FOUND"),
    "AlterPartition": ("leader(t/0) -> controllers", "NOT_CONTROLLER"),
}
"""By API: the link of a fault, and an error that a broker returns there. There is one API for each kind of
connection."""


def _of_another_api() -> dict[str, Dud]:
    """Return a dud for each kind of request fault, each API of `_GROUPS` and each side, whose rule is for another API.
    `repeat_request` has no duds for responses."""
    duds = {}
    for kind, words in _WORDS.items():
        for api, (link, error) in _GROUPS.items():
            for side in ("request", "response"):
                fault = f"{kind}: {{link: {link}, api: {api}, side: {side}{words.format(error=error)}}}"
                if (kind, side) != ("repeat_request", "response"):
                    duds[f"{kind} {api} {side}"] = Dud(fault, "to show", {f"{_REQUESTS}.lay": of_another_api})
    return duds


REQUEST_DUDS: Final[Mapping[str, Dud]] = {
    "hold_request": Dud(
        "hold_request: {link: follower(t/0) -> controllers, api: BrokerHeartbeat}",
        "to show",
        {f"{_REQUESTS}.lay": of_another_api},
        nightly=False,
    ),
    "a response that is lost where the request was to be": Dud(
        f"lose_request: {{{_LINK}, api: Fetch}}", "to show", {f"{_REQUESTS}.lay": of_the_other_side}
    ),
    "requests of any partition where one was to be": Dud(
        f"hold_request: {{{_LINK}, api: Fetch, partition: t/0}}",
        "to show",
        {f"{_REQUESTS}.lay": of_any_partition},
    ),
    "a second request right behind, where it was to come later": Dud(
        "repeat_request: {link: follower(t/0) -> controllers, api: BrokerHeartbeat, by: 400ms}",
        "to show",
        {f"{_REQUESTS}.lay": right_behind},
    ),
    **_of_another_api(),
    "requests that are not let go": Dud(
        "hold_request: {link: follower(t/0) -> controllers, api: AllocateProducerIds}",
        "to pass again",
        {f"{_REQUESTS}.lift": says(RuleCounts(1, 1))},
        bites=True,
        stage=let_go_at_last,
    ),
    "requests of which none came": Dud(
        f"hold_request: {{{_LINK}, api: OffsetForLeaderEpoch}}", "none passed", bites=True
    ),
}

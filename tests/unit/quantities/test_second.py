"""Compares every quantity with its plain second implementation (`plain`), on run directories that Hypothesis draws."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackproof.quantities.answer import answered, measured
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Argument, Ask, Quantity, Value, Witness
from ackproof.quantities.vocabulary import VOCABULARY
from ackproof.rundir.bounds import WHOLE, Bound, Window
from ackproof.rundir.partition import TopicPartition

from .plain import brokers, decided, disks, drawn, drawn_nodes, gaps, metrics, requests, states
from .plain.facts import TOPIC, Bounds, Facts, spans
from .plain.second import COUNTED, LOOKED, all_looks, demanded, name_of
from .plain.written import written

COMMIT_AND_METADATA = [name for name in gaps.COUNTED if "(metadata)" in name]
MADE_OF = {
    "requests": [*(gaps.COUNTED.keys() - {*COMMIT_AND_METADATA}), *requests.COUNTED, "reads"],
    "looks": [*states.COUNTED, *states.LOOKED],
    "decisions": [*decided.COUNTED],
    "disks": [*disks.COUNTED],
    "brokers": [*COMMIT_AND_METADATA, *(brokers.COUNTED.keys() - {"reads"}), *brokers.LOOKED],
    "metrics": [*metrics.COUNTED, *metrics.LOOKED],
}
"""Names of quantities by the strategy (`DRAWN`) whose runs they are measured on."""
DRAWN = {
    "requests": drawn.requests, "looks": drawn.looks, "decisions": drawn.decisions,
    "disks": drawn_nodes.disks, "brokers": drawn_nodes.asked, "metrics": drawn_nodes.scraped,
}  # fmt: skip


def test_every_quantity_has_a_second_implementation() -> None:
    """A new quantity needs a second implementation in `plain`, written from its definition."""
    names = {name_of(one) for one in VOCABULARY.values() if one.needs is not Witness.GROUPS}  # test_groups.py
    assert names == COUNTED.keys() | LOOKED.keys()
    assert not COUNTED.keys() & LOOKED.keys()
    assert sorted(names) == sorted(name for each in MADE_OF.values() for name in each)


def asks(
    quantity: Quantity, place: int | None, fault: int, node: int, above_s: float, code: int, shows: Bound, viewer: int
) -> Ask:  # fmt: skip
    """Return a question with the arguments that the quantity requires and, unless `place` is None, those that it may
    have."""
    takes = (*quantity.required, *quantity.optional)
    by_place = place is not None
    return Ask(
        quantity,
        fault=fault if Argument.FAULT in takes else None,
        above_s=above_s if Argument.ABOVE in takes else None,
        code=code if Argument.CODE in takes and by_place else None,
        place=TopicPartition(TOPIC, place) if place is not None and Argument.PLACE in takes else None,
        node=node if Argument.NODE in quantity.required or (Argument.NODE in takes and by_place) else None,
        shows=shows if Argument.SHOWS in takes else None,
        viewer=viewer if Argument.VIEWER in takes else None,
    )


def alike(found: Value, plain: Bounds, name: str) -> bool:
    """Return True if both implementations agree, or both have no number. A quantile of latency is only exact to 0.05
    %."""
    if plain is None or not found.is_known:
        return plain is None and not found.is_known
    if name.startswith("latency(p"):
        return found.low <= plain[0] <= found.high <= found.low * 1.0005 + 1e-8
    return (found.low, found.high) == pytest.approx(plain, rel=1e-13, abs=1e-13)


@pytest.mark.parametrize("family", list(MADE_OF))
@given(data=st.data())
def test_every_quantity_beside_a_plain_second_implementation(family: str, data: st.DataObject) -> None:
    facts: Facts = data.draw(DRAWN[family]())
    window = data.draw(drawn.windows)
    bound = data.draw(drawn.bounds(5))
    place, fault, node = (
        data.draw(st.sampled_from([0, 0, 1])),
        data.draw(st.sampled_from([1, 1, 2])),
        data.draw(drawn.nodes),
    )
    above_s = data.draw(st.sampled_from([0.01, 0.125, 0.5, 2.0]))
    code, viewer = data.draw(st.sampled_from([7, 19, 0])), data.draw(st.integers(0, 3))
    shows = Bound(data.draw(st.sampled_from([">", ">=", "=="])), data.draw(st.integers(0, 3)))
    with TemporaryDirectory() as folder:
        evidence = written(facts, Path(folder))
        for quantity in VOCABULARY.values():
            if name_of(quantity) not in MADE_OF[family]:
                continue
            if family == "metrics" and quantity.variant.removeprefix("metric ") not in METRICS_ASKED:
                continue
            for where in (None, place):
                ask = asks(quantity, where, fault, node, above_s, code, shows, viewer)
                if quantity.state is None:
                    check_number(evidence, facts, ask, WHOLE)
                    if quantity.windows:
                        check_number(evidence, facts, ask, window)
                else:
                    check_state(evidence, facts, ask, bound)


METRICS_ASKED = (
    "under_replicated_partitions", "offline_partitions_count", "isr_shrinks", "unclean_leader_elections",
    "produce_total_time_p99",
)  # fmt: skip
"""Metrics that are asked about: one of each shape, and of each way to combine nodes."""


def check_number(evidence: Evidence, facts: Facts, ask: Ask, window: Window) -> None:
    found = measured(evidence, ask, window)
    plain = COUNTED[name_of(ask.quantity)](facts, ask, window)
    assert alike(found, plain, ask.quantity.key), f"{ask} {window}: {found}, and plainly {plain}"
    assert found.why or found.high < math.inf, f"{ask} {window}: {found}, and not why"


def check_state(evidence: Evidence, facts: Facts, ask: Ask, bound: Bound) -> None:
    seen = answered(evidence, ask, bound)
    plain = demanded(facts, ask, bound)
    assert seen.holds is plain, f"{ask} {bound}: {seen}, and plainly {plain}"
    assert seen.seen and bool(seen.why) is (plain is None), f"{ask} {bound}: {seen}"
    if ask.quantity.state is None or (ask.quantity.state.among is None and ask.place is None):
        return
    found = measured(evidence, ask, bound.window)
    within = spans(facts, bound.window) or []
    numbers = [
        number
        for looks in all_looks(facts, ask).values()
        for at, number in looks
        if any(begin <= at < end for begin, end in within)
    ]
    told = (min(numbers), max(numbers)) if numbers else None
    assert alike(found, told, ask.quantity.key), f"{ask} {bound.window}: {found}, and plainly {told}"

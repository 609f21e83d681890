"""Tests of quantities of brokers' views and answers, on planted rounds with known results, holes and silent brokers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from ackproof.quantities.answer import answered, measured, rows
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Answer, Value
from ackproof.quantities.vocabulary import parse_ask
from ackproof.rundir.bounds import WHOLE, Bound, Span, Window
from ackproof.rundir.documents import CaseFile, Client
from ackproof.rundir.metadata import BrokerChanged, BrokerRegistered, BrokerUnregistered
from ackproof.rundir.observed import ZNODES, BrokerRound, PartitionView, ServedReplica, ViewerAnswer
from ackproof.rundir.partition import TopicPartition

from .conftest import SECOND, Make, ended, life, look, read

PLACE = TopicPartition("orders", 0)


def told(
    viewer: int, *, leader: int = 1, isr: tuple[int, ...] = (1, 2, 3), members: int = 3, **gave: int
) -> ViewerAnswer:
    """Return a viewer's answer about orders/0. `members`: number of brokers it lists. `gave`: fields of its
    `ServedReplica` that differ from those of a healthy broker."""
    row = PartitionView(
        topic="orders", partition=0, leader=leader, leader_epoch=leader, replicas=(1, 2, 3), isr=isr
    )
    served = {
        "topic": "orders",
        "partition": 0,
        "fetch": 0,
        "records": 1,
        "produce": 2 if viewer == leader else 6,
    }
    return ViewerAnswer(
        viewer=viewer,
        brokers=tuple(range(1, members + 1)),
        partitions=(row,),
        served=() if viewer == ZNODES else (ServedReplica.model_validate({**served, **gave}),),
    )


def round_(
    at_s: float, *each: ViewerAnswer, silent: tuple[int, ...] = (), controller: int | None = 1
) -> BrokerRound:
    t_ns = round(at_s * SECOND)
    return BrokerRound(t_ns=t_ns, done_ns=t_ns + 5_000_000, controller=controller, told=each, silent=silent)


def rounds(begin_s: float, end_s: float, *each: ViewerAnswer, **fields: Any) -> list[BrokerRound]:
    """Return five rounds per second with these answers, from `begin_s` to before `end_s`."""
    return [round_(begin_s + number / 5, *each, **fields) for number in range(round((end_s - begin_s) * 5))]


AGREE = (told(1), told(2), told(3))
APART = (told(1), told(2), told(3, leader=3))


@pytest.fixture
def asked(make: Make) -> Callable[..., Evidence]:
    def made(found: Iterable[BrokerRound], **planted: Any) -> Evidence:
        evidence = make(**planted)
        evidence.run.brokers.write_text("".join(f"{one.model_dump_json()}\n" for one in found))
        return Evidence.of_run(evidence.run)

    return made


def value(evidence: Evidence, text: str, window: Window = WHOLE) -> Value:
    return measured(evidence, parse_ask(text), window)


def answer(evidence: Evidence, text: str, bound: str | int) -> Answer:
    ask = parse_ask(text)
    return answered(evidence, ask, Bound.parse(bound, ask.quantity.unit))


@pytest.mark.parametrize(
    ("text", "read_back"),
    [
        ("said(isr,by znodes, orders/0)", "said(isr, orders/0, by znodes)"),
        ("said(members, by node 12)", "said(members, by node 12)"),
        ("behind(orders/0, node 2)", "behind(orders/0, node 2)"),
    ],
)
def test_an_ask_reads_back_as_it_is_written(text: str, read_back: str) -> None:
    assert str(parse_ask(text)) == str(parse_ask(read_back)) == read_back


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("said(isr)", "lacks 'by V'"),
        ("said(isr, by somebody)", "means nothing there"),
        ("said(members, by node 1, orders/0)", "is not asked of 'orders/0'"),
        ("isr(by node 1)", "is not asked of 'by node 1'"),
        ("reads", "lacks 'node N'"),
        ("isr(orders/0,)", "nothing between two of the commas"),
        ("isr()", "nothing between two of the commas, or parentheses"),
    ],
)
def test_what_cannot_be_asked_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_ask(text)


@pytest.mark.parametrize(
    ("text", "bound"),
    [("said(leader, by node 2)", "always == 1"), ("views", "never > 1"), ("disagreement", "< 1s")],
)
def test_a_partition_that_nobody_spoke_of_is_not_as_the_others(
    asked: Callable[..., Evidence], text: str, bound: str
) -> None:
    assert answer(asked(rounds(0, 10, *AGREE), partitions=1), text, bound).holds is True
    half = answer(asked(rounds(0, 10, *AGREE), partitions=2), text, bound)
    assert half.holds is None
    assert "orders/1" in half.why
    if "disagreement" not in text:
        lone = text.replace(")", ", orders/0)") if ")" in text else f"{text}(orders/0)"
        assert answer(asked(rounds(0, 10, *AGREE), partitions=2), lone, bound).holds is True


def test_each_viewer_is_asked_for_itself(asked: Callable[..., Evidence]) -> None:
    late = [told(1, leader=2), told(2, leader=2), told(3), told(ZNODES, leader=2, members=2)]
    run = asked([*rounds(0, 5, *AGREE, told(ZNODES)), *rounds(5, 10, *late)])
    assert answer(run, "said(leader, by znodes, orders/0)", "eventually == 2 by 6s").holds is True
    assert answer(run, "said(leader, by node 3, orders/0)", "always == 1").holds is True
    assert answer(run, "said(leader, by node 2)", "always == 1").broken
    assert answer(run, "said(members, by znodes)", "eventually == 2").holds is True
    assert answer(run, "said(members, by node 1)", "always == 3").holds is True
    assert answer(run, "controller", "always == 1").holds is True


def test_a_row_of_what_each_viewer_says(asked: Callable[..., Evidence]) -> None:
    run = asked(rounds(0, 10, told(1), told(2, leader=2), told(ZNODES)), samples=[look(1)])
    found = {(one.quantity, one.partition): (one.low, one.high) for one in rows(run) if not one.window}
    assert found["said(leader, by node 2)", "orders/0"] == (2, 2)
    assert found["said(members, by znodes)", ""] == (3, 3)
    assert found["views", "orders/0"] == (2, 2)
    assert found["behind(node 1)", ""] == (-math.inf, math.inf)  # nobody told a high watermark


def test_who_did_not_answer_is_a_hole(asked: Callable[..., Evidence]) -> None:
    run = asked([*rounds(0, 3, *AGREE), *rounds(3, 6, *AGREE[:2], silent=(3,)), *rounds(6, 10, *AGREE)])
    unknown = answer(run, "said(leader, by node 3, orders/0)", "never == 3")
    assert unknown.holds is None
    assert "from 2.800 s to 6.000 s" in unknown.why
    assert answer(run, "said(leader, by node 2, orders/0)", "never == 3").holds is True
    assert answer(run, "views(orders/0)", "always == 1").holds is None
    quiet = asked([*rounds(0, 10, *AGREE, controller=None)])
    assert answer(quiet, "controller", "never == 2").holds is None


def test_nobody_asked(make: Make) -> None:
    run = make(consumed=[read(1, 0)])
    for text in ("said(leader, by node 1)", "views", "controller", "said(members, by node 1)"):
        assert "observe: {brokers: true}" in answer(run, text, "always == 1").why
    for text in ("disagreement", "served(fetch)", "beyond", "reads(node 1)"):
        assert "observe: {brokers: true}" in value(run, text).why
    assert not [row for row in rows(run) if row.quantity.startswith(("said", "served", "reads", "views"))]


def test_disagreement_lies_between_rounds(asked: Callable[..., Evidence]) -> None:
    run = asked([*rounds(0, 4, *AGREE), *rounds(4, 6, *APART), *rounds(6, 10, *AGREE)])
    seen = value(run, "disagreement(orders/0)")
    assert (seen.low, seen.high) == (pytest.approx(1.795), pytest.approx(2.205))
    assert answer(run, "disagreement", "< 1s").broken
    assert answer(run, "disagreement", "< 3s").holds is True
    assert answer(run, "views(orders/0)", "eventually == 2").holds is True


def test_disagreement_that_the_end_cuts_or_a_hole_may_hide(asked: Callable[..., Evidence]) -> None:
    cut = value(asked([*rounds(0, 7, *AGREE), *rounds(7, 10, *APART)]), "disagreement")
    assert (cut.low, cut.high) == (pytest.approx(2.795), pytest.approx(3.2))
    hole = value(asked([*rounds(0, 3, *AGREE), *rounds(7, 10, *AGREE)]), "disagreement")
    assert (hole.low, hole.high) == (0, pytest.approx(4.205))
    assert "from 2.800 s to 7.000 s" in hole.why
    late = value(asked(rounds(3, 10, *AGREE)), "disagreement")
    assert late.high == pytest.approx(0.205)
    assert not value(asked(rounds(11, 12, *AGREE)), "disagreement").is_known


def test_what_is_served_and_refused(asked: Callable[..., Evidence]) -> None:
    moved = [told(1, leader=2), told(2, leader=2), told(3, leader=2, fetch=6, records=0)]
    run = asked([*rounds(0, 5, *AGREE), *rounds(5, 10, *moved)], events=life(4.9, 5.1, 8))
    assert value(run, "served(produce, node 1)") == Value.exactly(25)
    assert value(run, "refused(produce, node 1)") == Value.exactly(25)
    assert value(run, "served(produce)") == Value.exactly(50)
    assert value(run, "served(fetch, node 3)") == Value.exactly(25)
    assert value(run, "refused(fetch)") == Value.exactly(25)
    during = Window(Span.AFTER, 1)
    assert value(run, "served(produce, node 1)", during) == Value.exactly(0)
    assert value(run, "served(produce, node 2, orders/0)", during).low > 20
    assert not value(run, "served(produce, node 9)").is_known
    assert not value(run, "served(produce, orders/7)").is_known
    assert value(run, "served(fetch)", Window(Span.DURING, 2)).why == "fault 2 was not confirmed"


def test_beyond_the_high_watermark_needs_something_to_be_there(asked: Callable[..., Evidence]) -> None:
    nothing = asked(rounds(0, 5, told(1, high_watermark=10, log_end=10)))
    assert not value(nothing, "beyond").is_known
    tempted = asked(
        rounds(0, 5, told(1, high_watermark=10, log_end=30), told(2, high_watermark=9, log_end=9))
    )
    assert value(tempted, "beyond(node 1)") == Value.exactly(0)
    assert not value(tempted, "beyond(node 2)").is_known
    broken = asked(rounds(0, 2, told(1, high_watermark=10, log_end=30, beyond=3)))
    assert value(broken, "beyond") == Value.exactly(30)
    assert answer(broken, "beyond", 0).broken


def test_a_followers_own_mark_is_behind(asked: Callable[..., Evidence]) -> None:
    run = asked(rounds(0, 10, told(1, high_watermark=500), told(2, high_watermark=120), told(3, fetch=6)))
    assert answer(run, "behind(node 2, orders/0)", "always == 380").holds is True
    assert answer(run, "behind(node 1)", "always == 0").holds is True
    assert answer(run, "behind(node 3)", "always == 0").holds is None


def fetched(evidence: Evidence, *lines: tuple[float, int]) -> Evidence:
    """Return the run with a live reader r0, which reported at these (time in s, broker) that it fetched from the
    broker."""
    case = CaseFile.load(evidence.run.case_json)
    clients = (Client(id="r0", kind="reader", reader=0, topics=("orders",)),)
    case.model_copy(update={"clients": clients}).save(evidence.run.case_json)
    (evidence.run.consumed / "client=x").rename(evidence.run.consumed / "client=r0")
    folder = evidence.run.clients / "r0"
    folder.mkdir(parents=True)
    (folder / "served.jsonl").write_text(
        "".join(
            json.dumps({"t_ns": round(at * SECOND), "sources": [["orders", 0, broker]]}) + "\n"
            for at, broker in lines
        )
    )
    return Evidence.of_run(evidence.run)


def every(begin_s: float, end_s: float, broker: int) -> list[tuple[float, int]]:
    return [(begin_s + number / 5, broker) for number in range(round((end_s - begin_s) * 5))]


def test_reads_belong_to_whom_the_reader_named_around_them(make: Make) -> None:
    records = [read(0.3, 0), read(2, 1), read(3.1, 2), read(4.5, 3), read(9, 4)]
    run = fetched(make(consumed=records), (0.2, -1), *every(0.4, 3, 1), *every(3, 10, 2))
    first, second = value(run, "reads(node 1)"), value(run, "reads(node 2)")
    assert (first.low, first.high) == (2, 3)  # that of 3.1 s may be of either
    assert (second.low, second.high) == (2, 3)
    assert value(run, "reads(node 3)") == Value.exactly(0)
    assert value(run, "reads(node 2)", Window(Span.DURING_FAULTS)).low == -math.inf


def test_a_second_is_not_silent(make: Make) -> None:
    """A second without a report leaves no read in doubt: before the first report, between two, and after the last."""
    records = [read(1, 0), read(2.5, 1), read(4, 2)]
    run = fetched(make(consumed=records), (2, 1), (3, 1))
    assert value(run, "reads(node 1)") == Value.exactly(3)


def test_a_silent_reader_may_have_read_from_anybody(make: Make) -> None:
    records = [read(1, 0), read(4, 1), read(9, 2)]
    run = fetched(make(consumed=records), *every(0, 2, 1), *every(6, 7, 1))
    assert (value(run, "reads(node 1)").low, value(run, "reads(node 1)").high) == (1, 3)
    assert (value(run, "reads(node 2)").low, value(run, "reads(node 2)").high) == (0, 2)


def test_registrations(make: Make) -> None:
    def broker(kind: Any, number: int, **fields: Any) -> Any:
        return kind(
            offset=number, epoch=1, timestamp_ms=0, node=fields.pop("node", 1), broker_epoch=1, **fields
        )

    made = {"incarnation": "", "fenced": True}
    log = [
        broker(BrokerRegistered, 0, **made),
        broker(BrokerRegistered, 1, node=2, **made),
        broker(BrokerChanged, 2, fenced=False),
        broker(BrokerChanged, 3, fenced=True),
        broker(BrokerUnregistered, 4, node=2),
    ]
    kraft = make(metadata=ended(log))
    assert value(kraft, "registrations(made)") == Value.exactly(2)
    assert value(kraft, "registrations(fenced, node 1)") == Value.exactly(1)
    assert value(kraft, "registrations(fenced, node 2)") == Value.exactly(0)
    assert value(kraft, "registrations(gone)") == Value.exactly(1)
    hole = make(metadata=log)
    assert value(hole, "registrations(gone)").high == math.inf


def test_what_is_appended_and_not_committed_and_what_is_withheld(make: Make) -> None:
    def at(at_s: float, **fields: Any) -> Any:
        return replace(look(at_s, mark=100), **fields)

    held = [at(number / 10, log_ends={1: 300, 2: 180}, last_stable=40) for number in range(101)]
    run = make(samples=held)
    assert answer(run, "uncommitted(node 2, orders/0)", "always == 80").holds is True
    assert answer(run, "uncommitted(node 1)", "always == 200").holds is True
    assert answer(run, "uncommitted(node 3)", "never > 0").holds is None
    assert answer(run, "withheld(orders/0)", "always == 60").holds is True
    assert (
        answer(make(samples=[look(number / 10) for number in range(101)]), "withheld", "never > 0").holds
        is None
    )

from __future__ import annotations

import re

import pytest

from ackproof.base.errors import BadInput
from ackproof.experiment.case import Case
from ackproof.faults.registry import fault_kinds
from ackproof.testing.marker import read_fault, read_marker, read_topic

LINK = {"link": "follower(orders/0) -> leader(orders/0)"}
ASKED = {"link": "follower(orders/0) -> leader(orders/0)", "api": "Fetch"}
FIELDS: dict[str, tuple[dict[str, object], ...]] = {
    **{kind: (LINK, {"link": "clients -> leader(orders/0)"}) for kind in ("cut", "black_hole", "reset")},
    "flap": ({**LINK, "down": "200ms", "up": "300ms"},),
    "throttle": ({**LINK, "rate": "50KB/s"},),
    "delay": ({**LINK, "latency": "100ms"},),
    "slow_close": ({**LINK, "delay": "500ms"},),
    "loss": ({**LINK, "share": "30%"},),
    "drop_large": ({**LINK, "above": "600B"},),
    **dict.fromkeys(("hold_request", "lose_request", "close_at_request", "repeat_request"), (ASKED,)),
    "late_request": ({**ASKED, "by": "1s"},),
    "answer_request": ({**ASKED, "error": "UNKNOWN_SERVER_ERROR"},),
    "isolate": ({"target": 1}, {"target": "controller(101)", "from": "peers"}),
    "detach": ({"target": "broker(1)"},),
    "split": ({"groups": ["minority", "majority"]},),
    "bridge": ({"groups": [[1], [2]], "over": "broker(3)"},),
    "clock_jump": ({"target": "broker(1)", "by": "1h"},),
    "slow_disk": ({"target": "broker(1)"},),
    "full_disk": ({"target": "broker(1)"},),
    "fail_log_dir": ({"target": "broker(1)"},),
    "at_code": ({"target": "broker(1)", "point": "leader-appended", "do": "pause_thread"},),
    "power_loss": ({"target": "broker(1)"}, {"target": "broker(1)", "how": "device"}),
}


def test_defaults() -> None:
    wanted = read_marker((), {})
    assert (wanted.cluster.brokers, wanted.cluster.controllers, wanted.topics) == (3, 1, {})


def test_all_of_it() -> None:
    wanted = read_marker(
        (),
        {
            "brokers": 2,
            "controllers": 3,
            "kafka": "3.9.2",
            "config": {"broker.session.timeout.ms": 3000},
            "topics": {
                "a": {"partitions": 2, "config": {"min.insync.replicas": 1}},
                "b": {"replication_factor": 1},
            },
        },
    )
    assert wanted.cluster.kafka.version == "3.9.2"
    assert wanted.cluster.config == {"broker.session.timeout.ms": "3000"}
    assert (wanted.topics["a"].replication_factor, wanted.topics["b"].replication_factor) == (2, 1)
    assert read_topic(wanted.cluster, "c", {"partitions": 4}).replication_factor == 2
    assert read_marker((), {"topics": ["x", "y"], "brokers": 1}).topics["y"].replication_factor == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"borkers": 3}, "did you mean 'brokers'"),
        ({"brokers": "three"}, "brokers"),
        ({"brokers": 1, "topics": {"a": {"replication_factor": 3}}}, "replication_factor"),
        ({"topics": {"a": {"partition": 1}}}, "did you mean 'partitions'"),
        ({"topics": 5}, "expected names"),
        ({"kafka": 4.3}, "version"),
        ({"config": {"a": object()}}, "expected text"),
        ({"faults": ["isolat"]}, "did you mean 'isolate'"),
        ({"faults": "isolate"}, "expected kinds of faults"),
        ({"faults": ["isolate", "script"]}, "faults: script: it asks the producers of an experiment"),
    ],
)
def test_what_is_wrong_is_told(options: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read_marker((), options)


def _fault(*whom: object, laid: tuple[str, ...] = (), kind: str = "isolate", **fields: object) -> Case:
    wanted = read_marker((), {"topics": ["orders"], "faults": laid})
    return read_fault(wanted, wanted.topics, kind, whom, fields, number=7, seed=1)


def test_a_fault_in_the_words_of_a_file() -> None:
    case = _fault("leader(orders/0)", from_="clients", laid=("isolate",))
    (fault,) = case.experiment.faults
    assert str(fault).startswith("isolate leader(orders/0)")
    assert (fault.number, fault.entry()["isolate"]["from"], case.order(fault)) == (
        7,
        ["clients"],
        case.orders[7],
    )
    assert list(case.experiment.topics) == ["orders"]
    assert _fault(2, kind="kill").faults[0].targets[0].node == 2
    assert _fault(101, kind="pause").faults[0].entry()["pause"] == {"target": "controller(101)"}


def test_a_storm_is_drawn_from_its_seed() -> None:
    case = _fault(kind="storm", menu={"pause": 1, "isolate": 1}, count=6, laid=("isolate",))
    assert {one.kind for one in case.faults} == {"storm", "pause", "isolate"}


@pytest.mark.parametrize("kind", [kind for kind, one in fault_kinds().items() if one.NEEDS and not one.SENDS])
def test_what_a_kind_asks_for_is_laid_when_it_is_named(kind: str) -> None:
    """A marker that names a kind prepares what the kind needs with any fields; `FIELDS` has the smallest sets."""
    for fields in FIELDS[kind]:
        _fault(kind=kind, laid=(kind,), **fields)
        if kind != "power_loss" or fields.get("how") == "device":
            with pytest.raises(BadInput, match=re.escape(f"@pytest.mark.kafka(faults=['{kind}'])")):
                _fault(kind=kind, **fields)


@pytest.mark.parametrize(
    ("whom", "fields", "said"),
    [
        (("leader(order/0)",), {}, "did you mean 'orders'"),
        (("leader(orders/0)",), {"silnt": True}, "silnt: unknown field"),
        ((1, 2), {}, "one value"),
    ],
)
def test_a_fault_that_is_none_is_told(whom: tuple[object, ...], fields: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        _fault(*whom, laid=("isolate",), **fields)


def test_a_script_needs_producers_that_it_can_ask() -> None:
    with pytest.raises(BadInput, match=r"fault\('script'\): .* write it into an experiment file"):
        _fault(kind="script", steps=[{"kill": 1}])


def test_positional_arguments_mean_nothing() -> None:
    with pytest.raises(BadInput, match="named arguments"):
        read_marker((3,), {})

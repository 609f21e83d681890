"""Faults of requests in a file: what they need of the ground, what they come to, and what is refused, where."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof.experiment.backends import Need
from ackproof.plan import InvalidExperiment, Plan
from ackproof.plan.cases import cases
from ackproof_model.predict.incidents import planned

Load = Callable[[str], Plan]

FRAME = """\
name: requests
backend: {backend}
cluster:
  kafka: "{kafka}"
  mode: {mode}
  config: {{broker.session.timeout.ms: 2000, replica.lag.time.max.ms: 3000}}
topics: {{t: {{}}}}
workload: {{duration: 5s, producers: {{acks: {acks}, retries: {retries}, idempotence: false}}}}
faults:
  - {fault}
    at: 1s
    for: {hold}
"""


def text(fault: str, **more: object) -> str:
    usual = {
        "backend": "process",
        "kafka": "4.3.1",
        "mode": "kraft",
        "acks": "all",
        "retries": 3,
        "hold": "2500ms",
    }
    return FRAME.format(fault=fault, **{**usual, **more})


@pytest.mark.parametrize(
    ("fault", "needs"),
    [
        (
            "hold_request: {link: follower(t/0) -> controllers, api: BrokerHeartbeat}",
            {Need.BROKER_REQUESTS},
        ),
        (
            "lose_request: {link: clients -> leader(t/0), api: Produce, side: response, times: 1}",
            {Need.CLIENT_REQUESTS},
        ),
        (
            "late_request: {link: controller -> controllers, api: Fetch, by: 200ms, jitter: 50ms}",
            {Need.CONTROLLER_REQUESTS},
        ),
        (
            "close_at_request: {link: followers(t/0) -> leader(t/0), api: Fetch, every: 3, share: 20%}",
            {Need.BROKER_REQUESTS},
        ),
        ("repeat_request: {link: clients -> brokers, api: Produce}", {Need.CLIENT_REQUESTS}),
    ],
)
def test_what_it_needs(load_text: Load, fault: str, needs: set[Need]) -> None:
    (one,) = load_text(text(fault)).spec.faults
    assert one.needs & set(Need) == needs
    assert one.entry()[one.kind] == load_text(text(fault)).spec.faults[0].entry()[one.kind]


@pytest.mark.parametrize(
    ("fault", "more", "said"),
    [
        (
            "hold_request: {link: broker -> controllers, api: BrokerHeartbeet}",
            {},
            "unknown API 'BrokerHeartbeet' (did you mean 'BrokerHeartbeat'?)",
        ),
        (
            "hold_request: {link: clients -> leader(t/0), api: BrokerHeartbeat}",
            {},
            "BrokerHeartbeat is sent from brokers to controllers, and not over this link; there: Produce",
        ),
        (
            "hold_request: {link: controllers -> brokers, api: Fetch}",
            {},
            "controllers that are not brokers open no connections to brokers",
        ),
        (
            "hold_request: {link: clients -> leader(t/0), api: ConsumerGroupHeartbeat}",
            {"kafka": "3.9.2"},
            "Kafka 3.9.2 sends no ConsumerGroupHeartbeat; it came with 4.0",
        ),
        (
            "lose_request: {link: clients -> leader(t/0), api: Produce, side: response}",
            {"acks": 0},
            "with acks=0 no Produce request is answered",
        ),
        (
            "repeat_request: {link: clients -> leader(t/0), api: Fetch, side: response}",
            {},
            "a response that comes twice ends the connection",
        ),
        (
            "repeat_request: {link: clients -> leader(t/0), api: Produce}",
            {"retries": 0},
            "it would be called Kafka's doing",
        ),
        (
            "answer_request: {link: clients -> leader(t/0), api: Metadata, error: NOT_CONTROLLER}",
            {},
            "a response of Metadata has no error; these have: Fetch",
        ),
        (
            "answer_request: {link: clients -> leader(t/0), api: Produce, side: response, error: INVALID_RECORD}",
            {"retries": 0},
            "what was written would be called refused",
        ),
        (
            "answer_request: {link: clients -> leader(t/0), api: EndTxn, side: response, error: INVALID_TXN_STATE}",
            {},
            "what was committed would be called aborted",
        ),
        (
            "hold_request: {link: clients -> leader(t/0), api: Fetch, topic: t, partition: t/0}",
            {},
            "a topic or a partition, not both",
        ),
        (
            "hold_request: {link: brokers -> controllers, api: BrokerHeartbeat, partition: t/0}",
            {},
            "BrokerHeartbeat names no partitions of topics; these do: Produce",
        ),
        (
            "hold_request: {link: brokers -> controllers, api: Fetch, partition: t/0}",
            {},
            "what is fetched from controllers is the metadata log",
        ),
        (
            "hold_request: {link: clients -> leader(t/0), api: Produce, partition: t/7}",
            {},
            "t/7 does not exist",
        ),
        ("hold_request: {link: clients -> leader(t/0), api: Produce, topic: u}", {}, "the topic"),
        (
            "hold_request: {link: clients -> leader(t/0), api: Fetch, side: response, overtaken: true}",
            {},
            "answers come in the order of the requests",
        ),
        (
            "late_request: {link: clients -> brokers, api: Fetch, by: 1s, jitter: 400ms, distribution: normal}",
            {},
            "the jitter is more than the delay",
        ),
        (
            "answer_request: {link: clients -> leader(t/0), api: EndTxn, error: NOT_COORDINATER}",
            {},
            "unknown error 'NOT_COORDINATER' (did you mean 'NOT_COORDINATOR'?)",
        ),
        (
            "late_request: {link: clients -> leader(t/0), api: Fetch, by: 100ms, jitter: 1s}",
            {},
            "the jitter is more than the delay",
        ),
        ("hold_request: {link: clients -> leader(t/0), api: Fetch, times: 0}", {}, "times"),
        (
            "hold_request: {link: clients -> leader(t/0), api: Fetch}",
            {"backend": "attach"},
            "not possible on the backend attach, because the links of a cluster that someone else runs",
        ),
        (
            "hold_request: {link: clients -> leader(t/0), api: Fetch}",
            {"backend": "model"},
            "in the model nothing stands between",
        ),
        (
            "hold_request: {link: clients -> leader(t/0), api: Fetch}",
            {"mode": "zookeeper", "kafka": "3.9.2"},
            "not possible with cluster.mode: zookeeper",
        ),
    ],
)
def test_what_is_refused(load_text: Load, fault: str, more: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidExperiment) as refused:
        load_text(text(fault, **more))
    assert said in str(refused.value)
    assert all(problem.line for problem in refused.value.problems)


def test_what_leaves_nothing_to_another(load_text: Load) -> None:
    first = "hold_request: {link: brokers -> controllers, api: BrokerHeartbeat}"
    second = """  - late_request: {link: brokers -> controllers, api: %s, by: 200ms}
    after: {fault: 1, by: 1s}
    for: 1s
"""
    assert load_text(text(first, hold="4s") + second % "AlterPartition")
    with pytest.raises(InvalidExperiment, match="leaves no BrokerHeartbeat over brokers -> controllers"):
        load_text(text(first, hold="4s") + second % "BrokerHeartbeat")


@pytest.mark.parametrize(
    ("fault", "hold", "comes_to"),
    [
        ("hold_request: {link: follower(t/0) -> controllers, api: BrokerHeartbeat}", "2500ms", "cuts=1"),
        ("hold_request: {link: follower(t/0) -> controllers, api: BrokerHeartbeat}", "1s", "nothing"),
        ("hold_request: {link: leader(t/0) -> controllers, api: AlterPartition}", "9s", "nothing"),
        ("lose_request: {link: followers(t/0) -> leader(t/0), api: Fetch}", "3s", "shrinks=2"),
        ("lose_request: {link: followers(t/0) -> leader(t/0), api: Fetch}", "2s", "nothing"),
        ("lose_request: {link: clients -> leader(t/0), api: Produce}", "9s", "nothing"),
    ],
)
def test_what_it_comes_to(load_text: Load, fault: str, hold: str, comes_to: str) -> None:
    (case,) = cases(load_text(text(fault, hold=hold)))
    assert [str(count) for _, count in planned(case, "t")] == [comes_to]

"""What the faults and settings of a case come to: the incidents and the rules that a search counts with."""

from __future__ import annotations

import pytest

from ackproof.experiment.case import Case
from ackproof.faults.disks.log_files import PartitionFault
from ackproof.faults.registry import fault_kinds
from ackproof_model.predict.cases import code_for, counted_for
from ackproof_model.predict.incidents import planned
from ackproof_model.replay.observed import CUTS_LOGS
from run_directory import read_case

EXPERIMENT = """\
name: t
cluster: {{config: {{{cluster}}}, features: {{{features}}}}}
topics: {{orders: {{config: {{{topic}}}}}}}
workload: {{producers: {{acks: all, idempotence: true}}, duration: 5s}}
{faults}
"""
SCRIPT = """\
name: script
cluster: {controllers: 1, timing: script}
topics: {t: {partitions: 1}}
workload: {duration: 1s, producers: {acks: 1, count: 2}}
faults:
  - script: {steps: [{kill: 1}, {end_session: 1}, {lead: 3}, {elect: unclean}]}
    at: 0s
"""


def planned_case(cluster: str = "", topic: str = "", features: str = "", faults: str = "") -> Case:
    """Return a case with these settings of the cluster and of a topic, features, and faults, each as YAML."""
    return read_case(EXPERIMENT.format(cluster=cluster, topic=topic, features=features, faults=faults))


def test_the_steps_of_a_script_are_what_goes_wrong_in_it() -> None:
    (counted,) = [count for _, count in planned(read_case(SCRIPT), "t")]
    assert (counted.kills, counted.cuts, counted.hand_overs, counted.unclean) == (1, 1, 1, 1)


REQUESTS = """\
name: requests
cluster: {{config: {{broker.session.timeout.ms: 2000, replica.lag.time.max.ms: 3000}}}}
topics: {{t: {{}}}}
workload: {{duration: 5s}}
faults:
  - {fault}
    at: 1s
    for: {hold}
"""


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
def test_what_a_fault_of_requests_comes_to(fault: str, hold: str, comes_to: str) -> None:
    case = read_case(REQUESTS.format(fault=fault, hold=hold))
    assert [str(count) for _, count in planned(case, "t")] == [comes_to]


def test_who_takes_records_from_a_log() -> None:
    """These may remove records from a log: power losses, damaged files, failing log dirs, unknown commands."""
    taken = {
        name
        for name, kind in fault_kinds().items()
        if issubclass(kind, PartitionFault)
        or (kind.PER_NODE and kind.PER_NODE.power_losses)
        or kind.UNPREDICTABLE
    }
    assert {
        "power_loss",
        "empty_disk",
        "flip_bits",
        "truncate_segment",
        "delete_checkpoint",
        "command",
    } <= taken
    assert taken | {"fail_log_dir"} == CUTS_LOGS


def test_the_level_of_elr_changes_the_rules() -> None:
    name = "eligible.leader.replicas.version"
    assert code_for(planned_case(features=f"{name}: 0")) != code_for(planned_case(features=f"{name}: 1"))


@pytest.mark.parametrize(
    "given", [{"topic": "flush.messages: 1"}, {"cluster": "log.flush.interval.messages: 1"}]
)
def test_a_flush_of_each_append_turns_a_loss_of_power_into_a_kill(given) -> None:  # type: ignore[no-untyped-def]
    faults = "faults: [{power_loss: {target: leader(orders/0)}, at: 1s, restart_after: 1s}]"
    flushed, usual = (counted_for(planned_case(**one, faults=faults), "orders").budget for one in (given, {}))
    assert (flushed.power_losses, usual.power_losses) == (0, 1)
    assert flushed.kills > usual.kills


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("replica.lag.time.max.ms", "clock_jump: {target: leader(orders/0), by: 30s}"),
        ("broker.session.timeout.ms", "pause: {target: leader(orders/0)}"),
    ],
)
def test_time_outs_change_what_a_fault_is_counted_as(name: str, fault: str) -> None:  # type: ignore[no-untyped-def]
    faults = f"faults: [{{{fault}, at: 1s, for: 10s}}]"
    short, long = (
        counted_for(planned_case(cluster=f"{name}: {value}", faults=faults), "orders").budget
        for value in (1000, 60000)
    )
    assert short != long

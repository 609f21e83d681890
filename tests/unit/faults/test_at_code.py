"""The fault `at_code`: its fields in a file, the points of each release, and the Byteman rule that it becomes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackproof.base.errors import BadInput
from ackproof.experiment.exposure import NOTHING, Incidents
from ackproof.experiment.problems import InvalidExperiment
from ackproof.faults.code import fitting, points
from ackproof.faults.code.at_code import HALTED, AtCode, rule_text
from ackproof.faults.code.fitting import require_points
from ackproof.faults.code.points import POINTS
from ackproof.plan import load
from ackproof.plan.cases import cases
from ackproof.provision.byteman import Misfit, RuleProblem
from class_jar import write_class_jar

FILE = """\
name: code
cluster: {{kafka: "{kafka}", brokers: 3, controllers: 1{mode}}}
topics: {{orders: {{partitions: 2, replication_factor: 3}}}}
workload: {{duration: 2s, producers: {{rate: 100/s}}}}
faults:
  - at_code: {fault}
    at: 1s
    for: 1s
"""
EXPERIMENTS = Path(__file__).parents[3] / "experiments" / "points"
LINES = ("3.9.2", "4.0.2", "4.1.2", "4.2.1", "4.3.1", "4.4.0")


@pytest.fixture(autouse=True)
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The cached jars, by release. A test adds the jar that it needs."""
    there: dict[str, Path] = {}
    monkeypatch.setattr(
        points, "cached_classpath", lambda build: tuple(filter(None, [there.get(build.version)]))
    )
    return there


def fault_of(folder: Path, fault: str, *, kafka: str = "4.4.0", mode: str = "", **options: Any) -> AtCode:
    path = folder / "code.yaml"
    path.write_text(FILE.format(kafka=kafka, mode=mode, fault=fault))
    found = cases(load(path, **options))[0].faults[0]
    assert isinstance(found, AtCode)
    return found


@pytest.mark.parametrize("name", sorted(POINTS))
def test_every_named_point_can_be_asked_for(tmp_path: Path, name: str) -> None:
    whom = "controller" if POINTS[name].side == "controller" else "leader(orders/0)"
    fault = fault_of(tmp_path, f"{{point: {name}, do: halt, target: {whom}, pass: 3}}")
    assert (fault.title, fault.nth, fault.hold) == (name, 3, 1.0)
    assert all(POINTS[name].place(version) is not None for version in LINES)
    assert POINTS[name].place("3.8.1") is None
    assert POINTS[name].place("5.1.0") == POINTS[name].place("4.4.0")


@pytest.mark.parametrize(
    ("fault", "more", "said"),
    [
        ("{point: leader-append, do: halt, target: broker(1)}", {}, "leader-appended"),
        ("{point: leader-appended, do: stop, target: broker(1)}", {}, "halt"),
        ("{point: alter-partition, do: halt, target: leader(orders/0)}", {}, "passed by controllers only"),
        ("{point: leader-appended, do: halt, target: controller}", {}, "passed by brokers only"),
        (
            "{point: response-sent, do: halt, target: broker(1), partition: orders/0}",
            {},
            "no single partition",
        ),
        ("{point: leader-appended, do: halt, target: broker(1), partition: orders/7}", {}, "orders"),
        ("{point: leader-appended, do: halt, target: broker(1), by: 3s}", {}, "do: delay only"),
        ("{point: leader-appended, do: halt, target: broker(1), exception: a.B}", {}, "do: throw only"),
        ("{point: {class: a.B, method: m, at: NOWHERE}, do: halt, target: broker(1)}", {}, "ENTRY, EXIT"),
        (
            '{point: {class: a.B, method: m, when: "TRUE\\nDO x"}, do: halt, target: broker(1)}',
            {},
            "one line",
        ),
        ("{point: {class: 'a b', method: m}, do: halt, target: broker(1)}", {}, "full name of a class"),
        ("{point: leader-appended, do: halt, target: broker(1)}", {"backend": "attach"}, "out of reach"),
        ("{point: leader-appended, do: halt, target: broker(1)}", {"backend": "model"}, "no JVMs"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, fault: str, more: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidExperiment, match=said):
        fault_of(tmp_path, fault, **more)


def test_a_point_that_the_release_does_not_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ackproof.faults.code import at_code

    newer = replace(POINTS["segment-rolled"], places={"4.4": POINTS["segment-rolled"].places["4.1"]})
    monkeypatch.setattr(at_code, "POINTS", {**POINTS, "segment-rolled": newer})
    asked = "{point: segment-rolled, do: halt, target: broker(1)}"
    assert fault_of(tmp_path, asked).title == "segment-rolled"
    with pytest.raises(InvalidExperiment, match=r"Kafka 4.3.1 has no point segment-rolled.*from 4.4 on"):
        fault_of(tmp_path, asked, kafka="4.3.1")
    storm = "{count: 1, menu: {upgrade: {weight: 1, to: 4.4.0}}}"
    asked += f"\n    at: 1s\n    for: 1s\n  - storm: {storm}\n    at: 1s\n  - pause: broker(2)"
    assert fault_of(tmp_path, asked, kafka="4.3.1").title == "segment-rolled", "the storm may upgrade"


def test_with_zookeeper_a_broker_decides_isr_changes(tmp_path: Path) -> None:
    asked = "{point: alter-partition, do: halt, target: controller}"
    fault = fault_of(tmp_path, asked, kafka="3.9.2", mode=", mode: zookeeper")
    place = fault.place("3.9.2", "zookeeper")
    assert place is not None and place.class_name == "kafka.controller.KafkaController"


def test_a_rule_acts_at_its_pass_and_never_on_internal_topics(tmp_path: Path) -> None:
    fault = fault_of(
        tmp_path,
        "{point: leader-appended, do: halt, target: leader(orders/1), partition: orders/1, pass: 7}",
    )
    place = fault.place("4.4.0", "kraft")
    assert place is not None
    rule = rule_text(fault, place, "KEY").splitlines()
    assert rule[:4] == [
        "RULE KEY",
        "CLASS org.apache.kafka.storage.internals.log.UnifiedLog",
        "METHOD appendAsLeader",
        "AT EXIT",
    ]
    assert '!passing.startsWith("__")' in rule[5] and 'passing.equals("orders-1")' in rule[5]
    assert 'incrementCounter("KEY " + passing) == 7' in rule[5]
    assert rule[6] == f"DO java.lang.Runtime.getRuntime().halt({HALTED})"


def test_delays_and_exceptions_go_on_until_they_are_healed(tmp_path: Path) -> None:
    for does, act in (("delay", "delay(1000)"), ("throw", "throw new org.apache.kafka.common.errors.")):
        asked = f"{{point: {{class: a.B, method: m, at: AFTER INVOKE n}}, do: {does}, target: broker(1)}}"
        fault = fault_of(tmp_path, asked)
        place = fault.place("4.4.0", "kraft")
        assert place is not None
        rule = rule_text(fault, place, "KEY")
        assert '" + passing) >= 1 &&' in rule and f"\nDO {act}" in rule and "\nAFTER INVOKE n\n" in rule


def test_only_a_halt_is_a_crash(tmp_path: Path) -> None:
    for does, count in (("halt", Incidents(kills=2)), ("pause_thread", NOTHING), ("throw", NOTHING)):
        fault = fault_of(tmp_path, f"{{point: leader-appended, do: {does}, target: brokers}}")
        assert fault.observed(2) == count
        assert fault.keeps(None) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("file", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda file: file.stem)
def test_an_experiment_is_named_by_its_point(file: Path) -> None:
    first = cases(load(file))[0].faults[0]
    assert isinstance(first, AtCode) and first.point == file.stem


def test_every_named_point_has_an_experiment() -> None:
    assert {file.stem for file in EXPERIMENTS.glob("*.yaml")} == set(POINTS)


# -- points without a name, against the jars of the release ----------------------------------------------------------

FREE = "{{point: {{class: {0}, method: {1}}}, do: halt, target: broker(1)}}"
PARTITION = {"kafka.cluster.Partition": [("makeLeader", "(I)Z")]}


@pytest.mark.parametrize(
    ("class_name", "method", "said"),
    [
        (
            "kafka.cluster.Partitions",
            "makeLeader",
            r"point\.class: Kafka 4\.4\.0 has no class .*'kafka.cluster.Partition'",
        ),
        (
            "kafka.cluster.Partition",
            "makeLeaders",
            r"point\.method: .* no method makeLeaders .*mean 'makeLeader'",
        ),
    ],
)
def test_a_class_or_method_that_the_release_lacks_is_refused_with_the_nearest(
    tmp_path: Path, jars: dict[str, Path], class_name: str, method: str, said: str
) -> None:
    asked = FREE.format(class_name, method)
    fault_of(tmp_path, asked)  # the jars are not in the cache: looked up before the cluster starts
    jars["4.4.0"] = write_class_jar(tmp_path / "kafka.jar", PARTITION)
    with pytest.raises(InvalidExperiment, match=said):
        fault_of(tmp_path, asked)
    fault_of(tmp_path, FREE.format("kafka.cluster.Partition", "makeLeader"))


def test_a_broken_jar_refuses_nothing(tmp_path: Path, jars: dict[str, Path]) -> None:
    jars["4.4.0"] = tmp_path / "kafka.jar"
    jars["4.4.0"].write_bytes(b"PK")
    fault_of(tmp_path, FREE.format("kafka.cluster.Partition", "makeLeaders"))


UPGRADE = "  - upgrade: {to: '4.4.0'}\n    at: 4s\n"


def test_a_point_that_an_upgrade_brings_is_accepted(tmp_path: Path, jars: dict[str, Path]) -> None:
    asked = FREE.format("kafka.cluster.Partition", "makeLeader")
    jars["4.3.1"] = write_class_jar(tmp_path / "old.jar", {"kafka.cluster.Other": []})
    with pytest.raises(InvalidExperiment, match=r"Kafka 4\.3\.1 has no class"):
        fault_of(tmp_path, asked, kafka="4.3.1")
    path = tmp_path / "upgrade.yaml"
    path.write_text(FILE.format(kafka="4.3.1", mode="", fault=asked) + UPGRADE)
    assert cases(load(path))[0].faults  # 4.4.0 is not in the cache
    jars["4.4.0"] = write_class_jar(tmp_path / "new.jar", PARTITION)
    assert cases(load(path))[0].faults
    storm = "  - storm: {count: 1, menu: {upgrade: {to: '4.4.0', weight: 1}}}\n    at: 4s\n"
    path.write_text(FILE.format(kafka="4.3.1", mode="", fault=asked) + storm)
    assert cases(load(path))[0].faults


def require(folder: Path, fault: str, jar: Path, **kafka: str) -> None:
    """Check the points of code of a case with this fault (`require_points`). `jar`: the only jar of its Kafka. `kafka`:
    changed fields of its `KafkaBuild`."""
    path = folder / "code.yaml"
    path.write_text(FILE.format(kafka="4.4.0", mode="", fault=fault))
    case = cases(load(path))[0]
    if kafka:
        cluster = case.experiment.cluster.model_copy(
            update={"kafka": replace(case.experiment.cluster.kafka, **kafka)}
        )
        case = replace(case, experiment=case.experiment.model_copy(update={"cluster": cluster}))
    jars = SimpleNamespace(version="4.4.0", classpath=(jar,))
    require_points([case], {build: cast(Any, SimpleNamespace(jars=jars)) for build in case.builds})


def test_a_point_is_looked_up_before_a_cluster_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = write_class_jar(tmp_path / "kafka.jar", PARTITION)
    found: list[RuleProblem] = []
    monkeypatch.setattr(fitting, "check_rules", lambda rules, classpath: tuple(found))
    require(tmp_path, FREE.format("kafka.cluster.Partition", "makeLeader"), jar)
    with pytest.raises(BadInput, match=r"fault 1 \(at_code\): .* no method makeLeaders.*'makeLeader'"):
        require(tmp_path, FREE.format("kafka.cluster.Partition", "makeLeaders"), jar)
    found.append(RuleProblem("point", Misfit.TYPES, "no variable x"))
    with pytest.raises(BadInput, match=r"does not fit Kafka 4\.4\.0: point: type error: no variable x"):
        require(tmp_path, FREE.format("kafka.cluster.Partition", "makeLeader"), jar)


def test_a_build_of_ones_own_may_lack_a_named_point(tmp_path: Path) -> None:
    jar = write_class_jar(tmp_path / "kafka.jar", PARTITION)
    asked = "{point: segment-rolled, do: halt, target: broker(1)}"
    require(tmp_path, asked, jar)  # of a release: a test holds it against the jars
    with pytest.raises(BadInput, match=r"Kafka mine has no class .*UnifiedLog"):
        require(tmp_path, asked, jar, path="/mine", name="mine")

"""A user's broker file (`settings_from`): its settings count as the experiment's, and a stored case keeps them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.cli.main import main_code
from ackproof.experiment.problems import InvalidExperiment
from ackproof.experiment.promises import Promises
from ackproof.experiment.timing import configured, recovery_bounds, time_out, timing_of
from ackproof.plan import Plan, load
from ackproof.plan.cases import case_from_json, case_to_json, cases

FILE = """\
# a broker in production
broker.id=3
listeners = SASL_SSL://:9093
advertised.listeners: SASL_SSL://kafka-3:9093
log.dirs /data/a,\\
         /data/b
ssl.keystore.password=hunter2
confluent.license=hunter2
replica.lag.time.max.ms = 45000
broker.session.timeout.ms: 18000
min.insync.replicas=2
unclean.leader.election.enable=true
"""
TEXT = """\
name: t
cluster: {{settings_from: conf/server.properties{more}}}
topics: {{orders: {{}}}}
workload: {{duration: 1s}}
"""
TAKEN = {
    "replica.lag.time.max.ms": "45000",
    "broker.session.timeout.ms": "18000",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "true",
}

Read = Callable[..., Plan]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that loads an experiment outside the working folder, next to `conf` with the broker file."""
    home = tmp_path / "experiments"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "server.properties").write_text(FILE)

    def load_it(more: str = "", text: str = TEXT, settings: tuple[str, ...] = ()) -> Plan:
        (home / "e.yaml").write_text(text.format(more=more))
        return load(home / "e.yaml", settings)

    return load_it


def test_its_settings_are_those_of_the_cluster(read: Read) -> None:
    cluster = read().spec.cluster
    assert cluster.config == TAKEN
    assert cluster.timing == "kafka"
    assert {**configured(cluster, 1), **TAKEN} == configured(cluster, 1)
    assert "broker.heartbeat.interval.ms" not in configured(cluster, 1), "the rest is Kafka's own"


def test_it_counts_as_settings_of_the_experiment_do(read: Read) -> None:
    from_file = read().spec
    given = ", ".join(f"{name}: {value}" for name, value in TAKEN.items())
    text = f"name: t\ncluster: {{timing: kafka, config: {{{given}}}}}\ntopics: {{orders: {{}}}}\n"
    written = read(text=text.replace("{", "{{").replace("}", "}}") + "workload: {{duration: 1s}}\n").spec
    assert Promises.from_experiment(from_file, "orders") == Promises.from_experiment(written, "orders")
    assert Promises.from_experiment(from_file, "orders").unclean_election
    assert Promises.from_experiment(from_file, "orders").min_insync == 2
    assert recovery_bounds(from_file) == recovery_bounds(written)
    assert time_out(from_file.cluster, "replica.lag.time.max.ms") == 45_000
    plain = read(text="name: t\ntopics: {{orders: {{}}}}\nworkload: {{duration: 1s}}\n").spec
    assert recovery_bounds(from_file) != recovery_bounds(plain)


def test_what_the_experiment_says_counts_more(read: Read) -> None:
    config = ", timing: chaos, config: {broker.session.timeout.ms: 7000}, broker_config: {2: {min.insync.replicas: 1}}"
    cluster = read(config).spec.cluster
    assert cluster.timing == "chaos"
    assert configured(cluster, 1)["broker.session.timeout.ms"] == "7000"
    assert configured(cluster, 1)["replica.lag.time.max.ms"] == "45000", "over that of chaos"
    assert configured(cluster, 1)["broker.heartbeat.interval.ms"] == "300"
    assert configured(cluster, 2)["min.insync.replicas"] == "1"
    assert read(settings=("cluster.timing=chaos",)).spec.cluster.timing == "chaos"
    assert timing_of(read(config).spec).name == "chaos + server.properties + cluster.config"
    assert timing_of(read().spec).name == "Kafka's own + server.properties"


def test_what_is_not_taken_is_told_with_the_reason(read: Read) -> None:
    timing = timing_of(read().spec)
    assert timing.ignored == {
        "it gives out ids and roles": ("broker.id",),
        "it gives out addresses": ("listeners", "advertised.listeners"),
        "data go into the run directory": ("log.dirs",),
        "a run directory would keep it": ("ssl.keystore.password", "confluent.license"),
    }
    told = "\n".join(timing.lines())
    assert "replica.lag.time.max.ms=45000 (30000)" in told
    assert "broker.session.timeout.ms=18000 (9000)" in told
    assert "ignored: listeners, advertised.listeners: it gives out addresses" in told


def test_a_resolved_case_needs_no_file_and_keeps_no_secret(read: Read, tmp_path: Path) -> None:
    (case,) = cases(read())
    written = json.dumps(case_to_json(case))
    (tmp_path / "experiments" / "conf" / "server.properties").unlink()
    again = case_from_json(json.loads(written))
    assert again == case
    assert again.experiment.cluster.config == TAKEN
    assert timing_of(again.experiment) == timing_of(case.experiment)
    assert "hunter2" not in written


def test_files_beside_each_other(read: Read, tmp_path: Path) -> None:
    other = tmp_path / "experiments" / "slow.properties"
    other.write_text("broker.session.timeout.ms=30000\nnum.io.threads=4\n")
    text = (
        TEXT.format(more="") + "matrix:\n  cluster.settings_from: [conf/server.properties, slow.properties]\n"
    )
    plan = read(text=text.replace("{", "{{").replace("}", "}}"))
    assert [cell.name for cell in plan.cells] == [
        "settings_from=conf/server.properties",
        "settings_from=slow.properties",
    ]
    assert [cell.experiment.cluster.config for cell in plan.cells] == [
        TAKEN,
        {"broker.session.timeout.ms": "30000", "num.io.threads": "4"},
    ]
    assert {cell.experiment.cluster.timing for cell in plan.cells} == {"kafka"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file or directory"),
        ("", "it holds no settings"),
        ("# nothing\n", "it holds no settings"),
        ("num.io.threads=8\nx=\\u12g4\n", r"line 2: \\u stands before four hexadecimal digits"),
        ('{"num.io.threads": 8}\n', "is no setting of a broker"),
        ("num.io.threads=8\x00\n", "'num.io.threads' is no setting of a broker"),
        ("x=" + "a" * (1 << 20), "it is larger than 1 MiB"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(
    read: Read, tmp_path: Path, content: str | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "experiments" / "conf" / "server.properties"
    there.unlink()
    if content is not None:
        there.write_text(content)
    with pytest.raises(InvalidExperiment, match=words) as raised:
        read()
    (problem,) = raised.value.problems
    assert (problem.line, problem.column, problem.path) == (2, 26, "cluster.settings_from")
    assert problem.message.startswith(str(there))
    assert main_code(["validate", str(tmp_path / "experiments" / "e.yaml")]) == 254
    said = [line for line in capsys.readouterr().err.splitlines() if "|" not in line]
    assert len(said) == 1, "beside the excerpt"


def test_what_is_wrong_in_it_is_told_where_it_is_named(read: Read, tmp_path: Path) -> None:
    there = tmp_path / "experiments" / "conf" / "server.properties"
    there.write_text("replica.lag.time.max.ms=30s\n")
    with pytest.raises(
        InvalidExperiment, match=r"e\.yaml:2:26: .*expected a whole number, not the text '30s'"
    ):
        read()
    there.write_text("num.io.treads=8\n")
    (warning,) = read().warnings
    assert "has no broker setting 'num.io.treads'" in warning.message
    assert warning.line == 2


@pytest.mark.parametrize("value", ["5", "true"])
def test_what_is_no_path(read: Read, value: str) -> None:
    text = TEXT.format(more="").replace("conf/server.properties", value)
    with pytest.raises(InvalidExperiment, match="expected the path of a broker file"):
        read(text=text.replace("{", "{{").replace("}", "}}"))


def test_brokers_of_someone_else_have_settings_of_their_own(read: Read) -> None:
    text = "backend: attach\n" + TEXT
    with pytest.raises(InvalidExperiment, match="brokers that someone else runs have settings of their own"):
        read(text=text)


@pytest.mark.parametrize("command", ["plan", "validate"])
def test_the_command_line_gives_one_relative_to_the_working_folder(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ours.properties").write_text(FILE)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "e.yaml").write_text(
        "name: t\ntopics: {orders: {}}\nworkload: {duration: 1s}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main_code([command, "experiments/e.yaml", "--settings-from", "ours.properties"]) == 0
    told = capsys.readouterr().out
    assert "timing: Kafka's own + ours.properties" in told
    assert "broker.session.timeout.ms=18000 (9000)" in told
    assert "ignored: broker.id: it gives out ids and roles" in told
    assert main_code([command, "experiments/e.yaml", "--settings-from", "gone.properties"]) == 254
    (line,) = capsys.readouterr().err.splitlines()
    assert "gone.properties: cannot be read: No such file or directory" in line


def test_the_command_that_repeats_a_batch_names_the_file(tmp_path: Path) -> None:
    from ackproof.run.options import BatchOptions, command_of

    options = BatchOptions((tmp_path / "e.yaml",), settings=("cluster.settings_from=ours.properties",))
    assert "--set cluster.settings_from=ours.properties" in command_of(options, 1)


def test_a_setting_of_the_file_cannot_be_one_of_the_harness(read: Read) -> None:
    with pytest.raises(BadInput, match="ackproof sets 'listeners' itself"):
        read(", config: {listeners: x}")

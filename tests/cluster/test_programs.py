"""Programs that are not Python on real clusters: the examples in Go and Node, and services with planted bugs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ackproof.cli.main import main_code
from ackproof.rundir.documents import VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import read_parts
from ackproof.rundir.outcome import Outcome, Verdict
from ackproof.rundir.schema import PRODUCED

from .helpers import run_experiment

pytestmark = pytest.mark.cluster

PROGRAMS = Path(__file__).resolve().parents[2] / "experiments" / "programs"
SERVICE = """\
name: go-service
topics:
  orders: {{partitions: 2, replication_factor: 3, config: {{min.insync.replicas: "2"}}}}
workload:
  producers: {{rate: 1000/s, acks: all, idempotence: true}}
  service:
    command: [{program}, "{{settings}}"]
    count: 2
    input: orders
    output: copies
    identity: {identity}
    level: {level}
    promise: {promise}
  duration: 5s
faults:
  - {{at: 2s, kill: leader(orders/0), restart_after: 2s}}
"""
CLIENTS = """\
name: node-clients
topics:
  orders: {{partitions: 2, replication_factor: 3, config: {{min.insync.replicas: "2"}}}}
workload:
  producers: {{rate: 500/s, client: {{command: [node, {program}, "{{settings}}"]}}}}
  consumers: {{live: 1, client: {{command: [node, {program}, "{{settings}}"]}}}}
  duration: 5s
faults:
  - {{at: 2s, kill: leader(orders/0), restart_after: 2s}}
  - {{at: 4s, kill_client: {{client: producer(0)}}, restart_after: 1s}}
"""
TAKE = "\t\trecords := fetched.Records()\n"
DROP = (
    TAKE
    + """\
		kept := records[:0:0]
		for _, r := range records {
			if r.Offset%100 == 13 {
				tell("delivered", fields{"topic": r.Topic, "p": r.Partition, "o": r.Offset})
			} else {
				kept = append(kept, r)
			}
		}
		records = kept
"""
)
"""An exception that is swallowed: every hundredth record of a partition is handed over, and nothing comes of it."""
SENT = "\t\tsends += len(copies)\n"
TWICE = SENT + (
    "\t\tfor _, r := range copies {\n\t\t\tif r.Offset%50 == 7 {\n"
    "\t\t\t\tclient.ProduceSync(context.Background(), &kgo.Record{Topic: r.Topic, Partition: r.Partition, "
    "Key: r.Key, Value: r.Value, Headers: r.Headers})\n\t\t\t}\n\t\t}\n"
)
"""Some records are sent once more."""


def go_service(folder: Path, *planted: tuple[str, str]) -> Path:
    """Build the service in Go, with changes of its source. Return the program."""
    folder.mkdir()
    for file in (PROGRAMS / "go").iterdir():
        shutil.copy(file, folder)
    source = folder / "main.go"
    text = source.read_text()
    for before, after in planted:
        assert text.count(before) == 1
        text = text.replace(before, after)
    source.write_text(text)
    subprocess.run(["go", "build", "-o", "copier", "."], cwd=folder, check=True, timeout=600)
    return folder / "copier"


@pytest.fixture(scope="module")
def node_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("node")
    for name in ("client.js", "package.json", "package-lock.json"):
        shutil.copy(PROGRAMS / "node" / name, folder)
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=folder, check=True, timeout=300)
    return folder / "client.js"


def judged(folder: Path, text: str) -> tuple[CaseDir, VerdictFile]:
    batch, _ = run_experiment(folder, text)
    (run,) = (CaseDir(path.parent) for path in batch.path.rglob("case.json"))
    return run, VerdictFile.load(run.verdict_json)


def numbers(verdict: VerdictFile, name: str) -> float:
    """Return a figure of the opinions on the service, by its name."""
    return next(
        opinion.numbers[name]
        for opinion in verdict.opinions
        if opinion.subject == "service" and name in opinion.numbers
    )


@pytest.mark.nightly
def test_a_service_in_go_passes_under_a_leader_kill(tmp_path: Path) -> None:
    program = go_service(tmp_path / "go")
    text = SERVICE.format(program=program, identity="value", level=3, promise="at-least-once")
    run, verdict = judged(tmp_path, text)
    assert verdict.verdict is Verdict.PASS, verdict.reasons
    assert numbers(verdict, "level") == 3
    assert numbers(verdict, "copied") == numbers(verdict, "records") > 1000
    assert not [text for text in verdict.not_judged if "level" in text]
    assert run.service_output.exists()


@pytest.mark.parametrize(
    ("identity", "level"),
    [
        ("header", 0),
        pytest.param("{json: /order/id}", 0, marks=pytest.mark.nightly),
        pytest.param("value", 2, marks=pytest.mark.nightly),
    ],
)
def test_dropped_records_are_found_with_their_exact_number(tmp_path: Path, identity: str, level: int) -> None:
    program = go_service(tmp_path / "go", (TAKE, DROP))
    text = SERVICE.format(program=program, identity=identity, level=level, promise="at-least-once")
    run, verdict = judged(tmp_path, text)
    # An attempt that was not acknowledged may be in the log, and dropped: it counts for nobody.
    attempts = read_parts(run.produced, PRODUCED).to_pylist()
    planted = sum(one["offset"] % 100 == 13 for one in attempts if one["outcome"] == Outcome.ACKED)
    assert verdict.verdict is Verdict.FAIL, verdict.reasons
    assert numbers(verdict, "dropped") == planted > 10
    if level:
        assert any(f"{planted:,} delivered and never processed" in reason for reason in verdict.reasons)


@pytest.mark.nightly
def test_records_that_are_sent_twice_are_found_with_their_exact_number(tmp_path: Path) -> None:
    program = go_service(tmp_path / "go", (SENT, TWICE))
    text = SERVICE.format(program=program, identity="key", level=0, promise="exactly-once")
    _, verdict = judged(tmp_path, text)
    assert verdict.verdict is Verdict.FAIL, verdict.reasons
    assert numbers(verdict, "doubled") > 10
    assert all("more than once in its output" in reason for reason in verdict.reasons)


@pytest.mark.nightly  # the check below starts them with every push
def test_clients_in_node_pass_and_are_killed(tmp_path: Path, node_client: Path) -> None:
    _, verdict = judged(tmp_path, CLIENTS.format(program=node_client))
    assert verdict.verdict is Verdict.PASS, verdict.reasons


def test_the_check_knows_the_examples(
    tmp_path: Path, node_client: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = go_service(tmp_path / "go")
    assert main_code(["check-client", str(service), "{settings}"]) == 0
    assert "level 3, the contract is kept" in capsys.readouterr().out
    for role in ("producer", "reader"):
        assert main_code(["check-client", "--role", role, "node", str(node_client), "{settings}"]) == 0
    assert capsys.readouterr().out.count("the contract is kept") == 2


@pytest.mark.nightly
def test_the_check_names_a_send_before_its_attempt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Attempts that are told after the send are missing where the program was killed in between."""
    flush = "\t\tflush() // attempts are told before they are sent\n"
    sent = "\t\tfor _, result := range client.ProduceSync(context.Background(), copies...) {\n"
    late = (
        "\t\tresults := client.ProduceSync(context.Background(), copies...)\n"
        "\t\ttime.Sleep(200 * time.Millisecond)\n\t\tfor _, result := range results {\n"
    )
    service = go_service(tmp_path / "go", (flush, ""), (sent, late))
    assert main_code(["check-client", str(service), "{settings}"]) == 1
    assert "flush each attempt before the library gets the record" in capsys.readouterr().out

"""Tests of programs in other languages on real clusters: the examples in Go and Node, and services with planted
bugs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
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
faults: [{fault}]
"""
LEADER_KILL = "{at: 2s, kill: leader(orders/0), restart_after: 2s}"
INSTANCE_KILL = "{at: 2s, kill_client: {client: service(0)}, restart_after: 1s}"
REFUSAL = (
    "{at: 2s, for: 2s, answer_request: {link: clients -> brokers, api: Produce, "
    "error: TOPIC_AUTHORIZATION_FAILED, times: 3, client_id: kgo}}"
)
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
"""Planted bug, an ignored exception: every hundredth record of a partition is taken and not processed."""
SENT = "\t\tsends += len(copies)\n"
TWICE = SENT + (
    "\t\tfor _, r := range copies {\n\t\t\tif r.Offset%50 == 7 {\n"
    "\t\t\t\tclient.ProduceSync(context.Background(), &kgo.Record{Topic: r.Topic, Partition: r.Partition, "
    "Key: r.Key, Value: r.Value, Headers: r.Headers})\n\t\t\t}\n\t\t}\n"
)
"""Planted bug: a record whose output offset n has n % 50 = 7 is sent a second time."""
FAILS = """\
				tell("result", fields{"n": sends + i, "x": result.Err.Error()})
				flush()
				panic(result.Err) // nothing of this batch is committed: another instance gets it again
"""
SWALLOWS = """\
				tell("result", fields{"n": sends + i, "x": result.Err.Error()})
				next[records[i].Partition] = max(next[records[i].Partition], records[i].Offset+1)
				continue
"""
"""Planted bug: after a failed send the program reports the error, and commits past the record all the same."""
SENDS = "\t\tnext := map[int32]int64{}\n"
COMMITS_FIRST = (
    "\t\tclient.CommitRecords(context.Background(), records...)\n\t\ttime.Sleep(300 * time.Millisecond)\n"
    + SENDS
)
"""Planted bug: the program commits before it sends, so a kill loses the records in between."""
STORE = """\
import json, signal, sqlite3, sys
from confluent_kafka import Consumer, KafkaException

settings, stop = json.loads(sys.argv[1]), []
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
store = sqlite3.connect(sys.argv[2], timeout=30)
store.execute("create table if not exists seen (id text)")
own = {"bootstrap.servers": settings["bootstrap"], "group.id": settings["group"], "session.timeout.ms": 6000}
consumer = Consumer({**own, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
consumer.subscribe([settings["input"]])
uncommitted = False
while not stop:
    records = [record for record in consumer.consume(500, 0.2) if record.error() is None]
    if records:
        kept = [record for record in records if record.offset() % 100 != 13]
        store.executemany("insert into seen values (?)", [(record.key().decode(),) for record in kept])
        store.commit()
        uncommitted = True
    if uncommitted:
        try:
            consumer.commit(asynchronous=False)
            uncommitted = False
        except KafkaException as error:
            print(f"commits again: {error}", file=sys.stderr)
consumer.close()
"""
"""Source of a service with a database of its own, which ignores every hundredth record of a partition."""
ASK_STORE = (
    "import sqlite3, sys; rows = sqlite3.connect(sys.argv[1]).execute('select id from seen'); "
    "print(*(row[0] for row in rows), sep='\\n')"
)


def go_service(folder: Path, *planted: tuple[str, str]) -> Path:
    """Build the Go service with these (before, after) replacements in its source; return the path of the program."""
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
    """Return the number `name` from the verdict's opinions about the service."""
    return next(
        opinion.numbers[name]
        for opinion in verdict.opinions
        if opinion.subject == "service" and name in opinion.numbers
    )


@pytest.mark.nightly
def test_a_service_in_go_passes_under_a_leader_kill(tmp_path: Path) -> None:
    program = go_service(tmp_path / "go")
    text = SERVICE.format(
        program=program, identity="value", level=3, promise="at-least-once", fault=LEADER_KILL
    )
    run, verdict = judged(tmp_path, text)
    assert verdict.verdict is Verdict.PASS, verdict.reasons
    assert numbers(verdict, "level") == 3
    assert numbers(verdict, "copied") == numbers(verdict, "records") > 1000
    assert not [text for text in verdict.not_judged if "level" in text]
    assert run.service_output.exists()


@pytest.mark.nightly  # the service with a store drops records with every push
@pytest.mark.parametrize(("identity", "level"), [("header", 0), ("{json: /order/id}", 0), ("value", 2)])
def test_dropped_records_are_found_with_their_exact_number(tmp_path: Path, identity: str, level: int) -> None:
    program = go_service(tmp_path / "go", (TAKE, DROP))
    text = SERVICE.format(
        program=program, identity=identity, level=level, promise="at-least-once", fault=LEADER_KILL
    )
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
    text = SERVICE.format(program=program, identity="key", level=0, promise="exactly-once", fault=LEADER_KILL)
    _, verdict = judged(tmp_path, text)
    assert verdict.verdict is Verdict.FAIL, verdict.reasons
    assert numbers(verdict, "doubled") > 10
    assert all("more than once in its output" in reason for reason in verdict.reasons)


@pytest.mark.nightly
def test_an_error_that_is_swallowed_is_found_with_its_exact_number(tmp_path: Path) -> None:
    program = go_service(tmp_path / "go", (FAILS, SWALLOWS))
    text = SERVICE.format(program=program, identity="value", level=3, promise="at-least-once", fault=REFUSAL)
    run, verdict = judged(tmp_path, text)
    failed = sum(path.read_text("utf-8").count('"x":') for path in run.clients.glob("s*/lines.jsonl"))
    assert verdict.verdict is Verdict.FAIL, verdict.reasons
    assert numbers(verdict, "dropped") == failed > 0
    assert any(f"{failed:,} sent with an error that was swallowed" in reason for reason in verdict.reasons)


@pytest.mark.nightly
@pytest.mark.parametrize("early", [False, True])
def test_what_an_instance_committed_and_did_not_send_when_it_was_killed_is_found(
    tmp_path: Path, early: bool
) -> None:
    program = go_service(tmp_path / "go", *([(SENDS, COMMITS_FIRST)] if early else []))
    text = SERVICE.format(
        program=program, identity="value", level=0, promise="at-least-once", fault=INSTANCE_KILL
    )
    _, verdict = judged(tmp_path, text)
    assert verdict.verdict is (Verdict.FAIL if early else Verdict.PASS), verdict.reasons
    assert not early or numbers(verdict, "dropped") > 10


def test_what_a_store_lacks_is_found_with_its_exact_number(tmp_path: Path) -> None:
    (tmp_path / "store.py").write_text(STORE, encoding="utf-8")
    store, python = str(tmp_path / "store.db"), sys.executable
    sink = json.dumps([python, "-c", ASK_STORE, store])
    command = json.dumps([python, str(tmp_path / "store.py"), "{settings}", store])
    text = SERVICE.format(program="x", identity="key", level=0, promise="at-least-once", fault="")
    text = text.replace('[x, "{settings}"]', command).replace("output: copies", f"sink: {sink}")
    text = text.replace('replication_factor: 3, config: {min.insync.replicas: "2"}', "replication_factor: 1")
    run, verdict = judged(tmp_path, f"cluster: {{brokers: 1, combined: true}}\n{text}")
    attempts = read_parts(run.produced, PRODUCED).to_pylist()
    planted = sum(one["offset"] % 100 == 13 for one in attempts if one["outcome"] == Outcome.ACKED)
    assert verdict.verdict is Verdict.FAIL, verdict.reasons
    assert numbers(verdict, "dropped") == planted > 10


@pytest.mark.nightly  # the check below starts them with every push
def test_clients_in_node_pass_and_are_killed(tmp_path: Path, node_client: Path) -> None:
    _, verdict = judged(tmp_path, CLIENTS.format(program=node_client))
    assert verdict.verdict is Verdict.PASS, verdict.reasons


@pytest.mark.nightly  # Go takes a minute to build its libraries
def test_the_check_knows_the_example_in_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = go_service(tmp_path / "go")
    assert main_code(["check-client", str(service), "{settings}"]) == 0
    assert "level 3, the contract is kept" in capsys.readouterr().out


def test_the_check_knows_the_example_in_node(node_client: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for role in ("producer", "reader"):
        assert main_code(["check-client", "--role", role, "node", str(node_client), "{settings}"]) == 0
    assert capsys.readouterr().out.count("the contract is kept") == 2


@pytest.mark.nightly
def test_the_check_names_a_send_before_its_attempt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If attempts are reported after the send, those before a kill are missing."""
    flush = "\t\tflush() // attempts are told before they are sent\n"
    sent = "\t\tfor _, result := range client.ProduceSync(context.Background(), copies...) {\n"
    late = (
        "\t\tresults := client.ProduceSync(context.Background(), copies...)\n"
        "\t\ttime.Sleep(200 * time.Millisecond)\n\t\tfor _, result := range results {\n"
    )
    service = go_service(tmp_path / "go", (flush, ""), (sent, late))
    assert main_code(["check-client", str(service), "{settings}"]) == 1
    assert "flush each attempt before the library gets the record" in capsys.readouterr().out

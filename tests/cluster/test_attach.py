"""Tests of the backend `attach`, on clusters that the tests start but that the run treats as foreign."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput, FaultNotConfirmed
from ackproof.base.processes import end_children, find_children
from ackproof.base.wait import wait_until
from ackproof.cluster import queries
from ackproof.cluster.backends.attach.cluster import AttachedCluster, Attachment
from ackproof.cluster.backends.attach.options import attachment
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.cluster.install import Installation
from ackproof.cluster.protocol import local
from ackproof.experiment.spec import ClusterSpec, TopicSpec
from ackproof.network.wire import WireError
from ackproof.plan.cases import cases, load
from ackproof.run.case import run_case
from ackproof.run.phases import CaseOptions
from ackproof.rundir.documents import CaseFile, FinalReadFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import Event, EventKind

from .conftest import NEWEST, OLDER, Clusters
from .helpers import produce
from .secured import PASSWORD, USER, Secured, TokenServer, secured_broker

pytestmark = pytest.mark.cluster

TEXT = """\
name: attached
backend: attach
topics: {{orders: {{partitions: 2, replication_factor: {factor}, config: {{min.insync.replicas: 1}}}}}}
workload: {{producers: {{rate: 500/s}}, consumers: {{live: 1}}, duration: 2s}}
evidence: {{settle_timeout: 30s}}
faults: {faults}
"""


@dataclass
class Listener:
    events: list[Event] = field(default_factory=list)

    def event(self, event: Event) -> None:
        self.events.append(event)

    def live(self, acked: int, read: int, isr: str) -> None:
        pass

    def of(self, kind: EventKind) -> list[Event]:
        return [event for event in self.events if event.kind is kind]


def run(
    folder: Path,
    attachment: Attachment,
    *,
    factor: int = 2,
    faults: object = (),
    client: str = "librdkafka",
) -> tuple[CaseDir, Listener]:
    file = folder / "attached.yaml"
    file.write_text(TEXT.format(factor=factor, faults=json.dumps(faults)), encoding="utf-8")
    settings = [f"workload.{kind}.client={client}" for kind in ("producers", "consumers")]
    (case,) = cases(load(file, settings))
    directory, listener = CaseDir(folder / "case"), Listener()
    run_case(case, directory, CaseOptions(str(folder), "", attachment=attachment), listener)
    return directory, listener


@pytest.fixture(scope="module")
def theirs(module_clusters: Clusters) -> ProcessCluster:
    cluster = module_clusters.start(kafka=NEWEST, brokers=2)
    cluster.create_topics({"orders": TopicSpec(partitions=1, replication_factor=2)})
    assert produce(cluster, "orders", 7) == 7
    return cluster


def assert_clients_were_let_in(directory: CaseDir, seen: Listener) -> None:
    """Assert that the producers of a run have written records, and that the final reader has read them."""
    read = FinalReadFile.load(directory.final_read)
    assert read.complete, seen.of(EventKind.NOTE)
    assert sum(one.records for one in read.partitions) > 100


def ends(cluster: ProcessCluster) -> int:
    (end,) = cluster.partition_ends(["orders"]).values()
    return end.log_end


def topics_of(cluster: ProcessCluster, topics: list[str]) -> set[str]:
    return {place.topic for place in cluster.topic_state(topics)}


def test_a_run_leaves_a_strangers_cluster_as_it_was(theirs: ProcessCluster, tmp_path: Path) -> None:
    pids = {node.id: node.pid for node in theirs.brokers()}
    (tmp_path / "pids.json").write_text(json.dumps(pids))
    stop = f"import json,os,signal;os.kill(json.load(open('{tmp_path}/pids.json'))['{{nodes}}'], signal.SIG{{0}})"
    look = (
        f"import json,sys;pid=json.load(open('{tmp_path}/pids.json'))['{{nodes}}'];"
        "sys.exit(open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[0] != 'T')"
    )
    pause = {
        "command": {
            "target": "leader(orders/0)",
            "inject": ["python3", "-c", stop.replace("{0}", "STOP")],
            "check": ["python3", "-c", look],
            "heal": ["python3", "-c", stop.replace("{0}", "CONT")],
        },
        "at": "500ms",
        "for": "1s",
    }
    elect = {"command": pause["command"], "after": {"fault": 1, "by": "2s"}, "for": "200ms"}
    # Planned work goes through the admin protocol.
    change = {"set": {"topic": "orders", "config": {"min.insync.replicas": 2}}, "at": "300ms", "for": "500ms"}
    directory, seen = run(tmp_path, Attachment(theirs.bootstrap), faults=[pause, elect, change])
    recovered = {event.fault for event in seen.of(EventKind.FAULT_RECOVERED)}
    assert recovered == {1, 2, 3}, seen.of(EventKind.FAULT_FAILED)
    assert FinalReadFile.load(directory.final_read).complete
    (own,) = CaseFile.load(directory.case_json).clients[0].topics
    assert own.startswith("ackproof-")
    assert own.endswith("-orders")
    assert topics_of(theirs, [own, "orders"]) == {"orders"}, "its own topic is gone, and no other"
    assert ends(theirs) == 7, "and into that nobody wrote"
    assert {node.id: node.pid for node in theirs.brokers()} == pids
    assert not (directory.path / "attached.json").exists()
    assert "someone else's" in CaseFile.load(directory.case_json).environment["cluster"]


def test_a_topic_that_is_there_is_never_written_to(theirs: ProcessCluster, tmp_path: Path) -> None:
    cluster = AttachedCluster(ClusterSpec(), Attachment(theirs.bootstrap), tmp_path / "nodes")
    cluster.start()
    with pytest.raises(BadInput, match="orders: there already"):
        cluster.create_topics({"orders": TopicSpec()})
    cluster.remove_data()
    cluster.stop()
    assert topics_of(theirs, ["orders"]) == {"orders"}
    with pytest.raises(FaultNotConfirmed, match="out of reach"):
        local(cluster.brokers())


def test_where_nobody_answers_nothing_begins(tmp_path: Path) -> None:
    cluster = AttachedCluster(ClusterSpec(), Attachment("127.0.0.1:9"), tmp_path / "nodes")
    with pytest.raises(BadInput, match=r"no broker of 127\.0\.0\.1:9 answers.*Connection refused"):
        cluster.start()


@pytest.fixture(scope="module")
def secured(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing: apt-get install openssl")
    folder = tmp_path_factory.mktemp("secured")
    run_id = f"secured-{folder.name}"
    with secured_broker(folder, installs(NEWEST), run_id) as broker:
        cluster = AttachedCluster(
            ClusterSpec(), Attachment(broker.bootstrap, broker.settings), folder / "nodes"
        )
        wait_until(lambda: _starts(cluster), what="the broker to let us in", timeout_s=60.0)
        cluster.stop()
        yield broker
    end_children(lambda child: child.run_id == run_id)
    assert not find_children(run_id)


def _starts(cluster: AttachedCluster) -> bool:
    try:
        cluster.start()
    except BadInput:
        return False
    return True


@pytest.mark.parametrize("client", ["librdkafka", pytest.param("java", marks=pytest.mark.nightly)])
def test_a_run_through_tls_with_a_password_that_stays_nowhere(
    secured: Secured, tmp_path: Path, client: str
) -> None:
    directory, seen = run(tmp_path, Attachment(secured.bootstrap, secured.settings), factor=1, client=client)
    assert_clients_were_let_in(directory, seen)
    assert CaseFile.load(directory.case_json).environment["security"] == "sasl_ssl"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10
    told = [path for path in files if PASSWORD.encode() in path.read_bytes()]
    assert not told, "no file of the run holds the password"


def test_a_run_with_a_token_in_the_words_of_a_java_client(secured: Secured, tmp_path: Path) -> None:
    """The settings are a Java client's, with client credentials and an inline certificate. `case.json` has the broker's
    release."""
    pem = Path(secured.settings["ssl.ca.location"]).read_text().replace("\n", "\\n\\\n")
    with TokenServer() as tokens:
        threading.Thread(target=tokens.serve_forever, daemon=True).start()
        file = tmp_path / "client.properties"
        file.write_text(
            f"""\
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \\
  clientId="{USER}" clientSecret="{PASSWORD}";
sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
sasl.oauthbearer.token.endpoint.url={tokens.url}
ssl.truststore.type=PEM
ssl.truststore.certificates={pem}
ssl.endpoint.identification.algorithm=
"""
        )
        wrong = attachment(secured.bootstrap, file, (f"sasl.oauthbearer.client.secret={PASSWORD}!",))
        assert wrong is not None
        with pytest.raises(BadInput, match="the token endpoint refuses: 401"):
            AttachedCluster(ClusterSpec(), wrong, tmp_path / "nodes").start()
        made = attachment(secured.bootstrap, file, ())
        assert made is not None
        theirs = AttachedCluster(ClusterSpec(brokers=1, racks=("east",)), made, tmp_path / "nodes")
        theirs.start()
        assert theirs.spec.racks == ("west",), "what the file says of racks is not what the cluster has"
        theirs.stop()
        directory, seen = run(tmp_path, made, factor=1)
        tokens.shutdown()
    assert_clients_were_let_in(directory, seen)
    assert tokens.asked >= 5, "the harness twice, a producer, a reader and the final reader"
    told = CaseFile.load(directory.case_json).environment
    line = NEWEST.rpartition(".")[0]
    assert told["kafka"].startswith(f"{line}, by metadata.version")
    assert told["brokers"] == f"1: 1 at {secured.bootstrap} in rack west"
    assert told["controllers"] == "1: 1"
    assert told["min.insync.replicas"] == "1"
    assert told["broker.session.timeout.ms"] == "9000"
    assert len(told["cluster id"]) == 22
    assert "not told" not in told
    files = [path for path in directory.path.rglob("*") if path.is_file()]
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sasl.password": "wrong"}, "SASL_AUTHENTICATION_FAILED"),
        ({"sasl.username": "nobody"}, "SASL_AUTHENTICATION_FAILED"),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, "the broker offers .*PLAIN"),
        ({"security.protocol": "plaintext"}, "no broker of"),
        ({"ssl.ca.location": ""}, "its certificate is refused"),
    ],
)
def test_who_is_not_let_in_is_told_why(
    secured: Secured, tmp_path: Path, changed: dict[str, str], said: str
) -> None:
    settings = {name: value for name, value in {**secured.settings, **changed}.items() if value}
    cluster = AttachedCluster(ClusterSpec(), Attachment(secured.bootstrap, settings), tmp_path / "nodes")
    with pytest.raises(BadInput, match=said) as caught:
        cluster.start()
    assert PASSWORD not in str(caught.value)


def test_scram(secured: Secured, tmp_path: Path) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": secured.bootstrap, "log_level": 0, **secured.settings})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    made = admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(USER, info, b"another-one")], request_timeout=10
    )
    made[USER].result(10)
    settings = {**secured.settings, "sasl.mechanism": "SCRAM-SHA-512", "sasl.password": "another-one"}
    cluster = AttachedCluster(ClusterSpec(), Attachment(secured.bootstrap, settings), tmp_path / "nodes")
    wait_until(lambda: _starts(cluster), what="the broker to know the user", timeout_s=10.0)
    with pytest.raises(WireError, match="SASL_AUTHENTICATION_FAILED"):
        wrong = AttachedCluster(
            ClusterSpec(),
            Attachment(secured.bootstrap, {**settings, "sasl.password": "x"}),
            tmp_path / "nodes",
        )
        queries.brokers(cluster.running_links()[1])
        try:
            wrong.start()
        except BadInput as error:
            raise WireError(str(error)) from error
    cluster.stop()


@pytest.mark.nightly
def test_a_cluster_in_zookeeper_mode(clusters: Clusters, tmp_path: Path) -> None:
    theirs = clusters.start(kafka=OLDER, mode="zookeeper")
    directory, seen = run(tmp_path, Attachment(theirs.bootstrap))
    assert FinalReadFile.load(directory.final_read).complete, seen.of(EventKind.NOTE)
    (own,) = CaseFile.load(directory.case_json).clients[0].topics
    assert topics_of(theirs, [own]) == set()

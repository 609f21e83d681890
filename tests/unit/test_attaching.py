"""Options that name an existing cluster (`--bootstrap`, `--client-config`, `-X`). Messages contain no secret."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pytest

from ackproof.base.errors import BadInput
from ackproof.cluster.backends.attach.cluster import AttachedCluster, facts_of, release_of
from ackproof.cluster.backends.attach.options import attachment
from ackproof.cluster.backends.attach.secure import TokenEndpoint, opener_of
from ackproof.experiment.kafka import METADATA
from ackproof.network.addresses import Address
from ackproof.network.wire import Unreachable, WireError

SECRET = "h4nn1bal"
PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": SECRET,
}
WORDS = tuple(f"{name}={value}" for name, value in PLAIN.items())


def test_no_word_of_it_means_a_cluster_of_our_own() -> None:
    assert attachment(None, None, ()) is None


def test_words_count_more_than_the_file_and_nothing_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# how we get in\n\nsasl.username=you\nsasl.password = {SECRET}=x \n", encoding="utf-8")
    made = attachment("a:1,[::1]:2", file, [word for word in WORDS if "password" not in word])
    assert made is not None
    assert made.settings == {**PLAIN, "sasl.password": f"{SECRET}=x"}
    assert [tuple(address) for address in made.addresses()] == [("a", 1), ("::1", 2)]
    assert SECRET not in repr(made)


@pytest.mark.parametrize(
    ("bootstrap", "words", "said"),
    [
        (None, WORDS, "for --bootstrap"),
        ("kafka", (), "expected host:port"),
        ("kafka:99999", (), "expected host:port"),
        ("a:1", ("sasl.password",), "the 1. of them has no '='"),
        ("a:1", (f"linger.ms={SECRET}",), "linger.ms: only settings of connections"),
        ("a:1", (f"ssl.keystore.location={SECRET}",), "write ssl.certificate.location=me.pem and ssl.key"),
        ("a:1", (f"ssl.sigalgs.list={SECRET}",), "ssl.sigalgs.list: librdkafka may know it"),
        ("a:1", (*WORDS, "sasl.mechanism=GSSAPI"), "ackproof asks the brokers itself, and knows PLAIN"),
        ("a:1", (*WORDS, "sasl.mechanism=OAUTHBEARER"), "sasl.oauthbearer.method: expected oidc"),
        (
            "a:1",
            (*WORDS, "sasl.mechanism=OAUTHBEARER", "sasl.oauthbearer.method=oidc"),
            "token.endpoint.url is missing",
        ),
        ("a:1", ("security.protocol=ssl", "ssl.ca.pem=none"), "TLS: "),
        ("a:1", (*WORDS, "security.protocol=tls"), "one of plaintext, ssl"),
        ("a:1", WORDS[:3], "sasl.password is missing"),
        ("a:1", ("security.protocol=ssl", "ssl.ca.location=/nowhere.pem"), "/nowhere.pem"),
    ],
)
def test_what_cannot_be_is_said_without_a_value(
    bootstrap: str | None, words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(BadInput, match=said.replace("(", r"\(").replace(".", r"\.")) as caught:
        attachment(bootstrap, None, words)
    assert SECRET not in str(caught.value)


def test_a_backend_that_contradicts_is_refused() -> None:
    with pytest.raises(BadInput, match="leave --backend process out"):
        attachment("a:1", None, (), "process")
    with pytest.raises(BadInput, match="--bootstrap host:port"):
        attachment(None, None, (), "attach")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.properties: cannot be read"):
        attachment("a:1", tmp_path / "none.properties", ())
    (tmp_path / "odd").write_text("sasl.username\n", encoding="utf-8")
    with pytest.raises(BadInput, match="odd:1: expected key=value"):
        attachment("a:1", tmp_path / "odd", ())


def test_without_security_a_line_is_plain() -> None:
    assert opener_of({}).__name__ == "plain"
    assert opener_of(PLAIN).__name__ == "opened"


OAUTH = "sasl.oauthbearer."
PEM = "-----BEGIN CERTIFICATE-----\n" + "A" * 64 + "\nBBBB\n-----END CERTIFICATE-----\n"


def read(folder: Path, text: str) -> dict[str, str]:
    """Return the librdkafka settings of a client configuration file with the lines `text`."""
    file = folder / "client.properties"
    file.write_text("security.protocol=PLAINTEXT\n" + text, encoding="utf-8")
    made = attachment("a:1", file, ())
    assert made is not None
    return {name: value for name, value in made.settings.items() if name != "security.protocol"}


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (
            "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="me" password="a \\"quoted\\" one;";',
            {"sasl.username": "me", "sasl.password": 'a "quoted" one;'},
        ),
        (
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
            f"   username='me' \\\n   password={SECRET};\n! a comment of Java's\nsasl.mechanism: SCRAM-SHA-512",
            {"sasl.username": "me", "sasl.password": SECRET, "sasl.mechanism": "SCRAM-SHA-512"},
        ),
        (
            "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            f'clientId="me" clientSecret="{SECRET}" scope="kafka";\n'
            "sasl.login.callback.handler.class="
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
            {
                f"{OAUTH}method": "oidc",
                f"{OAUTH}client.id": "me",
                f"{OAUTH}client.secret": SECRET,
                f"{OAUTH}scope": "kafka",
            },
        ),
        (
            f"{OAUTH}client.credentials.client.id=me\n{OAUTH}client.credentials.client.secret={SECRET}",
            {f"{OAUTH}client.id": "me", f"{OAUTH}client.secret": SECRET},
        ),
        (
            "ssl.keystore.type=PEM\nssl.keystore.location=/me.pem\nssl.key.password=x\nssl.keystore.password=y\n"
            "ssl.truststore.location=/ca.pem\nssl.truststore.type=pem\nssl.endpoint.identification.algorithm=",
            {
                "ssl.certificate.location": "/me.pem",
                "ssl.key.location": "/me.pem",
                "ssl.key.password": "x",
                "ssl.ca.location": "/ca.pem",
                "ssl.endpoint.identification.algorithm": "none",
            },
        ),
        (f"ssl.truststore.certificates={PEM}", {"ssl.ca.pem": PEM}),
        ("ssl.ca.pem=" + PEM.replace("\n", "\\n"), {"ssl.ca.pem": PEM}),
        ("ssl.keystore.key=" + PEM.replace("\n", "\\n\\\n"), {"ssl.key.pem": PEM}),
        ("ssl.keystore.certificate.chain=" + PEM.replace("\n", " "), {"ssl.certificate.pem": PEM}),
    ],
)
def test_what_a_java_client_is_told_is_told_to_librdkafka(
    tmp_path: Path, text: str, settings: dict[str, str]
) -> None:
    assert read(tmp_path, text) == settings


def test_each_line_without_a_counterpart_says_what_to_write_instead(tmp_path: Path) -> None:
    lines = {
        f"ssl.truststore.location={SECRET}.jks": "write ssl.ca.location=ca.pem instead, made by: keytool -list -rfc",
        f"ssl.truststore.password={SECRET}": "",
        "bootstrap.servers=kafka:9092": "leave it out; --bootstrap says where the cluster is",
        "ssl.enabled.protocols=TLSv1.3": "leave it out: only Java clients have it",
        f"sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required keyTab={SECRET};": (
            "expected one of PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule; write sasl.username"
        ),
        f"sasl.jaas.config=a.b.PlainLoginModule required password={SECRET};": "PlainLoginModule without username",
        "sasl.login.callback.handler.class=org.example.Mine": f"write {OAUTH}method=oidc, {OAUTH}token",
        "acks=all": "only settings of connections belong here",
    }
    with pytest.raises(BadInput) as caught:
        read(tmp_path, "\n".join(lines))
    said = str(caught.value)
    assert SECRET not in said
    wanted = [
        (number, line.partition("=")[0], why) for number, (line, why) in enumerate(lines.items(), 2) if why
    ]
    for told, (number, name, why) in zip(said.splitlines(), wanted, strict=True):
        assert told.startswith(f"{tmp_path}/client.properties:{number}: {name}: "), told
        assert why in told


class Tokens(ThreadingHTTPServer):
    """Fake OAuth token endpoint: issues a new token for each request with the right secret, else answers 401."""

    def __init__(self) -> None:
        self.asked: list[dict[str, list[str]]] = []
        self.answer: dict[str, Any] = {"expires_in": 3600}
        super().__init__(("127.0.0.1", 0), _Answer)

    @property
    def settings(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            f"{OAUTH}method": "oidc",
            f"{OAUTH}token.endpoint.url": f"http://127.0.0.1:{self.server_port}/token",
            f"{OAUTH}client.id": "me",
            f"{OAUTH}client.secret": SECRET,
        }


class _Answer(BaseHTTPRequestHandler):
    server: Tokens

    def do_POST(self) -> None:
        server = self.server
        server.asked.append(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        # base64 of me:h4nn1bal
        known = self.headers["Authorization"] == "Basic bWU6aDRubjFiYWw="
        body = json.dumps({"access_token": f"token-{len(server.asked)}", **server.answer}).encode()
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def tokens() -> Iterator[Tokens]:
    with Tokens() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_token_is_kept_as_long_as_it_is_good(tokens: Tokens) -> None:
    endpoint = TokenEndpoint({**tokens.settings, f"{OAUTH}scope": "kafka"})
    assert [endpoint.token(), endpoint.token()] == ["token-1", "token-1"]
    assert tokens.asked == [{"grant_type": ["client_credentials"], "scope": ["kafka"]}]
    tokens.answer = {"expires_in": 0}
    brief = TokenEndpoint(tokens.settings)
    assert [brief.token(), brief.token()] == ["token-2", "token-3"]
    assert "scope" not in tokens.asked[-1]


def test_why_there_is_no_token_is_said_without_the_secret(tokens: Tokens) -> None:
    wrong = TokenEndpoint({**tokens.settings, f"{OAUTH}client.secret": f"{SECRET}!"})
    with pytest.raises(WireError, match="the token endpoint refuses: 401 Unauthorized"):
        wrong.token()
    nobody = TokenEndpoint({**tokens.settings, f"{OAUTH}token.endpoint.url": "http://127.0.0.1:9/token"})
    with pytest.raises(WireError, match=r"does not answer: .*refused"):
        nobody.token()
    tokens.answer = {"access_token": None, "expires_in": "soon"}
    with pytest.raises(WireError, match="without an access_token"):
        TokenEndpoint(tokens.settings).token()
    with pytest.raises(BadInput, match="expected an address"):
        opener_of({**tokens.settings, f"{OAUTH}token.endpoint.url": "login.example.org"})


@pytest.mark.skipif(shutil.which("openssl") is None, reason="apt-get install openssl")
def test_certificates_and_keys_that_are_given_inline(tmp_path: Path) -> None:
    """The server trusts only its own self-signed certificate, and requires it of the client too."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    subprocess.run(
        ["openssl", *words.split(), "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    said: list[object] = []

    def serve() -> None:
        for _ in range(2):
            line, _address = listener.accept()
            try:
                with context.wrap_socket(line, server_side=True) as secured:
                    said.append(secured.getpeercert() and secured.recv(2))
            except OSError:
                said.append(None)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        settings = {"security.protocol": "ssl", "ssl.ca.pem": certificate.read_text()}
        own = {"ssl.certificate.pem": certificate.read_text(), "ssl.key.pem": key.read_text()}
        address = Address("localhost", listener.getsockname()[1])
        for given in ({**settings, **own}, settings):
            with opener_of(given)(address, 5.0) as line, suppress(OSError):  # who is refused may be cut off
                line.sendall(b"hi")
        serving.join(5.0)
    assert said == [b"hi", None]


@pytest.mark.parametrize(
    ("level", "release"),
    [
        (0, ""),
        (20, "before 3.9, by metadata.version up to 20"),
        (21, "3.9, by metadata.version up to 21"),
        (30, "4.3, by metadata.version up to 30"),
        (31, "later than 4.3, by metadata.version up to 31"),
    ],
)
def test_a_release_is_known_by_the_levels_that_its_brokers_support(level: int, release: str) -> None:
    assert release_of({METADATA: (1, level)} if level else {}) == release


class Broker:
    """Fake broker that refuses requests of one API. `level`: its metadata.version. `isr`: min.insync.replicas."""

    def __init__(self, level: int, isr: str, refuses: str = "") -> None:
        self._level, self._isr, self._refuses = level, isr, refuses

    def ask(self, question: Any, *, timeout_s: float | None = None) -> Any:
        if question.name == self._refuses:
            raise Unreachable(f"{question.name}: CLUSTER_AUTHORIZATION_FAILED")
        match question.name:
            case "ApiVersions" if question.version == 4:
                return SimpleNamespace(error_code=35)  # a broker before 3.9
            case "ApiVersions":
                return SimpleNamespace(
                    error_code=0,
                    supported_features=[
                        SimpleNamespace(name=METADATA, min_version=1, max_version=self._level)
                    ],
                    finalized_features=[SimpleNamespace(name=METADATA, max_version_level=21)],
                )
            case "DescribeConfigs":
                row = SimpleNamespace(name="min.insync.replicas", value=self._isr, config_source=5)
                return SimpleNamespace(
                    results=[SimpleNamespace(error_code=0, error_message=None, configs=[row])]
                )
        voters = [
            SimpleNamespace(replica_id=node, log_end_offset=1, replica_directory_id=None)
            for node in (103, 101)
        ]
        place = SimpleNamespace(
            error_code=0,
            error_message=None,
            leader_id=101,
            leader_epoch=1,
            high_watermark=1,
            current_voters=voters,
            observers=[],
        )
        topic = SimpleNamespace(partitions=[place])
        return SimpleNamespace(error_code=0, error_message=None, topics=[topic], nodes=[])


def test_what_a_cluster_says_of_itself_is_told_broker_by_broker() -> None:
    rows = [
        SimpleNamespace(node_id=7, host="b", port=2, rack=None),
        SimpleNamespace(node_id=3, host="a", port=1, rack="west"),
    ]
    answer = SimpleNamespace(brokers=rows, cluster_id="its-id")
    links: Any = {3: Broker(21, "2"), 7: Broker(25, "1", refuses="DescribeQuorum")}
    assert facts_of(answer, links, zookeeper=False) == {
        "cluster id": "its-id",
        "brokers": "2: 3 at a:1 in rack west, 7 at b:2 in no rack",
        "kafka": "3.9, by metadata.version up to 21 (broker 3); 4.0, by metadata.version up to 25 (broker 7)",
        "feature levels in force": "metadata.version 21",
        "min.insync.replicas": "2 (broker 3); 1 (broker 7)",
        "controllers": "2: 101, 103",
    }
    links = {3: Broker(21, "2", refuses="DescribeConfigs")}
    told = facts_of(answer, links, zookeeper=True)
    assert told["not told"] == "broker 3: DescribeConfigs: CLUSTER_AUTHORIZATION_FAILED"
    assert "controllers" not in told


@pytest.mark.parametrize(
    ("controller", "asked"), [(0, "link 0"), (2, "link 2"), (7, "first"), (None, "first")]
)
def test_admin_requests_go_to_the_controller(
    controller: int | None, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = {0: "link 0", 2: "link 2"}
    cluster: Any = object.__new__(AttachedCluster)
    cluster.spec = SimpleNamespace(metadata=SimpleNamespace(broker_controls=True))
    monkeypatch.setattr(AttachedCluster, "running_links", lambda _: links)
    monkeypatch.setattr(AttachedCluster, "controller", lambda _: controller)
    monkeypatch.setattr("ackproof.cluster.queries.first_answering_link", lambda _: "first")
    assert cluster.admin_link() == asked

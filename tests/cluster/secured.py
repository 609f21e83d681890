"""A real broker with TLS and authentication: PEM files made by openssl, SASL/PLAIN, SCRAM and OAUTHBEARER.

Its tokens are unsecured JSON Web Tokens (without a signature), which `TokenServer` hands out."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from ackproof.base.processes import RunTag, spawn
from ackproof.cluster.install import Installation
from ackproof.network.addresses import acquire_lease
from ackproof.provision.checkpoint import CHECKPOINT, meta_properties, new_cluster_id
from ackproof.provision.jvm import SERVER, java_command, jvm_flags, logging_flags

USER, PASSWORD = "tester", "open-sesame-7"


@dataclass(frozen=True)
class Secured:
    """Address of the broker, and client settings with which a client may connect."""

    bootstrap: str
    settings: dict[str, str]


@contextmanager
def secured_broker(folder: Path, installed: Installation, run_id: str) -> Iterator[Secured]:
    """Start a combined node with TLS and authentication; it ends with the block."""
    data = folder / "data"
    data.mkdir(parents=True)
    ca, key_store = _certificates(folder)
    with acquire_lease([1], holder=run_id) as held:
        addresses = held.addresses
        client = addresses.client(1)
        (data / "meta.properties").write_text(meta_properties(new_cluster_id(), 1))
        (data / CHECKPOINT).write_bytes(installed.checkpoint.read_bytes())
        jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        (folder / "server.properties").write_text(
            f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{addresses.node(1)}:{addresses.controller_port}
controller.listener.names=CONTROLLER
listeners=CONTROLLER://{addresses.node(1)}:{addresses.controller_port},INTERNAL://{addresses.node(1)}:{addresses.internal_port},EXTERNAL://{client}
advertised.listeners=INTERNAL://{addresses.node(1)}:{addresses.internal_port},EXTERNAL://{client}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL
inter.broker.listener.name=INTERNAL
log.dirs=data
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
auto.create.topics.enable=false
ssl.keystore.type=PEM
ssl.keystore.location={key_store}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
listener.name.external.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512,OAUTHBEARER
listener.name.external.plain.sasl.jaas.config={jaas} user_{USER}="{PASSWORD}";
listener.name.external.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.external.oauthbearer.sasl.jaas.config={bearer} unsecuredLoginStringClaim_sub="broker";
broker.rack=west
"""
        )
        child = spawn(
            java_command(
                installed.java,
                installed.jars,
                SERVER,
                ["server.properties"],
                [*jvm_flags(), *logging_flags(installed.jars.version, folder / "server.log")],
            ),
            run=RunTag(run_id, folder, folder),
            role="secured",
            cwd=folder,
            stdout=folder / "stdout.log",
            pass_fds=(held.descriptor,),
        )
        try:
            yield Secured(
                str(client),
                {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": "PLAIN",
                    "sasl.username": USER,
                    "sasl.password": PASSWORD,
                    "ssl.ca.location": str(ca),
                    "ssl.endpoint.identification.algorithm": "none",
                },
            )
        finally:
            child.kill()


class TokenServer(ThreadingHTTPServer):
    """OAuth endpoint that gives a token, valid for an hour, to a client with the right password; others get status 401.
    `asked`: number of tokens given."""

    def __init__(self) -> None:
        self.asked = 0
        super().__init__(("127.0.0.1", 0), _TokenRequest)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"


class _TokenRequest(BaseHTTPRequestHandler):
    server: TokenServer

    def do_POST(self) -> None:
        asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        who = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        known = who == f"{USER}:{PASSWORD}" and asked["grant_type"] == ["client_credentials"]
        self.server.asked += known
        now = time.time()
        token = f"{_part({'alg': 'none'})}.{_part({'sub': USER, 'iat': now, 'exp': now + 3600})}."
        body = {"access_token": token, "token_type": "Bearer", "expires_in": 3600} if known else {}
        self.send_response(200 if known else 401)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        pass


def _part(content: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def _certificates(folder: Path) -> tuple[Path, Path]:
    """Return two PEM files: the certificate that clients trust, and the broker's key with its certificate."""
    key, certificate, store = folder / "key.pem", folder / "certificate.pem", folder / "store.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=broker",
            ),
            *("-addext", "subjectAltName=DNS:broker", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    store.write_text(key.read_text() + certificate.read_text())
    return certificate, store

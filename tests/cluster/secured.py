"""One real broker of somebody who asks for TLS and a password: PEM files by openssl, SASL/PLAIN and SCRAM."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ackproof.base.processes import RunTag, spawn
from ackproof.cluster import lease
from ackproof.cluster.install import Installation
from ackproof.provision.checkpoint import CHECKPOINT, meta_properties, new_cluster_id
from ackproof.provision.jvm import SERVER, java_command

USER, PASSWORD = "tester", "open-sesame-7"


@dataclass(frozen=True)
class Secured:
    """Where it is, and what lets one in."""

    bootstrap: str
    settings: dict[str, str]


@contextmanager
def secured_broker(folder: Path, installed: Installation, run_id: str) -> Iterator[Secured]:
    """A combined node that ends with the block."""
    data = folder / "data"
    data.mkdir(parents=True)
    ca, key_store = _certificates(folder)
    with lease.acquire([1], holder=run_id) as held:
        addresses = held.addresses
        client = addresses.client(1)
        (data / "meta.properties").write_text(meta_properties(new_cluster_id(), 1))
        (data / CHECKPOINT).write_bytes(installed.checkpoint.read_bytes())
        jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
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
listener.name.external.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.external.plain.sasl.jaas.config={jaas} user_{USER}="{PASSWORD}";
listener.name.external.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
"""
        )
        child = spawn(
            java_command(
                installed.java, installed.jars, SERVER, ["server.properties"], log=folder / "server.log"
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


def _certificates(folder: Path) -> tuple[Path, Path]:
    """The certificate that clients trust, and key and certificate of the broker in one file."""
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

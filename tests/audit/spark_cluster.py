"""Servers of Spark from its pip package, on loopback: a standalone cluster and Spark Connect."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ackproof.base.wait import wait_until
from ackproof.spark.driver import spark_home

START_S = 300.0
LEAN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def server(folder: Path, name: str, *command: str) -> Iterator[psutil.Process]:
    """Run one of Spark's programs with its log in `folder`. At the end kill it and all its child processes."""
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": LEAN,
        "SPARK_SUBMIT_OPTS": LEAN,
        # Of the executors too: what is killed leaves nothing elsewhere.
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folder}",
        "TMPDIR": str(folder),
        "SPARK_WORKER_DIR": str(folder / name),
        "SPARK_LOCAL_DIRS": str(folder / name),
        "PYSPARK_PYTHON": sys.executable,
    }
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(spark_home() / "bin" / command[0]), *command[1:]],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        own = psutil.Process(process.pid)
        tree = [own, *own.children(recursive=True)]
        for one in tree:
            one.kill()
        psutil.wait_procs(tree)
        process.wait()


@dataclass
class Cluster:
    """A standalone master's URL and its workers, each with one core and its own loopback address.

    Spark runs a speculative copy of a task only on another host.
    """

    master: str
    workers: list[psutil.Process] = field(default_factory=list)


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    port = free_port()
    deploy = "org.apache.spark.deploy"

    def options(host: int) -> tuple[str, ...]:
        return ("--host", f"127.0.0.{host}", "--webui-port", "0")

    with ExitStack() as running:
        running.enter_context(
            server(
                folder, "master", "spark-class", f"{deploy}.master.Master", *options(1), "--port", str(port)
            )
        )
        wait_until(lambda: listens(port), what="Spark's master", timeout_s=START_S)
        found = Cluster(f"spark://127.0.0.1:{port}")
        for number in range(workers):
            size = ("--cores", "1", "--memory", "1g")
            one = server(
                folder,
                f"worker-{number}",
                "spark-class",
                f"{deploy}.worker.Worker",
                *options(1 + number),
                *size,
                found.master,
            )
            found.workers.append(running.enter_context(one))
        logs = [folder / f"worker-{number}.log" for number in range(workers)]
        wait_until(
            lambda: all("Successfully registered with master" in log.read_text("utf-8") for log in logs),
            what="Spark's workers",
            timeout_s=START_S,
        )
        yield found


@contextmanager
def connect(folder: Path, master: str) -> Iterator[str]:
    """Run a server of Spark Connect for `master`. Yield its `sc://` address, the value of `--remote`."""
    port = free_port()
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": LEAN,
    }
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    main = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with server(
        folder, "connect", "spark-submit", "--master", master, "--class", main, *words, "spark-internal"
    ):
        wait_until(lambda: listens(port), what="Spark Connect", timeout_s=START_S)
        yield f"sc://127.0.0.1:{port}"

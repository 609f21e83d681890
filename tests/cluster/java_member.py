"""Starts members of groups on the Java client: one process each, with its events and commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from ackproof.base.wait import wait_until
from ackproof.clients.contract import MemberSettings
from ackproof.clients.java import adapter
from ackproof.experiment.group import GroupSpec
from ackproof.rundir.payload import encoder

RUN = "00000000000000aa"
Line = Mapping[str, object]


@dataclass
class Member:
    """A member process. `lines` returns all events that it has printed so far."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def lines(self) -> list[Line]:
        raw = (self.folder / "lines.jsonl").read_bytes()
        return [json.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]

    def of(self, *events: str) -> list[Line]:
        return [line for line in self.lines if line["e"] in events]

    def say(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()

    def await_event(self, event: str, count: int = 1, timeout_s: float = 30.0) -> None:
        wait_until(
            lambda: len(self.of(event)) >= count or self.process.poll() is not None,
            what=f"{count} {event}",
            timeout_s=timeout_s,
            state=self.last_words,
        )
        assert len(self.of(event)) >= count, self.last_words()

    def last_words(self) -> str:
        return (self.folder / "errors.log").read_text()[-3000:]

    def stop(self) -> int:
        if self.process.poll() is None:
            self.say("stop")
        return self.process.wait(30)

    def end(self) -> None:
        """Kill the process if it runs, and close its standard input."""
        with self.process:
            self.process.kill()

    def pause(self, seconds: float) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.process.pid, signal.SIGCONT)


def start(command: list[str], folder: Path) -> Member:
    with (folder / "lines.jsonl").open("wb") as out, (folder / "errors.log").open("wb") as errors:
        return Member(folder, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=errors))


def start_member(
    folder: Path, bootstrap: str, spec: GroupSpec, group: str, number: int, release: str, instance: str = ""
) -> Member:
    """Start member `gN` of a group, on kafka-clients of this release. `number`: N. `instance`: its group.instance.id,
    '' for a dynamic member."""
    client = f"g{number}"
    home = folder / group / f"{client}-{time.monotonic_ns()}"
    home.mkdir(parents=True)
    transactional = f"{group}-{client}" if spec.commit == "transaction" else ""
    settings = MemberSettings(
        client=client,
        run_id=RUN,
        case_dir=str(folder),
        places=(),
        origin_ns=0,
        config=adapter.member_config(spec, bootstrap, client, group, instance),
        library="java",
        library_version=release,
        group=group,
        member=number,
        topics=spec.topics or (),
        cooperative=spec.resolved_assignor == "cooperative-sticky",
        commit=spec.commit,
        commit_s=spec.commit_every,
        group_metadata=spec.group_metadata,
        output=spec.output or "",
        output_config=adapter.output_config(bootstrap, client, transactional) if spec.output else {},
        start=spec.start,
        reset=spec.resolved_reset,
        batch=spec.batch,
        record_s=spec.record_time,
        instance=instance,
    )
    return start(adapter.member_command(settings, home / "settings.json"), home)


def load(bootstrap: str, topic: str, partitions: int, each: int) -> None:
    """Write `each` records of producer 0 to each partition: seq of an offset is `partition * each + offset`."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})
    for partition in range(partitions):
        encode: Callable[[int], bytes] = encoder(RUN, 0, topic, partition, 100)
        for offset in range(each):
            producer.produce(topic, encode(partition * each + offset), partition=partition)
    assert producer.flush(30) == 0


def read_all(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    """Return the values of all records that are readable at read_committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    values, ended = [], 0
    while ended < partitions:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            values.append(message.value() or b"")
        else:
            ended += 1
    consumer.close()
    return values

"""Tests of users' programs: command lines, translation of their lines into ledgers, and the report of each breach of
the contract."""

from __future__ import annotations

import base64
import json
import time
import zlib
from pathlib import Path

import pytest

from ackproof.clients.channel import ClientState, SharedCounters
from ackproof.clients.command.adapter import (
    fill_in,
    member_config,
    producer_command,
    producer_config,
    reader_config,
)
from ackproof.clients.command.events import LINES
from ackproof.clients.command.translation import Translation
from ackproof.clients.contract import SETTINGS, ProducerSettings, ReaderSettings
from ackproof.clients.conversion import JournalConverter
from ackproof.clients.java.adapter import SETTING_TYPES
from ackproof.experiment.group import GroupSpec
from ackproof.experiment.spec import ProducerSpec
from ackproof.plan import InvalidExperiment, load
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.ledger import read_parts
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import has_end
from ackproof.rundir.payload import encoder
from ackproof.rundir.schema import CONSUMED, PRODUCED

PLACES = (TopicPartition("a", 0), TopicPartition("b", 0))
RUN_ID = "ab" * 8
NOW = time.monotonic_ns()
ROWS = 4


class Program:
    """A user's program as producer p0 or (`reads`) reader r0. `say` adds a line to its output; `translation` converts
    the output."""

    def __init__(self, path: Path, *, reads: bool = False) -> None:
        self.run = CaseDir(path)
        name = "r0" if reads else "p0"
        self.folder = self.run.clients / name
        self.folder.mkdir(parents=True)
        common = {
            "client": name,
            "run_id": RUN_ID,
            "case_dir": str(path),
            "places": PLACES,
            "origin_ns": NOW,
            "library": "command",
            "command": ("program", "{settings}"),
        }
        self.settings: ProducerSettings | ReaderSettings
        if reads:
            config = reader_config({}, "read_committed", "b:1", name)
            self.settings = ReaderSettings(
                **common, config=config, reader=0, isolation="read_committed", flush_rows=ROWS
            )
        else:
            config = producer_config(ProducerSpec(), "b:1", name)
            self.settings = ProducerSettings(
                **common, config=config, producer=0, first_place=0, value_size=60, rate=5.0, chunk_rows=ROWS
            )
        self.settings.write(self.folder / SETTINGS)
        self.counters = SharedCounters(self.folder / "counters", len(PLACES), create=True)
        self.translation = Translation(self.settings, self.counters, self.folder, NOW)
        self._t = 0
        self.say("started", client="test", acks="all")

    def say(self, event: str, **fields: object) -> None:
        self._t += 1
        self.write(json.dumps({"e": event, "t": NOW + self._t, **fields}) + "\n")

    def write(self, text: str) -> None:
        with (self.folder / LINES).open("a") as file:
            file.write(text)

    def close(self) -> None:
        self.say("closed")
        self.translation.end(0)
        assert self.translation.breach is None
        converter = JournalConverter(self.run, list)
        assert converter.close_ledger(self.settings) == []

    @property
    def breach(self) -> str:
        return str(self.translation.breach)


def test_settings_are_one_argument_and_its_texts_single_ones() -> None:
    words = fill_in(["a", "{settings}", "--b={bootstrap}"], {"bootstrap": "h:1", "rate": None})
    assert words == ["a", '{"bootstrap":"h:1","rate":null}', "--b=h:1"]


def test_a_value_of_the_program_is_one_of_the_house(tmp_path: Path) -> None:
    """The template, with seq and checksum filled in, equals the value that a librdkafka producer sends."""
    program = Program(tmp_path)
    assert isinstance(program.settings, ProducerSettings)
    settings = json.loads(producer_command(program.settings, tmp_path)[1])
    assert settings["partitions"][1]["topic"] == "b" and settings["config"]["acks"] == "all"
    template = bytearray(base64.b64decode(settings["partitions"][1]["value"]))
    template[16:24] = (7).to_bytes(8, "big")
    template[-4:] = zlib.crc32(template[:-4]).to_bytes(4, "little")
    assert bytes(template) == encoder(RUN_ID, 0, "b", 0, 60)(7)


def test_a_producers_lines_become_its_ledger(tmp_path: Path) -> None:
    program = Program(tmp_path)
    for n in range(6):  # more than a chunk
        program.say("attempt", n=n, topic="ab"[n % 2], p=0)
    program.translation.follow()
    assert program.counters.state is ClientState.READY and program.counters.sent == 6
    program.say("result", n=5, o=70)
    program.say("result", n=0, x="NotLeader")
    program.say("note", anything=1)
    program.close()
    assert list(program.counters.counts) == [0, 1]
    assert program.counters.indeterminate == 1
    ledger = program.run.produced / client_folder("p0")
    rows = sorted(read_parts(ledger, PRODUCED).to_pylist(), key=lambda row: row["seq"])
    assert [(row["seq"], row["topic"], row["outcome"], row["offset"]) for row in rows] == [
        *((n, "ab"[n % 2], Outcome.INDETERMINATE, -1) for n in range(5)),
        (5, "b", Outcome.ACKED, 70),
    ]
    assert rows[5]["sent_ns"] == 7 and rows[5]["done_ns"] == 8 and rows[1]["done_ns"] == -1
    assert has_end(ledger)


def test_a_readers_lines_become_its_ledger(tmp_path: Path) -> None:
    program = Program(tmp_path, reads=True)
    program.say("assigned", ps=[["a", 0], ["b", 0]])
    encode = encoder(RUN_ID, 3, "b", 0, 60)
    for n in range(5):
        value = base64.b64encode(encode(n)).decode()
        program.say("delivered", topic="b", p=0, o=n, ts=1000 + n, v=value)
    program.say("assigned", ps=[["a", 0], ["b", 0]])
    program.say("delivered", topic="a", p=0, o=0, ts=5, v=base64.b64encode(b"other").decode())
    program.close()
    table = read_parts(program.run.consumed / client_folder("r0"), CONSUMED)
    rows = sorted(table.to_pylist(), key=lambda row: row["read_seq"])
    seen = [(row["topic"], row["offset"], row["seq"], row["assignment"], row["intact"]) for row in rows]
    assert seen == [*(("b", n, n, 0, True) for n in range(5)), ("a", 0, -1, 1, False)]
    assert [row["origin_topic"] for row in rows] == ["b"] * 5 + [""]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("debug: sending\n", "line 3: no JSON: 'debug: sending'"),
        ("[1]\n", "line 3: no JSON object with an event e: '[1]'"),
        ('{"e":"attempt","t":1.5}\n', "line 3: '{\"e\":\"attempt\",\"t\":1.5}': t is 1.5, not a whole number"),
        ('{"e":"attempt","t":T,"n":1,"topic":"a"}\n', "p is missing, not a whole number"),
        ('{"e":"attempt","t":T,"n":1,"topic":"a","p":2147483648}\n', "p is 2147483648, not a whole number"),
        ('{"e":"attempt","t":T,"n":0,"topic":"a","p":0}\n', "line 3: a second attempt has the number 0"),
        ('{"e":"attempt","t":T,"n":2,"topic":"a","p":0}\n', "attempt 2 follows attempt 0"),
        ('{"e":"attempt","t":T,"n":1,"topic":"c","p":0}\n', "attempt 1 is for c/0, which is not among"),
        ('{"e":"result","t":T,"n":1,"o":3}\n', "result: attempt 1 was never told"),
        ('{"e":"result","t":T,"n":0,"o":3}\n{"e":"result","t":T,"n":0,"o":3}\n', "line 4: result: attempt 0 is answ"),
        ('{"e":"result","t":T,"n":0}\n', "o is missing"),
        ('{"e":"stopping","t":1}\n', "t is 1, and CLOCK_MONOTONIC was"),
        ('{"e":"stopping","t":-1}\n', "CLOCK_MONOTONIC"),
        ('{"e":"stopping","t":BACK}\n', "stopping: t goes back by 2 ns"),
        ('{"e":"closed","t":T}\n{"e":"stopping","t":T}\n', "line 4: stopping comes after closed"),
        ('{"e":"resul', "line 3: half a line at the end: '{\"e\":\"resul'"),
        ("", "the program ended and never said closed"),
    ],
)  # fmt: skip
def test_a_breach_is_one_line_and_what_came_before_stays(tmp_path: Path, lines: str, why: str) -> None:
    program = Program(tmp_path)
    program.say("attempt", n=0, topic="a", p=0)
    program.write(lines.replace("BACK", str(NOW)).replace("T", str(NOW + 10)))
    program.say("attempt", n=1, topic="a", p=0) if lines.endswith("\n") else None
    program.translation.end(0)
    assert why in program.breach and "\n" not in program.breach
    assert program.counters.sent == 1
    written, refused = JournalConverter(program.run, list).salvage("p0")
    assert not refused and len(written) == 1


def test_other_acks_than_those_asked_for_are_a_breach(tmp_path: Path) -> None:
    program = Program(tmp_path)
    (program.folder / LINES).write_text(f'{{"e":"started","t":{NOW},"client":"x","acks":"1"}}\n')
    program.translation.follow()
    assert "started says '1' as acks, and the experiment asks for 'all'" in program.breach


def test_a_killed_program_may_leave_half_a_line(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.write('{"e":"att')
    program.translation.end(-9)
    assert program.translation.breach is None


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        ("producers: {client: {command: []}}", "a command is a list of texts"),
        (
            "producers: {client: {command: [x]}, idempotence: true, transaction_size: 5}",
            "does not tell its transactions",
        ),
        ("producers: {client: {command: [x]}, keys: 5}", "chooses its own keys"),
        ("consumers: {live: 1, client: {command: [x]}, commit_every: 1s}", "what a program's library sends"),
    ],
)
def test_what_programs_cannot_do_is_refused(tmp_path: Path, workload: str, why: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"name: x\ntopics: {{t: {{}}}}\nworkload: {{{workload}}}\n")
    with pytest.raises(InvalidExperiment) as caught:
        load(file)
    assert why in caught.value.problems[0].message


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_gets_settings_that_every_client_knows(protocol: str) -> None:
    """Settings that only librdkafka has are left out, and so is auto.offset.reset: the program itself resets
    positions."""
    spec = GroupSpec.model_validate({"protocol": protocol, "config": {"fetch.min.bytes": "7"}})
    config = member_config(spec, "h:1", "g0", "billing", "one")
    known = {"classic": "session.timeout.ms", "consumer": "group.remote.assignor"}[protocol]
    assert {"group.id", "group.protocol", "group.instance.id", "fetch.min.bytes", known} <= config.keys()
    assert config.keys() <= SETTING_TYPES["consumer"].keys() - {"auto.offset.reset"}

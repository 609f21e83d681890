"""Tests of the scraper: it asks each running node once a second; rows differ for silent, paused and ended nodes; the
file is complete or absent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import NodeState
from ackproof.network.addresses import Address
from ackproof.observe import scraper as scraping
from ackproof.observe.scraper import Scraper, parse_scrape
from ackproof.rundir.clock import RunClock
from ackproof.rundir.metrics import METRICS, Scrape, read_scrapes
from ackproof.rundir.timeline import EventKind, Timeline, read_timeline

URP = "under_replicated_partitions"
TOLD = f"""\
# HELP {URP} Attribute exposed for management
# TYPE {URP} untyped
{URP} 2.0
# TYPE jmx_scrape_error gauge
jmx_scrape_error 0.0
jvm_info{{version="17"}} 1.0
"""


class _Tells(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(TOLD.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def exporter() -> Iterator[tuple[Address, list[str]]]:
    handler = type("Tells", (_Tells,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Address(*server.server_address[:2]), handler.asked  # type: ignore[misc, attr-defined]
        server.shutdown()
        thread.join()


@contextmanager
def silent() -> Iterator[Address]:
    """Yield the address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Address(*listening.getsockname())


@contextmanager
def scraped(folder: Path, nodes: dict[int, tuple[NodeState, Address]]) -> Iterator[Scraper]:
    with Timeline(folder / "timeline.jsonl", RunClock.start()) as timeline:
        cluster: Any = SimpleNamespace(
            nodes={
                node: SimpleNamespace(state=lambda state=state: state) for node, (state, _) in nodes.items()
            },
            exporters=lambda: {node: address for node, (_, address) in nodes.items()},
        )
        scraper = Scraper(cluster, folder / "observed" / "metrics.parquet", timeline)
        try:
            yield scraper
        finally:
            scraper.stop()


def test_who_answers_who_is_silent_and_who_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scraping, "EVERY_S", 0.1)
    monkeypatch.setattr(scraping, "ANSWER_WITHIN_S", 0.05)
    run, gone, stopped = NodeState.RUNNING, NodeState.GONE, NodeState.STOPPED
    file = tmp_path / "observed" / "metrics.parquet"
    with exporter() as (address, asked), silent() as deaf:
        nodes = {1: (run, address), 2: (run, deaf), 3: (stopped, address), 4: (gone, address)}
        with scraped(tmp_path, nodes) as scraper:
            scraper.start()
            wait_until(lambda: len(asked) >= 3, what="three rounds", timeout_s=20, interval_s=0.02)
            assert not file.exists(), "before it is whole"
            scraper.stop()
    found = read_scrapes(file)
    assert sorted(found) == [1, 2, 3]
    assert {len(each) for each in found.values()} == {len(asked)}
    assert (
        [one.t_ns for one in found[1]]
        == [one.t_ns for one in found[2]]
        == sorted(one.t_ns for one in found[3])
    )
    assert all(one.values in ({URP: 2.0}, None) and one.done_ns > one.t_ns for one in found[1])
    assert any(one.values for one in found[1])
    assert all(one.values is None for one in (*found[2], *found[3]))
    assert all(f"name[]={URP}" in path and "name[]=jvm" not in path for path in asked)


@pytest.mark.parametrize(
    ("states", "node", "told"),
    [
        ("rr", None, 4.0),
        ("rr", 2, 2.0),
        ("rg", None, 2.0),
        ("rg", 2, None),
        # Who lives and is silent could have told anything.
        ("rs", None, None),
        ("rd", None, None),
        ("rd", 1, 2.0),
        ("gg", None, None),
    ],
)
def test_the_newest_round_is_what_triggers_look_at(
    tmp_path: Path, states: str, node: int | None, told: float | None
) -> None:
    kinds = {"g": NodeState.GONE, "s": NodeState.STOPPED}
    with exporter() as (address, _), silent() as deaf:
        nodes = {
            number: (kinds.get(letter, NodeState.RUNNING), deaf if letter == "d" else address)
            for number, letter in enumerate(states, start=1)
        }
        with scraped(tmp_path, nodes) as scraper:
            assert scraper.fresh(METRICS[URP], node) is None, "nobody asked yet"
            scraper.start()
            assert scraper.fresh(METRICS[URP], node) == told
            assert scraper.fresh(METRICS["offline_partitions_count"], 1) is None, "it never told that one"


def test_what_a_round_told_is_not_believed_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scraping, "EVERY_S", 60.0)
    with exporter() as (address, _), scraped(tmp_path, {1: (NodeState.RUNNING, address)}) as scraper:
        scraper.start()
        assert scraper.fresh(METRICS[URP], 1) == 2.0
        monkeypatch.setattr(scraping, "FRESH_S", 0.0)
        assert scraper.fresh(METRICS[URP], 1) is None


def test_a_scraper_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    def fail(*_: object, **__: object) -> None:
        failed.set()
        raise ZeroDivisionError

    monkeypatch.setattr(scraping, "ThreadPoolExecutor", fail)
    with silent() as deaf, scraped(tmp_path, {1: (NodeState.RUNNING, deaf)}) as scraper:
        scraper.start()
        assert failed.wait(20)
    (event,) = [one for one in read_timeline(tmp_path / "timeline.jsonl")[0] if one.kind is EventKind.NOTE]
    assert "scraping metrics ended: ZeroDivisionError" in str(event.detail)
    assert not (tmp_path / "observed" / "metrics.parquet").exists()


@pytest.mark.parametrize(
    "text", ["", "<html>", TOLD.replace("error 0.0", "error 1.0"), TOLD.replace("2.0", "two"), "x 1.0\n"]
)
def test_what_is_no_answer(text: str) -> None:
    assert parse_scrape(text) is None


def test_only_metrics_of_the_list_are_kept() -> None:
    assert parse_scrape(TOLD) == {URP: 2.0}


def test_without_rows_there_are_no_scrapes(tmp_path: Path) -> None:
    assert read_scrapes(tmp_path / "none.parquet") == {}
    assert Scrape(1, 2, None).values is None

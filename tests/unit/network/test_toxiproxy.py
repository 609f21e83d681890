"""Tests of the Toxiproxy client with a faulty server: a command that was not carried out is never taken for done."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ackproof.network import toxiproxy
from ackproof.network.addresses import Address
from ackproof.network.mesh import LinkError
from ackproof.network.toxiproxy import ProxyRoute, Toxic, Toxiproxy

CUT = Toxic("me-timeout-upstream", "timeout", "upstream", {"timeout": 0})


class Server:
    """Fake Toxiproxy server. It answers GET with `proxies`, and other requests with `status` without carrying them out.
    `silent`: set while it answers nothing."""

    def __init__(self) -> None:
        self.status = 200
        self.proxies: dict[str, dict[str, Any]] = {
            "1-2": {"name": "1-2", "listen": "a:1", "upstream": "b:1", "enabled": True, "toxics": []}
        }
        self.silent = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self, status: int, body: object) -> None:
                if outer.silent.is_set():
                    outer.released.wait(5)
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:
                name = self.path.removeprefix("/proxies").strip("/")
                self._answer(200, outer.proxies[name] if name else outer.proxies)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self._answer(outer.status, {"error": "no", "title": "no"})

            do_DELETE = do_POST  # noqa: N815

            def log_message(self, *words: object) -> None:
                pass

        self.released = threading.Event()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def api(self) -> Toxiproxy:
        return Toxiproxy("127.0.0.1", self.http.server_address[1])


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.released.set()
    made.http.shutdown()
    made.http.server_close()


@pytest.mark.parametrize("status", [200, 404, 409, 500])
def test_what_was_not_done_is_noticed(server: Server, status: int) -> None:
    server.status = status
    api = server.api
    with pytest.raises(LinkError):
        api.add_toxic("1-2", CUT)
    with pytest.raises(LinkError):
        api.enable("1-2", enabled=False)
    with pytest.raises(LinkError):
        api.add([ProxyRoute("3-1", Address("c", 1), Address("d", 1))])
    server.proxies["1-2"]["toxics"] = [
        {"name": CUT.name, "type": CUT.type, "stream": CUT.stream, "attributes": {"timeout": 0}}
    ]
    with pytest.raises(LinkError):
        api.remove_toxic("1-2", CUT.name)


def test_another_toxic_than_asked_for_is_noticed(server: Server) -> None:
    server.proxies["1-2"]["toxics"] = [
        {"name": CUT.name, "type": CUT.type, "stream": CUT.stream, "attributes": {"timeout": 7}}
    ]
    with pytest.raises(LinkError, match="laid another toxic"):
        server.api.add_toxic("1-2", CUT)


def test_what_is_not_there_is_cured_already(server: Server) -> None:
    server.status = 500
    server.api.remove_toxic("1-2", "no such toxic")


def test_a_server_that_does_not_answer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toxiproxy, "TIMEOUT_S", 0.2)
    server.silent.set()
    with pytest.raises(LinkError, match="Toxiproxy at 127"):
        server.api.proxies()


def test_a_server_that_is_gone() -> None:
    with pytest.raises(LinkError):
        Toxiproxy("127.0.0.1", 1).version()


def test_two_servers_at_once(server: Server) -> None:
    """toxiproxy-python keeps the server's address in a class: a second client must not change the address of the
    first."""
    other = Server()
    other.proxies.clear()
    try:
        first, second = server.api, other.api
        assert set(first.proxies()) == {"1-2"}
        assert second.proxies() == {}
        assert set(first.proxies()) == {"1-2"}
    finally:
        other.http.shutdown()
        other.http.server_close()

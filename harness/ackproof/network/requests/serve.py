"""The process of the proxy of requests: `python -m ackproof.network.requests.serve HOST PORT`.

It takes orders at that address, one JSON object a line, each answered by a line:

    {"do": "add", "ways": [[name, host, port, upstream host, upstream port], …]}
    {"do": "lay", "rule": {…}}      {"do": "lift", "name": "…"}      {"do": "state"}
    {"do": "release", "name": "…", "ways": ["…", …], "most": 1}

An answer has `error`, or what is so now: `ways`, and of each rule what it counted, and how many frames it holds on each
way. What was lifted stands in `lifted`, how many frames were released in `released`.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
from dataclasses import asdict

from ackproof.network.requests.contents import prepare
from ackproof.network.requests.relay import Refused, Relay
from ackproof.network.requests.rules import Rule


class Control:
    """Those who give orders."""

    def __init__(self, relay: Relay, address: tuple[str, int]) -> None:
        self._relay = relay
        self._listening = socket.create_server(address)
        relay.serve(self._listening.fileno(), select.EPOLLIN, lambda events: self._take())

    def _take(self) -> None:
        line, _ = self._listening.accept()
        line.setblocking(False)
        kept = bytearray()

        def serve(events: int) -> None:
            del events
            try:
                data = line.recv(1 << 20)
                if not data:
                    raise ConnectionResetError
                kept.extend(data)
                while (end := kept.find(b"\n")) >= 0:
                    order = bytes(kept[:end])
                    del kept[: end + 1]
                    # Orders and answers are some kilobytes: a socket's buffer takes them at once.
                    line.sendall(self._answer(order))
            except BlockingIOError:
                return
            except OSError:
                self._relay.serve(line.fileno(), 0, serve)
                line.close()

        self._relay.serve(line.fileno(), select.EPOLLIN, serve)

    def _answer(self, order: bytes) -> bytes:
        said: dict[str, object] = {}
        try:
            self._obey(json.loads(order), said)
        except (Refused, OSError, ValueError, TypeError, KeyError) as error:
            said["error"] = f"{type(error).__name__}: {error}"
        said["ways"] = {name: list(upstream) for name, upstream in self._relay.ways().items()}
        held = self._relay.held()
        said["rules"] = {
            name: {**acting.rule.as_json(), "counted": asdict(acting.counted), "held": held[name]}
            for name, acting in self._relay.rules().items()
        }
        said["trouble"] = self._relay.trouble
        return json.dumps(said).encode() + b"\n"

    def _obey(self, order: dict[str, object], said: dict[str, object]) -> None:
        match order:
            case {"do": "add", "ways": [*ways]}:
                for name, *ends in map(_words, ways):
                    self._relay.add(name, (ends[0], int(ends[1])), (ends[2], int(ends[3])))
            case {"do": "lay", "rule": dict(rule)}:
                self._relay.lay(Rule.of_json(rule))
            case {"do": "lift", "name": str(name)}:
                said["lifted"] = asdict(self._relay.lift(name))
            case {"do": "release", "name": str(name), "ways": [*ways], "most": int(most)}:
                said["released"] = self._relay.release(name, list(map(str, ways)), most)
            case {"do": "state"}:
                pass
            case _:
                raise Refused("no such order")


def _words(row: object) -> list[str]:
    if not isinstance(row, list) or len(row) != 5:
        raise Refused("a way is a name, where it listens, and where it leads")
    return list(map(str, row))


def main(host: str, port: str) -> None:
    """Serve until somebody ends the process."""
    relay = Relay()
    Control(relay, (host, int(port)))
    threading.Thread(target=prepare, daemon=True).start()
    relay.run()


if __name__ == "__main__":
    main(*sys.argv[1:])

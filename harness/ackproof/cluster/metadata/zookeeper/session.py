"""Ending somebody else's ZooKeeper session.

A server takes whoever names a session and its password for the session's client, and lets it close the session. The
password is no secret between servers: each makes it from the session's number (ZooKeeperServer.generatePasswd), with
java.util.Random and a constant.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping
from typing import Final

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from ackproof.cluster.addresses import Address
from ackproof.cluster.wire import Unreachable

_SUPER_SECRET: Final = 0xB3415C00
"""ZooKeeperServer.superSecret, ZooKeeper 3.4 to 3.9."""
_MULTIPLIER: Final = 0x5DEECE66D
_INCREMENT: Final = 0xB
_MASK: Final = (1 << 48) - 1
_PASSWORD_BYTES: Final = 16
_START_S: Final = 5.0
_SILENT: Final = logging.getLogger("ackproof.zookeeper")


def session_password(session: int) -> bytes:
    """The password of a session (a signed 64-bit number, as a znode's ephemeralOwner)."""
    seed = ((session ^ _SUPER_SECRET) ^ _MULTIPLIER) & _MASK
    made = bytearray()
    while len(made) < _PASSWORD_BYTES:
        seed = (seed * _MULTIPLIER + _INCREMENT) & _MASK
        made += struct.pack("<I", (seed >> 16) & 0xFFFFFFFF)
    return bytes(made)


def end_session(addresses: Mapping[int, Address], session: int, password: bytes | None = None) -> bool:
    """Take over a session and close it. False when the servers knew no such session or another password.

    Raises `Unreachable` when no server answers.
    """
    hosts = ",".join(map(str, addresses.values()))
    client = KazooClient(
        hosts=hosts,
        timeout=_START_S,
        client_id=(session, session_password(session) if password is None else password),
        logger=_SILENT,
    )
    try:
        client.start(timeout=_START_S)
        taken = client.client_id is not None and client.client_id[0] == session
    except KazooTimeoutError as error:
        raise Unreachable("ZooKeeper: no session") from error
    finally:
        # Closing is what ends the session; one of our own, made because the other was refused, goes with it.
        client.stop()
        client.close()
    return bool(taken)

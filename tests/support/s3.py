"""An S3 server on loopback (moto), with one bucket."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ackproof.rundir.storage import locate

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "of a test",
    "AWS_SECRET_ACCESS_KEY": "of a test",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""Environment variables with which Arrow can use the server."""


@contextmanager
def s3_bucket() -> Iterator[str]:
    """Start the server for the block; yield the query that completes a URI of `s3://bucket`."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        query = f"region=us-east-1&scheme=http&endpoint_override={host}:{port}"
        bucket = locate(f"s3://bucket?{query}&allow_bucket_creation=true")
        bucket.mkdir(exist_ok=True)  # those of one process share what they hold
        yield query
    finally:
        server.stop()


def copied(folder: Path, there: Path) -> Path:
    """Copy all files of a folder into a store; return the path there."""
    for path in folder.rglob("*"):
        if path.is_file():
            (there / path.relative_to(folder).as_posix()).write_bytes(path.read_bytes())
    return there

"""The reader process with one planted lie: it flips a byte of one value before it decodes the value.

Run in place of the reader: ``python -m flipping_reader SETTINGS.json``, with this folder on PYTHONPATH."""

from __future__ import annotations

import sys

from ackproof.clients.librdkafka.reader import main
from ackproof.rundir.payload_bulk import BulkDecoder

FLIPPED = 7
"""Index of the damaged record, in order of decoding."""


class _Flipping:
    def __init__(self) -> None:
        self.seen = 0
        self.honest = BulkDecoder.__call__

    def __call__(self, decoder: BulkDecoder, values: list[bytes | None]) -> object:
        index = FLIPPED - self.seen
        self.seen += len(values)
        if 0 <= index < len(values) and (value := values[index]) is not None:
            wrong = bytearray(value)
            wrong[len(wrong) - 10] ^= 1
            values = [*values[:index], bytes(wrong), *values[index + 1 :]]
        return self.honest(decoder, values)


if __name__ == "__main__":
    flipping = _Flipping()
    BulkDecoder.__call__ = lambda decoder, values: flipping(decoder, values)  # type: ignore[method-assign, assignment, return-value]
    sys.exit(main(sys.argv[1:]))

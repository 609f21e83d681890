"""From the words of a command line to a cluster that someone else runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ackproof.base.errors import BadInput
from ackproof.cluster.backends.attach.cluster import Attachment
from ackproof.cluster.backends.attach.java import Entry, entries, in_words_of_librdkafka


def attachment(
    bootstrap: str | None, file: Path | None, settings: Sequence[str], backend: str | None = None
) -> Attachment | None:
    """Where the cluster is and what lets us in; None when no `--bootstrap` was given.

    `file` holds lines `key=value` in the words of librdkafka or of Java clients (`java`), `settings` more of them,
    which count more. Raises `BadInput` that never shows a value.
    """
    if bootstrap is None:
        if file is not None or settings:
            raise BadInput(
                "--client-config and -X are for --bootstrap: clusters of our own need no credentials"
            )
        if backend == "attach":
            raise BadInput("--backend attach needs to know where the cluster is: --bootstrap host:port")
        return None
    if backend not in (None, "attach"):
        raise BadInput(f"--bootstrap is a cluster that someone else runs: leave --backend {backend} out")
    read = [] if file is None else list(entries(str(file), _text(file)))
    made = Attachment(bootstrap, in_words_of_librdkafka([*read, *_words(settings)]), file)
    made.check()
    return made


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadInput(f"{file}: cannot be read: {said}") from error


def _words(settings: Sequence[str]) -> Iterator[Entry]:
    for number, word in enumerate(settings, start=1):
        name, sign, value = word.partition("=")
        if not sign or not name.strip():
            raise BadInput(f"-X: expected key=value (the {number}. of them has no '=')")
        yield Entry("-X", name.strip(), value)

"""From the words of a command line to a cluster that someone else runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ackproof.base.errors import BadInput
from ackproof.cluster.backends.attach.cluster import Attachment


def attachment(
    bootstrap: str | None, file: Path | None, settings: Sequence[str], backend: str | None = None
) -> Attachment | None:
    """Where the cluster is and what lets us in; None when no `--bootstrap` was given.

    `file` holds lines `key=value` as librdkafka's tools read them (`#` begins a comment line), `settings` more of
    them, which count more. Raises `BadInput` that never shows a value.
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
    found = {} if file is None else dict(_read(file))
    for number, word in enumerate(settings, start=1):
        name, value = _pair(word, f"-X: expected key=value (the {number}. of them has no '=')")
        found[name] = value
    made = Attachment(bootstrap, found, file)
    made.check()
    return made


def _read(file: Path) -> Iterator[tuple[str, str]]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadInput(f"{file}: cannot be read: {said}") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, value = _pair(line, f"{file}:{number}: expected key=value")
            yield name, value.strip()


def _pair(text: str, wrong: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise BadInput(wrong)
    return name.strip(), value

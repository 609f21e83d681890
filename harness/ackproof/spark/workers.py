"""Sends ackproof's code to Spark's workers, and explains why a worker cannot run it."""

from __future__ import annotations

import hashlib
import marshal
import pickle
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import ackproof
from ackproof.base import processes
from ackproof.base.environment import cache_root
from ackproof.base.errors import AuditFailed
from ackproof.base.extensions import VIEWS, find_packages

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")
_PACKAGE = Path(ackproof.__file__).parent


def code_archive() -> Path:
    """Return the path of a zip with the package ackproof and the installed packages that offer SQL views, made once per
    version and content in the cache folder.

    Tasks may also import numpy and Arrow. Each module is stored with its compiled form for this Python, which saves 0.2
    s at each worker's start. Another Python ignores that form.
    """
    folder = cache_root() / "spark"
    folder.mkdir(exist_ok=True)
    whole = folder / f"ackproof-{ackproof.__version__}-{_stamp()}.zip"
    if not whole.exists():
        unfinished = folder / f".{whole.name}.{processes.mark()}"
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, path in _sources():
                archive.write(path, name)
                archive.writestr(f"{name}c", _compiled(path, f"{whole.name}/{name}"))
        unfinished.replace(whole)
    return whole


def _sources() -> list[tuple[str, Path]]:
    """Return each module that tasks may import, as (path below `sys.path`, file), sorted."""
    packages = [_PACKAGE, *find_packages(VIEWS)]
    return sorted(
        (str(path.relative_to(package.parent)), path)
        for package in packages
        for path in package.rglob("*.py")
    )


@cache
def _stamp() -> str:
    """Return a digest of the modules that tasks may import. It is a part of the name of the zip."""
    found = hashlib.sha256()
    for name, path in _sources():
        found.update(f"{name}\0".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def _compiled(path: Path, name: str) -> bytes:
    """Return the content of an unchecked hash-based `.pyc` (PEP 552) for a module. `name`: its file name in
    tracebacks.
    """
    source, unchecked = path.read_bytes(), 0b01.to_bytes(4, "little")
    module = compile(source, name, "exec", dont_inherit=True)
    return MAGIC_NUMBER + unchecked + source_hash(source) + marshal.dumps(module)


def is_local(master: str | None) -> bool:
    """Return True for a local master: its workers are processes of this machine that run the installed code."""
    return re.match(r"local(\[|$)", master or "") is not None


def send_code(spark: SparkContext | SparkSession) -> None:
    """Send ackproof's code to the workers of a context or a Connect session. Workers of a local master have the code
    already."""
    if hasattr(spark, "addArtifacts"):
        spark.addArtifacts(str(code_archive()), pyfile=True)
    elif not is_local(spark.master):
        spark.addPyFile(str(code_archive()))


def wrap_task(
    task: Callable[[Iterable[Item]], Iterator[Result]],
) -> Callable[[Iterable[Item]], Iterator[Result]]:
    """Return a function that imports the task at the worker by its name, and calls it there. It raises RuntimeError if
    the worker has another version of ackproof."""
    blob, version = pickle.dumps(task), ackproof.__version__

    def run(items: Iterable[Item]) -> Iterator[Result]:
        import gc
        import pickle

        import ackproof

        if ackproof.__version__ != version:
            raise RuntimeError(f"<ackproof {ackproof.__version__} at a worker, {version} here>")
        given: Callable[[Iterable[Item]], Iterator[Result]] = pickle.loads(blob)
        gc.freeze()  # otherwise each garbage collection between tasks scans all imported modules: 20 ms
        return given(items)

    return run


_UNFIT = {
    r"No module named '([\w.]+)'": "a Spark worker has no {}: its Python needs numpy and pyarrow",
    r"PYTHON_VERSION_MISMATCH\D*([\d.]+\d)\D*([\d.]+\d)": "a Spark worker runs Python {}, and this is {}",
    r"<ackproof (\S+) at a worker, (\S+) here>": "a Spark worker has ackproof {}, and this is {}",
}
_HELP = " (PYSPARK_PYTHON or --conf spark.pyspark.python=… says which Python the workers run)"


def audit_failure(error: BaseException, what: str = "Spark died") -> AuditFailed:
    """Return an `AuditFailed` (code 2) with the cause in one line, taken from a Java or Python stack trace. `what`: the
    start of that line. If a worker lacks a module, or has another version of Python or ackproof, the line says that
    instead."""
    text = str(error) or type(error).__name__
    for pattern, line in _UNFIT.items():
        if found := re.search(pattern, text):
            return AuditFailed(line.format(*found.groups()) + _HELP, code=2)
    return AuditFailed(f"{what}: {extract_cause(text)}", code=2)


def extract_cause(text: str) -> str:
    """Return the cause in a Java or Python stack trace (`text`), in one line of at most 500 characters; `no reason
    given` if the text is empty. The line has the last error of the trace, usually the root cause, then the first error
    and the first line of the text."""
    lines = [line.strip(": ") for line in text.splitlines() if line.strip(": ")]
    errors = [line for line in lines if re.match(r"(Caused by: )?[\w.]*(Error|Exception|Exit)\b.*:", line)]
    return " / ".join(dict.fromkeys([*errors[-1:], *errors[:1], *lines[:1]]))[:500] or "no reason given"

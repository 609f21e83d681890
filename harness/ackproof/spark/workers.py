"""Our code at Spark's workers: how it comes there, and what is said where a worker cannot run it."""

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

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")
_PACKAGE = Path(ackproof.__file__).parent


def code_archive() -> Path:
    """A zip of this package, made once per version of it in the cache folder.

    What a task imports of other libraries must be numpy and Arrow alone. Beside each module lies what this Python
    compiles of it (0.2 s of the start of each worker); another Python passes over that.
    """
    folder = cache_root() / "spark"
    folder.mkdir(exist_ok=True)
    whole = folder / f"ackproof-{ackproof.__version__}-{_stamp()}.zip"
    if not whole.exists():
        unfinished = folder / f".{whole.name}.{processes.mark()}"
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in _sources():
                name = path.relative_to(_PACKAGE.parent)
                archive.write(path, name)
                archive.writestr(f"{name}c", _compiled(path, f"{whole.name}/{name}"))
        unfinished.replace(whole)
    return whole


def _sources() -> list[Path]:
    return sorted(_PACKAGE.rglob("*.py"))


@cache
def _stamp() -> str:
    """Of what the modules of this process were read from: asked for its settings and for what it sends."""
    found = hashlib.sha256()
    for path in _sources():
        found.update(f"{path.relative_to(_PACKAGE)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def _compiled(path: Path, name: str) -> bytes:
    """What a `.pyc` holds of a module, under the name that a trace is to show: that of PEP 552 which is not checked."""
    source, unchecked = path.read_bytes(), 0b01.to_bytes(4, "little")
    module = compile(source, name, "exec", dont_inherit=True)
    return MAGIC_NUMBER + unchecked + source_hash(source) + marshal.dumps(module)


def is_local(master: str | None) -> bool:
    """Whether its workers are processes of this machine that run what is installed here."""
    return re.match(r"local(\[|$)", master or "") is not None


def send_code(spark: SparkContext | SparkSession) -> None:
    """Send our code to the workers of a context, unless they run what is here; to those of a session of Connect."""
    if hasattr(spark, "addArtifacts"):
        spark.addArtifacts(str(code_archive()), pyfile=True)
    elif not is_local(spark.master):
        spark.addPyFile(str(code_archive()))


def wrap_task(
    task: Callable[[Iterable[Item]], Iterator[Result]],
) -> Callable[[Iterable[Item]], Iterator[Result]]:
    """The task, by the name of its function, in one that can be read where no ackproof is, and says so."""
    blob, version = pickle.dumps(task), ackproof.__version__

    def run(items: Iterable[Item]) -> Iterator[Result]:
        import gc
        import pickle

        import ackproof

        if ackproof.__version__ != version:
            raise RuntimeError(f"<ackproof {ackproof.__version__} at a worker, {version} here>")
        given: Callable[[Iterable[Item]], Iterator[Result]] = pickle.loads(blob)
        gc.freeze()  # between tasks Spark's worker looks for garbage in all that was ever imported: 20 ms
        return given(items)

    return run


_UNFIT = {
    r"No module named '([\w.]+)'": "a Spark worker has no {}: its Python needs numpy and pyarrow",
    r"PYTHON_VERSION_MISMATCH\D*([\d.]+\d)\D*([\d.]+\d)": "a Spark worker runs Python {}, and this is {}",
    r"<ackproof (\S+) at a worker, (\S+) here>": "a Spark worker has ackproof {}, and this is {}",
}
_HELP = " (PYSPARK_PYTHON or --conf spark.pyspark.python=… says which Python the workers run)"


def audit_failure(error: BaseException, what: str = "Spark died") -> AuditFailed:
    """One line, out of a Java or Python trace."""
    text = str(error) or type(error).__name__
    for pattern, line in _UNFIT.items():
        if found := re.search(pattern, text):
            return AuditFailed(line.format(*found.groups()) + _HELP, code=2)
    return AuditFailed(f"{what}: {extract_cause(text)}", code=2)


def extract_cause(text: str) -> str:
    """What happened, out of a trace."""
    lines = [line.strip(": ") for line in text.splitlines() if line.strip(": ")]
    told = [line for line in lines if re.match(r"(Caused by: )?[\w.]*(Error|Exception|Exit)\b.*:", line)]
    return " / ".join(dict.fromkeys([*told[-1:], *told[:1], *lines[:1]]))[:500] or "no reason given"

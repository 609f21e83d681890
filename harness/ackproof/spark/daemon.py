"""Spark's daemon of Python workers, on this machine and on a standalone cluster, with the installed pyspark.

Spark puts a zip of the same pyspark first in the module search path. The zip has no compiled modules, which costs 1 s
of each audit, and 2 s of the start of each worker that has its own core.
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def without_zips(path: list[str], home: Path) -> list[str]:
    """Return the module search path without the zips in `home`/python/lib, from which imports are slow. `home`:
    Spark's folder. The path is returned unchanged if the rest of it lacks the same pyspark and py4j.
    """
    rest = [entry for entry in path if Path(entry).parent != home / "python" / "lib"]
    found = PathFinder.find_spec("pyspark", rest)
    same = (
        found is not None
        and found.origin is not None
        and Path(found.origin).parent.resolve() == home.resolve()
    )
    return rest if same and PathFinder.find_spec("py4j", rest) else path


if __name__ == "__main__":
    sys.path[:] = without_zips(sys.path, Path(os.environ.get("SPARK_HOME", "")))
    runpy.run_module("pyspark.daemon", run_name="__main__")

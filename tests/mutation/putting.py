"""How a mutant gets into a running process: the code of one function exchanged, or a module imported with it."""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, FrameType, FunctionType, ModuleType

from .mutants import Function
from .rooms import Job, Room


def put_in(room: Room, job: Job) -> None:
    """Exchange the code of the one function, for all who have imported it. Only where `can_be_exchanged`."""
    assert job.mutant.body is not None
    live = _live(room.name_of(job.module), job.mutant.body)
    code = _find(job.mutant.code(str(room.folder / job.module)), job.mutant.body)
    assert live is not None
    assert code is not None
    live.__code__ = code


def can_be_exchanged(room: Room, job: Job) -> bool:
    """Whether the code of its function can be exchanged: not what a decorator hides, nor what a class makes anew."""
    if job.mutant.body is None:
        return False
    live = _live(room.name_of(job.module), job.mutant.body)
    if live is None:
        return False
    code = _find(live_module(room, job), job.mutant.body)
    return code is not None and code.co_freevars == live.__code__.co_freevars


@functools.cache
def _compiled(path: str, text: str) -> CodeType:
    return compile(text, path, "exec")


def live_module(room: Room, job: Job) -> CodeType:
    """The unchanged module, compiled."""
    path = room.folder / job.module
    return _compiled(str(path), path.read_text(encoding="utf-8"))


def _find(code: CodeType, function: Function) -> CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if (constant.co_qualname, constant.co_firstlineno) == (function.qualname, function.line):
                return constant
            if function.qualname.startswith(constant.co_qualname + "."):
                found = _find(constant, function)
                if found is not None:
                    return found
    return None


def _live(module: str, function: Function) -> FunctionType | None:
    found: object = importlib.import_module(module)
    for name in function.qualname.split("."):
        found = vars(found).get(name) if hasattr(found, "__dict__") else None
        # property, cached_property, class and static methods, what functools.wraps made
        for inner in ("fget", "func", "__func__", "__wrapped__"):
            found = getattr(found, inner, found)
    known = isinstance(found, FunctionType) and found.__code__.co_firstlineno == function.line
    return found if known and isinstance(found, FunctionType) else None


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the mutant instead of the module: for what is run at its import."""

    def __init__(self, room: Room, job: Job) -> None:
        self._name = room.name_of(job.module)
        assert self._name not in sys.modules, f"{self._name} was imported too early"
        self._path = room.folder / job.module
        self._job = job

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if name != self._name:
            return None
        package = self._path.name == "__init__.py"
        spec = importlib.util.spec_from_loader(name, self, origin=str(self._path), is_package=package)
        assert spec is not None
        if package:
            spec.submodule_search_locations = [str(self._path.parent)]
        return spec

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self._path)
        exec(self._job.mutant.code(str(self._path)), module.__dict__)


def run_at_import(room: Room) -> set[tuple[str, Function]]:
    """Import its modules; those of their functions that are called meanwhile: exchanging them comes too late."""
    paths = {str(room.folder / module): module for module in room.paths}
    called: set[tuple[str, Function]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        module = paths.get(code.co_filename)
        if event == "call" and module is not None:
            called.add((module, Function(code.co_qualname, code.co_firstlineno)))

    sys.setprofile(note)
    try:
        for module in paths.values():
            importlib.import_module(room.name_of(module))
    finally:
        sys.setprofile(None)
    return called

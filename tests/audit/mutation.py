"""Mutations of the audit, each of which the tests must notice.

    .venv/bin/python -m tests.audit.mutation [--only identity,places] [--quick] [--list] [--these FILE]

Every comparison is turned, every `and`/`or` and `&`/`|` swapped, every `not`/`~` dropped, every `if` and comprehension
filter taken as true and as false, every small constant moved by one, min and max exchanged, `continue` made `break`.
Each mutant audits random ledgers, few and then many, in a forked child that has the heavy imports done; one that agrees
with the plain audit on all of them then runs the tests that need no JVM, the quick ones first. Survivors are printed;
those that tests/mutation/equivalent.txt names with a reason do not count. All of it must pass without a mutant, before
and after: a run in which everything dies of something else looks perfect.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import importlib
import importlib.abc
import importlib.util
import io
import os
import pickle
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from .agreement import WAYS, agree, write
from .local import LocalContext
from .strategies import Drawn, directories

ROOT = Path(__file__).parents[2]
AUDIT = ROOT / "harness" / "ackproof" / "audit"
MODULES = (
    *(
        "identity",
        "places",
        "order",
        "strangers",
        "series",
        "lookup",
        "rows",
        "pile",
        "load",
        "ledger",
        "clients",
    ),
    *(
        "transactions",
        "commits",
        "planning",
        "units",
        "bucket",
        "results",
        "pipeline",
        "stages",
        "anomalies",
        "arrow",
    ),
)
TESTS = (
    "test_classes.py",
    "test_transactions.py",
    "test_parts.py",
    "test_agreement.py",
    "test_bad_ledgers.py",
    "test_planted_ledgers.py",
)
SLOW = "thousand_flaws or clean_ledger or planted"
"""Tests that take longer than all others together: asked last."""
REWRITTEN = (
    "ignore::pytest.PytestAssertRewriteWarning"  # hypothesis is imported before pytest, which is what we want
)
EQUIVALENT = ROOT / "tests" / "mutation" / "equivalent.txt"
FIRST = (2, 8, 24)
"""So many ledgers kill most mutants, so many most others."""
PRELOADED = ("ackproof.errors", "ackproof.processes", "ackproof.rundir.documents", "ackproof.rundir.schema")
"""What the audit imports and is not mutated: a third of the work on a mutant."""

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
SWAPPED_NAMES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "any": "all",
    "all": "any",
}
SWAPPED_OPERATORS = {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Add: ast.Sub, ast.Sub: ast.Add}


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: str
    line: int
    what: str
    tree: ast.AST
    node: ast.AST
    changed: ast.AST

    @property
    def source(self) -> str:
        """The module with the change in it. Asked for in the child: to write out all of them takes a minute."""
        mutated = Replace(self.node, self.changed).visit(copy_with(self.tree, self.node))
        return ast.unparse(ast.fix_missing_locations(mutated))

    @property
    def name(self) -> str:
        text = (AUDIT / f"{self.module}.py").read_text().splitlines()[self.line - 1].strip()
        return f"{self.module}: {text} [{self.what}]"


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Every way in which one node can be changed."""
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            changed = copy.deepcopy(node)
            changed.ops[at] = COMPARISONS[type(operator)]()
            yield f"{type(operator).__name__} → {COMPARISONS[type(operator)].__name__}", changed
    elif isinstance(node, ast.BoolOp):
        changed = copy.deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and ↔ or", changed
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPPED_OPERATORS:
        changed = copy.deepcopy(node)
        changed.op = SWAPPED_OPERATORS[type(node.op)]()
        yield f"{type(node.op).__name__} → {SWAPPED_OPERATORS[type(node.op)].__name__}", changed
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        yield "negation dropped", node.operand
    elif isinstance(node, ast.If | ast.IfExp):
        for value in (True, False):
            changed = copy.deepcopy(node)
            changed.test = ast.Constant(value)
            yield f"if {value}", changed
    elif isinstance(node, ast.comprehension) and node.ifs:
        changed = copy.deepcopy(node)
        changed.ifs = []
        yield "filter dropped", changed
    elif isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        if abs(node.value) <= 2:
            yield f"{node.value} → {node.value + 1}", ast.Constant(node.value + 1)
    elif isinstance(node, ast.Name) and node.id in ("min", "max", "any", "all"):
        yield f"{node.id} → {SWAPPED_NAMES[node.id]}", ast.Name(SWAPPED_NAMES[node.id], node.ctx)
    elif isinstance(node, ast.Attribute) and node.attr in SWAPPED_NAMES:
        changed = copy.deepcopy(node)
        changed.attr = SWAPPED_NAMES[node.attr]
        yield f"{node.attr} → {changed.attr}", changed
    elif isinstance(node, ast.Continue):
        yield "continue → break", ast.Break()


def mutants(module: str) -> Iterator[Mutant]:
    """Every mutant of one module."""
    tree = ast.parse((AUDIT / f"{module}.py").read_text())
    skipped = annotations(tree)
    nodes = [node for node in ast.walk(tree) if id(node) not in skipped]
    for node in nodes:
        for what, changed in changes(node):
            line = getattr(node, "lineno", None) or getattr(getattr(node, "target", None), "lineno", 1)
            yield Mutant(module, line, what, tree, node, changed)


def annotations(tree: ast.AST) -> set[int]:
    """Nodes inside annotations and type aliases: `int | None` is no sum, and under TYPE_CHECKING nothing runs."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            roots.append(node.annotation)
            if isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias":
                roots.append(node.value)
        elif isinstance(node, ast.arg):
            roots.append(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            roots.append(node.returns)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            roots.append(node)
    return {id(inner) for root in roots if root is not None for inner in ast.walk(root)}


_MARK = "_mutated_here"


def copy_with(tree: ast.AST, node: ast.AST) -> ast.AST:
    """A copy of the tree in which the copy of `node` is marked."""
    setattr(node, _MARK, True)
    copied = copy.deepcopy(tree)
    delattr(node, _MARK)
    return copied


class Replace(ast.NodeTransformer):
    """Puts the change where the mark is."""

    def __init__(self, _: ast.AST, changed: ast.AST) -> None:
        self._changed = changed

    def visit(self, node: ast.AST) -> ast.AST:
        if hasattr(node, _MARK):
            return self._changed
        return self.generic_visit(node)


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the mutant instead of the module."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._name = f"ackproof.audit.{mutant.module}"

    def find_spec(self, name, path, target=None):
        return importlib.util.spec_from_loader(name, self) if name == self._name else None

    def exec_module(self, module) -> None:
        module.__file__ = str(AUDIT / f"{self._mutant.module}.py")
        exec(compile(self._mutant.source, module.__file__, "exec"), module.__dict__)


@dataclass(frozen=True)
class Corpus:
    """Random ledgers on disk, and what the plain audit says of them: what kills most mutants within a second."""

    drawn: list[Drawn]
    paths: list[Path]

    @classmethod
    def write(cls, root: Path, count: int) -> Corpus:
        # In a child: pytest refuses to load hypothesis' plugin where a strategy was drawn from before.
        file = root / "drawn"
        assert in_child(None, lambda: bool(file.write_bytes(pickle.dumps(draw(count)))), 3600)
        drawn = pickle.loads(file.read_bytes())
        shuffle = random.Random(1)
        return cls(drawn, [write(root / str(number), one, shuffle) for number, one in enumerate(drawn)])

    def agrees(self, which: slice) -> bool:
        from ackproof.audit.pipeline import audit_all
        from ackproof.audit.units import Limits

        drawn, paths = self.drawn[which], self.paths[which]
        for limits in (WAYS["whole"], WAYS["buckets in ranges"]):
            results = audit_all(paths, LocalContext, lambda _: None, Limits(**limits))
            for one, path, result in zip(drawn, paths, results, strict=True):
                try:
                    agree(one, path, result)
                except AssertionError:
                    return False
        return True


def draw(count: int) -> list[Drawn]:
    drawn: list[Drawn] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(directories())
    def each(one: Drawn) -> None:
        drawn.append(one)

    each()
    return drawn


def in_child(mutant: Mutant | None, work: Callable[[], bool], limit_s: float) -> bool:
    """Whether `work` says True of the mutant. What raises, dies or hangs does not."""
    pid = os.fork()
    if pid == 0:
        good = False
        try:
            if mutant is not None:
                sys.meta_path.insert(0, Mutated(mutant))
            gc.disable()  # the child is short, and pages that a collection touches are copied
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                good = work()
        except BaseException:  # noqa: BLE001 - a mutant may do anything
            good = False
        os._exit(0 if good else 1)
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.02)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return False


def tests_pass(which: str) -> bool:
    tests = [str(ROOT / "tests" / "audit" / name) for name in TESTS]
    # With rewritten assertions pytest itself would load the modules of a plugin's package, and not the mutant.
    options = ["-x", "-q", "-m", "not audit", "-k", which, "--assert=plain", "-p", "no:cacheprovider"]
    return pytest.main([*options, "-W", REWRITTEN, *tests]) == 0


def known() -> dict[str, str]:
    """`module: line [change]` of the mutants that no test can tell from the original, with the reason."""
    lines = (line.partition(" :: ") for line in EQUIVALENT.read_text(encoding="utf-8").splitlines())
    return {what.removeprefix("audit/"): reason for what, _, reason in lines if what.startswith("audit/")}


@dataclass(frozen=True)
class Stage:
    """Work that a mutant must pass, and for how long it may: a mutant that hangs is noticed."""

    work: Callable[[], bool]
    limit_s: float

    @classmethod
    def timed(cls, work: Callable[[], bool]) -> Stage:
        begin = time.monotonic()
        assert in_child(None, work, 3600), "not even what is not mutated passes"
        return cls(work, 15 + 8 * (time.monotonic() - begin))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(MODULES))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--skip", type=int, default=0, help="pass over so many mutants")
    parser.add_argument("--every", type=int, default=1, help="only every n-th mutant")
    parser.add_argument("--ledgers", type=int, default=80, help="so many random ledgers before the tests")
    parser.add_argument("--quick", action="store_true", help="random ledgers only, not the tests")
    parser.add_argument("--these", type=Path, help="only mutants whose `survived` line stands in this log")
    chosen = parser.parse_args()
    all_ = [mutant for module in chosen.only.split(",") for mutant in mutants(module)]
    todo = all_[chosen.skip :: chosen.every]
    if chosen.these:
        logged = {line.partition(" survived ")[2] for line in chosen.these.read_text().splitlines()}
        todo = [mutant for mutant in todo if mutant.name in logged]
    print(f"{len(todo)} of {len(all_)} mutants", flush=True)
    if chosen.list:
        for mutant in todo:
            print(f"{mutant.line:4} {mutant.name}")
        return
    os.chdir(ROOT)
    os.environ.setdefault("ACKPROOF_EXAMPLES", "40")
    with tempfile.TemporaryDirectory(prefix="ackproof-mutation-") as root:
        corpus = Corpus.write(Path(root), chosen.ledgers)
        for name in PRELOADED:
            importlib.import_module(name)
        assert not [name for name in sys.modules if name.startswith("ackproof.audit.")], "imported too early"
        parts = [slice(a, b) for a, b in pairwise((0, *FIRST, chosen.ledgers))]
        works: list[Callable[[], bool]] = [partial(corpus.agrees, part) for part in parts]
        if not chosen.quick:
            works += [lambda: tests_pass(f"not ({SLOW})"), lambda: tests_pass(SLOW)]
        stages = [Stage.timed(work) for work in works]
        print("limits", *(f"{stage.limit_s:.0f} s" for stage in stages), flush=True)
        survivors, equivalent = [], known()
        begin = time.monotonic()
        for number, mutant in enumerate(todo):
            if number % 50 == 49:
                print(f"{number + 1} tried in {time.monotonic() - begin:.0f} s", flush=True)
            if all(in_child(mutant, stage.work, stage.limit_s) for stage in stages):
                survivors.append(mutant)
                why = equivalent.get(mutant.name, "")
                print(f"{number:4} {mutant.line:4} survived {mutant.name}{why and ' :: ' + why}", flush=True)
        assert all(in_child(None, stage.work, stage.limit_s) for stage in stages), "nothing was shown"
        left = [mutant for mutant in survivors if mutant.name not in equivalent]
        print(
            f"{len(todo)} mutants of {len(all_)}: {len(todo) - len(survivors)} killed, "
            f"{len(survivors) - len(left)} equivalent, {len(left)} survived, in {time.monotonic() - begin:.0f} s"
        )
        raise SystemExit(1 if left else 0)


if __name__ == "__main__":
    main()

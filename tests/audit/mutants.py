"""Mutants of the audit: which there are, and how one gets into a running process.

Every comparison is turned, every `and`/`or` and `&`/`|` swapped, every `not`/`~` dropped, every `if` and comprehension
filter taken as true and as false, every small constant moved by one, min and max exchanged, `continue` made `break`.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import importlib
import importlib.abc
import importlib.util
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType

ROOT = Path(__file__).parents[2]
AUDIT = ROOT / "harness" / "ackproof" / "audit"
MODULES = (
    *("identity", "places", "order", "strangers", "series", "lookup", "rows", "pile", "load", "ledger"),
    *("clients", "transactions", "commits", "planning", "units", "bucket", "results", "pipeline", "stages"),
    *("anomalies", "arrow"),
)
"""All that counts. The others start and end Spark's JVM (archive, frames, jvm, session)."""

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
class Function:
    """A function of a module that no other function holds: what is exchanged whole."""

    qualname: str
    line: int
    """That of its first decorator, if it has one."""


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: str
    name: str
    """`module.Class.function: the line [what]`, numbered if several mutants would be called that."""
    lines: tuple[int, int]
    """First and last line of the statement (of the head of a compound one): who runs none of them sees no change."""
    function: Function | None
    """None: it is run when the module is imported."""
    tree: ast.Module
    node: ast.AST
    changed: ast.AST

    @cached_property
    def code(self) -> CodeType:
        """The changed module. Asked for in the child: all of them would take a minute."""
        mutated = _Replace(self.changed).visit(_copy_with(self.tree, self.node))
        return compile(ast.fix_missing_locations(mutated), str(AUDIT / f"{self.module}.py"), "exec")

    @property
    def digest(self) -> str:
        """Another one where the function that is changed reads differently."""
        return hashlib.sha256(f"{self.name}\n{_text_of(self.tree, self.function)}".encode()).hexdigest()[:12]

    def changes_nothing(self) -> bool:
        """Whether the compiler makes the same of it."""
        return self.code == compile(self.tree, str(AUDIT / f"{self.module}.py"), "exec")

    def put_in(self) -> None:
        """Exchange the code of the one function, for all who have imported it."""
        assert self.function is not None
        _live(self.module, self.function).__code__ = _find(self.code, self.function)


def _text_of(tree: ast.Module, function: Function | None) -> str:
    for node in ast.walk(tree) if function else ():
        if isinstance(node, ast.FunctionDef) and _first_line(node) == function.line:
            return ast.unparse(node)
    return ast.unparse(tree)


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _find(code: CodeType, function: Function) -> CodeType:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if (constant.co_qualname, constant.co_firstlineno) == (function.qualname, function.line):
                return constant
            if function.qualname.startswith(constant.co_qualname + "."):
                return _find(constant, function)
    raise LookupError(function)


def _live(module: str, function: Function) -> FunctionType:
    found: object = importlib.import_module(f"ackproof.audit.{module}")
    for name in function.qualname.split("."):
        found = vars(found)[name]
        # property, cached_property, class and static methods, what functools.wraps made
        for inner in ("fget", "func", "__func__", "__wrapped__"):
            found = getattr(found, inner, found)
    assert isinstance(found, FunctionType), function
    return found


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
    source = (AUDIT / f"{module}.py").read_text(encoding="utf-8")
    tree, lines = ast.parse(source), source.splitlines()
    skipped, seen = _annotations(tree), Counter[str]()
    for node, statement, function in _nodes(tree, tree.body[0], None, ""):
        if id(node) in skipped:
            continue
        for what, changed in changes(node):
            line = getattr(node, "lineno", None) or getattr(getattr(node, "target", None), "lineno", 1)
            where = f"{module}.{function.qualname}" if function else module
            name = f"{where}: {lines[line - 1].strip()} [{what}]"
            seen[name] += 1
            name += f" #{seen[name]}" if seen[name] > 1 else ""
            yield Mutant(module, name, _extent(statement), function, tree, node, changed)


def _nodes(
    node: ast.AST, statement: ast.AST, function: Function | None, outer: str
) -> Iterator[tuple[ast.AST, ast.AST, Function | None]]:
    """All nodes in order, each with its statement and the outermost function in whose body it stands."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            of, within = function, outer
            if isinstance(node, ast.ClassDef) and function is None and name == "body":
                within = f"{outer}{node.name}."
            if isinstance(node, ast.FunctionDef) and function is None and name == "body":
                of = Function(f"{outer}{node.name}", _first_line(node))
            inside = child if isinstance(child, ast.stmt) else statement
            yield child, inside, of
            yield from _nodes(child, inside, of, within)


def _extent(statement: ast.AST) -> tuple[int, int]:
    body = getattr(statement, "body", None)
    last = max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno
    return statement.lineno, last


def _annotations(tree: ast.AST) -> set[int]:
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


def _copy_with(tree: ast.AST, node: ast.AST) -> ast.AST:
    """A copy of the tree in which the copy of `node` is marked."""
    setattr(node, _MARK, True)
    copied = copy.deepcopy(tree)
    delattr(node, _MARK)
    return copied


class _Replace(ast.NodeTransformer):
    """Puts the change where the mark is."""

    def __init__(self, changed: ast.AST) -> None:
        self._changed = changed

    def visit(self, node: ast.AST) -> ast.AST:
        if hasattr(node, _MARK):
            # every line stays where it was: whoever traces or exchanges code goes by them
            return ast.copy_location(self._changed, node)
        return self.generic_visit(node)


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the mutant instead of the module: for what is run at its import."""

    def __init__(self, mutant: Mutant) -> None:
        assert f"ackproof.audit.{mutant.module}" not in sys.modules, "imported too early"
        self._mutant = mutant
        self._name = f"ackproof.audit.{mutant.module}"

    def find_spec(self, name, path, target=None):
        return importlib.util.spec_from_loader(name, self) if name == self._name else None

    def exec_module(self, module) -> None:
        module.__file__ = str(AUDIT / f"{self._mutant.module}.py")
        exec(self._mutant.code, module.__dict__)


def run_at_import() -> set[Function]:
    """Functions of the audit that are called while its modules are imported: exchanging these comes too late."""
    called: set[Function] = set()

    def note(frame, event, _) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(AUDIT)):
            called.add(Function(code.co_qualname, code.co_firstlineno))

    sys.setprofile(note)
    try:
        for module in MODULES:
            importlib.import_module(f"ackproof.audit.{module}")
    finally:
        sys.setprofile(None)
    return called

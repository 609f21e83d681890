"""Mutants of a Python module: one small change of its syntax tree each, in a fixed order.

`changes.py` says which. Annotations, unions of types, decorators and texts are left alone. A mutant is known by its
key: the function it is in and what was changed there, never a line that drifts.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import CodeType

from .changes import WIDE, Changes


@dataclass(frozen=True)
class Function:
    """A function of a module that no other function holds: what is exchanged whole. `line`: of its first decorator."""

    qualname: str
    line: int


@dataclass(frozen=True)
class Mutant:
    """A change of a module. `number` counts from 0; `line` is that of the original; `what` says what is changed.

    `function` is the outermost one around it ("Class.method"), or the class, or "module". `lines`: first and last of
    the statement it is in (of the head of a compound one): who runs none of them sees no change.
    """

    number: int
    line: int
    lines: tuple[int, int]
    function: str
    body: Function | None
    """It lies in the body of this function, which alone can be exchanged. None: it is run at the import."""
    what: str
    _tree: ast.Module = field(repr=False)
    _node: ast.AST = field(repr=False)
    _changed: ast.AST = field(repr=False)

    @property
    def key(self) -> str:
        """What it is known by within its module."""
        return f"{self.function}: {self.what}"

    @cached_property
    def _mutated(self) -> ast.Module:
        # every line stays where it was: whoever traces or exchanges code goes by them
        mutated = _Replace(self._node, self._changed).visit(self._tree)
        assert isinstance(mutated, ast.Module)
        return ast.fix_missing_locations(mutated)

    def text(self) -> str:
        """The changed module as text, comments and layout lost."""
        return ast.unparse(self._mutated)

    def original_text(self) -> str:
        """The unchanged one, likewise."""
        return ast.unparse(self._tree)

    def code(self, path: str) -> CodeType:
        """The changed module, compiled. Asked for in the child: all of them would take a minute."""
        return compile(self._mutated, path, "exec")

    def changes_nothing(self, path: str) -> bool:
        """Whether the compiler makes the same of it."""
        return self.code(path) == compile(self._tree, path, "exec")

    @property
    def digest(self) -> str:
        """Another one where the function that is changed reads differently."""
        text = _text_of(self._tree, self.body.line if self.body else None)
        return hashlib.sha256(f"{self.key}\n{text}".encode()).hexdigest()[:12]


@cache
def _text_of(tree: ast.Module, line: int | None) -> str:
    """The function that begins there; else all."""
    for node in ast.walk(tree) if line is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _first_line(node) == line:
            return ast.unparse(node)
    return ast.unparse(tree)


@dataclass(frozen=True)
class _Place:
    function: str = "module"
    body: Function | None = None
    statement: ast.stmt | None = None


def mutants(source: str, changes: Changes = WIDE) -> list[Mutant]:
    """All mutants of a module's source, in order of the tree; of those alike in a function the later are numbered."""
    tree = ast.parse(source)
    places: dict[int, _Place] = {}
    _locate(tree, (), _Place(), places)
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    skipped = _not_code(tree)
    made: list[Mutant] = []
    alike = Counter[str]()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        for what, changed in changes(node, parents):
            place = places[id(node)]
            alike[f"{place.function}: {what}"] += 1
            times = alike[f"{place.function}: {what}"]
            what = what if times == 1 else f"{what} #{times}"
            at = node.target if isinstance(node, ast.comprehension) else node
            line, lines = getattr(at, "lineno", 0), _extent(place.statement)
            made.append(Mutant(len(made), line, lines, place.function, place.body, what, tree, node, changed))
    return made


def _locate(node: ast.AST, outer: tuple[str, ...], place: _Place, places: dict[int, _Place]) -> None:
    """Note for all below a node in which function, or else class, they are, and in which statement."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            here, within = place, outer
            if place.body is None and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # its defaults and decorators are named after it, and run where it is defined
                called = ".".join((*outer, node.name))
                body = Function(called, _first_line(node)) if name == "body" else None
                here = _Place(called, body, place.statement)
            elif place.body is None and isinstance(node, ast.ClassDef):
                within = (*outer, node.name)
                here = _Place(".".join(within), None, place.statement)
            if isinstance(child, ast.stmt):
                here = _Place(here.function, here.body, child)
            places[id(child)] = here
            _locate(child, within, here, places)


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _extent(statement: ast.stmt | None) -> tuple[int, int]:
    assert statement is not None, "all that can be changed is in a statement"
    body = getattr(statement, "body", None)
    if body:
        return statement.lineno, max(statement.lineno, body[0].lineno - 1)
    return statement.lineno, statement.end_lineno or statement.lineno


class _Replace(ast.NodeTransformer):
    """Copies the way down to one node, and puts the changed one there; all else is shared with the original."""

    def __init__(self, node: ast.AST, changed: ast.AST) -> None:
        self._node, self._changed = node, changed

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._node:
            return ast.copy_location(copy.copy(self._changed), node)
        return self.generic_visit(copy.copy(node))

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, name, [self.visit(one) if isinstance(one, ast.AST) else one for one in value])
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        return node


def _not_code(tree: ast.AST) -> set[int]:
    """Annotations, decorators, and what stands only for type checkers."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            roots.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            roots += [node.returns, *node.decorator_list]
        elif isinstance(node, ast.ClassDef):
            roots += node.decorator_list
        elif isinstance(node, ast.AnnAssign):
            roots.append(node.annotation)
            if isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias":
                roots.append(node.value)
        elif _is_for_types(node):
            roots.append(node)
    return {id(below) for root in roots if root is not None for below in ast.walk(root)}


def _is_for_types(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return False
    return not node.targets[0].id.isupper() and node.targets[0].id[0].isupper() and _is_union(node.value)


def _is_union(value: ast.expr) -> bool:
    """Whether this may be a union of types."""
    return isinstance(value, ast.BinOp) and all(
        isinstance(part, ast.Name | ast.BinOp | ast.BitOr | ast.expr_context) for part in ast.walk(value)
    )

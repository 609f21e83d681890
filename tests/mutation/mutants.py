"""Mutants of a Python module: one small change of its syntax tree each, in a fixed order.

comparisons flipped (`<` → `<=`, `>=`; `==` → `!=`; `in` → `not in`; `is` → `is not`), `and` ↔ `or`, one operand of
these dropped, `not` and `~` removed, conditions negated (`if`, `while`, `x if c else y`, filters of comprehensions),
filters of comprehensions dropped, numbers ± 1, True ↔ False, `+` ↔ `-`, `*` ↔ `//`, `&` ↔ `|`, `<<` ↔ `>>`, `min` ↔
`max`, `any` ↔ `all`, and what numpy and Arrow call these. Annotations, unions of types,
decorators and texts are left alone.

A mutant is known by its key: the function it is in and what was changed there, never a line that drifts.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.FloorDiv: ast.Mult,
    ast.Mult: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_CALLS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "minimum": "maximum",
    "maximum": "minimum",
    "logical_and": "logical_or",
    "logical_or": "logical_and",
    "greater": "greater_equal",
    "greater_equal": "greater",
    "less": "less_equal",
    "less_equal": "less",
}


@dataclass(frozen=True)
class Mutant:
    """A change of a module. `number` counts from 0; `line` is that of the original; `what` says what is changed.

    `function` is the outermost one around it ("Class.method"), or the class, or "module". `inside`: it lies in that
    function's body, so that this body alone can be exchanged.
    """

    number: int
    line: int
    function: str
    inside: bool
    what: str

    @property
    def key(self) -> str:
        """What it is known by within its module."""
        return f"{self.function}: {self.what}"


@dataclass(frozen=True)
class _Change:
    node: ast.AST
    what: str
    apply: Callable[[ast.AST], ast.AST]


def mutants(source: str) -> list[Mutant]:
    """All mutants of a module's source, in order of the tree; of those alike in a function the later are numbered."""
    tree = ast.parse(source)
    _number(tree)
    places = {}
    for statement in tree.body:
        _locate(statement, (), "module", places)
    made, alike = [], Counter[str]()
    for number, change in enumerate(_changes(tree)):
        function, inside = places[change.node.identity]  # type: ignore[attr-defined]
        alike[f"{function}: {change.what}"] += 1
        times = alike[f"{function}: {change.what}"]
        what = change.what if times == 1 else f"{change.what} #{times}"
        made.append(Mutant(number, getattr(change.node, "lineno", 0), function, inside, what))
    return made


def mutated(source: str, number: int) -> str:
    """The source with one of its mutants in it."""
    tree = ast.parse(source)
    _number(tree)
    change = next(islice(_changes(tree), number, None))
    return ast.unparse(ast.fix_missing_locations(_Replace(change).visit(tree)))


def _number(tree: ast.AST) -> None:
    for identity, node in enumerate(ast.walk(tree)):
        node.identity = identity  # type: ignore[attr-defined]
        for child in ast.iter_child_nodes(node):
            child.parent = node  # type: ignore[attr-defined]


def _locate(node: ast.AST, classes: tuple[str, ...], where: str, places: dict[int, tuple[str, bool]]) -> None:
    """Note for a statement and all below it in which function, or else class, they are."""
    if isinstance(node, ast.ClassDef):
        inner = (*classes, node.name)
        for child in ast.iter_child_nodes(node):
            _locate(child, inner, ".".join(inner), places)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        name = ".".join((*classes, node.name))
        within = {below.identity for part in node.body for below in ast.walk(part)}  # type: ignore[attr-defined]
        for below in ast.walk(node):
            places[below.identity] = (name, below.identity in within)  # type: ignore[attr-defined]
        return
    else:
        for child in ast.iter_child_nodes(node):
            _locate(child, classes, where, places)
    places[node.identity] = (where, False)  # type: ignore[attr-defined]


class _Replace(ast.NodeTransformer):
    def __init__(self, change: _Change) -> None:
        self._change = change
        self._identity = change.node.identity  # type: ignore[attr-defined]

    def visit(self, node: ast.AST) -> ast.AST:
        if getattr(node, "identity", None) == self._identity:
            return self._change.apply(node)
        return super().generic_visit(node)


def _not_code(tree: ast.AST) -> set[int]:
    """Annotations, decorators, and what stands only for type checkers."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        roots: list[ast.AST | None] = []
        if isinstance(node, ast.arg):
            roots = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            roots = [node.returns, *node.decorator_list]
        elif isinstance(node, ast.ClassDef):
            roots = [*node.decorator_list]
        elif isinstance(node, ast.AnnAssign):
            roots = [node.annotation]
        elif _is_for_types(node):
            roots = [node]
        for root in roots:
            if root is not None:
                skipped |= {below.identity for below in ast.walk(root)}  # type: ignore[attr-defined]
    return skipped


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


def _changes(tree: ast.AST) -> Iterator[_Change]:
    skipped = _not_code(tree)
    for node in ast.walk(tree):
        if node.identity not in skipped:  # type: ignore[attr-defined]
            yield from _of_node(node)


def _of_node(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.Compare):
        yield from _of_compare(node)
    elif isinstance(node, ast.BoolOp):
        yield from _of_bool_op(node)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield _Change(node, f"not dropped: {_text(node)}", lambda n: n.operand)  # type: ignore[attr-defined]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        yield _Change(node, f"~ dropped: {_text(node)}", lambda n: n.operand)  # type: ignore[attr-defined]
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        yield _Change(node, f"condition negated: {_text(node.test)}", _negate_test)
    elif isinstance(node, ast.comprehension):
        yield from _of_comprehension(node)
    elif isinstance(node, ast.Constant):
        yield from _of_constant(node)
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATORS:
        if not (isinstance(node, ast.BinOp) and _is_text(node)):
            yield _Change(node, f"operator: {_text(node)}", _other_operator)
    elif isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name in _CALLS:
            yield _Change(node, f"{name} → {_CALLS[name]}: {_text(node)}", _other_call)


def _text(node: ast.AST) -> str:
    text = ast.unparse(node).partition("\n")[0]
    return text if len(text) <= 70 else text[:67] + "…"


def _is_text(node: ast.AST) -> bool:
    return any(
        isinstance(below, ast.JoinedStr) or (isinstance(below, ast.Constant) and isinstance(below.value, str))
        for below in ast.walk(node)
    )


def _of_compare(node: ast.Compare) -> Iterator[_Change]:
    for index, op in enumerate(node.ops):
        for other in _COMPARISONS[type(op)]:

            def apply(n: ast.AST, index: int = index, other: type[ast.cmpop] = other) -> ast.AST:
                assert isinstance(n, ast.Compare)
                n.ops[index] = other()
                return n

            yield _Change(node, f"{type(op).__name__} → {other.__name__}: {_text(node)}", apply)


def _of_bool_op(node: ast.BoolOp) -> Iterator[_Change]:
    def swap(n: ast.AST) -> ast.AST:
        assert isinstance(n, ast.BoolOp)
        n.op = ast.Or() if isinstance(n.op, ast.And) else ast.And()
        return n

    yield _Change(node, f"and ↔ or: {_text(node)}", swap)
    for index, value in enumerate(node.values):

        def drop(n: ast.AST, index: int = index) -> ast.AST:
            assert isinstance(n, ast.BoolOp)
            del n.values[index]
            return n if len(n.values) > 1 else n.values[0]

        yield _Change(node, f"operand dropped: {_text(value)} of {_text(node)}", drop)


def _negate_test(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.If | ast.While | ast.IfExp)
    node.test = ast.UnaryOp(ast.Not(), node.test)
    return node


def _of_comprehension(node: ast.comprehension) -> Iterator[_Change]:
    for index, test in enumerate(node.ifs):

        def drop(n: ast.AST, index: int = index) -> ast.AST:
            assert isinstance(n, ast.comprehension)
            del n.ifs[index]
            return n

        def negate(n: ast.AST, index: int = index) -> ast.AST:
            assert isinstance(n, ast.comprehension)
            n.ifs[index] = ast.UnaryOp(ast.Not(), n.ifs[index])
            return n

        yield _Change(node, f"filter dropped: {_text(test)}", drop)
        yield _Change(node, f"filter negated: {_text(test)}", negate)


def _of_constant(node: ast.Constant) -> Iterator[_Change]:
    values: tuple[object, ...] = ()
    if isinstance(node.value, bool):
        values = (not node.value,)
    elif isinstance(node.value, int | float):
        values = (node.value + 1, node.value - 1)
    for value in values:

        def apply(n: ast.AST, value: object = value) -> ast.AST:
            return ast.Constant(value)  # type: ignore[arg-type]

        yield _Change(node, f"{node.value!r} → {value!r}: {_around(node)}", apply)


def _around(node: ast.AST) -> str:
    """The expression or statement that a constant stands in."""
    while True:
        node = node.parent  # type: ignore[attr-defined]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return f"def {node.name}"
        if isinstance(node, ast.expr | ast.stmt) and not isinstance(node, ast.UnaryOp):
            return _text(node)


def _other_operator(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.BinOp | ast.AugAssign)
    node.op = _OPERATORS[type(node.op)]()
    return node


def _other_call(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.Call)
    if isinstance(node.func, ast.Name):
        node.func.id = _CALLS[node.func.id]
    elif isinstance(node.func, ast.Attribute):
        node.func.attr = _CALLS[node.func.attr]
    return node

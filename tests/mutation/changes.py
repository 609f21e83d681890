"""What one node of a syntax tree can be changed into, each change with words that name it.

`WIDE`: comparisons flipped (`<` → `<=`, `>=`; `==` → `!=`; `in` → `not in`; `is` → `is not`), `and` ↔ `or`, one operand
of these dropped, `not` and `~` removed, conditions negated (`if`, `while`, `x if c else y`), filters of comprehensions
dropped and negated, numbers ± 1, True ↔ False, `+` ↔ `-`, `*` ↔ `//`, `&` ↔ `|`, `<<` ↔ `>>`, `min` ↔ `max`,
`any` ↔ `all`, and what numpy and Arrow call these.

`DECIDED`: each comparison flipped one way, every `if` taken as true and as false, no operand dropped, of numbers only
the small ones moved, upwards, `continue` made `break`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

Change: TypeAlias = tuple[str, ast.AST]
"""What is changed, and the new node."""
Parents: TypeAlias = Mapping[int, ast.AST]
"""The node around each node, by its id()."""
Changes: TypeAlias = Callable[[ast.AST, Parents], Iterator[Change]]

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
_FEW_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    **_FEW_OPERATORS,
    ast.FloorDiv: ast.Mult,
    ast.Mult: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_BUILTINS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_FEW_NAMES = {**_BUILTINS, "minimum": "maximum", "maximum": "minimum"}
_NAMES = {
    **_FEW_NAMES,
    "logical_and": "logical_or",
    "logical_or": "logical_and",
    "greater": "greater_equal",
    "greater_equal": "greater",
    "less": "less_equal",
    "less_equal": "less",
}
_SMALL = 2
_SHOWN = 70


def wide(node: ast.AST, parents: Parents) -> Iterator[Change]:
    """Every way of `WIDE` in which one node can be changed."""
    if isinstance(node, ast.Compare):
        yield from _flipped(node, 2)
    elif isinstance(node, ast.BoolOp):
        yield _swapped(node)
        yield from _operands_dropped(node)
    elif isinstance(node, ast.UnaryOp):
        yield from _negation_dropped(node)
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        yield (
            f"condition negated: {_text(node.test)}",
            _with(node, test=ast.UnaryOp(ast.Not(), copy.deepcopy(node.test))),
        )
    elif isinstance(node, ast.comprehension):
        yield from _filters(node, negated=True)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield _constant(node, not node.value, parents)
        elif isinstance(node.value, int | float):
            yield _constant(node, node.value + 1, parents)
            yield _constant(node, node.value - 1, parents)
    elif isinstance(node, ast.BinOp | ast.AugAssign):
        yield from _other_operator(node, _OPERATORS)
    elif isinstance(node, ast.Name | ast.Attribute):
        yield from _other_name(node, _NAMES, parents)


def decided(node: ast.AST, parents: Parents) -> Iterator[Change]:
    """Every way of `DECIDED` in which one node can be changed."""
    if isinstance(node, ast.Compare):
        yield from _flipped(node, 1)
    elif isinstance(node, ast.BoolOp):
        yield _swapped(node)
    elif isinstance(node, ast.UnaryOp):
        yield from _negation_dropped(node)
    elif isinstance(node, ast.If | ast.IfExp):
        for value in (True, False):
            yield f"taken as {value}: {_text(node.test)}", _with(node, test=ast.Constant(value))
    elif isinstance(node, ast.comprehension):
        yield from _filters(node, negated=False)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, int) and not isinstance(node.value, bool) and abs(node.value) <= _SMALL:
            yield _constant(node, node.value + 1, parents)
    elif isinstance(node, ast.BinOp):
        yield from _other_operator(node, _FEW_OPERATORS)
    elif isinstance(node, ast.Name | ast.Attribute):
        yield from _other_name(node, _FEW_NAMES, parents)
    elif isinstance(node, ast.Continue):
        yield f"continue → break: {_around(node, parents)}", ast.Break()


WIDE: Changes = wide
DECIDED: Changes = decided


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _text(node: ast.AST) -> str:
    text = ast.unparse(node).partition("\n")[0]
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "…"


def _around(node: ast.AST, parents: Parents) -> str:
    """The expression or statement that a node stands in."""
    while True:
        node = parents[id(node)]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return f"def {node.name}"
        if isinstance(node, ast.expr | ast.stmt) and not isinstance(node, ast.UnaryOp):
            return _text(node)


def _flipped(node: ast.Compare, ways: int) -> Iterator[Change]:
    for at, operator in enumerate(node.ops):
        for other in _COMPARISONS[type(operator)][:ways]:
            ops = [*node.ops[:at], other(), *node.ops[at + 1 :]]
            yield f"{type(operator).__name__} → {other.__name__}: {_text(node)}", _with(node, ops=ops)


def _swapped(node: ast.BoolOp) -> Change:
    return f"and ↔ or: {_text(node)}", _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())


def _operands_dropped(node: ast.BoolOp) -> Iterator[Change]:
    for at, value in enumerate(node.values):
        left = [*node.values[:at], *node.values[at + 1 :]]
        changed = left[0] if len(left) == 1 else _with(node, values=left)
        yield f"operand dropped: {_text(value)} of {_text(node)}", changed


def _negation_dropped(node: ast.UnaryOp) -> Iterator[Change]:
    if isinstance(node.op, ast.Not | ast.Invert):
        yield f"{'not' if isinstance(node.op, ast.Not) else '~'} dropped: {_text(node)}", node.operand


def _filters(node: ast.comprehension, *, negated: bool) -> Iterator[Change]:
    for at, test in enumerate(node.ifs):
        others = node.ifs[:at], node.ifs[at + 1 :]
        yield f"filter dropped: {_text(test)}", _with(node, ifs=[*others[0], *others[1]])
        if negated:
            opposite = ast.UnaryOp(ast.Not(), test)
            yield f"filter negated: {_text(test)}", _with(node, ifs=[*others[0], opposite, *others[1]])


def _constant(node: ast.Constant, value: float, parents: Parents) -> Change:
    return f"{node.value!r} → {value!r}: {_around(node, parents)}", ast.Constant(value)


def _other_operator(
    node: ast.BinOp | ast.AugAssign, others: Mapping[type[ast.operator], type[ast.operator]]
) -> Iterator[Change]:
    if type(node.op) in others and not (isinstance(node, ast.BinOp) and _is_text(node)):
        yield f"operator: {_text(node)}", _with(node, op=others[type(node.op)]())


def _is_text(node: ast.expr) -> bool:
    """Whether an operand is written as a text: what is added to it is one too."""
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) or _is_text(node.orelse)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes)
    return isinstance(node, ast.JoinedStr)


def _other_name(
    node: ast.Name | ast.Attribute, others: Mapping[str, str], parents: Parents
) -> Iterator[Change]:
    """Also of what is not called itself: `np.minimum.reduceat`, `statistics.min`."""
    field = "id" if isinstance(node, ast.Name) else "attr"
    name = getattr(node, field)
    # What else is called `less` here is a variable.
    known = name in (_BUILTINS if isinstance(node, ast.Name) else others)
    if known and isinstance(node.ctx, ast.Load):
        yield f"{name} → {others[name]}: {_around(node, parents)}", _with(node, **{field: others[name]})

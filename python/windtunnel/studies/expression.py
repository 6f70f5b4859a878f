"""Arithmetic of studies: `gpus / (tp * pp)`, `tp <= 8 and tp * pp <= 16`.

A subset of Python's expressions: numbers, text, names, `a.b[0].c` paths, `+ - * / // % **`, comparisons, `and or not`,
and `min max ceil floor abs log2`. Nothing is called or looked up but these.
"""

from __future__ import annotations

import ast
import math
import operator
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip

_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min, "max": max, "ceil": math.ceil, "floor": math.floor, "abs": abs, "log2": math.log2,
}  # fmt: skip

LARGEST_POWER = 64
"""Powers above are refused: `9 ** 9 ** 9` would take all memory."""


class Expression:
    """A checked expression, ready to be worked out for many points.

    Raises `InputError` on text that is no expression of the subset; `where` is what messages call it.
    """

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where
        try:
            self._body = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            raise self._error("expected an expression such as `gpus / (tp * pp)`") from None
        except RecursionError:
            raise self._error("expected an expression of ordinary depth") from None

    def value(self, names: Mapping[str, object], tree: object = None) -> Any:  # noqa: ANN401
        """Its value, with `names` known and paths such as `topology.hosts` looked up in `tree`."""
        try:
            return self._of(self._body, names, tree)
        except ZeroDivisionError:
            raise self._error("a division by 0") from None
        except InputError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise self._error(str(error)) from None

    def _error(self, said: str) -> InputError:
        return InputError(f"{self.where}: {said}, found `{self.text}`")

    def _of(self, node: ast.expr, names: Mapping[str, object], tree: object) -> Any:  # noqa: ANN401
        match node:
            case ast.Constant(value=int() | float() | str() | bool() as value):
                return value
            case ast.Name(id=name):
                return self._named(name, names, tree)
            case ast.Attribute() | ast.Subscript():
                return self._looked_up(node, names, tree)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                a, b = self._of(left, names, tree), self._of(right, names, tree)
                if isinstance(op, ast.Pow) and abs(b) > LARGEST_POWER:
                    raise self._error(f"a power above {LARGEST_POWER}")
                return _BINARY[type(op)](a, b)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._of(operand, names, tree)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self._of(operand, names, tree)
            case ast.BoolOp(op=op, values=values):
                each = (bool(self._of(value, names, tree)) for value in values)
                return all(each) if isinstance(op, ast.And) else any(each)
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._compared(left, ops, others, names, tree)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._of(item, names, tree) for item in items]
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
                return _FUNCTIONS[name](*(self._of(argument, names, tree) for argument in arguments))
        raise self._error(f"`{ast.unparse(node)}` has no meaning here")

    def _compared(
        self, left: ast.expr, ops: list[ast.cmpop], others: list[ast.expr], names: Mapping[str, object], tree: object
    ) -> bool:
        a = self._of(left, names, tree)
        for op, other in zip(ops, others, strict=True):
            b = self._of(other, names, tree)
            if type(op) not in _COMPARED:
                raise self._error(f"`{ast.unparse(other)}` is compared in a way that has no meaning here")
            if not _COMPARED[type(op)](a, b):
                return False
            a = b
        return True

    def _named(self, name: str, names: Mapping[str, object], tree: object) -> Any:  # noqa: ANN401
        if name in names:
            return names[name]
        if isinstance(tree, dict) and name in tree:
            return tree[name]
        near = nearest(name, list(names))
        hint = f"did you mean `{near}`?" if near else f"known are {', '.join(f'`{n}`' for n in names) or 'no names'}"
        raise InputError(f"{self.where}: unknown name `{name}` in `{self.text}`\n\nhint: {hint}")

    def _looked_up(self, node: ast.Attribute | ast.Subscript, names: Mapping[str, object], tree: object) -> Any:  # noqa: ANN401
        """A path such as `jobs[0].parallelism.tp`: written out first, as an axis may bear that very name."""
        path = ast.unparse(node)
        if path in names:
            return names[path]
        inner = self._of(node.value, names, tree)
        match node:
            case ast.Attribute(attr=key) if isinstance(inner, dict) and key in inner:
                return inner[key]
            case ast.Subscript(slice=ast.Constant(value=int() as i)) if isinstance(inner, list) and 0 <= i < len(inner):
                return inner[i]
        raise self._error(f"the scenario has no `{path}`")

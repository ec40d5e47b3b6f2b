"""Mutants of functions: where a module can be changed by one small step, and how the change is put in force.

A mutant is a change of one node of a function's syntax tree. It is put in force by giving the function objects of the
running process new code, so that nothing is imported again. Log calls, asserts, and texts for people are left alone.
"""

from __future__ import annotations

import ast
import gc
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
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
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGS = {"log", "_log", "tell"}
_FOR_PEOPLE = {"__repr__", "__str__"}


class Site(NamedTuple):
    """One possible change: the number of its node in a walk over the module, the kind, and the function around it."""

    node: int
    kind: str
    function: str
    line: int


def sites_of(path: Path) -> list[Site]:
    """Return every possible change of the functions of a module, in the order of its text."""
    found = []
    numbers = {node: number for number, node in enumerate(ast.walk(_tree_of(path)))}
    tree = next(iter(numbers))
    for node, function in _inside_functions(tree, None):
        found += [Site(numbers[node], kind, function, node.lineno) for kind in _kinds_of(node)]  # type: ignore[attr-defined]
    return sorted(found, key=lambda site: (site.line, site.node, site.kind))


def put_in_force(path: Path, site: Site) -> int:
    """Give every function object of the module that the change touches its new code; returns how many there were.

    Lambdas of one line cannot be told apart, and are left as they are.
    """
    tree = _tree_of(path)
    node = next(one for number, one in enumerate(ast.walk(tree)) if number == site.node)
    changed = ast.fix_missing_locations(_Change(node, site.kind).visit(tree))
    new: dict[tuple[str, int], types.CodeType | None] = {}
    for code in _codes(compile(changed, str(path), "exec")):
        place = code.co_qualname, code.co_firstlineno
        new[place] = None if place in new else code
    touched = 0
    for one in gc.get_objects():
        if not isinstance(one, types.FunctionType) or one.__code__.co_filename != str(path):
            continue
        old, code = one.__code__, new.get((one.__code__.co_qualname, one.__code__.co_firstlineno))
        if code is None or code == old or len(code.co_freevars) != len(old.co_freevars):
            continue
        one.__code__ = code
        touched += 1
    return touched


def _tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


def _inside_functions(node: ast.AST, function: str | None) -> Iterator[tuple[ast.AST, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            if child.name not in _FOR_PEOPLE:
                body = ast.Module(child.body, [])  # decorators and defaults were evaluated when it was defined
                yield from _inside_functions(body, function or child.name)
        elif isinstance(child, ast.Assert | ast.JoinedStr) or _is_log(child):
            continue
        else:
            if function is not None and hasattr(child, "lineno"):
                yield child, function
            yield from _inside_functions(child, function)


def _is_log(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    called: ast.AST = node.value.func
    names = {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in ast.walk(called)}
    return bool(names & _LOGS)


def _kinds_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
            yield "compare"
        case ast.BoolOp():
            yield "bool"
        case ast.BinOp(op=ast.Add() | ast.Sub(), left=left) if not isinstance(left, ast.JoinedStr | ast.Constant):
            yield "arithmetic"
        case ast.AugAssign(op=ast.Add() | ast.Sub()):
            yield "arithmetic"
        case ast.UnaryOp(op=ast.Not()):
            yield "not"
        case ast.Constant(value=bool()):
            yield "flip"
        case ast.Constant(value=int()):
            yield "number"
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return"
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield "drop"
        case ast.If(test=test) | ast.While(test=test) if isinstance(test, ast.Name | ast.Attribute | ast.Call):
            yield "condition"
        case ast.Call(func=ast.Name(id=name)) if name in _SWAPPED:
            yield "swap"


class _Change(ast.NodeTransformer):
    """Changes one node."""

    def __init__(self, node: ast.AST, kind: str) -> None:
        self._node = node
        self._kind = kind

    def visit(self, node: ast.AST) -> Any:
        """Change the node, or go on below it."""
        return self._changed(node) if node is self._node else self.generic_visit(node)

    def _changed(self, node: Any) -> ast.AST:
        match self._kind:
            case "compare":
                node.ops = [_COMPARISONS[type(node.ops[0])]()]
            case "bool":
                node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            case "arithmetic":
                node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            case "not":
                return node.operand  # type: ignore[no-any-return]
            case "flip":
                node.value = not node.value
            case "number":
                node.value += 1
            case "return":
                node.value = ast.Constant(None)
            case "drop":
                return ast.copy_location(ast.Pass(), node)
            case "condition":
                node.test = ast.UnaryOp(ast.Not(), node.test)
            case "swap":
                node.func.id = _SWAPPED[node.func.id]
        return node  # type: ignore[no-any-return]

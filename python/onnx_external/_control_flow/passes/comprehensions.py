"""Rewrites comprehensions over tensors, or with conditions that depend on tensors."""

from __future__ import annotations

import ast
import functools
from typing import Any

from onnx_external._control_flow.passes.building import copy_of, expression
from onnx_external._control_flow.passes.choice import Choice
from onnx_external._control_flow.passes.keys import keep_rows
from onnx_external._control_flow.passes.names import SCOPES, loaded, stored

_CONSUMERS = frozenset(
    "all any dict enumerate list max min reversed set sorted sum tuple zip".split()
)
"""Builtins that consume a generator completely, or whose result is the same as if they did."""
_CONSUMED = "rewriting_consumed"


def consumed(node: ast.Call) -> None:
    """Mark the generators that a call consumes completely, so that they may become lists."""
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in _CONSUMERS or (isinstance(node.func, ast.Attribute) and node.func.attr == "join"):
        for each in node.args:
            if isinstance(each, ast.GeneratorExp):
                setattr(each, _CONSUMED, True)


class Comprehensions(ast.NodeTransformer):
    """Rewrites the comprehensions in an expression."""

    choice: Choice

    def _rewritten(self, node: Any) -> ast.expr:
        """Rewrite a comprehension, if one of its generators or conditions is chosen."""
        choice = self.choice
        chosen = [_chosen(choice, each) for each in node.generators]
        keys = [choice.key(each) for each in node.generators]
        if any(chosen):
            _refuse(choice, node)
        for each, is_chosen in zip(node.generators, chosen, strict=True):
            if not is_chosen:
                keep_rows(each.iter)
        self.generic_visit(node)
        if not any(chosen):
            return node  # type: ignore[no-any-return]
        for key, each in zip(keys, chosen, strict=True):
            if each:
                choice.note(key)
        if isinstance(node, ast.DictComp):
            value = expression(node, "(__key, __value)", __key=node.key, __value=node.value)
        else:
            value = node.elt
        made = _nested(choice, node, value, 0, keys, chosen)
        if isinstance(node, ast.SetComp):
            return expression(node, "set(__made)", __made=made)
        if isinstance(node, ast.DictComp):
            return expression(node, "dict(__made)", __made=made)
        return made

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _rewritten


def _chosen(choice: Choice, generator: ast.comprehension) -> bool:
    return choice.has(generator) or any(map(choice.condition, generator.ifs))


def _refuse(choice: Choice, node: Any) -> None:
    """Raise an error if a comprehension contains code that cannot be rewritten."""
    if isinstance(node, ast.GeneratorExp) and not hasattr(node, _CONSUMED):
        raise choice.refused(
            node, "a generator depends on a tensor: write a list, [...] instead of (...)"
        )
    targets = set(stored(each.target for each in node.generators))
    for each in ast.walk(node):
        if isinstance(each, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await) or (
            isinstance(each, ast.comprehension) and each.is_async
        ):
            raise choice.refused(
                node,
                "`:=`, yield or await is used in a comprehension that depends on a "
                "tensor: write a loop",
            )
        if isinstance(each, SCOPES) and loaded(each) & targets:
            raise choice.refused(
                node,
                "a function is created in each iteration of a comprehension that depends on "
                "a tensor: write a loop",
            )


def _nested(
    choice: Choice, node: Any, value: ast.expr, at: int, keys: list[str], chosen: list[bool]
) -> ast.expr:
    """Return the expression for the list of a comprehension, from generator number `at` on."""
    generator, last = node.generators[at], at + 1 == len(node.generators)
    inner = value if last else _nested(choice, node, value, at + 1, keys, chosen)
    make = _function(choice, node, generator.target, inner)
    test = _test(generator)
    if chosen[at]:
        parts = {"__iter": generator.iter, "__make": make}
        if test is None:
            made = expression(node, f"__oe_rt__.comprehend(__iter, __make, {keys[at]!r})", **parts)
        else:
            text = f"__oe_rt__.comprehend_if(__iter, __make, __test, {keys[at]!r})"
            parts["__test"] = _function(choice, node, generator.target, test)
            made = expression(node, text, **parts)
    else:
        listed = ast.ListComp(inner, [generator])
        made = ast.copy_location(listed, node)
    if last:
        return made
    row, each = choice.other("row"), choice.other("each")
    return expression(node, f"[{each} for {row} in __made for {each} in {row}]", __made=made)


def _test(generator: ast.comprehension) -> ast.expr | None:
    """Return all conditions of a generator, joined into one."""
    if len(generator.ifs) < 2:
        return generator.ifs[0] if generator.ifs else None

    def both(one: ast.expr, other: ast.expr) -> ast.expr:
        text = "__oe_rt__.and_(lambda: __one, lambda: __other)"
        return expression(one, text, __one=one, __other=other)

    return functools.reduce(both, generator.ifs)


def _function(choice: Choice, node: ast.AST, target: ast.expr, value: ast.expr) -> ast.expr:
    """Return a function of an item; unless the target is a single name, it unpacks the item."""
    value = copy_of(value)
    if isinstance(target, ast.Name):
        return expression(node, f"lambda {target.id}: __value", __value=value)
    item = choice.other("item")
    if isinstance(target, ast.Tuple) and all(isinstance(each, ast.Name) for each in target.elts):
        names = ", ".join(each.id for each in target.elts if isinstance(each, ast.Name))
        text = f"lambda {item}: (lambda {names}: __value)(*{item})"
        return expression(node, text, __value=value)
    one = ast.comprehension(
        copy_of(target), ast.List([ast.Name(item, ast.Load())], ast.Load()), [], 0
    )
    listed = expression(node, f"lambda {item}: [__value for _ in [0]][0]", __value=value)
    assert isinstance(listed, ast.Lambda) and isinstance(listed.body, ast.Subscript)
    assert isinstance(listed.body.value, ast.ListComp)
    listed.body.value.generators = [one]
    return ast.fix_missing_locations(listed)

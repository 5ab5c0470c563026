"""Names the dynamic dimensions in a graph.

torch names dimensions after its symbols (`s77`, `u0`), even if `dynamic_shapes` has a name for
them. This module gives dimensions names by their role, with one name for one size.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.export.dynamic_shapes import Dim
from torch.utils import _pytree as pytree

from ._walking import all_values

if TYPE_CHECKING:
    import onnx_ir

SYMBOL = re.compile(r"\b(?:s|u|zf|zuf)\d+\b")
"""The pattern of torch's names for dynamic sizes."""


def without_names(shapes: Any) -> Any:
    """Return dynamic_shapes for torch.export, with Dim.DYNAMIC in place of names."""
    if isinstance(shapes, str):
        return torch.export.Dim.DYNAMIC
    if type(shapes) in (tuple, list):
        return type(shapes)(map(without_names, shapes))
    if type(shapes) is dict:
        return {key: without_names(each) for key, each in shapes.items()}
    return shapes


def names_of_dims(
    program: torch.export.ExportedProgram,
    signature: inspect.Signature | None,
    args: Any,
    kwargs: Any,
    shapes: Any,
) -> dict[str, str]:
    """Return the names that dynamic_shapes gives to a program's symbols.

    Args:
        program: the traced program.
        signature: the signature of the module's forward; None if it is not known.
        args: the positional inputs.
        kwargs: the inputs by name.
        shapes: dynamic_shapes, in which a name may be used instead of a Dim.
    """
    if not shapes or signature is None:
        return {}
    leaves = pytree.tree_leaves([args, kwargs or {}])
    dims: dict[int, Any] = {}
    with contextlib.suppress(Exception):  # without the user's names there are others
        taken = signature.bind(*args, **(kwargs or {})).arguments
        given: Any = taken if isinstance(shapes, dict) else type(shapes)(taken.values())
        leaves = pytree.tree_leaves(dict(taken))
        _match(given, shapes, dims)
    found: dict[str, str] = {}
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    for leaf, name in zip(leaves, program.graph_signature.user_inputs, strict=False):
        value = values.get(name)
        if id(leaf) in dims and isinstance(value, torch.Tensor):
            found = {**dict(_named(value, dims[id(leaf)])), **found}
    return found


def _match(given: Any, shapes: Any, found: dict[int, Any]) -> None:
    """Find the entry of dynamic_shapes for each tensor, and store it by the tensor's id."""
    if isinstance(given, torch.Tensor):
        found.setdefault(id(given), shapes)
    elif isinstance(given, Mapping) and isinstance(shapes, Mapping):
        for key, each in given.items():
            _match(each, shapes.get(key), found)
    elif shapes is not None:
        children = given if type(given) in (tuple, list) else pytree.tree_flatten(given)[0]
        inner = shapes.values() if isinstance(shapes, Mapping) else shapes
        for each, shape in zip(children, inner, strict=False):
            _match(each, shape, found)


def _named(value: torch.Tensor, shape: Any) -> Iterator[tuple[str, str]]:
    dims = shape.items() if isinstance(shape, Mapping) else enumerate(shape or ())
    for place, dim in dims:
        size = value.shape[place]
        if not isinstance(size, torch.SymInt) or not isinstance(dim, (str, Dim)):
            continue
        symbols = size.node.expr.free_symbols
        root = getattr(dim, "root", dim)  # of "2*half"
        if len(symbols) == 1 and (size.node.expr.is_Symbol or root is not dim):
            yield str(next(iter(symbols))), root if isinstance(root, str) else root.__name__


def name_sizes(model: onnx_ir.Model, names: Mapping[str, str]) -> None:
    """Name all dynamic dimensions of a graph.

    Args:
        model: the graph, whose inputs and outputs already have their names.
        names: the names of symbols; other symbols are named after the first input or output that
            has the dimension.
    """
    found = dict(names)
    for value in (*model.graph.inputs, *model.graph.outputs):
        for place, dim in enumerate(value.shape or ()):
            symbol = text_of(dim) or ""
            if symbol not in found and SYMBOL.fullmatch(symbol):
                found[symbol] = _free(name_of_place(value.name or "", place), found)
    give_names(model, found)


def name_of_place(name: str, place: int) -> str:
    """Return a name for a size of which only the position is known, such as "x_dim_0"."""
    return f"{re.sub(r'[^A-Za-z0-9]+', '_', name)}_dim_{place}"


def _free(name: str, names: Mapping[str, str]) -> str:
    while name in names.values():
        name += "_"
    return name


def text_of(dim: Any) -> str | None:
    """Return the text of a dynamic dimension; None if the dimension is a number or unknown."""
    value = getattr(dim, "value", dim)
    return None if value is None or isinstance(value, int) else str(value)


def give_names(
    model: onnx_ir.Model, names: Mapping[str, str], change: Callable[[str], str] = str
) -> None:
    """Replace symbols by names in all shapes of a graph.

    Symbols without a name, which are not dimensions of inputs or outputs, become `size_1`, ...

    Args:
        model: the graph.
        names: the names, by symbol.
        change: a function that changes the text of a dimension after the names are in it.
    """
    known = dict(names)

    def named(match: re.Match[str]) -> str:
        if match[0] not in known:
            known[match[0]] = _free(f"size_{len(known) - len(names) + 1}", known)
        return known[match[0]]

    change_dimensions(model, lambda text: change(_tidy(SYMBOL.sub(named, text))))


def change_dimensions(model: onnx_ir.Model, change: Callable[[str], str]) -> None:
    """Rename a graph's dynamic dimensions; a decimal number makes a dimension fixed."""
    import onnx_ir

    found: dict[str, Any] = {}

    def changed(dim: Any) -> Any:
        text = text_of(dim)
        if text is None:
            return dim
        if text not in found:
            told = change(text)
            found[text] = int(told) if told.isdecimal() else told
        return found[text]

    for value in all_values(model):
        if value.shape is not None and any(not isinstance(dim, int) for dim in value.shape):
            value.shape = onnx_ir.Shape(changed(dim) for dim in value.shape)


def _tidy(text: str) -> str:
    """Return an equal expression without unnecessary parentheses and with sorted factors."""
    if re.fullmatch(r"\w+(\*\w+)+", text):  # torch's order is that of its symbols' numbers
        return "*".join(sorted(text.split("*")))
    if "(" not in text:
        return text
    try:
        return ast.unparse(ast.parse(text, mode="eval"))
    except (SyntaxError, ValueError, RecursionError):  # whatever torch writes is a name
        return text

"""Turns Python scalars that a module returns into outputs of its graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, OutputKind, TensorArgument

from .._base.errors import ExportError

_TYPES = {bool: torch.bool, int: torch.int64, float: torch.float32}
_LARGEST = torch.finfo(torch.float32).max


@contextlib.contextmanager
def numbers_as_tensors(program: torch.export.ExportedProgram) -> Iterator[None]:
    """Turn constant scalars among a program's results into 0-d tensors inside the context.

    torch.onnx fails on such a number (AttributeError: 'int' object has no attribute 'name').
    Results that are None are left out by torch.onnx.

    Raises:
        ExportError: a constant is not a number.
    """
    specs, output = program.graph_signature.output_specs, program.graph.output_node()
    given, kept = output.args, list(specs)
    results, nodes = list(given[0]), []
    try:
        for place, spec in enumerate(kept):
            if not isinstance(spec.arg, ConstantArgument) or spec.arg.value is None:
                continue
            if spec.kind is not OutputKind.USER_OUTPUT:
                continue
            node = _constant(program, output, spec.arg.value)
            nodes.append(node)
            results[place] = node
            specs[place] = type(spec)(spec.kind, TensorArgument(node.name), spec.target)
        if nodes:
            output.args = (tuple(results),)
        yield
    finally:
        specs[:], output.args = kept, given
        for node in nodes:
            program.graph.erase_node(node)


def _constant(program: torch.export.ExportedProgram, output: Any, value: Any) -> torch.fx.Node:
    kind = _TYPES.get(type(value))
    if kind is None or (kind.is_floating_point and _LARGEST < abs(value) < float("inf")):
        raise ExportError(
            f"the module returns {value!r} in addition to tensors, but a graph can only return "
            "tensors, and numbers as int64, bool or float32; leave it out of forward's result"
        )
    with program.graph.inserting_before(output):
        node = program.graph.call_function(
            torch.ops.aten.full.default, ([], value), {"dtype": kind}
        )
    node.meta["val"] = torch.empty((), dtype=kind, device="meta")
    return node

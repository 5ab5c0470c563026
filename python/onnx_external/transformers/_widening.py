"""Makes graphs that compute in float32 with weights that keep the 16-bit type of their files.

ONNX Runtime's CPU provider lacks operators for bfloat16, the type of most language models. In a
graph that computes in float32, a weight can keep the type of its file if a Cast follows it, which
ONNX Runtime evaluates once when it loads the model. No weight is converted on disk, and a model can
still link to its checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..torch._skeleton import Slot
from ._recording import Join, Made, Step, Unknown, keys_of
from ._saving import Graph

if TYPE_CHECKING:
    import onnx_ir

_NARROW = {torch.bfloat16: "BFLOAT16"}
"""Types that few operators of ONNX Runtime's CPU provider support, by ONNX's names.

float16 is not among them: for operators that only support float32, it inserts conversions.
"""
_SCOPES = ("pkg.torch.onnx.class_hierarchy", "pkg.torch.onnx.name_scopes")
"""Metadata that assigns a node to a module."""


def narrow_keys(state: Mapping[str, torch.Tensor], halves: bool = False) -> dict[str, str]:
    """Return ONNX's type name for each key in a 16-bit type that weights keep.

    Args:
        state: the tensors of a checkpoint.
        halves: also include keys in float16, for a checkpoint whose other tensors are float32.
    """
    kinds = _NARROW | ({torch.float16: "FLOAT16"} if halves else {})
    return {name: kinds[tensor.dtype] for name, tensor in state.items() if tensor.dtype in kinds}


def computing_type(config: Any, state: Mapping[str, torch.Tensor]) -> str | None:
    """Return "float32" if transformers would compute in a type that CPU providers lack, or None.

    Args:
        config: the config of the model.
        state: the tensors of its checkpoint.
    """
    said = getattr(config, "dtype", None)
    if said is None:
        floats = (each.dtype for each in state.values() if each.is_floating_point())
        said = next(floats, None)
    name = str(said).removeprefix("torch.")
    return "float32" if getattr(torch, name, None) in _NARROW else None


def note_on_types(keys: Mapping[str, str]) -> list[str]:
    """Return notes on weights that keep a type other than the one the graphs compute in."""
    names = sorted({name.lower() for name in keys.values()})
    return [
        f"the graphs compute in float32, but the weights stay in {name}, as they are stored: ONNX "
        f'Runtime converts them when it loads a graph (dtype="float32" converts them while they '
        "are written, which quantizers need)"
        for name in names
    ]


def widened(graph: Graph, keys: Mapping[str, str]) -> Graph:
    """Change a graph so that weights that are cast from keys in 16-bit types keep these types.

    Args:
        graph: the graph, whose skeleton is changed.
        keys: the result of narrow_keys().
    """
    made: dict[str, Made] = dict(graph.made)
    skeleton = graph.skeleton
    initializers = skeleton.model.graph.initializers
    for slot, each in graph.made.items():
        form = initializers[slot]
        narrow = {keys.get(name, "") for name in keys_of(each)}
        plain = _without_cast(each)
        if plain is None or len(narrow) != 1 or "" in narrow:
            continue
        if form.dtype.name != "FLOAT" or form.is_graph_output():
            continue
        (dtype,) = narrow
        _put_cast(form, dtype)
        made[slot] = plain
        skeleton.slots[slot] = Slot(
            slot, dtype, skeleton.slots[slot].shape, skeleton.slots[slot].kind
        )
    return graph._replace(made=made)


def _without_cast(made: Made) -> Made | None:
    """Return how a weight is made, without its casts; None if some of its parts are not cast."""
    if isinstance(made, Step):
        if made.name == "cast":
            return made.of if not _casts(made.of) else None
        of = _without_cast(made.of)
        return None if of is None else Step(of, made.name, made.numbers)
    if isinstance(made, Join):
        parts = [_without_cast(part) for part in made.of]
        known = [part for part in parts if part is not None]
        return Join(made.name, made.dim, tuple(known)) if len(known) == len(parts) else None
    return None


def _casts(made: Made) -> bool:
    if isinstance(made, Step):
        return made.name == "cast" or _casts(made.of)
    return isinstance(made, Unknown) or (isinstance(made, Join) and any(map(_casts, made.of)))


def _put_cast(value: onnx_ir.Value, dtype: str) -> None:
    """Change the type of a weight, and append a Cast to it.

    Nodes that only move the weight's elements use the new type, and a Cast follows them. As a
    result, a weight and its Transpose stay together for the save, and an embedding takes half of
    the memory.
    """
    import onnx_ir

    value.type = onnx_ir.TensorType(onnx_ir.DataType[dtype])
    uses = [(node, place) for node, place in value.uses() if node.graph is not None]
    movers = {node for node, place in uses if _moves(node, place, value)}
    others = [(node, place) for node, place in uses if node not in movers]
    for node in sorted(movers, key=lambda each: each.name or ""):
        moved = node.outputs[0]
        moved.type = value.type
        behind = [(each, place) for each, place in moved.uses() if each.graph is not None]
        if behind:
            node.graph.insert_after(node, _cast(moved, behind))
    if others:
        graph = value.graph
        graph.insert_before(graph[0], _cast(value, others))


def _moves(node: onnx_ir.Node, place: int, value: onnx_ir.Value) -> bool:
    """Return whether a node that reads a weight only moves the weight's elements."""
    known = node.op_type in ("Transpose", "Gather") and node.domain in ("", "ai.onnx")
    inside = node.graph is value.graph and not node.outputs[0].is_graph_output()
    return known and place == 0 and inside and list(node.inputs).count(value) == 1


def _cast(value: onnx_ir.Value, uses: Sequence[tuple[onnx_ir.Node, int]]) -> onnx_ir.Node:
    """Return a Cast of a value to float32, and make the given uses read its result."""
    import onnx_ir

    wide = onnx_ir.Value(
        name=f"{value.name}.float32",
        type=onnx_ir.TensorType(onnx_ir.DataType.FLOAT),
        shape=value.shape,
    )
    to = onnx_ir.AttrInt64("to", int(onnx_ir.DataType.FLOAT))
    cast = onnx_ir.Node("", "Cast", [value], [to], outputs=[wide], name=f"cast_{value.name}")
    known = uses[0][0].metadata_props
    cast.metadata_props.update({name: known[name] for name in _SCOPES if name in known})
    for node, place in uses:
        node.replace_input_with(place, wide)
    return cast

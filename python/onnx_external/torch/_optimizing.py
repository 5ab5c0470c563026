"""Turns a captured graph into a skeleton: optimizes it, repeats layers, and names dimensions."""

from __future__ import annotations

from collections import abc
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch

from .._base.errors import ExportError, chain
from .._base.meter import Meter
from ._dimension_names import name_sizes
from ._opsets import OWN, with_opset
from ._output_names import name_outputs
from ._programs import Captured
from ._skeleton import Skeleton, make_skeleton

if TYPE_CHECKING:
    import onnx_ir


FUSED_OPSET = 23
"""The first opset version with RMSNormalization and RotaryEmbedding."""


class OptimizerError(ExportError):
    """Raised if torch's optimizer fails; the graph may be right without it."""


def optimized(model: onnx_ir.Model) -> onnx_ir.Model:
    """Optimize a graph as torch.onnx.export(optimize=True) does."""
    program = torch.onnx.ONNXProgram(model, None)
    try:
        program.optimize()
    except Exception as error:
        told = [str(each).strip().partition("\n")[0] for each in list(chain(error))[-2:]]
        words = ": ".join(dict.fromkeys(filter(None, told))) or type(error).__name__
        raise OptimizerError(
            f"torch's optimizer fails: {words}; optimize=False skips it"
        ) from error
    return program.model


def fused(model: onnx_ir.Model, opset_version: int | None, positions: int = 0) -> onnx_ir.Model:
    """Replace groups of operators that compute a known function by a single operator.

    Args:
        model: an optimized graph, which is changed.
        opset_version: the opset version of the result. None: the version that the new operators
            need, if there are any.
        positions: the maximum sequence length, if the attention operator with sequence lengths
            may also apply rotary embeddings; 0 if not.
    """
    from .._fusing.rules import fuse, opset_of  # which need onnx_ir

    fuse(model, opset_version, positions)
    needed = opset_of(model)
    return with_opset(model, needed) if needed > model.opset_imports.get("", 0) else model


def skeleton_of(
    found: Captured,
    meter: Meter,
    *,
    optimize: bool,
    extra: abc.Mapping[str, Any] | None = None,
    keep: Collection[str] = (),
) -> Skeleton:
    """Make the skeleton of a captured graph, optimized if requested."""
    with meter.step("optimize"):

        def change(model: onnx_ir.Model) -> onnx_ir.Model:
            repetition = found.repetition
            starts = repetition.starts(model) if repetition is not None else {}
            model = optimized(model) if optimize else model
            if repetition is not None:
                repetition.repeat(model, found.program.exported_program, starts)
            if found.opset is None or found.opset >= OWN:
                model = with_opset(model, found.opset)
                return fused(model, found.opset or OWN) if optimize else model
            return with_opset(fused(model, OWN) if optimize else model, found.opset)

        made = make_skeleton(found.program.model, extra or {}, keep, change)
        name_outputs(made.model, found.outputs_named)
        if found.sizes_named is not None:
            name_sizes(made.model, found.sizes_named)
    made.ties = {name: found.ties[name] for name in made.slots if name in found.ties}
    named = found.sizes_named or {}
    made.guards = [found.sizes.worded(each, named) for each in found.sizes.guards]
    return made

"""Applies the rules to a graph, and determines the opset that the result needs."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir

from .attention_layout import attentions, lay_flat
from .inner_rotary import rotate_inside
from .norms import RMS_OPSET, fuse_norms
from .rotary import fuse_rotary
from .skip_norms import fuse_skip_norms

NEWEST = RMS_OPSET
"""The first ONNX opset that has all operators used by rules."""


@dataclass(frozen=True)
class Fused:
    """The numbers of fused nodes in a graph, by their kind."""

    norms: int = 0
    rotary: int = 0
    inputs: int = 0
    """The number of attention inputs from which transpositions were removed."""
    skips: int = 0
    rotations: int = 0
    """The number of attention nodes that rotate queries and keys themselves."""


def fuse(model: onnx_ir.Model, opset: int | None = None, positions: int = 0) -> Fused:
    """Apply all rules to a model.

    Operators of ONNX Runtime are used only in a graph that already contains some of them.

    Args:
        model: the model, whose main graph is changed. Its opset import is not changed.
        opset: the newest ONNX opset whose operators may be used; None for any.
        positions: the maximum sequence length, if attention may rotate queries and keys itself;
            otherwise 0.
    """
    graph, opset = model.graph, opset or NEWEST
    norms = fuse_norms(graph, opset)
    rotary = fuse_rotary(graph) if opset >= NEWEST else 0
    if not attentions(graph):
        return Fused(norms, rotary)
    inputs = lay_flat(graph)
    rotations = rotate_inside(graph, positions) if positions else 0
    return Fused(norms, rotary, inputs, fuse_skip_norms(graph), rotations)


def opset_of(model: onnx_ir.Model) -> int:
    """Return the ONNX opset that operators made by rules need; 0 if a graph has none of them."""
    kinds = {node.op_type for node in model.graph if not node.domain}
    return NEWEST if kinds & {"RMSNormalization", "RotaryEmbedding"} else 0

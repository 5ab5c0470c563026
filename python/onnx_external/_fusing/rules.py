"""Application of the rules to a graph, and the needs of the result."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir

from .attention_layout import attentions, lay_flat
from .inner_rotary import rotate_inside
from .norms import RMS_OPSET, fuse_norms
from .rotary import fuse_rotary
from .skip_norms import fuse_skip_norms

NEWEST = RMS_OPSET
"""The version of ONNX that has all operators that rules make."""


@dataclass(frozen=True)
class Fused:
    """The number of nodes of each kind that replace several others."""

    norms: int = 0
    rotary: int = 0
    inputs: int = 0
    """The number of transposed inputs of attention."""
    skips: int = 0
    rotations: int = 0
    """The number of attentions that rotate queries and keys."""


def fuse(model: onnx_ir.Model, opset: int | None = None, positions: int = 0) -> Fused:
    """Apply all rules.

    Operators of ONNX Runtime are only made in a graph that has some.

    Args:
        model: its main graph is changed. The version that it states stays.
        opset: the version of ONNX whose operators may be used; None for any.
        positions: the most tokens of a text, if attention by lengths may rotate them; 0 if not.
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
    """Return the ONNX opset version that rules' operators in a graph need; 0 if it has none."""
    kinds = {node.op_type for node in model.graph if not node.domain}
    return NEWEST if kinds & {"RMSNormalization", "RotaryEmbedding"} else 0

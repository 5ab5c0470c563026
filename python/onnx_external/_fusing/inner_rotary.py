"""Moves rotary embeddings into GroupQueryAttention, using tables for all positions.

With sequence lengths, GroupQueryAttention knows the position of each token. Therefore the operator
can rotate queries and keys itself if the tables of cosines and sines depend only on the positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir

from .attention_layout import attentions
from .matching import attribute, integers, last_size, made_by, remove_dead, sizes

_POSITIONS = "position_ids"
_TABLES = (7, 8)
"""The indices of the attention inputs for cosines and sines; positions and a bias come after
them."""
_MULTIPLE = 16
"""The size of a head, and that of its rotated part, must be a multiple of this."""
_MOST_BYTES = 1 << 27
"""The maximum size of a table in bytes; for larger tables, rotations are not moved."""
_LARGEST = 1 << 14
"""The maximum number of elements of a constant from which tables are computed."""


def rotate_inside(graph: onnx_ir.Graph, positions: int) -> int:
    """Move the rotation of queries and keys into attention; return the number of changed nodes.

    Args:
        graph: the graph, which is changed. The input for positions may become unused.
        positions: the number of positions in a table.
    """
    tables = _Tables(graph, positions)
    count = 0
    for node in attentions(graph):
        turns = [made_by(value, "RotaryEmbedding") for value in node.inputs[:2]]
        query, key = turns
        if query is None or key is None or not _fit(node, query, key):
            continue
        found = [tables.of(value) for value in query.inputs[1:3]]
        if None in found:
            continue
        node.resize_inputs(max(len(node.inputs), _TABLES[1] + 1))
        inputs = (query.inputs[0], key.inputs[0], *found)
        for place, value in zip((0, 1, *_TABLES), inputs, strict=True):
            node.replace_input_with(place, value)
        node.attributes["do_rotary"] = onnx_ir.AttrInt64("do_rotary", 1)
        interleaved = int(attribute(query, "interleaved", 0))
        node.attributes["rotary_interleaved"] = onnx_ir.AttrInt64("rotary_interleaved", interleaved)
        remove_dead([query, key])
        count += 1
    return count


def _fit(attention: onnx_ir.Node, query: onnx_ir.Node, key: onnx_ir.Node) -> bool:
    """Return whether attention uses sequence lengths and can perform both rotations itself."""
    more = attention.inputs[_TABLES[0] : _TABLES[1] + 3]
    heads = [int(attribute(attention, name, 0)) for name in ("num_heads", "kv_num_heads")]
    given = [each.inputs[0] for each in (query, key)]
    widths = [last_size(value) for value in given]
    if any(each is not None for each in more) or None in widths or 0 in heads:
        return False
    size, other = ((width or 0) // count for width, count in zip(widths, heads, strict=True))
    names = ("interleaved", "rotary_embedding_dim")
    same = all(attribute(query, name, 0) == attribute(key, name, 0) for name in names)
    rotated = int(attribute(query, "rotary_embedding_dim", 0)) or size
    return (
        same
        and size == other
        and not size % _MULTIPLE
        and not rotated % _MULTIPLE
        and last_size(query.inputs[1]) == last_size(query.inputs[2]) == rotated // 2
        and all(len(sizes(value) or ()) == 3 for value in given)
        and len(query.inputs) == len(key.inputs) == 3
        and all(query.inputs[place] is key.inputs[place] for place in (1, 2))
    )


class _Tables:
    """The tables of one graph, which its attention nodes share."""

    def __init__(self, graph: onnx_ir.Graph, positions: int) -> None:
        self._graph, self._positions = graph, positions
        self._made: dict[int, onnx_ir.Value | None] = {}

    def of(self, value: onnx_ir.Value | None) -> onnx_ir.Value | None:
        """Return a table for all positions that contains the rows of a value; None if unknown."""
        if id(value) not in self._made:
            self._made[id(value)] = self._make(value)
        return self._made[id(value)]

    def _make(self, value: onnx_ir.Value | None) -> onnx_ir.Value | None:
        width = last_size(value)
        if value is None or width is None or value.dtype is None:
            return None
        if self._positions * width * value.dtype.itemsize > _MOST_BYTES:
            return None
        rows = self._computed(value)
        if rows is None or rows.shape != (1, self._positions, width):
            return None
        name = f"{value.name}_of_positions"
        while name in self._graph.initializers:
            name += "_"
        tensor = onnx_ir.tensor(np.ascontiguousarray(rows[0]), dtype=value.dtype, name=name)
        made = onnx_ir.val(name, const_value=tensor)
        self._graph.initializers.add(made)
        return made

    def _computed(self, value: onnx_ir.Value | None) -> Any:
        """Compute a value for the positions 0, 1, 2, ...; return None if this is not possible."""
        if value is None:
            return None
        if value.is_graph_input():
            is_places = value.name == _POSITIONS and len(sizes(value) or ()) == 2
            return np.arange(self._positions, dtype=np.int64)[None] if is_places else None
        if value.is_initializer():
            held = value.const_value
            return None if held is None or held.size > _LARGEST else held.numpy()
        node = made_by(value, "Cast", "Cos", "Sin", "Mul", "Squeeze", "Unsqueeze")
        given = [] if node is None else [self._computed(each) for each in node.inputs]
        if node is None or any(each is None for each in given):
            return None
        if node.op_type == "Cast":
            kind = onnx_ir.DataType(int(attribute(node, "to", 1)))
            return given[0].astype(kind.numpy())
        if node.op_type in ("Squeeze", "Unsqueeze"):
            change = np.squeeze if node.op_type == "Squeeze" else np.expand_dims
            axes = integers(node.inputs[1]) if len(node.inputs) == 2 else None
            return None if axes is None else change(given[0], tuple(axes))
        if node.op_type == "Mul":
            return given[0] * given[1]
        return (np.cos if node.op_type == "Cos" else np.sin)(given[0])

"""Replaces traced rotations with RotaryEmbedding.

A rotation is x * cos + turned(x) * sin, where cos and sin contain each angle twice: either in both
halves, or in neighbouring elements. RotaryEmbedding takes each angle once, so a rule has to find
the tables before the angles were duplicated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import onnx_ir

from .matching import (
    attribute,
    integers,
    is_last_axis,
    last_size,
    made_by,
    make,
    pairs,
    replace,
    scalar,
    sizes,
)

_HEADS = 1
"""The axis of the heads in the operator's input."""


class _Turn(NamedTuple):
    """The rotated value, and the tables of cosines and sines."""

    given: onnx_ir.Value
    cos: onnx_ir.Value
    sin: onnx_ir.Value
    is_interleaved: bool
    """True if neighbouring elements are rotated together, and not the two halves."""
    is_doubled: bool
    """True if the tables contain each angle twice."""


class _Part(NamedTuple):
    """A slice of the last axis of a value."""

    of: onnx_ir.Value
    start: int
    end: int
    step: int


def fuse_rotary(graph: onnx_ir.Graph) -> int:
    """Replace each traced rotation with one node, and return the number of rotations."""
    tables = _Tables(graph)
    count = 0
    for node in list(graph):
        turn = None if node.graph is None or node.domain else _turn_of(node)
        width = None if turn is None else last_size(turn.given)
        if turn is None or width is None or width % 2 or not _is_four(turn.given):
            continue
        halves = [tables.once(each, turn) for each in (turn.cos, turn.sin)]
        cos, sin = halves
        if cos is None or sin is None or not all(_fit(turn.given, each) for each in (cos, sin)):
            continue
        whole = _whole(node, turn.given, width)
        result = (node if whole is None else whole.node).outputs[0]
        taken = turn.given if whole is None else whole.given
        attributes = {"interleaved": int(turn.is_interleaved)}
        attributes |= {} if whole is None else {"rotary_embedding_dim": width}
        place = result.producer()
        assert place is not None
        inputs = [taken, tables.put(cos), tables.put(sin)]
        made = make("RotaryEmbedding", inputs, node, [result], attributes)
        replace(graph, place, made, [(result, made.outputs[0])])
        count += 1
    return count


def _is_four(value: onnx_ir.Value) -> bool:
    return len(sizes(value) or ()) == 4


def _turn_of(node: onnx_ir.Node) -> _Turn | None:
    if node.op_type == "Add":
        for one, other in pairs(node):
            found = _sum_of(made_by(one, "Mul"), made_by(other, "Mul"))
            if found is not None:
                return found
    if node.op_type == "Concat" and len(node.inputs) == 2:
        return _halves_rotated(node)
    return None


def _sum_of(plain: onnx_ir.Node | None, crossed: onnx_ir.Node | None) -> _Turn | None:
    """Match the rotation x * cos + turned(x) * sin; return None for other products."""
    if plain is None or crossed is None:
        return None
    for given, cos in pairs(plain):
        for turned, sin in pairs(crossed):
            if given is None or cos is None or sin is None:
                continue
            for is_interleaved, find in ((False, _turned_halves), (True, _turned_neighbours)):
                if find(turned) is given:
                    return _Turn(given, cos, sin, is_interleaved, True)
    return None


def _turned_halves(value: onnx_ir.Value | None) -> onnx_ir.Value | None:
    """Match (-x2, x1), where x1 and x2 are the halves of x; return x, or None."""
    joined = made_by(value, "Concat")
    if joined is None or value is None or len(joined.inputs) != 2:
        return None
    negative = made_by(joined.inputs[0], "Neg")
    high, low = _part(negative and negative.inputs[0]), _part(joined.inputs[1])
    if high is None or low is None or not is_last_axis(attribute(joined, "axis", 0), value):
        return None
    width = last_size(high.of)
    is_same = low.of is high.of and width is not None and width % 2 == 0
    if not is_same or width is None:
        return None
    half = width // 2
    fits = low[1:] == (0, half, 1) and high[1:] == (half, width, 1)
    return low.of if fits else None


def _turned_neighbours(value: onnx_ir.Value | None) -> onnx_ir.Value | None:
    """Match x with the elements (a, b) of each pair replaced with (-b, a); return x, or None."""
    flat = made_by(value, "Reshape")
    joined = made_by(flat.inputs[0] if flat else None, "Concat")
    if joined is None or value is None or len(joined.inputs) != 2:
        return None
    if not is_last_axis(attribute(joined, "axis", 0), joined.outputs[0]):
        return None
    ends = [made_by(each, "Unsqueeze") for each in joined.inputs]
    if any(each is None or integers(each.inputs[1]) != [-1] for each in ends):
        return None
    second, first = (each.inputs[0] for each in ends if each is not None)
    negative = made_by(second, "Neg")
    odd, even = _part(negative and negative.inputs[0]), _part(first)
    if odd is None or even is None or odd.of is not even.of:
        return None
    width, form = last_size(even.of), sizes(even.of)
    fits = width is not None and even[1:] == (0, width, 2) and odd[1:] == (1, width, 2)
    return even.of if fits and form is not None and form == sizes(value) else None


def _halves_rotated(node: onnx_ir.Node) -> _Turn | None:
    """Match a rotation of separate halves: (a * cos - b * sin, b * cos + a * sin)."""
    less, more = made_by(node.inputs[0], "Sub"), made_by(node.inputs[1], "Add")
    if (
        less is None
        or more is None
        or not is_last_axis(node.attributes["axis"].as_int(), node.outputs[0])
    ):
        return None
    one, other = (made_by(each, "Mul") for each in less.inputs)
    if one is None or other is None:
        return None
    for a, cos in pairs(one):
        for b, sin in pairs(other):
            if a is None or b is None or cos is None or sin is None:
                continue
            low, high = _part(a), _part(b)
            if low is None or high is None or low.of is not high.of:
                continue
            width = last_size(low.of)
            if width is None or low[1:] != (0, width // 2, 1) or high[1:] != (width // 2, width, 1):
                continue
            wanted = [{id(b), id(cos)}, {id(a), id(sin)}]
            terms = [made_by(each, "Mul") for each in more.inputs]
            got = [{id(v) for v in each.inputs} for each in terms if each is not None]
            if got in (wanted, wanted[::-1]):
                return _Turn(low.of, cos, sin, False, False)
    return None


def _part(value: onnx_ir.Value | None) -> _Part | None:
    """Describe a value as a slice of another value; return None if it is not a slice."""
    node = made_by(value, "Slice", "Split")
    if node is None or value is None or node.inputs[0] is None:
        return None
    whole = node.inputs[0]
    width, own = last_size(whole), last_size(value)
    if width is None or own is None:
        return None
    if node.op_type == "Split":
        if not is_last_axis(attribute(node, "axis", 0), whole):
            return None
        before = [last_size(each) for each in node.outputs[: value.index()]]
        start = sum(each for each in before if each is not None)
        return None if None in before else _Part(whole, start, start + own, 1)
    bounds = [integers(each) for each in node.inputs[1:]]
    if len(bounds) < 3 or any(each is None or len(each) != 1 for each in bounds):
        return None
    start, end, axis, step = [*(each[0] for each in bounds if each), 1][:4]
    if not is_last_axis(axis, whole) or step < 1:
        return None
    start, end = (max(0, each + width) if each < 0 else min(each, width) for each in (start, end))
    return _Part(whole, start, end, step)


class _Whole(NamedTuple):
    """A value of which only the first elements are rotated, and the node that appends the rest."""

    given: onnx_ir.Value
    node: onnx_ir.Node


def _whole(node: onnx_ir.Node, given: onnx_ir.Value, width: int) -> _Whole | None:
    """Find the value of which only the first elements are rotated; None if there is none."""
    result = node.outputs[0]
    users = list(result.uses())
    part = _part(given)
    if part is None or len(users) != 1 or result.is_graph_output():
        return None
    joined, place = users[0]
    if joined.op_type != "Concat" or joined.domain or place or len(joined.inputs) != 2:
        return None
    rest = _part(joined.inputs[1])
    total = last_size(part.of)
    is_first = part[1:] == (0, width, 1) and is_last_axis(attribute(joined, "axis", 0), result)
    fits = rest is not None and rest.of is part.of and rest[1:] == (width, total, 1)
    return _Whole(part.of, joined) if is_first and fits and _is_four(part.of) else None


# --- tables


@dataclass(frozen=True)
class _Once:
    """A table that contains each angle once, computed by applying `steps` to `value`."""

    value: onnx_ir.Value
    steps: tuple[onnx_ir.Node, ...] = ()
    """The nodes that computed the doubled table, the last node first."""
    squeezes: bool = False
    """True if the table has an axis for heads, which is removed."""


def _fit(given: onnx_ir.Value, table: _Once) -> bool:
    """Return whether a table has an angle for each pair of elements at each position."""
    rows, _, length, width = sizes(given) or [None] * 4
    form = sizes(table.value)
    if form is not None and table.squeezes:
        form = form[:_HEADS] + form[_HEADS + 1 :] if form[_HEADS] == 1 else None
    return None not in (rows, length) and form == [rows, length, width // 2]


@dataclass
class _Tables:
    """The tables that the rotations of one graph share."""

    graph: onnx_ir.Graph
    _put: dict[tuple[int, int], onnx_ir.Value] = field(default_factory=dict)
    """The values made, by the ids of the input and of the step applied to it."""

    def once(self, value: onnx_ir.Value, turn: _Turn) -> _Once | None:
        """Find the table that contains each angle once."""
        if not turn.is_doubled:
            return _without_heads(value, ())
        return _undoubled(value, turn.is_interleaved, ())

    def put(self, table: _Once) -> onnx_ir.Value:
        """Return the value of a table; its nodes are added to the graph only once."""
        value = self._squeezed(table.value) if table.squeezes else table.value
        for step in reversed(table.steps):
            value = self._done(step, value)
        return value

    def _squeezed(self, value: onnx_ir.Value) -> onnx_ir.Value:
        """Return the table without its axis for heads."""
        key = id(value), 0
        maker = value.producer()
        if key not in self._put and maker is not None:
            axes = onnx_ir.Node("", "Constant", [], [onnx_ir.AttrInt64s("value_ints", [_HEADS])])
            form = sizes(value) or []
            shape = [*form[:_HEADS], *form[_HEADS + 1 :]]
            made = make("Squeeze", [value, axes.outputs[0]], maker, [value], {}, shape)
            self.graph.insert_after(maker, [axes, made])
            self._put[key] = made.outputs[0]
        return self._put[key]

    def _done(self, step: onnx_ir.Node, value: onnx_ir.Value) -> onnx_ir.Value:
        """Return the result of a step applied to the table that contains each angle once."""
        key = id(value), id(step)
        if key not in self._put:
            old = step.outputs[0]
            inputs = [value if _varies(each, step) else each for each in step.inputs]
            made = make(step.op_type, inputs, step, [old], None, sizes(value))
            made.attributes.update(step.attributes)
            self.graph.insert_before(step, made)
            made.name = f"{step.name}_once" if step.name else None
            made.outputs[0].name = f"{old.name}_once"
            self._put[key] = made.outputs[0]
        return self._put[key]


def _varies(value: onnx_ir.Value | None, step: onnx_ir.Node) -> bool:
    """Return whether this input of a step is the table, and not a constant."""
    return len(step.inputs) == 1 or scalar(value) is None


def _undoubled(
    value: onnx_ir.Value | None, is_interleaved: bool, steps: tuple[onnx_ir.Node, ...]
) -> _Once | None:
    """Return the table that a doubled table is computed from; None if it is not doubled."""
    node = made_by(value, "Unsqueeze", "Cos", "Sin", "Cast", "Mul", "Concat", "Reshape")
    if node is None:
        return None
    if node.op_type == "Unsqueeze":
        if integers(node.inputs[1]) != [_HEADS] or len(sizes(value) or ()) != 4:
            return None
        found = _undoubled(node.inputs[0], is_interleaved, steps)
        return found if found is None or len(sizes(found.value) or ()) == 3 else None
    if node.op_type in ("Concat", "Reshape"):
        once = _repeated(node) if is_interleaved else _joined(node)
        return None if once is None else _without_heads(once, steps)
    varying = [each for each in node.inputs if _varies(each, node)]
    if len(varying) != 1 or len(sizes(varying[0]) or ()) != len(sizes(value) or ()):
        return None
    return _undoubled(varying[0], is_interleaved, (*steps, node))


def _without_heads(value: onnx_ir.Value, steps: tuple[onnx_ir.Node, ...]) -> _Once | None:
    """Return the table without an axis for heads; None if the axis cannot be removed."""
    node = made_by(value, "Unsqueeze")
    if node is not None and integers(node.inputs[1]) == [_HEADS] and node.inputs[0] is not None:
        return _Once(node.inputs[0], steps)
    is_made = value.producer() is not None
    squeezes = len(sizes(value) or ()) == 4
    return _Once(value, steps, squeezes) if is_made or not squeezes else None


def _joined(node: onnx_ir.Node) -> onnx_ir.Value | None:
    """Return the value that a Concat concatenates with itself; None for other nodes."""
    if node.op_type != "Concat" or len(node.inputs) != 2 or node.inputs[0] is not node.inputs[1]:
        return None
    is_last = is_last_axis(attribute(node, "axis", 0), node.outputs[0])
    return node.inputs[0] if is_last else None


def _repeated(node: onnx_ir.Node) -> onnx_ir.Value | None:
    """Return the value whose elements the node repeats, like repeat_interleave(2), or None."""
    tiled = made_by(node.inputs[0], "Tile") if node.op_type == "Reshape" else None
    longer = made_by(tiled.inputs[0] if tiled else None, "Unsqueeze")
    if tiled is None or longer is None or longer.inputs[0] is None:
        return None
    once = longer.inputs[0]
    form, own = sizes(once), sizes(node.outputs[0])
    if form is None or own is None or not isinstance(form[-1], int):
        return None
    is_last = integers(longer.inputs[1]) in ([-1], [len(form)])
    twice = integers(tiled.inputs[1]) == [1] * len(form) + [2]
    return once if is_last and twice and own == [*form[:-1], 2 * form[-1]] else None

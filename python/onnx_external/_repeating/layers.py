"""Groups the nodes of a shallow model's graph by layer, and describes their connections."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import onnx_ir

from .kinds import Stack
from .naming import Names, place_among, place_in
from .recording import Segment, Unprovable

_SCOPES = "pkg.torch.onnx.name_scopes"

Port: TypeAlias = tuple[Any, int, int]
"""A value computed in layers: the class of similar layers, the position of the node in the layer,
and the number of the node's output."""


@dataclass(frozen=True)
class Use:
    """The origin of a node's input, relative to the node's layer.

    kind: "own" (a node of the same layer), "before" (a node of the layer before), "weight", "input"
    (an input of the layer), or "fixed" (the same for all layers).
    """

    kind: str
    key: Any = None


@dataclass
class Layers:
    """The nodes of a graph, grouped by layer, and the connections between the layers."""

    graph: onnx_ir.Graph
    stacks: Sequence[Stack]
    names: Names
    nodes: dict[Segment, list[onnx_ir.Node]] = field(default_factory=dict)
    _places: dict[int, tuple[Segment, int]] = field(default_factory=dict)
    """The layer of each node, and its position in the layer, by the node's id."""
    _same: dict[Port | tuple[Any, ...], Any] = field(default_factory=dict)
    """The connected ports and uses as a union-find forest: each points to another in its group."""
    _uses: dict[int, list[Use]] = field(default_factory=dict)
    """The origins of each node's inputs, by the node's id, before any layer is repeated."""
    _forms: dict[int, Any] = field(default_factory=dict)
    _likeness: dict[Segment, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Group the nodes by layer.

        Raises:
            Unprovable: the layers of the graph cannot be distinguished.
        """
        last: Segment | None = None
        self._users = self._find_users()
        for node in self.graph:
            segment = segment_of(node, self.stacks) or self._around(node)
            if segment is None:
                continue
            if last is not None and segment.stack == last.stack and segment.layer < last.layer:
                raise Unprovable("its layers do not follow each other in the graph")
            last = segment
            found = self.nodes.setdefault(segment, [])
            self._places[id(node)] = segment, len(found)
            found.append(node)
        for nodes in self.nodes.values():
            for node in nodes:
                self._uses[id(node)] = [self._use(node, n) for n in range(len(node.inputs))]
        for segment in self.nodes:
            self._connect(segment)

    def _around(self, node: onnx_ir.Node) -> Segment | None:
        """Return the layer of a node without module, if all nodes around it are in that layer.

        The node may also read a value that an earlier layer has computed for all layers.
        """
        if _has_module(node):
            return None
        makers = [value.producer() for value in node.inputs if value is not None]
        found = {self._places[id(maker)][0] for maker in makers if id(maker) in self._places}
        users = self._users[id(node)]
        own = next(iter(users)) if len(users) == 1 else None
        return own if not found or own in found else None

    def _find_users(self) -> dict[int, set[Segment | None]]:
        """Return, by the id of each node, the layers of its users; None stands for no layer.

        If a user has no module, the users of its results are taken instead.
        """
        found: dict[int, set[Segment | None]] = {}
        for node in reversed(self.graph):
            mine = found[id(node)] = set()
            for user in {user for value in node.outputs for user, _ in value.uses()}:
                own = segment_of(user, self.stacks)
                mine |= {own} if own or _has_module(user) else found.get(id(user), {None})
        return found

    def place(self, node: onnx_ir.Node | None) -> tuple[Segment, int] | None:
        """Return the layer of a node and its position there; None if it is in no layer."""
        return None if node is None else self._places.get(id(node))

    def use(self, node: onnx_ir.Node, number: int) -> Use:
        """Return the origin of one input of a node in a layer."""
        return self._uses[id(node)][number]

    def _use(self, node: onnx_ir.Node, number: int) -> Use:
        value = node.inputs[number]
        segment, _ = self._places[id(node)]
        if value is None:
            return Use("fixed")
        if value.is_initializer():
            return self._weight(value, segment)
        if value.is_graph_input():
            alone = (value.name or "") in self.names.shallow_inputs
            alone = alone and self.names.belongs_to_layer(value.name or "")
            return Use("input" if alone else "fixed", value.name)
        made = self.place(value.producer())
        if made is None:
            return Use("fixed", id(value))
        layer, place = made
        if layer == segment:
            return Use("own", (place, value.index()))
        if layer.stack == segment.stack and layer.layer > segment.layer:
            raise Unprovable("a layer in the graph uses a result of a later layer")
        if self._is_passed_on(value, layer, segment):
            return Use("before", (place, value.index()))
        return Use("fixed", id(value))

    def _weight(self, value: onnx_ir.Value, segment: Segment) -> Use:
        name = value.name or ""
        if place_in(name, self.stacks) == segment:
            rest = name.removeprefix(f"{self.stacks[segment.stack].name}.{segment.layer}")
            return Use("weight", rest)
        constant = value.const_value
        if constant is None or constant.nbytes > 1 << 16:
            return Use("fixed", id(value))
        return Use("fixed", (str(constant.dtype), tuple(constant.shape), constant.tobytes()))

    def _is_passed_on(self, value: onnx_ir.Value, layer: Segment, segment: Segment) -> bool:
        """Return whether a value is used by the next layer, and by no later layer of the stack."""
        if layer.stack != segment.stack or layer.layer + 1 != segment.layer:
            return False
        users = {self.place(node) for node in value.consumers()}
        stacks = {user[0] for user in users if user is not None and user[0].stack == layer.stack}
        return stacks <= {layer, segment}

    # --- kinds

    def is_like(self, one: Segment, other: Segment) -> bool:
        """Return whether two layers have the same nodes, connected in the same way."""
        mine, its = self.nodes.get(one, []), self.nodes.get(other, [])
        return len(mine) == len(its) and all(
            self._form(a) == self._form(b) for a, b in zip(mine, its, strict=True)
        )

    def _form(self, node: onnx_ir.Node) -> Any:
        if id(node) not in self._forms:
            segment, _ = self._places[id(node)]
            given = [self._seen(use, segment) for use in self._uses[id(node)]]
            made = [(str(v.type), str(v.shape), v.is_graph_output()) for v in node.outputs]
            head = node.domain, node.op_type, node.overload
            self._forms[id(node)] = *head, given, made, _attributes(node)
        return self._forms[id(node)]

    def _seen(self, use: Use, segment: Segment) -> Any:
        """Return the part of a use that must be equal in a similar layer."""
        if use.kind == "before":
            return use.kind
        return use.kind, self._input_rank(use.key, segment) if use.kind == "input" else use.key

    def _input_rank(self, name: str, segment: Segment) -> int:
        """Return the position of an input among the inputs of its layer."""
        taken = dict.fromkeys(
            value.name
            for node in self.nodes[segment]
            for value in node.inputs
            if value is not None and value.is_graph_input()
        )
        return list(taken).index(name)

    def likeness(self, segment: Segment) -> Any:
        """Return the class of a layer; all layers like the repeated one are in one class."""
        if segment not in self._likeness:
            template = Segment(segment.stack, self.template(segment))
            alike = segment == template or self.is_like(segment, template)
            kind = "kind", segment.stack, self.stacks[segment.stack].kept_kinds[segment.layer]
            self._likeness[segment] = kind if alike else segment
        return self._likeness[segment]

    def template(self, segment: Segment) -> int:
        """Return the position of the layer that is repeated for this layer's kind, or its own."""
        stack = self.stacks[segment.stack]
        kind = stack.kept_kinds[segment.layer]
        gone = [layer for layer in stack.gone if stack.kinds[layer] == kind]
        return stack.stand_in(gone[0]) if gone else segment.layer

    # --- connections from layer to layer

    def _connect(self, segment: Segment) -> None:
        """Group the uses of values from the previous layer by value, whichever nodes use them."""
        mine = self.likeness(segment)
        for place, node in enumerate(self.nodes[segment]):
            for number in range(len(node.inputs)):
                use = self.use(node, number)
                if use.kind == "before":
                    before = Segment(segment.stack, segment.layer - 1)
                    self._unite(("use", mine, place, number), (self.likeness(before), *use.key))

    def passed(self, segment: Segment, place: int, number: int, before: Segment) -> tuple[int, int]:
        """Return the node and output in the layer before that a node reads.

        Args:
            segment: the layer of the node.
            place: the position of the node in the layer.
            number: the number of the node's input.
            before: the layer of the shallow model that represents the layer before.
        """
        wanted = self._root(("use", self.likeness(segment), place, number))
        likeness = self.likeness(before)
        found = [port for port in self._same if port[0] == likeness and self._root(port) == wanted]
        if len(found) != 1:
            raise Unprovable("its layers are connected in different ways in the graph")
        return found[0][1], found[0][2]

    def _root(self, port: Any) -> Any:
        while self._same.setdefault(port, port) != port:
            port = self._same[port]
        return port

    def _unite(self, one: Any, other: Any) -> None:
        self._same[self._root(one)] = self._root(other)


def segment_of(node: onnx_ir.Node, stacks: Sequence[Stack]) -> Segment | None:
    """Return the layer of the shallow model that a node's metadata names; None if there is none."""
    return place_among(_scopes(node), stacks)


def _has_module(node: onnx_ir.Node) -> bool:
    """Return whether a node's module is known; the last of a node's scopes is the node itself."""
    return len(list(_scopes(node))) > 1


def _scopes(node: onnx_ir.Node) -> Iterator[str]:
    try:
        found = ast.literal_eval(node.metadata_props.get(_SCOPES, "[]"))
    except (SyntaxError, ValueError):
        return
    yield from (str(each) for each in found)


def _attributes(node: onnx_ir.Node) -> Any:
    kinds = (onnx_ir.AttributeType.GRAPH, onnx_ir.AttributeType.GRAPHS)
    if any(each.type in kinds for each in node.attributes.values()):
        raise Unprovable("its layers contain branches or loops")
    return sorted(
        (name, str(onnx_ir.to_proto(each).SerializeToString()))
        for name, each in node.attributes.items()
    )

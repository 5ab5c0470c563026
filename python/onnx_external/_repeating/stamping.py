"""Repeats layers in a shallow model's graph to build a deep model's graph."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir

from .kinds import Stack
from .layers import Layers
from .naming import Names, deep_name, place_in
from .numbers import Numbers, Starts
from .recording import Segment, Unprovable
from .users import Following, Mentions, Places, counted, mentions, more_users, places_of

_FX_NODE = "pkg.torch.onnx.fx_node"


def stamp(
    model: onnx_ir.Model,
    stacks: Sequence[Stack],
    names: Names,
    exported: Any = None,
    starts: Starts | None = None,
) -> None:
    """Repeat the layers of a graph.

    Args:
        model: the graph of the shallow model, which is changed to that of the deep model.
        stacks: the lists of layers.
        names: the names of the graph's inputs and outputs.
        exported: the program that the graph was converted from, which has the users of values.
        starts: the smallest numbers in the names of layers, before the graph was optimized.

    Raises:
        Unprovable: the layers of the graph are not similar, although the traced layers are.
    """
    places = places_of(exported, stacks)
    more = more_users(places, stacks)
    for node in model.graph:
        if _FX_NODE in node.metadata_props:
            text = node.metadata_props[_FX_NODE]
            node.metadata_props[_FX_NODE] = counted(text, lambda name: more.get(name, 0))
    _Stamping(model.graph, stacks, names, places, starts or {}).run()


@dataclass
class _Stamping:
    graph: onnx_ir.Graph
    stacks: Sequence[Stack]
    names: Names
    places: Places
    starts: Starts
    copies: dict[Segment, dict[tuple[int, int], onnx_ir.Value]] = field(default_factory=dict)
    """The values of each layer of the deep model, by the positions of the node and of the
    output."""
    renamed: dict[Segment, dict[str, str]] = field(default_factory=dict)
    """For each layer of the deep model, the names of its values and of the values that it reads
    from the layer before, by their names in the shallow model."""

    def run(self) -> None:
        self.given = {value.name or "" for value in self.graph.outputs}
        handed_on = self._take_handed_on()
        self.layers = Layers(self.graph, self.stacks, self.names)
        self.numbers = Numbers(self.stacks, self.layers, self.places, self.starts)
        self.mentions = Mentions(self.stacks, self.numbers)
        self.following = Following(self.places, self.stacks)
        values = [*self.graph.inputs, *(value for node in self.graph for value in node.outputs)]
        self.mentions.learn(self.places, {value.name or "" for value in values})
        self._call_what_stays()
        self.weights: dict[tuple[str, int], onnx_ir.Value] = {}
        self.inputs: dict[str, onnx_ir.Value] = {}
        self.outputs: dict[str, onnx_ir.Value] = {}
        for number, stack in enumerate(self.stacks):
            there = [segment for segment in self.layers.nodes if segment.stack == number]
            if there:
                self._check(number, stack)
                self._repeat(number, stack)
        self._repeat_unused()
        self._rename_kept()
        self._hand_on(handed_on)
        self._order()
        self._check_order()
        self._check_names()

    def _check_names(self) -> None:
        """Check that the names of values and of nodes are unique, as runtimes require."""
        values = [*self.graph.inputs, *self.graph.initializers.values()]
        values += [value for node in self.graph for value in node.outputs if value.name]
        names = Counter(value.name for value in values)
        names += Counter(f"node {node.name}" for node in self.graph if node.name)
        for name, count in names.most_common(1):
            if count > 1:
                raise Unprovable(f"several values or nodes in the graph have the name {name}")

    def _check_order(self) -> None:
        """Check that all inputs of a node are computed before it."""
        made = {id(value) for value in (*self.graph.inputs, *self.graph.initializers.values())}
        for node in self.graph:
            for value in node.inputs:
                if value is not None and id(value) not in made:
                    raise Unprovable(
                        f"in the graph, {node.name} uses {value.name} before it is computed"
                    )
            made.update(id(value) for value in node.outputs)

    def _call_what_stays(self) -> None:
        """Give existing values and nodes their final names, with the numbers as torch counts."""
        self.called: dict[str, str] = {}
        ends = {
            number: self.layers.nodes[Segment(number, len(stack.kept) - 1)][-1]
            for number, stack in enumerate(self.stacks)
            if Segment(number, len(stack.kept) - 1) in self.layers.nodes
        }
        passed: list[int] = []
        for value in self.graph.initializers.values():
            name = value.name or ""
            plain = value.const_value is not None and "." not in name
            before = self.mentions.passed(name)
            before = self.numbers.passed(name) if before is None else before
            self._call(name, self.numbers.afterwards(name, before) if plain else None)
        for node in self.graph:
            for name in filter(None, (node.name, *(value.name for value in node.outputs))):
                own = self.layers.place(node)
                moved = self.numbers.afterwards(name, passed)
                if own is not None:
                    layer = self.stacks[own[0].stack].kept[own[0].layer]
                    moved = self.numbers.of_layer(name, own[0], layer)
                self._call(name, moved)
            passed += [number for number, end in ends.items() if end is node]

    def _call(self, name: str, wanted: str | None) -> None:
        """Rename an existing object as wanted, or to a similar name if that name is taken."""
        wanted = name if wanted is None else wanted
        while self.names.is_taken(wanted):
            wanted += "_"
        if wanted != name:
            self.called[name] = wanted
        self.names.take(wanted)

    def _check(self, number: int, stack: Stack) -> None:
        """Check that at least two layers of each repeated kind are similar in the graph."""
        for layer in stack.gone:
            place = stack.stand_in(layer)
            others = [
                other
                for other, kind in enumerate(stack.kept_kinds)
                if kind == stack.kinds[layer] and other not in (0, place)
            ]
            template = Segment(number, place)
            if not any(self.layers.is_like(Segment(number, o), template) for o in others):
                raise Unprovable(f"the layers of {stack.name} are not similar in the graph")

    # --- copies

    def _repeat(self, number: int, stack: Stack) -> None:
        before: Segment | None = None
        for place, kept in enumerate(stack.kept):
            segment = Segment(number, place)
            nodes = self.layers.nodes.get(segment)
            if not nodes:
                raise Unprovable(f"{stack.name}.{kept} is not found in the graph")
            new: list[onnx_ir.Node] = []
            for layer in range(stack.kept[place - 1] + 1 if place else 0, kept):
                assert before is not None
                template = Segment(number, stack.stand_in(layer))
                new += self._copy(template, layer, before)
                before = template
            if new:
                self.graph.insert_before(nodes[0], new)
                assert before is not None
                self._connect(segment, kept, before)
            self.copies[Segment(number, kept)] = {
                (at, value.index() or 0): value
                for at, node in enumerate(nodes)
                for value in node.outputs
            }
            before = segment

    def _connect(self, segment: Segment, layer: int, before: Segment) -> None:
        """Connect an existing layer to the results of the repeated layer before it."""
        for place, node in enumerate(self.layers.nodes[segment]):
            for number in range(len(node.inputs)):
                old = node.inputs[number]
                if old is not None and self.layers.use(node, number).kind == "before":
                    new = self._passed(segment, place, number, layer, before)
                    told = self.renamed.setdefault(Segment(segment.stack, layer), {})
                    told[old.name or ""] = new.name or ""
                    node.replace_input_with(number, new)

    def _passed(
        self, segment: Segment, place: int, number: int, layer: int, before: Segment
    ) -> onnx_ir.Value:
        port = self.layers.passed(segment, place, number, before)
        return self.copies[Segment(segment.stack, layer - 1)][port]

    def _copy(self, template: Segment, layer: int, before: Segment) -> list[onnx_ir.Node]:
        """Return the nodes of a new layer, copied from those of another layer."""
        deep = Segment(template.stack, layer)
        self.renamed[deep] = {}
        nodes = self.layers.nodes[template]
        # Metadata of a node may name inputs or outputs of a later one.
        outputs = [[self._output(v, template, deep) for v in n.outputs] for n in nodes]
        self.copies[deep] = {
            (place, at): value
            for place, each in enumerate(outputs)
            for at, value in enumerate(each)
        }
        given = [
            [
                self._given(node, place, number, template, layer, before)
                for number in range(len(node.inputs))
            ]
            for place, node in enumerate(nodes)
        ]
        return [
            self._node(node, taken, each, template, layer)
            for node, taken, each in zip(nodes, given, outputs, strict=True)
        ]

    def _given(
        self,
        node: onnx_ir.Node,
        place: int,
        number: int,
        template: Segment,
        layer: int,
        before: Segment,
    ) -> onnx_ir.Value | None:
        use, value = self.layers.use(node, number), node.inputs[number]
        deep = Segment(template.stack, layer)
        if use.kind == "own":
            return self.copies[deep][use.key]
        if use.kind == "fixed":
            return value
        assert value is not None
        if use.kind == "before":
            passed = self._passed(template, place, number, layer, before)
            name = passed.name or ""
            if layer - 1 in self.stacks[template.stack].kept:  # it is renamed at the end
                name = self.called.get(name, name)
            self.renamed[deep][value.name or ""] = name
            return passed
        if use.kind == "weight":
            return self._weight(value, template, layer)
        return self._input(value, template, layer)

    def _output(self, value: onnx_ir.Value, template: Segment, deep: Segment) -> onnx_ir.Value:
        name = value.name or ""
        if value.is_graph_output():
            new = self.names.output_of(name, deep)
            if new is None:
                raise Unprovable(
                    f"a layer in the graph returns the output {name}, which is unknown"
                )
            made = self.outputs[new] = _like(value, new)
        else:
            wanted = self.numbers.of_layer(name, template, deep.layer)
            new = self.names.fresh(name, deep.layer, wanted)
            made = _like(value, new)
        self.renamed[deep][name] = new
        return made

    def _node(
        self,
        node: onnx_ir.Node,
        given: Sequence[onnx_ir.Value | None],
        outputs: Sequence[onnx_ir.Value],
        template: Segment,
        layer: int,
    ) -> onnx_ir.Node:
        text = node.metadata_props.get(_FX_NODE, "")
        mentioned = self.mentions.renamed(text, template, layer)
        stays = {name: self.called[name] for name in mentions(text) if name in self.called}
        renamed = {**stays, **mentioned, **self.renamed[Segment(template.stack, layer)]}
        texts = {
            key: self._text(text, template, layer, renamed)
            for key, text in node.metadata_props.items()
        }
        name = node.name or ""
        return onnx_ir.Node(
            node.domain,
            node.op_type,
            given,
            list(node.attributes.values()),
            overload=node.overload,
            outputs=outputs,
            version=node.version,
            name=self.names.fresh(name, layer, self.numbers.of_layer(name, template, layer)),
            doc_string=node.doc_string,
            metadata_props=texts,
        )

    def _text(self, text: str, segment: Segment, layer: int, renamed: Mapping[str, str]) -> str:
        return self.names.text(counted(text, self.following.more(layer)), segment, layer, renamed)

    def _weight(self, value: onnx_ir.Value, template: Segment, layer: int) -> onnx_ir.Value:
        name = value.name or ""
        key = name, layer
        if key not in self.weights:
            made = _like(value, self.names.text(name, template, layer, {}))
            self._retell(made, template, layer)
            if value.const_value is not None:  # alike layers have the same tables
                made.const_value = copy.copy(value.const_value)
                made.const_value.name = made.name
            self.weights[key] = made
        return self.weights[key]

    def _retell(self, value: onnx_ir.Value, segment: Segment, layer: int) -> None:
        """Adapt a weight's metadata from one layer to another."""
        for key, text in list(value.metadata_props.items()):
            value.metadata_props[key] = self.names.text(text, segment, layer, {})

    def _input(self, value: onnx_ir.Value, template: Segment, layer: int) -> onnx_ir.Value:
        old = value.name or ""
        new = self.names.input_of(old, Segment(template.stack, layer))
        if new is None:
            raise Unprovable(f"a layer in the graph takes the input {old}, which is unknown")
        if new not in self.inputs:
            self.inputs[new] = _like(value, new)
        return self.inputs[new]

    def _repeat_unused(self) -> None:
        """Add each layer's own copies of inputs that no node uses."""
        for value in list(self.graph.inputs):
            old = value.name or ""
            if value.uses() or value.is_graph_output() or not self.names.belongs_to_layer(old):
                continue
            for new in self.names.all_inputs_of(old):
                self.inputs[new] = _like(value, new)
            self.graph.inputs.remove(value)

    # --- inputs that are also outputs

    def _take_handed_on(self) -> dict[str, tuple[str, onnx_ir.Value]]:
        """Remove outputs that return an input of a layer unchanged; return these by name."""
        found = {}
        for node in () if self.names.numbered_outputs else list(self.graph):
            given, made = node.inputs[:1], node.outputs[0]
            name = given[0].name if given and given[0] is not None else None
            if node.op_type != "Identity" or not self.names.belongs_to_layer(name or ""):
                continue
            if made.is_graph_output() and not made.uses():
                found[made.name or ""] = name or "", made
                self.graph.outputs.remove(made)
                self.graph.remove(node, safe=True)
        return found

    def _hand_on(self, found: Mapping[str, tuple[str, onnx_ir.Value]]) -> None:
        """Make each layer return the inputs that the layer representing it returns."""
        for place, slot in self.names.proof.outputs.items():
            name = self.names.shallow_outputs[slot.number]
            if name not in found:
                continue
            old, made = found[name]
            given = self.inputs[self.names.input_of(old, slot.segment) or ""]
            new = self.names.outputs[place]
            self.outputs[new] = _like(made, new)
            self.graph.append(onnx_ir.Node("", "Identity", [given], outputs=[self.outputs[new]]))

    # --- existing layers

    def _rename_kept(self) -> None:
        """Give existing layers, and their inputs and outputs, their names in the deep model."""
        renamed: dict[onnx_ir.Value, str] = {}
        for value in (*self.graph.inputs, *self.graph.outputs):
            name = value.name or ""
            new = self._kept_name(value)
            if new is None:
                raise Unprovable(f"{name} belongs to no layer in the graph")
            renamed[value] = new
        self._retell_nodes(renamed)
        # One after the other could give two the same name, which a graph refuses of initializers.
        for number, value in enumerate(each for each in renamed if each.is_initializer()):
            value.name = f"{value.name} {number}"
        for value, new in renamed.items():
            value.name = new
        for value in self.graph.inputs:
            self.inputs[value.name or ""] = value
        for value in self.graph.outputs:
            self.outputs[value.name or ""] = value

    def _retell_nodes(self, renamed: dict[onnx_ir.Value, str]) -> None:
        """Rename nodes and their values as in the deep model; add the values to `renamed`."""
        copied = {id(value) for values in self.copies.values() for value in values.values()}
        kept = {id(v) for nodes in self.layers.nodes.values() for n in nodes for v in n.outputs}
        made = copied - kept
        for value in self.graph.initializers.values():
            if (value.name or "") in self.called:
                renamed[value] = self.called[value.name or ""]
        for node in self.graph:
            if any(id(value) in made for value in node.outputs):
                continue
            own = self.layers.place(node)
            layer = self.stacks[own[0].stack].kept[own[0].layer] if own else 0
            text = node.metadata_props.get(_FX_NODE, "")
            told = {**self.mentions.renamed(text, own[0] if own else None, layer), **self.called}
            told |= self.renamed.get(Segment(own[0].stack, layer), {}) if own else {}
            for key, text in node.metadata_props.items():
                new = self._text(text, own[0], layer, told) if own else self.names.told(text, told)
                node.metadata_props[key] = new
            node.name = self.called.get(node.name or "", node.name)
            for value in node.outputs:
                if not value.is_graph_output() and (value.name or "") in self.called:
                    renamed[value] = self.called[value.name or ""]

    def _kept_name(self, value: onnx_ir.Value) -> str | None:
        name = value.name or ""
        if self.names.numbered_outputs and not value.is_graph_input():
            return self.called.get(name, name)
        find = self.names.input_of if value.is_graph_input() else self.names.output_of
        shared = find(name, None)
        if shared is not None:
            return shared
        for segment in self.layers.nodes:
            layer = self.stacks[segment.stack].kept[segment.layer]
            found = find(name, Segment(segment.stack, layer))
            # The layer that represents itself is the one whose input or output it is.
            if found is not None and self._is_of(value, segment):
                return found
        return None

    def _is_of(self, value: onnx_ir.Value, segment: Segment) -> bool:
        if value.is_graph_input():
            places = [self.layers.place(node) for node in value.consumers()]
            return any(place is not None and place[0] == segment for place in places)
        place = self.layers.place(value.producer())
        return place is not None and place[0] == segment

    def _order(self) -> None:
        """Sort inputs, outputs and weights in the order in which a trace would have them."""
        inputs = [self.inputs[name] for name in self.names.inputs if name in self.inputs]
        self.graph.inputs.clear()
        self.graph.inputs.extend(inputs)
        if not self.names.numbered_outputs:
            self._check_outputs()
            outputs = [self.outputs[name] for name in self.names.outputs if name in self.outputs]
            self.graph.outputs.clear()
            self.graph.outputs.extend(outputs)
        before = list(self.graph.initializers.values())
        for value in before:
            del self.graph.initializers[value.name or ""]
        for value in self._weights_in_order(before):
            self.graph.initializers.add(value)

    def _check_outputs(self) -> None:
        """Check that each output of the shallow graph exists for every layer that it represents."""
        for place, slot in self.names.proof.outputs.items():
            name = self.names.outputs[place]
            if name not in self.outputs and self.names.shallow_outputs[slot.number] in self.given:
                raise Unprovable(f"no node in the graph computes {name}")

    def _weights_in_order(self, before: Sequence[onnx_ir.Value]) -> list[onnx_ir.Value]:
        """Return the weights; those of a stack are where its first weight was, in layer order."""
        starts: dict[int, int] = {}
        found: list[tuple[int, int, onnx_ir.Value]] = []
        for number, value in enumerate(before):
            name = value.name or ""
            place = place_in(name, self.stacks)
            if place is None:
                found.append((number, 0, value))
                continue
            start = starts.setdefault(place.stack, number)
            kept = self.stacks[place.stack].kept[place.layer]
            copies = [(layer, made) for (old, layer), made in self.weights.items() if old == name]
            found += [(start, layer, each) for layer, each in [(kept, value), *copies]]
            value.name = deep_name(name, self.stacks)
            self._retell(value, place, kept)
        return [value for *_, value in sorted(found, key=lambda each: each[:2])]


def _like(value: onnx_ir.Value, name: str) -> onnx_ir.Value:
    shape = None if value.shape is None else onnx_ir.Shape(list(value.shape))
    made = onnx_ir.Value(name=name, type=value.type, shape=shape, doc_string=value.doc_string)
    made.metadata_props.update(value.metadata_props)
    return made

"""Draws faults over all modules of a graph with a seed, and plants them in its file or data."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from graphs import FLOAT, Graph, Module, Values, module_of


class NoPlace(Exception):
    """Raised if the graph has no place for a fault of this kind."""


@dataclass
class Fault:
    """A planted fault, and the modules in which it may be visible, in the order in which they return."""

    place: str
    modules: list[Module]
    plant: Callable[[Graph], None]
    parts: list["Fault"] = field(default_factory=list)  # each of them is also a fault on its own


Drawing = Callable[[Graph, random.Random, list[Values]], Fault]


def _weights(graph: Graph) -> list[tuple[Module, onnx.TensorProto]]:
    """Return float weights with several elements, and the first module that reads each."""
    found = []
    for tensor in graph.tensors.values():
        readers = graph.modules_that_read(graph.sharing(tensor))
        if tensor.data_type == FLOAT and np.prod(tensor.dims, dtype=int) > 1 and readers:
            found.append((readers[0], tensor))
    return found


def _drawn(found: list[tuple[Module, onnx.TensorProto]], draw: random.Random) -> onnx.TensorProto:
    """Draw a module first, then one of its weights, so that large modules are not preferred."""
    if not found:
        raise NoPlace
    name = draw.choice(sorted({module.name for module, _ in found}))
    return draw.choice([tensor for module, tensor in found if module.name == name])


def _data_fault(graph: Graph, tensor: onnx.TensorProto, place: str, value: np.ndarray) -> Fault:
    def plant(changed: Graph) -> None:
        changed.change(changed.tensors[tensor.name], value)

    return Fault(place, graph.modules_that_read(graph.sharing(tensor)), plant)


def element(graph: Graph, draw: random.Random, _: list[Values]) -> Fault:
    """Change one element of a weight."""
    tensor = _drawn(_weights(graph), draw)
    value = graph.read(tensor).copy()
    index = draw.randrange(value.size)
    value.flat[index] += 2 * max(1.0, float(np.sqrt(np.mean(value.astype(np.float64) ** 2))))
    return _data_fault(graph, tensor, f"{tensor.name}.flat[{index}]", value)


def swap(graph: Graph, draw: random.Random, _: list[Values]) -> Fault:
    """Exchange two weights of the same shape."""
    weights = _weights(graph)

    def partners(tensor: onnx.TensorProto) -> list[onnx.TensorProto]:
        tied = graph.sharing(tensor)
        return [t for _, t in weights if t.dims == tensor.dims and t.name not in tied]

    one = _drawn([each for each in weights if partners(each[1])], draw)
    other = draw.choice(partners(one))
    halves = [
        _data_fault(graph, one, one.name, graph.read(other)),
        _data_fault(graph, other, other.name, graph.read(one)),
    ]

    def plant(changed: Graph) -> None:
        for half in halves:
            half.plant(changed)

    modules = {module.name: module for half in halves for module in half.modules}
    ordered = sorted(modules.values(), key=lambda module: module.last)
    return Fault(f"{one.name} and {other.name}", ordered, plant, halves)


def transpose(graph: Graph, draw: random.Random, _: list[Values]) -> Fault:
    """Transpose a square weight."""

    def is_square(tensor: onnx.TensorProto) -> bool:
        return len(tensor.dims) > 1 and tensor.dims[0] == tensor.dims[1] > 1

    tensor = _drawn([each for each in _weights(graph) if is_square(each[1])], draw)
    return _data_fault(graph, tensor, tensor.name, graph.read(tensor).swapaxes(0, 1))


# ---- faults in nodes

_Change = Callable[[onnx.NodeProto, Graph], None]


def _attribute_changes(node: onnx.NodeProto, rank: int) -> list[tuple[str, _Change]]:
    found: list[tuple[str, _Change]] = []
    for number, attribute in enumerate(node.attribute):
        new = None
        if attribute.name in ("epsilon", "alpha", "beta", "lambd"):
            new = 1.5 * attribute.f + 0.05
        elif attribute.name == "axis" and rank > 1:
            new = (attribute.i + 1) % rank
        elif attribute.name == "perm" and rank > 1:
            new = [*attribute.ints[:-2], attribute.ints[-1], attribute.ints[-2]]
        elif attribute.name == "approximate":
            new = "none" if attribute.s == b"tanh" else "tanh"
        if new is not None:

            def change(changed: onnx.NodeProto, _: Graph, number=number, new=new) -> None:
                name = changed.attribute[number].name
                changed.attribute[number].CopyFrom(helper.make_attribute(name, new))

            found.append((f"{attribute.name} = {new}", change))
    return found


def _constant_changes(graph: Graph, node: onnx.NodeProto) -> list[tuple[str, _Change]]:
    """Give the node its own constant, because other nodes may read the existing one."""
    found: list[tuple[str, _Change]] = []
    for number, name in enumerate(node.input):
        tensor = graph.tensors.get(name)
        if tensor is None or np.prod(tensor.dims, dtype=int) != 1:
            continue
        value = graph.read(tensor)
        if tensor.data_type == FLOAT:
            new = (1.5 * value + 0.05).astype(np.float32)
        elif node.op_type.startswith("Reduce") and number == 1:
            new = np.where(value == 1, 0, 1).astype(value.dtype)
        else:
            continue

        def change(changed: onnx.NodeProto, whole: Graph, number=number, new=new) -> None:
            own = f"{changed.output[0]}.fault"
            whole.model.graph.initializer.append(numpy_helper.from_array(new, own))
            changed.input[number] = own

        found.append((f"input {number} = {new.item():.3g}", change))
    return found


def _node_fault(
    graph: Graph, draw: random.Random, changes: dict[int, list[tuple[str, _Change]]]
) -> Fault:
    if not changes:
        raise NoPlace
    modules = {module_of(graph.nodes[number]) for number in changes}
    name = draw.choice(sorted(modules))
    number = draw.choice([each for each in changes if module_of(graph.nodes[each]) == name])
    node = graph.nodes[number]
    told, change = draw.choice(changes[number])

    def plant(changed: Graph) -> None:
        change(changed.nodes[number], changed)
        changed.write()

    place = f"{node.op_type} {node.output[0]}: {told}"
    return Fault(place, [graph.modules[name]], plant)


def setting(graph: Graph, draw: random.Random, values: list[Values]) -> Fault:
    """Change an attribute or a constant of one node."""
    changes = {}
    for number, node in enumerate(graph.nodes):
        value = values[0].get(node.output[0])
        rank = 0 if value is None else value.ndim
        if module_of(node):
            found = _attribute_changes(node, rank) + _constant_changes(graph, node)
            if found:
                changes[number] = found
    return _node_fault(graph, draw, changes)


_OTHERS = {
    "Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul", "Sin": "Cos", "Cos": "Sin",
    "Tanh": "Sigmoid", "Sigmoid": "Tanh", "Erf": "Tanh", "Sqrt": "Abs", "Relu": "Abs",
    "Neg": "Abs", "Exp": "Softplus", "Reciprocal": "Neg", "ReduceMean": "ReduceMax",
    "Softmax": "LogSoftmax", "Gelu": "Tanh", "MaxPool": "AveragePool",
}  # fmt: skip


def operator(graph: Graph, draw: random.Random, values: list[Values]) -> Fault:
    """Make a node compute another function of the same inputs."""
    changes = {}
    for number, node in enumerate(graph.nodes):
        other = _OTHERS.get(node.op_type)
        if module_of(node) and other and node.output[0] in values[0]:

            def change(changed: onnx.NodeProto, _: Graph, other=other) -> None:
                changed.op_type = other
                kept = [each for each in changed.attribute if each.name != "approximate"]
                del changed.attribute[:]
                changed.attribute.extend(kept)

            changes[number] = [(f"is {other}", change)]
    return _node_fault(graph, draw, changes)


def overflow(graph: Graph, draw: random.Random, values: list[Values]) -> Fault:
    """Cast a value beyond the range of float16 to float16 and back."""
    changes = {}
    for number, node in enumerate(graph.nodes):
        largest = [float(np.abs(each[node.output[0]]).max(initial=0)) for each in values
                   if node.output[0] in each]  # fmt: skip
        finite = largest and np.isfinite(largest).all()
        if module_of(node) and finite and min(largest) > 66_000:

            def change(changed: onnx.NodeProto, whole: Graph, number=number) -> None:
                result, before = changed.output[0], f"{changed.output[0]}.fault"
                changed.output[0] = before
                for to, one, other in (
                    (FLOAT, f"{before}.half", result),
                    (onnx.TensorProto.FLOAT16, before, f"{before}.half"),
                ):
                    cast = helper.make_node("Cast", [one], [other], name=f"{other}.cast", to=to)
                    cast.metadata_props.extend(changed.metadata_props)
                    whole.nodes.insert(number + 1, cast)

            changes[number] = [("in float16", change)]
    return _node_fault(graph, draw, changes)


KINDS: dict[str, Drawing] = {
    "element": element,
    "swap": swap,
    "transpose": transpose,
    "setting": setting,
    "operator": operator,
    "overflow": overflow,
}

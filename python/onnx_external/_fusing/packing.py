"""Packs the products for the queries, keys and values of attention into one product.

The weights of the three products are concatenated in one slot (an initializer without data). The
input is then read once, and a runtime starts one kernel instead of three.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir

from .attention_layout import attentions
from .matching import WIDTHS, attribute, belong_to, last_size, made_by, make, remove_dead, sizes

_WALKED = ("RotaryEmbedding", "RMSNormalization", "Reshape", "Transpose")
"""The operators that may be between a product and attention."""


class Pack(NamedTuple):
    """A slot for one packed weight that replaces several slots."""

    name: str
    parts: tuple[str, ...]
    """The names of the replaced slots, whose tensors are concatenated along the first dimension."""


class _Product(NamedTuple):
    """A product with a transposed weight, possibly followed by the addition of a bias."""

    node: onnx_ir.Node
    weight: onnx_ir.Value
    cast: onnx_ir.Node | None
    """The Cast node of the transposed weight, if any."""
    bias: onnx_ir.Value | None
    result: onnx_ir.Value


def pack_products(model: onnx_ir.Model) -> list[Pack]:
    """Pack the products that compute attention inputs; return the packed slots.

    Args:
        model: the model, whose weights are slots; it is changed.
    """
    packs: list[Pack] = []
    for node in attentions(model.graph):
        found = [_product(value) for value in node.inputs[:3]]
        products = [each for each in found if each is not None]
        if len(products) == len(found) and _fit(products):
            packs += _pack(model.graph, products)
            _take_whole(node)
    return packs


def _take_whole(attention: onnx_ir.Node) -> None:
    """Connect a packed product directly to attention if attention takes its parts in their order.

    A scalar that is added to the values may also be added to the queries and keys, because it is 0
    or, to make all results NaN, NaN.
    """
    added = made_by(attention.inputs[2], "Add")
    number = None if added is None or sizes(added.inputs[1]) != [] else added.inputs[1]
    value = added.inputs[0] if added is not None and number is not None else attention.inputs[2]
    split = made_by(value, "Split")
    graph = attention.graph
    if split is None or graph is None or [*attention.inputs[:2], value] != [*split.outputs]:
        return
    whole = split.inputs[0]
    maker = None if whole is None else whole.producer()
    if maker is not None:
        widths = [last_size(each) for each in split.outputs]
        maker.metadata_props[WIDTHS] = ",".join(map(str, widths))
    if added is not None and number is not None and whole is not None:
        made = make("Add", [whole, number], added, [whole])
        made.name, made.outputs[0].name = added.name, added.outputs[0].name
        added.outputs[0].name = None
        graph.insert_before(attention, made)
        whole = made.outputs[0]
    for place, each in enumerate((whole, None, None)):
        attention.replace_input_with(place, each)
    bounds = split.inputs[1]
    remove_dead([split if added is None or number is None else added])
    if bounds is not None and not bounds.uses() and bounds.name in graph.initializers:
        del graph.initializers[bounds.name]


def _product(value: onnx_ir.Value | None) -> _Product | None:
    """Return the MatMul that computes an attention input, or None if it cannot be packed."""
    while (node := made_by(value, *_WALKED, "Add")) is not None:
        if node.op_type == "Add" and sizes(node.inputs[1]) != []:  # a scalar changes no size
            break
        value = node.inputs[0]
    added, biases, result = made_by(value, "Add"), [], value
    if added is not None:
        biases = [each for each in added.inputs if each and each.is_initializer()]
        others = [each for each in added.inputs if each not in biases]
        value = others[0] if len(others) == len(biases) == 1 else None
    node = made_by(value, "MatMul")
    if node is None or value is None or result is None:
        return None
    if any(each.is_graph_output() for each in (value, result)):
        return None
    weight = node.inputs[1]
    cast = made_by(weight, "Cast")
    turned = made_by(weight if cast is None else cast.inputs[0], "Transpose")
    slot = None if turned is None else turned.inputs[0]
    if turned is None or slot is None or list(attribute(turned, "perm", (1, 0))) != [1, 0]:
        return None
    slots = [slot, *biases]
    inner = [value, weight, turned.outputs[0]] if added is not None else [weight, turned.outputs[0]]
    alone = all(each is not None and len(list(each.uses())) == 1 for each in (*slots, *inner))
    fits = all(_is_slot(each) for each in slots) and len(sizes(slot) or ()) == 2
    fits = fits and all(sizes(each) == (sizes(slot) or [])[:1] for each in biases)
    return (
        _Product(node, slot, cast, biases[0] if biases else None, result)
        if alone and fits
        else None
    )


def _is_slot(value: onnx_ir.Value) -> bool:
    return value.is_initializer() and value.const_value is None and not value.is_graph_output()


def _fit(products: Sequence[_Product]) -> bool:
    """Return whether products have the same input, and weights that can be concatenated."""
    first = products[0]
    return len({id(each.weight) for each in products}) == len(products) and all(
        each.node.inputs[0] is first.node.inputs[0]
        and each.weight.dtype is first.weight.dtype
        and (sizes(each.weight) or [])[1:] == (sizes(first.weight) or [])[1:]
        and (each.cast is None) == (first.cast is None)
        and (each.bias is None) == (first.bias is None)
        and each.node.graph is first.node.graph
        and (each.bias is None or first.bias is None or each.bias.dtype is first.bias.dtype)
        for each in products
    )


def _pack(graph: onnx_ir.Graph, products: Sequence[_Product]) -> list[Pack]:
    first, last = products[0], products[-1]
    place = min((each.node for each in products), key=list(graph).index)
    counts = [(sizes(each.weight) or [0])[0] for each in products]
    weight, pack = _slot(graph, [each.weight for each in products])
    packs = [pack]
    form = [*reversed(sizes(weight) or [])]
    new = [make("Transpose", [weight], last.node, [weight], {"perm": [1, 0]}, form)]
    if first.cast is not None:
        wide = first.cast.outputs[0]
        new.append(make("Cast", [new[-1].outputs[0]], first.cast, [wide], None, form))
        new[-1].attributes.update(first.cast.attributes)
    form = [*(sizes(first.result) or [])[:-1], sum(counts)]
    inputs = [first.node.inputs[0], new[-1].outputs[0]]
    new.append(make("MatMul", inputs, last.node, [last.result], None, form))
    if first.bias is not None:
        bias, more = _slot(graph, [each.bias for each in products if each.bias is not None])
        packs.append(more)
        adding = last.result.producer()
        assert adding is not None
        new.append(make("Add", [new[-1].outputs[0], bias], adding, [last.result], None, form))
    results = [each.result for each in products]
    inputs = [new[-1].outputs[0], _widths(graph, counts)]
    new.append(make("Split", inputs, last.node, results, {"axis": -1}))
    for node in new:
        belong_to(node, [each.node for each in products])
        node.name = f"{pack.name} {node.op_type}"
        for value in node.outputs:
            value.name = node.name
    graph.insert_before(place, new)
    makers = [each.producer() for each in results]
    for old, made in zip(results, new[-1].outputs, strict=True):
        name, old.name = old.name, None
        old.replace_all_uses_with(made)
        made.name = name
    remove_dead([maker for maker in makers if maker is not None])
    for part in [part for each in packs for part in each.parts]:
        del graph.initializers[part]
    return packs


def _widths(graph: onnx_ir.Graph, counts: Sequence[int]) -> onnx_ir.Value:
    """Return the constant with the widths into which a packed product is split."""
    name = f"widths_{'_'.join(map(str, counts))}"
    if name not in graph.initializers:
        tensor = onnx_ir.tensor(list(counts), dtype=onnx_ir.DataType.INT64, name=name)
        graph.initializers.add(onnx_ir.val(name, const_value=tensor))
    return graph.initializers[name]


def _slot(graph: onnx_ir.Graph, parts: Sequence[onnx_ir.Value]) -> tuple[onnx_ir.Value, Pack]:
    """Make the packed slot for several slots."""
    names = [each.name or "" for each in parts]
    count = sum((sizes(each) or [0])[0] for each in parts)
    made = onnx_ir.Value(
        name=_common_name(names, graph),
        type=parts[0].type,
        shape=onnx_ir.Shape([count, *(sizes(parts[0]) or [])[1:]]),
    )
    made.metadata_props.update(parts[0].metadata_props)
    graph.initializers.add(made)
    return made, Pack(made.name or "", tuple(names))


def _common_name(names: Sequence[str], graph: onnx_ir.Graph) -> str:
    """Name a packed slot after its parts: "attn.q_k.weight" for attn.q.weight and attn.k.weight."""
    split = [name.split(".") for name in names]
    depth = min(map(len, split))
    start = next((n for n in range(depth) if len({each[n] for each in split}) > 1), depth - 1)
    end = next(
        (n for n in range(1, depth - start) if len({each[-n] for each in split}) > 1),
        depth - start,
    )
    middles = [".".join(each[start : len(each) - end + 1]) for each in split]
    name = ".".join([*split[0][:start], "_".join(middles), *split[0][len(split[0]) - end + 1 :]])
    while name in graph.initializers:
        name += "_packed"
    return name

"""Repairs graphs that torch.onnx made, before they are optimized.

Without these repairs, the graphs would be wrong, or ONNX Runtime would reject them or crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ._walking import all_nodes, graphs_of

if TYPE_CHECKING:
    import onnx_ir


def mend(model: onnx_ir.Model) -> None:
    """Repair known errors in a graph, and parts that ONNX Runtime rejects or crashes on."""
    _rename_inputs(model)
    _remove_zero_biases(model)
    _find_nothing_in_nothing(model)
    _forget_sizes_of_branches(model)
    _make_columns_of_vectors(model)
    _calculate_bools_by_logic(model)
    _choose_bools_by_logic(model)
    _vary_nested_tests(model)


def _rename_inputs(model: onnx_ir.Model) -> None:
    """Rename inputs to which torch.onnx has given the name of a weight."""
    for value in model.graph.inputs:
        if model.graph.initializers.get(value.name, value) is not value:
            value.name = f"input.{value.name}"


def _remove_zero_biases(model: onnx_ir.Model) -> None:
    """Remove the two-dimensional zero bias that torch.onnx adds to a Conv3d without a bias.

    Without this function, only torch's optimizer would repair the bias.
    """
    from .._fusing.matching import remove_dead  # which needs onnx_ir

    for node in all_nodes(model):
        bias = node.inputs[2] if node.op_type == "Conv" and len(node.inputs) > 2 else None
        if bias is not None and (maker := bias.producer()) and _is_expanded_zero(maker):
            node.replace_input_with(2, None)
            remove_dead([maker])


def _is_expanded_zero(node: onnx_ir.Node) -> bool:
    from .._fusing.matching import made_by, scalar

    filled = node.inputs[0] if node.op_type == "Expand" else None
    cast = made_by(filled, "Cast", "CastLike")
    return scalar(filled if cast is None else cast.inputs[0]) == 0


def _find_nothing_in_nothing(model: onnx_ir.Model) -> None:
    """Make any() of an empty tensor False; torch.onnx takes a maximum, the lowest int64.

    A sum of zeros and ones is used instead, which is also correct without elements.
    """
    for node in all_nodes(model):
        cast = node.inputs[0].producer() if node.op_type == "ReduceMax" else None
        if cast is not None and cast.op_type == "Cast" and _is_bool(cast.inputs[0]):
            node.op_type = "ReduceSum"


def _is_bool(value: onnx_ir.Value | None) -> bool:
    if value is None or value.dtype is not None:
        return value is not None and value.dtype.name == "BOOL"
    cast = value.producer()  # nodes added by torch.onnx have no type yet
    if cast is not None and cast.op_type == "CastLike":
        return _is_bool(cast.inputs[1])
    to = cast.attributes.get("to") if cast is not None and cast.op_type == "Cast" else None
    return to is not None and to.as_int() == 9  # TensorProto.BOOL


def _forget_sizes_of_branches(model: onnx_ir.Model) -> None:
    """Replace torch's shapes inside branches by those that can be inferred from outside.

    In a branch for `n == 2` (or for `n <= 2` if n is at least 2), torch knows that n is 2. The
    optimizer copies the shape of the result of an Identity to its input, and thus to all branches,
    and ONNX Runtime allocates memory by the shapes in a branch, whatever n is.
    """
    import onnx_ir

    for node in list(all_nodes(model)):
        for branch in graphs_of(node) if node.op_type == "If" else ():
            for each in _inside(branch, model):
                for value in each.outputs:
                    if value.shape is not None:
                        value.shape = onnx_ir.Shape([None] * len(value.shape))
            for outside, inside in zip(node.outputs, branch.outputs, strict=True):
                inside.shape = None if outside.shape is None else onnx_ir.Shape(outside.shape)


def _inside(
    graph: onnx_ir.Graph | onnx_ir.Function, model: onnx_ir.Model
) -> Iterator[onnx_ir.Node]:
    """Yield the nodes of a branch, and of the functions that the branch calls."""
    import onnx_ir

    for node in onnx_ir.traversal.RecursiveGraphIterator(graph):
        yield node
        function = model.functions.get(node.op_identifier())
        if function is not None:
            yield from _inside(function, model)


def _make_columns_of_vectors(model: onnx_ir.Model) -> None:
    """Multiply a transposed matrix by a vector as if the vector were a one-column matrix.

    ONNX Runtime (1.31 and 1.32) merges Transpose and MatMul into one operator, which returns wrong
    values if the second operand is a vector.
    """
    for node in list(all_nodes(model)):
        if node.op_type == "MatMul" and _is_transposed(node.inputs[0]):
            shape = node.inputs[1].shape if node.inputs[1] is not None else None
            if shape is not None and len(shape) == 1:
                _make_column(node)


def _is_transposed(value: onnx_ir.Value | None) -> bool:
    node = value.producer() if value is not None else None
    while node is not None and node.op_type in ("Cast", "Identity"):
        before = node.inputs[0]
        node = before.producer() if before is not None else None
    return node is not None and node.op_type == "Transpose"


def _make_column(node: onnx_ir.Node) -> None:
    import onnx_ir

    last = onnx_ir.tensor([-1], dtype=onnx_ir.DataType.INT64, name=f"{node.outputs[0].name}.axes")
    axes = onnx_ir.node("Constant", [], {"value": last})
    column = onnx_ir.node("Unsqueeze", [node.inputs[1], axes.outputs[0]])
    product = onnx_ir.node("MatMul", [node.inputs[0], column.outputs[0]])
    vector = onnx_ir.node("Squeeze", [product.outputs[0], axes.outputs[0]])
    _replace(node, [axes, column, product, vector])


_LOGIC = {"Add": "Or", "Max": "Or", "Mul": "And", "Min": "And"}
"""Operators that torch has for bools but ONNX only for numbers, and their logical equivalents."""


def _calculate_bools_by_logic(model: onnx_ir.Model) -> None:
    """Replace arithmetic operators on bools with Or and And."""
    for node in all_nodes(model):
        if node.op_type in _LOGIC and node.domain == "" and len(node.inputs) == 2:
            if all(map(_is_bool, node.inputs)):
                node.op_type = _LOGIC[node.op_type]


def _choose_bools_by_logic(model: onnx_ir.Model) -> None:
    """Choose between bools by And and Or: ONNX Runtime (1.31 and 1.32) has no Where for bools."""
    import onnx_ir

    for node in list(all_nodes(model)):
        if node.op_type == "Where" and any(_is_bool(each) for each in node.inputs[1:] if each):
            test, one, other = node.inputs
            taken = onnx_ir.node("And", [test, one])
            otherwise = onnx_ir.node("Not", [test])
            left = onnx_ir.node("And", [otherwise.outputs[0], other])
            either = onnx_ir.node("Or", [taken.outputs[0], left.outputs[0]])
            _replace(node, [taken, otherwise, left, either])


def _replace(node: onnx_ir.Node, made: list[onnx_ir.Node]) -> None:
    """Replace a node by several nodes, the last of which returns the only result."""
    import onnx_ir

    for at, each in enumerate(made):
        each.metadata_props.update(node.metadata_props)
        each.outputs[0].name = f"{node.outputs[0].name}.{each.op_type}_{at}"
    onnx_ir.convenience.replace_nodes_and_values(
        node.graph, node, [node], made, node.outputs, made[-1].outputs
    )


def _vary_nested_tests(model: onnx_ir.Model) -> None:
    """Make conditions on weights alone depend on an input if they are nested in each other.

    ONNX Runtime (1.31 and 1.32) evaluates conditions on constants when it loads a graph, and may
    crash if the branch that it takes has another such condition.
    """
    if model.graph.inputs:
        _NestedTests(model.graph.inputs).visit(model.graph, False)


class _NestedTests:
    """Visits a graph, its branches and the bodies of its loops."""

    def __init__(self, inputs: Sequence[onnx_ir.Value]) -> None:
        self.input = inputs[0]
        self.varying = {id(value) for value in inputs}
        """The values that depend on inputs, or on the iteration of a loop."""

    def visit(self, graph: onnx_ir.Graph, is_decided: bool) -> bool:
        """Return whether anything in a graph depends on inputs.

        Args:
            graph: the graph of the model, a branch, or the body of a loop.
            is_decided: True if the graph is in a branch of a condition that depends on no input.
        """
        varying = [self._visit_node(node, is_decided) for node in list(graph)]
        return any(varying)

    def _visit_node(self, node: onnx_ir.Node, is_decided: bool) -> bool:
        is_constant = node.op_type == "If" and id(node.inputs[0]) not in self.varying
        if is_constant and is_decided:
            self._make_vary(node)
        is_varying = any(id(value) in self.varying for value in node.inputs)
        for inner in graphs_of(node):
            self.varying.update(map(id, inner.inputs))
            inside = self.visit(inner, is_decided or is_constant)
            is_varying = is_varying or inside or bool(inner.inputs)
        if is_varying:
            self.varying.update(map(id, node.outputs))
        return is_varying

    def _make_vary(self, node: onnx_ir.Node) -> None:
        """Extend a condition by a test on an input's size that is always true."""
        import onnx_ir

        name = f"{node.outputs[0].name}.test"
        size = onnx_ir.node("Size", [self.input])
        same = onnx_ir.node("Equal", [size.outputs[0], size.outputs[0]])
        both = onnx_ir.node("And", [node.inputs[0], same.outputs[0]])
        for each in (size, same, both):
            each.outputs[0].name = f"{name}.{each.op_type}"
        graph = node.graph
        assert graph is not None
        graph.insert_before(node, [size, same, both])
        node.replace_input_with(0, both.outputs[0])

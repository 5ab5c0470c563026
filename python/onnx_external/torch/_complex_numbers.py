"""Converts complex numbers to pairs of real numbers, by torch's own decompositions.

torch.onnx supports about thirty operators on complex values, but not `exp`, `einsum`, writes into
slices or products with `1j`. torch.onnx represents a complex value as a real one with an additional
last dimension of 2. This module instead converts a program to real and imaginary parts. Only
operators without a decomposition, such as Fourier transforms, are left to torch.onnx.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import torch
from torch._guards import detect_fake_mode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from ._complex_operators import INSTEAD, REAL, called, complex_of, is_complex, parts_of

_aten = torch.ops.aten
_ASKED = (_aten.is_pinned.default,)
"""Operators with which a ComplexTensor only queries its parts."""
_SAME = (_aten.clone.default, _aten.detach.default)
"""Operators that a ComplexTensor calls on its parts and that have no effect in a graph."""


class _Pair(NamedTuple):
    """The nodes of the real and the imaginary part of a complex value."""

    re: Node
    im: Node


_Made: TypeAlias = Any
"""A node, a pair, or a list of nodes and pairs for an operator with several results."""


_OF_DECOMPOSITIONS = (NotImplementedError, RuntimeError, AssertionError, TypeError, ValueError)
"""Errors that torch's decompositions raise for unknown operators."""


class _LeftError(Exception):
    """Raised if a program cannot be converted; the program is left unchanged."""


def in_real_numbers(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return an equivalent program in real numbers; the same program if this is not possible.

    Complex inputs, weights and results become tensors of pairs, as in graphs by torch.onnx.
    """
    if not _has_complex(program.graph_module):
        return program
    try:
        from torch._subclasses.complex_tensor import ComplexTensor  # noqa: F401  of torch 2.10
    except ImportError:
        return program
    plain = program
    try:
        with torch.no_grad():
            program = plain.run_decompositions()
            graph, names = _converted(program.graph_module)
    except (_LeftError, *_OF_DECOMPOSITIONS):
        return plain  # torch.onnx may know better
    signature = program.graph_signature
    for spec in signature.output_specs:
        name = getattr(spec.arg, "name", None)
        if name is not None:
            spec.arg.name = names[name]
    return program._update(
        graph,
        signature,
        state_dict={name: paired(each) for name, each in program.state_dict.items()},
        constants={name: paired(each) for name, each in program.constants.items()},
    )


def paired(value: Any) -> Any:
    """Return a complex tensor as pairs of floats, and any other value unchanged."""
    if not is_complex(value):
        return value
    made = torch.view_as_real(value.detach().resolve_conj())
    return torch.nn.Parameter(made, False) if isinstance(value, torch.nn.Parameter) else made


def _has_complex(module: GraphModule) -> bool:
    children = (each for each in module.children() if isinstance(each, GraphModule))
    return any(map(_is_complex, module.graph.nodes)) or any(map(_has_complex, children))


def _is_complex(node: Node) -> bool:
    return any(map(is_complex, pytree.tree_leaves(node.meta.get("val"))))


def _converted(module: GraphModule) -> tuple[GraphModule, dict[str, str]]:
    """Return a graph in real numbers, and the new names of its results by their old names."""
    made = _Conversion(module).run()
    for name, child in module.named_children():
        if isinstance(child, GraphModule):
            if any(map(_is_complex, child.graph.find_nodes(op="placeholder"))):
                raise _LeftError
            inner, _ = _converted(child)
            setattr(module, name, inner)
    for node in made.graph.find_nodes(op="call_function", target=_aten.view.default):
        node.target = _aten.reshape.default  # parts may have another memory layout than the whole
    return GraphModule(module, made.graph), made.names


class _Conversion:
    """Converts one graph to real numbers."""

    def __init__(self, module: GraphModule) -> None:
        self.module = module
        self.graph = Graph()
        self.mode = detect_fake_mode([each.meta.get("val") for each in module.graph.nodes])
        self.made: dict[Node, _Made] = {}
        self.names: dict[str, str] = {}

    def run(self) -> _Conversion:
        """Convert all nodes of the graph to real numbers."""
        for node in self.module.graph.nodes:
            self.made[node] = self._converted(node)
        return self

    def _converted(self, node: Node) -> _Made:
        if node.op == "output":
            return self._output(node)
        if node.op == "placeholder":
            return self._input(node)
        if node.target is operator.getitem and isinstance(self.made.get(node.args[0]), list):
            return self.made[node.args[0]][node.args[1]]
        if not _is_complex(node) and not any(map(_is_complex, node.all_input_nodes)):
            return self.graph.node_copy(node, self.made.__getitem__)
        if node.target is _aten._assert_tensor_metadata.default:  # which asserts that it is complex
            return None
        if not isinstance(node.target, torch._ops.OpOverload):  # an operator of control flow
            raise _LeftError
        return self._operator(node)

    def _input(self, node: Node) -> _Made:
        made = self.graph.node_copy(node)
        if not _is_complex(node):
            return made
        made.meta["val"] = torch.view_as_real(made.meta["val"])
        re, im = self._traced(lambda x: [x.select(-1, 0), x.select(-1, 1)], [made], node)
        return _Pair(re, im)

    def _output(self, node: Node) -> Node:
        def whole(each: Node) -> Node:
            made = self.made[each]
            if isinstance(made, _Pair):
                (made,) = self._traced(lambda *parts: [torch.stack(parts, -1)], list(made), each)
            self.names[each.name] = made.name
            return made

        return self.graph.node_copy(node, whole)

    def _operator(self, node: Node) -> _Made:
        leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
        given = [self.made[each] if isinstance(each, Node) else each for each in leaves]
        nodes = [part for each in given for part in _nodes_of(each)]
        is_one, is_pair = True, [False]

        def call(*values: Any) -> list[Any]:
            nonlocal is_one, is_pair
            rest = iter(values)
            args, kwargs = pytree.tree_unflatten([_value(each, rest) for each in given], spec)
            result = called(node.target, args, dict(kwargs))
            is_one = not isinstance(result, (list, tuple))
            results = [result] if is_one else list(result)
            is_pair = [is_complex(each) for each in results]
            return [part for each in results for part in parts_of(each)]

        parts = iter(self._traced(call, nodes, node))
        found = [_Pair(next(parts), next(parts)) if pair else next(parts) for pair in is_pair]
        return found[0] if is_one else found

    def _traced(self, call: Callable[..., list[Any]], given: list[Node], of: Node) -> list[Node]:
        """Add the operations of a function to the graph in place of a node; return the results."""
        values = [each.meta["val"] for each in given]
        with self.mode or contextlib.nullcontext():
            traced = make_fx(call, INSTEAD, tracing_mode="symbolic")(*values)
        known: dict[Node, Any] = dict(
            zip(traced.graph.find_nodes(op="placeholder"), given, strict=True)
        )
        for node in traced.graph.nodes:
            if node.op == "placeholder" or node.target in _ASKED:
                continue
            if node.op == "output":
                found: list[Node] = [known[each] for each in node.args[0]]
                return found
            if node.target in _SAME:
                known[node] = known[node.args[0]]
                continue
            if node.op == "get_attr":
                known[node] = self._constant(getattr(traced, node.target), of)
            else:
                known[node] = self.graph.node_copy(node, known.__getitem__)
            for name in ("stack_trace", "nn_module_stack", "torch_fn"):
                if name in of.meta:
                    known[node].meta[name] = of.meta[name]
        raise AssertionError("a traced graph has no output")

    def _constant(self, value: torch.Tensor, of: Node) -> Node:
        """Create a node for a number that was an operand, because a program has no attributes."""
        if value.numel() != 1:
            raise _LeftError
        shape, number, kind = list(value.shape), value.reshape(()).item(), value.dtype

        def made() -> list[torch.Tensor]:
            if not isinstance(number, complex):
                return [torch.full(shape, number, dtype=kind)]
            parts = [torch.full(shape, e, dtype=REAL[kind]) for e in (number.real, number.imag)]
            return [torch.view_as_complex(torch.stack(parts, -1))]

        return self._traced(made, [], of)[0]


def _nodes_of(made: _Made) -> Iterator[Node]:
    if isinstance(made, _Pair):
        yield from made
    elif isinstance(made, Node):
        yield made


def _value(made: _Made, values: Iterator[Any]) -> Any:
    """Return the traced operand for a node or a pair, and any other value unchanged."""
    if isinstance(made, _Pair):
        return complex_of(next(values), next(values))
    return next(values) if isinstance(made, Node) else made

"""Merges a decoder's graphs for the prompt and for the steps into one graph.

`decoder_model_merged.onnx`, or `model.onnx` for a decoder-only model, contains one If node, which
depends on `use_cache_branch`. The weights are outside its branches, so both branches use the same
weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .._comparing.chaining import USES_CACHE
from .._folders.models import ENCODER, merged_name, pair_names
from ..torch._skeleton import described
from ..torch._walking import all_nodes, graphs_of
from ._naming import SEQUENCE, order, output_of
from ._saving import Graph

if TYPE_CHECKING:
    import onnx_ir


def merged(graphs: Mapping[str, Graph], keeps_step: bool = False) -> dict[str, Graph]:
    """Return the graphs of a model, in which one graph replaces the two graphs of the decoder.

    Args:
        graphs: the traced graphs, by name.
        keeps_step: also keep the graph for the steps.
    """
    prompt, step = pair_names(ENCODER in graphs)
    if not {prompt, step} <= graphs.keys():
        return dict(graphs)
    others = {name: graph for name, graph in graphs.items() if name != prompt}
    if not keeps_step:
        del others[step]
    name = merged_name(ENCODER in graphs)
    return {**others, name: _Merge(graphs[prompt], graphs[step], name).graph()}


class _Merge:
    """Merges two graphs into a new one, without changing them."""

    def __init__(self, prompt: Graph, step: Graph, name: str) -> None:
        self._prompt, self._step, self._name = prompt, step, name
        self._inputs: dict[str, onnx_ir.Value] = {}
        self._weights: dict[str, onnx_ir.Value] = {}
        self._made: dict[str, Any] = {}
        self._origins: dict[str, str] = {}

    def graph(self) -> Graph:
        import onnx_ir as ir

        prompt, step = (each.skeleton.model.clone() for each in (self._prompt, self._step))
        given = {value.name: value for value in (*prompt.graph.outputs, *step.graph.outputs)}
        varying = {each.name: each.shape for each in prompt.graph.outputs}
        names = [each.name for each in step.graph.outputs]
        names += [name for name in given if name not in names and _is_of_encoder(name)]
        names.sort(key=lambda name: order(name or ""))
        shapes = {n: _of_both(varying.get(n), given[n].shape) for n in names}
        outputs = [ir.Value(name=n, type=given[n].type, shape=shapes[n]) for n in names]
        # What the steps leave out is what they were given.
        handed_on = {output_of(v.name or ""): v.name for v in step.graph.inputs}
        one = self._branch(prompt, self._prompt, names, {}, "prompt/")
        other = self._branch(step, self._step, names, handed_on, "step/")
        flag = ir.Value(name=USES_CACHE, type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([1]))
        branches = [ir.AttrGraph("then_branch", other), ir.AttrGraph("else_branch", one)]
        node = ir.Node("", "If", [flag], branches, outputs=outputs, name="use_cache_or_not")
        plain = [value for name, value in self._inputs.items() if "." not in name]
        caches = [value for name, value in self._inputs.items() if "." in name]
        whole = ir.Graph(
            [*plain, *caches, flag],
            outputs,
            nodes=[node],
            initializers=list(self._weights.values()),
            opset_imports={**prompt.graph.opset_imports, **step.graph.opset_imports},
            name=self._name,
        )
        model = ir.Model(
            whole,
            ir_version=max(prompt.ir_version, step.ir_version),
            producer_name=step.producer_name,
            producer_version=step.producer_version,
            functions=list({**prompt.functions, **step.functions}.values()),
            metadata_props=dict(step.metadata_props),
        )
        return Graph(described(model, self._origins), self._made, self._step.sizes)

    def _branch(
        self,
        model: onnx_ir.Model,
        source: Graph,
        names: Iterable[str],
        handed_on: Mapping[str, str | None],
        prefix: str,
    ) -> onnx_ir.Graph:
        """Make a branch from a graph; its inputs and weights move into the surrounding graph."""
        import onnx_ir as ir

        rename_computed(model, prefix)
        given = {v.name.removeprefix(prefix): v for v in model.graph.outputs if v.name}
        model.graph.outputs.clear()
        self._share_weights(model, source, prefix)
        for value in list(model.graph.inputs):
            outer = self._input(value)
            given = {name: outer if each is value else each for name, each in given.items()}
            ir.convenience.replace_all_uses_with(value, outer)
        model.graph.inputs.clear()
        nodes = list(model.graph)
        model.graph.remove(nodes)
        made = {id(value) for node in nodes for value in node.outputs}
        outputs: list[onnx_ir.Value] = []
        for name in names:
            found = given.get(name) or self._inputs[str(handed_on[name])]
            if id(found) not in made or found in outputs:  # a branch gives what it computes
                node = ir.Node("", "Identity", [found], name=f"{prefix}hand_on/{name}")
                node.outputs[0].name, node.outputs[0].type = f"{prefix}{name}", found.type
                nodes.append(node)
                found = node.outputs[0]
            found.shape = None  # the sizes have names in the graph around it
            outputs.append(found)
        return ir.Graph([], outputs, nodes=nodes, name=f"{prefix}branch")

    def _input(self, value: onnx_ir.Value) -> onnx_ir.Value:
        """Return the input of the merged graph that corresponds to an input of a branch."""
        import onnx_ir as ir

        name = value.name or ""
        before = self._inputs.get(name)
        if before is None:
            before = ir.Value(name=name, type=value.type, shape=value.shape)
            self._inputs[name] = before
        elif before.shape is not None and value.shape is not None:
            dims = zip(before.shape, value.shape, strict=True)
            before.shape = ir.Shape([one if isinstance(two, int) else two for one, two in dims])
        return before

    def _share_weights(self, model: onnx_ir.Model, source: Graph, prefix: str) -> None:
        """Move weights and constants out of a branch, so that both branches share them."""
        import onnx_ir as ir

        for name, value in list(model.graph.initializers.items()):
            del model.graph.initializers[name]
            made = source.made.get(name)
            before = self._weights.get(name)
            if before is not None and self._made.get(name) == made and _equal(before, value):
                ir.convenience.replace_all_uses_with(value, before)
                continue
            new = name if before is None else f"{prefix}{name}"
            value.name = new
            self._weights[new] = value
            if made is not None:
                self._made[new] = made
            if name in source.skeleton.constants:
                self._origins[new] = source.skeleton.constants[name]


def _of_both(prompt: onnx_ir.Shape | None, step: onnx_ir.Shape | None) -> onnx_ir.Shape | None:
    """Return the shape of an output for both branches.

    A step may have a fixed length of one token where a prompt has several.
    """
    import onnx_ir as ir

    if prompt is None or step is None:
        return step
    pairs = zip(prompt, step, strict=True)
    return ir.Shape(
        [one if isinstance(two, int) and one == SEQUENCE else two for one, two in pairs]
    )


def _is_of_encoder(name: str | None) -> bool:
    return str(name).startswith("present.") and ".encoder." in str(name)


def _equal(one: onnx_ir.Value, other: onnx_ir.Value) -> bool:
    """Return whether two weights have equal types, shapes and, if they have any, values."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    first, second = one.const_value, other.const_value
    if first is None or second is None:
        return first is second
    return bool(first.numpy().tobytes() == second.numpy().tobytes())


def rename_computed(model: onnx_ir.Model, prefix: str) -> None:
    """Rename the results of nodes so that their names are unique outside the branch."""
    for node in all_nodes(model):
        node.name = f"{prefix}{node.name or node.op_type}"
        inner = [value for graph in graphs_of(node) for value in graph.inputs]
        kept = [v for graph in graphs_of(node) for v in graph.initializers.values()]
        for value in {id(v): v for v in (*node.outputs, *inner, *kept)}.values():
            if value.name:
                value.name = f"{prefix}{value.name}"

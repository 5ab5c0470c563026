"""Stores weights transposed, so that the graph needs no Transpose nodes.

torch's exporter puts a Transpose between the weight of a linear layer and its MatMul, and torch's
optimizer folds the Transpose into the weight. A graph that is exported without weights, or without
the optimizer, keeps the node, and quantizers that look for the weight of a MatMul do not find it.
The functions in this module replace the weight and its Transpose in the graph by an initializer of
the reversed shape, and a save transposes the weight while it is written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .._base.errors import InvalidArgumentError

if TYPE_CHECKING:
    import onnx_ir

    from .reports import SavedTensor, SaveReport
    from .sharing import Filling

_FOLDED = "pkg.onnxscript.optimizer.folded_from"
_TRANSPOSED = "pkg.onnx_external.transposed"
"""Metadata on a value into which only a Transpose was folded (src/onnx/exporter_marks.h)."""


def wanted(
    asked: bool | None,
    layout: str,
    weights: object,
    learn_map: object,
    models: Mapping[str, onnx_ir.Model] | None,
) -> bool:
    """Return whether a save transposes weights; if `asked` is None, it does where possible.

    Raises:
        InvalidArgumentError: `asked` is True, but transposing is not possible.
    """
    refuse_linked(asked, layout)
    reason = ""
    if layout == "link":
        return False
    if weights is None:
        reason = "no weights are given; pass those of a module with weights=module.state_dict()"
    elif models is None:
        reason = (
            "the model is neither an ONNXProgram of torch.onnx.export nor an onnx_ir.Model; "
            "onnx_ir.load(FILE) and onnx_ir.from_proto(PROTO) make one"
        )
    elif learn_map is not None:
        reason = "with learn_map, the slots of the graph are compared with its old weights"
    if asked and reason:
        raise InvalidArgumentError(f"transpose_weights=True: {reason}")
    return asked is not False and not reason


def refuse_linked(asked: bool | None, layout: object) -> None:
    """Raise an error if weights are to be transposed but not copied."""
    if asked and layout == "link":
        raise InvalidArgumentError(
            "transpose_weights=True: layout='link' refers to unchanged bytes of the checkpoint; "
            "choose a layout that copies them, such as layout='single', or leave "
            "transpose_weights=True out"
        )


def ir_models(models: Mapping[str, Any]) -> dict[str, onnx_ir.Model] | None:
    """Return the onnx_ir models by name; None if a model is of another kind."""
    ir = sys.modules.get("onnx_ir")
    found = {name: getattr(model, "model", model) for name, model in models.items()}
    every = ir is not None and all(isinstance(model, ir.Model) for model in found.values())
    return found if every else None


def _transposes(value: onnx_ir.Value) -> list[onnx_ir.Node]:
    """Return the Transpose nodes that use a matrix; an empty list if anything else uses it."""
    if value.is_graph_output() or value.shape is None or len(value.shape) != 2:
        return []
    nodes = {node: None for node, _ in value.uses()}
    for node in nodes:
        perm = node.attributes.get("perm")
        if (
            node.op_type != "Transpose"
            or node.domain not in ("", "ai.onnx")
            or node.graph is None
            or (perm is not None and list(perm.as_ints()) != [1, 0])
            or node.outputs[0].is_graph_output()
        ):
            return []
    return list(nodes)


def transposable(model: onnx_ir.Model) -> set[str]:
    """Return the names of the main graph's matrices that only Transpose nodes use.

    The Transpose nodes may be in the branches of an If.
    """
    return {
        name
        for name, value in model.graph.initializers.items()
        if f"{name}.transposed" not in model.graph.initializers and _transposes(value)
    }


def transposed_model(model: onnx_ir.Model, names: Set[str]) -> onnx_ir.Model:
    """Return a copy of the model in which initializers of reversed shape replace the given weights.

    The metadata of the new initializer names the original weight and marks it as transposed, so
    that even a square weight is filled correctly (docs/mapping.md).
    """
    import onnx_ir

    model = model.clone()
    graph = model.graph
    for name in [name for name in graph.initializers if name in names]:
        value = graph.initializers[name]
        nodes = _transposes(value)
        assert value.shape is not None
        made = onnx_ir.Value(
            name=f"{name}.transposed", type=value.type, shape=onnx_ir.Shape(reversed(value.shape))
        )
        made.metadata_props.update(value.metadata_props)
        made.metadata_props[_FOLDED] = repr([name])
        made.metadata_props[_TRANSPOSED] = "True"
        graph.initializers.add(made)
        for node in nodes:
            onnx_ir.convenience.replace_all_uses_with(node.outputs[0], made)
            if node.graph is not None:
                node.graph.remove(node, safe=True)
        del graph.initializers[name]
    return model


def chosen(
    candidates: Sequence[Set[str]], planned: Sequence[Sequence[SavedTensor | Filling]]
) -> list[dict[str, SavedTensor | Filling]]:
    """Return the weights of each graph to transpose, given a plan that transposes nothing.

    A weight whose stored data is also needed untransposed, such as by the Gather of a tied
    embedding or by another graph, is left out, because its data would be stored twice.
    """

    def place(tensor: SavedTensor | Filling) -> tuple[str, int] | None:
        return None if tensor.file is None or not tensor.length else (tensor.file, tensor.offset)

    fixed = {
        place(tensor)
        for names, tensors in zip(candidates, planned, strict=True)
        for tensor in tensors
        if tensor.slot not in names or tensor.key is None
    } - {None}
    return [
        {
            tensor.slot: tensor
            for tensor in tensors
            if tensor.slot in names and tensor.key is not None and place(tensor) not in fixed
        }
        for names, tensors in zip(candidates, planned, strict=True)
    ]


class Learned:
    """The plans of saves that transpose nothing, by their models.

    A plan is used again by a later save of the same models, with the same weights and mapping.
    """

    def __init__(self) -> None:
        self._plans: dict[tuple[int, ...], _Plan] = {}

    def tensors(
        self, models: Sequence[onnx_ir.Model], layout: str, plan: Callable[[], SaveReport]
    ) -> list[list[SavedTensor]]:
        """Return the tensors of each model in the plan.

        Args:
            models: the models, which may have other file names than in the earlier save.
            layout: the layout; data in the model file has no place that it could share.
            plan: a function that makes the plan.
        """
        key = (int(layout == "inline"), *map(id, models))
        if key not in self._plans:
            tensors = [each.tensors for each in plan().models]
            self._plans[key] = _Plan(tensors, list(models))
        return self._plans[key].tensors


class _Plan(NamedTuple):
    tensors: list[list[SavedTensor]]
    models: list[onnx_ir.Model]
    """The models, which keep their ids while this object exists."""


def moved_pairs(
    options: Mapping[str, Any],
    models: Sequence[str],
    planned: Sequence[Sequence[SavedTensor | Filling]],
    turned: Sequence[Mapping[str, SavedTensor | Filling]],
) -> dict[str, Any]:
    """Return the option `map` with entries for weights changed to entries for the transposed slots.

    Args:
        options: the options of the save.
        models: the names of the graphs, or [""] for a single graph.
        planned: the tensors of each graph.
        turned: the result of `chosen`.
    """
    pairs = [
        (name, tensor)
        for name, each in zip(models, turned, strict=True)
        for tensor in each.values()
        if tensor.rule == "map"
    ]
    if not pairs:
        return {}
    stay = {
        tensor.slot
        for tensors, each in zip(planned, turned, strict=True)
        for tensor in tensors
        if tensor.slot not in each
    }
    gone = {tensor.slot for _, tensor in pairs} - stay
    document = map_document(options["map"])
    common = {slot: key for slot, key in document["map"].items() if slot not in gone}
    own = {name: dict(slots) for name, slots in document["models"].items()}
    for name, tensor in pairs:
        entries = own.setdefault(name, {}) if name else common
        entries.pop(tensor.slot, None)
        entry = {"key": tensor.key, "recipe": _turned(tensor.recipe)}
        entries[f"{tensor.slot}.transposed"] = entry
    return {"map": _without_empty({**document, "map": common, "models": own})}


def with_pairs(pairs: Mapping[str, str], given: Any) -> Any:
    """Add pairs of slot and key to the option `map`; pairs that it already has take priority.

    If a file is not a map, its path is returned unchanged, so that the save reports the fault.
    """
    if not pairs:
        return given
    try:
        document = map_document(given)
    except (AttributeError, OSError, TypeError, ValueError):
        return given
    return _without_empty({**document, "map": {**pairs, **document["map"]}})


def _without_empty(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in document.items() if part}


def map_document(given: Any) -> dict[str, dict[str, Any]]:
    """Return the sections of a map file (docs/mapping.md); sections that it lacks are empty."""
    if given is not None and not isinstance(given, Mapping):
        given = json.loads(Path(given).read_text("utf-8"))
    parts = {name: (given or {}).get(name) for name in ("derived", "map", "models")}
    if not any(isinstance(part, Mapping) for part in parts.values()):
        parts = {"map": given}  # a plain list of slots
    return {name: dict(parts.get(name) or {}) for name in ("derived", "map", "models")}


def _turned(recipe: Sequence[Any]) -> list[Any]:
    """Return the recipe with a transpose appended, or inserted before a final cast."""
    steps = list(recipe)
    if steps and steps[-1] == "cast":
        return [*steps[:-1], "transpose", "cast"]
    return [*steps, "transpose"]

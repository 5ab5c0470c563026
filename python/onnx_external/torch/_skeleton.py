"""Represents a graph without weights: typed slots for parameters, and all other values."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.argument_types import checks_types
from .._base.errors import ExistsError, InvalidArgumentError
from .._saving.transposing import transposable, transposed_model
from .._tracing.silence import quiet
from ._metadata import drop_unread, fold_metadata
from ._opsets import with_opset
from ._untouched import has_no_data
from ._walking import all_nodes, graphs_of

if TYPE_CHECKING:
    import onnx_ir

_KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
_PERSISTENT = "pkg.torch.export.graph_signature.InputSpec.persistent"
_FOLDED = "pkg.onnxscript.optimizer.folded_from"
_WITHOUT_DATA = "pkg.onnx_external.without_data"
"""Metadata that says that no optimizer can have merged the slot with an equal constant."""

_MOST_BYTES = 2**31 - 1
"""Protobuf's limit on the size of a model."""
_SHOWN = 8
"""The maximum number of names that a message lists."""


@dataclass(frozen=True)
class Slot:
    """A weight of the graph that a checkpoint has to fill."""

    name: str
    """The name of the initializer."""
    dtype: str
    """The type in ONNX's spelling, such as "FLOAT" or "BFLOAT16"."""
    shape: tuple[int, ...]
    """The shape that the graph states."""
    kind: str
    """The kind: "parameter" or "buffer"."""


@dataclass
class Skeleton:
    """A graph whose weights are typed slots without data.

    `oe.save(skeleton, path, weights)` fills the slots, as does the command `save-external` after
    `save()` has written the skeleton to a file.
    """

    model: onnx_ir.Model
    """The graph as an onnx_ir model."""
    slots: dict[str, Slot]
    """The weights that a checkpoint has to fill, by name."""
    constants: dict[str, str] = field(default_factory=dict)
    """The initializers that have values, with their origin: "init" (the module) or "constant" (the
    trace or the optimizer)."""
    left: dict[str, int] = field(default_factory=dict)
    """The optimizations that need the weights and were left out, with their number."""
    ties: dict[str, list[str]] = field(default_factory=dict)
    """Other names that the tensor of a slot has in the module."""
    guards: list[str] = field(default_factory=list)
    """The assumptions of the trace about sizes: for other sizes, the graph may be wrong."""

    def named(self) -> set[str]:
        """Return the names that the slots' tensors have in a state dict, including tied names."""
        return set(self.slots).union(*self.ties.values())

    def SerializeToString(self) -> bytes:
        """Return the model as serialized bytes, as the method of a protobuf message does."""
        import onnx_ir

        held = sum(
            value.const_value.nbytes
            for value in self.model.graph.initializers.values()
            if value.const_value is not None
        )
        if held > _MOST_BYTES:
            raise InvalidArgumentError(
                f"the constants and buffers of the graph have {held} bytes, more than a model file "
                "can contain; make them parameters or persistent buffers, which a checkpoint fills"
            )
        with quiet():
            return bytes(onnx_ir.to_proto(self.model).SerializeToString())

    def transposed(self) -> Skeleton:
        """Return a skeleton in which transposed slots replace weights that only a Transpose uses.

        A weight that is also used untransposed, such as a tied embedding, keeps its Transpose node.
        """
        names = transposable(self.model)
        together = {name: {name, *self.ties.get(name, ())} & self.slots.keys() for name in names}
        turned = {name for name in names & self.slots.keys() if together[name] <= names}
        if not turned:
            return self
        made = described(transposed_model(self.model, turned), self.constants)
        made.ties = {name: names for name, names in self.ties.items() if name in made.slots}
        made.guards = self.guards
        return made

    @checks_types
    def save(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        transpose_weights: bool = True,
    ) -> None:
        """Write the graph to a file, completely or not at all.

        Args:
            path: the file, such as "graph.onnx".
            overwrite: replace an existing file.
            transpose_weights: write `transposed()`. False is needed for layout="link".

        Raises:
            ExistsError: the file exists, and `overwrite` is False.
        """
        target = Path(path)
        if target.exists() and not overwrite:
            raise ExistsError(f"{target}: exists; overwrite=True replaces it")
        data = (self.transposed() if transpose_weights else self).SerializeToString()
        with tempfile.NamedTemporaryFile(
            dir=target.parent, prefix=target.name, delete=False
        ) as out:
            try:
                out.write(data)
                out.flush()
                os.chmod(out.name, 0o644)
                os.replace(out.name, target)
            except BaseException:
                os.unlink(out.name)
                raise


def _is_slot(value: onnx_ir.Value) -> bool:
    """Return whether a value is in state dicts, as a parameter or a persistent buffer."""
    kind, persistent = value.metadata_props.get(_KIND), value.metadata_props.get(_PERSISTENT)
    return bool(kind == "PARAMETER" or (kind == "BUFFER" and persistent == "True"))


def _make_slot(value: onnx_ir.Value) -> Slot:
    assert value.name is not None and value.dtype is not None and value.shape is not None
    kind = "buffer" if value.metadata_props.get(_KIND) == "BUFFER" else "parameter"
    return Slot(value.name, value.dtype.name, tuple(int(dim) for dim in value.shape), kind)


def _listed(names: Collection[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(sorted(names)[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _refuse_without_data(names: list[str]) -> None:
    raise InvalidArgumentError(
        f"{_listed(names)}: the graph needs the values of these buffers and constants, but neither "
        "a checkpoint nor the module has them; instead of a module on meta, give a function that "
        "makes the module, so that the values are computed, or extra={name: tensor}"
    )


def _refuse_folded(names: list[str]) -> None:
    raise InvalidArgumentError(
        f"{_listed(names)}: the optimizer computed these from weights, so no checkpoint has their "
        "values; export with optimize=False (the graph is optimized afterwards)"
    )


def make_skeleton(
    model: onnx_ir.Model,
    extra: Mapping[str, Any],
    keep: Collection[str],
    optimize: Callable[[onnx_ir.Model], onnx_ir.Model],
) -> Skeleton:
    """Remove the weights from an exported graph, and optimize the rest.

    Args:
        model: the model exported with optimize=False, which is changed.
        extra: values for buffers and constants.
        keep: initializers that keep their values although a state dict has them.
        optimize: a function that optimizes the model.
    """
    initializers = model.graph.initializers
    folded = [
        name
        for name, value in initializers.items()
        if value.metadata_props.get(_FOLDED, "[]") != "[]"
    ]
    if folded:
        _refuse_folded(folded)
    _give(initializers, extra)
    _remove_unused(model)
    empty = []
    for name, value in initializers.items():
        if _is_slot(value) and name not in extra and name not in keep:
            value.const_value = None
        elif value.const_value is None or _stands_for_one(value.const_value):
            empty.append(name)
    if empty:
        _refuse_without_data(empty)
    init = _of_module(model)
    fold_metadata(model)
    with quiet():
        model = optimize(model)
    drop_unread(model)
    _remove_unused(model)  # code without effect used them
    _fix_dimensions(model)
    return described(model, dict.fromkeys(init | _of_module(model), "init"))


def _stands_for_one(tensor: Any) -> bool:
    """Return whether an exporter's tensor wraps a torch tensor without data."""
    import torch

    raw = getattr(tensor, "raw", None)
    return isinstance(raw, torch.Tensor) and has_no_data(raw)


def _remove_unused(model: onnx_ir.Model) -> None:
    """Remove initializers that neither a node (even in branches and loops) nor an output uses."""
    import onnx_ir

    nodes = onnx_ir.traversal.RecursiveGraphIterator(model.graph)  # uses() knows removed ones, too
    used = {id(value) for node in nodes for value in node.inputs}
    initializers = model.graph.initializers
    for name, value in list(initializers.items()):
        if id(value) not in used and not value.is_graph_output():
            del initializers[name]


def _of_module(model: onnx_ir.Model) -> set[str]:
    """Return the names of the initializers that are tensors of the module."""
    return {
        name
        for name, value in model.graph.initializers.items()
        if value.metadata_props.get(_KIND) in ("BUFFER", "PARAMETER")
    }


def _fix_dimensions(model: onnx_ir.Model) -> None:
    """Make dimensions of inputs constant that were meant to be dynamic but were fixed by the trace.

    torch's exporter turns such numbers into names, for which a runtime accepts any size.
    """
    import onnx_ir

    for value in model.graph.inputs:
        if value.shape is not None:
            value.shape = onnx_ir.Shape(
                int(name) if (name := str(getattr(dim, "value", dim))).isdigit() else dim
                for dim in value.shape
            )


def _give(initializers: Any, extra: Mapping[str, Any]) -> None:
    """Store the caller's values in buffers and constants of the graph."""
    import onnx_ir

    unknown = [name for name in extra if name not in initializers]
    if unknown:
        raise InvalidArgumentError(f"extra: the graph has no {_listed(unknown)}")
    for name, given in extra.items():
        value = initializers[name]
        tensor = given.detach().cpu()
        new = onnx_ir.tensor(tensor, name=name)
        if (new.dtype, new.shape) != (value.dtype, value.shape):
            raise InvalidArgumentError(
                f"extra: {name} is {value.dtype} {value.shape} in the graph, not "
                f"{new.dtype} {new.shape}"
            )
        value.const_value = new


def for_opset(skeleton: Skeleton, version: int) -> Skeleton:
    """Return a skeleton with another opset version; the given skeleton is unusable afterwards.

    Raises:
        InvalidArgumentError: the version cannot express the graph.
    """
    model = with_opset(skeleton.model, version)
    _remove_unused(model)
    made = described(model, skeleton.constants)
    made.ties, made.guards = skeleton.ties, skeleton.guards
    return made


def described(model: onnx_ir.Model, origins: Mapping[str, str]) -> Skeleton:
    """Return the skeleton of a graph whose weights have no values.

    Args:
        model: the graph.
        origins: the origins of initializers with values, by name, as in `Skeleton.constants`.
    """
    slots, constants = {}, {}
    for name, value in model.graph.initializers.items():
        if value.const_value is None:
            slots[name] = _make_slot(value)
            value.metadata_props[_WITHOUT_DATA] = "True"
        else:
            constants[name] = origins.get(name, "constant")
            _mark_constant(value)
    for value in _initializers_of_branches(model):
        _mark_constant(value)
    return Skeleton(model, slots, constants, left_of(model, slots))


def _initializers_of_branches(model: onnx_ir.Model) -> Iterator[onnx_ir.Value]:
    """Yield the initializers of graphs inside nodes, which are branches and loop bodies."""
    for node in all_nodes(model):
        for graph in graphs_of(node):
            yield from graph.initializers.values()


def _mark_constant(value: onnx_ir.Value) -> None:
    """Mark a value as a constant, for which no key is expected.

    In a graph without weights, an optimizer can only have computed it from constants.
    """
    value.metadata_props.pop(_FOLDED, None)
    value.metadata_props.setdefault(_KIND, "CONSTANT_TENSOR")
    if value.metadata_props[_KIND] == "PARAMETER":
        value.metadata_props[_KIND] = "CONSTANT_TENSOR"
    value.metadata_props[_PERSISTENT] = "False"


TRANSPOSE = "Transpose of a weight"
"""The name in `left` for a Transpose node that remains between a weight and its MatMul."""


def left_of(model: onnx_ir.Model, slots: Collection[str]) -> dict[str, int]:
    """Return the operations that an optimizer would have folded into weights if it had them."""
    left: Counter[str] = Counter()
    for name in slots:
        for node, _ in model.graph.initializers[name].uses():
            if node.op_type == "Transpose":
                left[TRANSPOSE] += 1
            elif node.op_type == "BatchNormalization" and node.inputs[1] is not None:
                left["BatchNormalization"] += node.inputs[1].name == name
    return {what: times for what, times in left.items() if times}

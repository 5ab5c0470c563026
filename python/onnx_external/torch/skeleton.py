"""A graph without weights: typed slots for parameters, and the values that no checkpoint has."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ExistsError, InvalidArgumentError

if TYPE_CHECKING:
    import onnx_ir

__all__ = ["Skeleton", "Slot"]

_KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
_PERSISTENT = "pkg.torch.export.graph_signature.InputSpec.persistent"
_FOLDED = "pkg.onnxscript.optimizer.folded_from"

_MOST_BYTES = 2**31 - 1
"""Protobuf's limit on a model."""
_FOLDS_ALL = 8192
"""Elements up to which torch's optimizer computes any operator of constants."""
_LOGGERS = (
    "onnx_ir",
    "onnxscript",
    "torch.onnx",
    "torch._export",
    "torch._dynamo",
    "torch.fx.experimental.symbolic_shapes",
)
"""Those that warn of what is meant here, or reported: no data, dimensions that do not vary."""
_SHOWN = 8
"""Names that a message lists."""


@dataclass(frozen=True)
class Slot:
    """A weight of the graph that a checkpoint is to fill."""

    name: str
    dtype: str
    """As ONNX calls it: "FLOAT", "BFLOAT16"."""
    shape: tuple[int, ...]
    kind: str
    """ "parameter" or "buffer"."""


@dataclass
class Skeleton:
    """A graph whose weights are typed slots without data.

    `oe.save(skeleton, path, weights)` fills it, and so does the command `save-external` once
    `save()` has written it.
    """

    model: onnx_ir.Model
    slots: dict[str, Slot]
    constants: dict[str, str] = field(default_factory=dict)
    """Initializers that have values: "init" (the module's own) or "constant" (from the trace or the
    optimizer)."""
    left: dict[str, int] = field(default_factory=dict)
    """What an optimizer would do if it had the weights, and how often."""
    ties: dict[str, list[str]] = field(default_factory=dict)
    """Other names that the module has for the tensor of a slot."""

    def SerializeToString(self) -> bytes:
        """Return the ModelProto's bytes, as a protobuf message does."""
        import onnx_ir

        held = sum(
            value.const_value.nbytes
            for value in self.model.graph.initializers.values()
            if value.const_value is not None
        )
        if held > _MOST_BYTES:
            raise InvalidArgumentError(
                f"the constants and buffers of the graph have {held} bytes, more than a model can "
                "hold; make them parameters or persistent buffers, which a checkpoint fills"
            )
        with quiet():
            return bytes(onnx_ir.to_proto(self.model).SerializeToString())

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the graph into a file, complete or not at all."""
        target = Path(path)
        if target.exists() and not overwrite:
            raise ExistsError(f"{target}: exists; overwrite=True replaces it")
        data = self.SerializeToString()
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


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence what the exporter and the optimizer say about slots without data.

    Their logs and warnings, and what they print: torch prints pages of its graph if a trace fails.
    """
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    nowhere = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        warnings.simplefilter("ignore")
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _is_slot(value: onnx_ir.Value) -> bool:
    """Whether a state dict has the value: a parameter or a persistent buffer."""
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
        f"{_listed(names)}: the graph needs the values of these buffers and constants, which no "
        "checkpoint has, and the module has none; give a function that makes the module instead "
        "of a module on meta (their values are computed then), or extra={name: tensor}"
    )


def _refuse_folded(names: list[str]) -> None:
    raise InvalidArgumentError(
        f"{_listed(names)}: the optimizer computed these from weights, so that no checkpoint has "
        "their values; export with optimize=False (it is optimized afterwards)"
    )


def make_skeleton(
    model: onnx_ir.Model,
    holds_no_data: Callable[[Any], bool],
    extra: Mapping[str, Any],
    keep: Collection[str],
    optimize: Callable[[onnx_ir.Model], onnx_ir.Model] | None,
    transpose: bool,
) -> Skeleton:
    """Take the weights out of an exported graph, and optimize what is left.

    Args:
        model: as exported with optimize=False; it is changed.
        holds_no_data: whether a tensor of the exporter's stands for one without data.
        extra: values for buffers and constants.
        keep: initializers that are no slots although a state dict has them.
        optimize: changes the model, or None.
        transpose: slots take the place of transposed weights.
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
    empty = []
    for name, value in list(initializers.items()):
        if not value.uses() and not value.is_graph_output():
            del initializers[name]
        elif _is_slot(value) and name not in extra and name not in keep:
            value.const_value = None
        elif value.const_value is None or holds_no_data(getattr(value.const_value, "raw", None)):
            empty.append(name)
    if empty:
        _refuse_without_data(empty)
    init = {
        name
        for name, value in initializers.items()
        if value.metadata_props.get(_KIND) in ("BUFFER", "PARAMETER")
    }
    if optimize is not None:
        with quiet():
            model = optimize(model)
    if transpose:
        _transpose_slots(model)
    _fix_dimensions(model)
    return _described(model, init)


def _fix_dimensions(model: onnx_ir.Model) -> None:
    """Give inputs numbers for dimensions that were to vary and that the trace has fixed.

    torch's exporter makes names of such numbers, and a runtime takes a name for any size.
    """
    import onnx_ir

    for value in model.graph.inputs:
        if value.shape is not None:
            value.shape = onnx_ir.Shape(
                int(name) if (name := str(getattr(dim, "value", dim))).isdigit() else dim
                for dim in value.shape
            )


def _give(initializers: Any, extra: Mapping[str, Any]) -> None:
    """Give buffers and constants the caller's values."""
    import onnx_ir
    import torch

    unknown = [name for name in extra if name not in initializers]
    if unknown:
        raise InvalidArgumentError(f"extra: the graph has no {_listed(unknown)}")
    for name, given in extra.items():
        value = initializers[name]
        tensor = torch.as_tensor(given).detach().cpu()
        new = onnx_ir.tensor(tensor, name=name)
        if (new.dtype, new.shape) != (value.dtype, value.shape):
            raise InvalidArgumentError(
                f"extra: {name} is {value.dtype} {value.shape} in the graph, not "
                f"{new.dtype} {new.shape}"
            )
        value.const_value = new


def _transpose_slots(model: onnx_ir.Model) -> None:
    """Let slots stand for what Transpose nodes make of weights.

    The new slot says what it was folded from, so that a save finds the weight and transposes it. A
    square matrix is left alone where this mark does not prove that it is transposed.
    """
    import onnx_ir

    graph = model.graph
    for name, value in list(graph.initializers.items()):
        users = {node for node, _ in value.uses()}
        if value.const_value is not None or len(users) != 1 or value.is_graph_output():
            continue
        (node,) = users
        if (
            node.op_type != "Transpose"
            or node.domain not in ("", "ai.onnx")
            or node.graph is not graph
        ):
            continue
        output, perm = node.outputs[0], node.attributes.get("perm")
        if perm is not None and list(perm.as_ints()) != [1, 0]:
            continue
        shape = tuple(int(dim) for dim in value.shape or ())
        if len(shape) != 2 or output.is_graph_output() or not _transposes_surely(shape, output):
            continue
        made = onnx_ir.Value(
            name=f"{name}.transposed", type=value.type, shape=onnx_ir.Shape(reversed(shape))
        )
        made.metadata_props.update(value.metadata_props)
        made.metadata_props[_FOLDED] = repr([name])
        graph.initializers.add(made)
        onnx_ir.convenience.replace_all_uses_with(output, made)
        graph.remove(node, safe=True)
        del graph.initializers[name]


def _transposes_surely(shape: tuple[int, ...], output: onnx_ir.Value) -> bool:
    """Whether the library takes a folded matrix for a transposed one (docs/mapping.md)."""
    if shape[0] != shape[1]:
        return True
    return shape[0] * shape[1] > _FOLDS_ALL and all(
        node.op_type == "MatMul" and place == 1 for node, place in output.uses()
    )


def _described(model: onnx_ir.Model, init: set[str]) -> Skeleton:
    slots, constants = {}, {}
    for name, value in model.graph.initializers.items():
        if value.const_value is None:
            slots[name] = _make_slot(value)
        else:
            constants[name] = "init" if name in init else "constant"
            _mark_constant(value)
    return Skeleton(model, slots, constants, _left(model, slots))


def _mark_constant(value: onnx_ir.Value) -> None:
    """Tell whoever fills the graph that no key stands for the value: it depends on no weight.

    Without weights, an optimizer can have computed it from constants only.
    """
    value.metadata_props.pop(_FOLDED, None)
    value.metadata_props.setdefault(_KIND, "CONSTANT_TENSOR")
    if value.metadata_props[_KIND] == "PARAMETER":
        value.metadata_props[_KIND] = "CONSTANT_TENSOR"
    value.metadata_props[_PERSISTENT] = "False"


def _left(model: onnx_ir.Model, slots: Mapping[str, Slot]) -> dict[str, int]:
    """What an optimizer that has the weights would have folded into them."""
    left: Counter[str] = Counter()
    for name in slots:
        for node, _ in model.graph.initializers[name].uses():
            if node.op_type == "Transpose":
                left["Transpose of a weight"] += 1
            elif node.op_type == "BatchNormalization" and node.inputs[1] is not None:
                left["BatchNormalization"] += node.inputs[1].name == name
    return {what: times for what, times in left.items() if times}

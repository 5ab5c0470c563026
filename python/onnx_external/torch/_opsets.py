"""Makes a graph have exactly the opset version that the caller requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._base.errors import InvalidArgumentError
from ._walking import all_nodes

if TYPE_CHECKING:
    import onnx_ir

OWN = 18
"""The lowest version for which torch.onnx has translations."""
_LOWEST = 7
"""The lowest version that onnx's converter supports."""
_MOST_READ = 1000
"""The maximum number of elements of a constant that onnx's converter may read."""


def _newest() -> int:
    """Return the highest version to which torch.onnx can convert."""
    from onnxscript.version_converter import _version_converter

    return int(_version_converter.SUPPORTED_MAX_ONNX_OPSET)


def asked(options: Mapping[str, Any]) -> int | None:
    """Return the opset version in the options of torch.onnx.export, or None.

    Raises:
        InvalidArgumentError: no export can have that version.
    """
    version = options.get("opset_version")
    if version is None:
        return None
    newest = _newest()
    if type(version) is not int or not _LOWEST <= version <= newest:
        raise InvalidArgumentError(
            f"opset_version={version!r}: torch.onnx exports opset {OWN} to {newest}; for {_LOWEST} "
            f"to {OWN - 1}, the graph is converted from {OWN} if onnx's converter can do so"
        )
    return version


def refuse_opset(version: int | None, needed: int = 0) -> None:
    """Raise an error if the graphs of a folder cannot have an opset version.

    Args:
        version: the version that the caller requests; None for any.
        needed: the version of the operators that attention= requires.

    Raises:
        InvalidArgumentError: torch.onnx has no translations for the version, or the operators are
            newer.
    """
    if version is None:
        return
    newest = _newest()
    if type(version) is not int or not OWN <= version <= newest:
        raise InvalidArgumentError(
            f"opset_version={version!r}: the graphs of a folder can have opset {OWN} to {newest}"
        )
    if version < needed:
        raise InvalidArgumentError(
            f"opset_version={version}: attention='standard' is an operator of opset {needed}; "
            "attention='fused' is ONNX Runtime's, in any opset"
        )


def of_torch(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for torch.onnx.export in which the opset version is not below its own.

    torch.onnx only logs a failed conversion to a lower version, and the converted graph would lack
    the metadata of weights.
    """
    version = asked(options)
    return {**options, "opset_version": OWN} if version and version < OWN else dict(options)


def with_opset(model: onnx_ir.Model, version: int | None) -> tuple[onnx_ir.Model, str]:
    """Convert a graph to an opset version, unless it already has that version.

    Weights keep their names, their metadata and, if they have any, their values.

    Returns:
        The graph, and the reason why it keeps its version although an older one is requested;
        empty if it has the requested version.

    Raises:
        InvalidArgumentError: the graph cannot be converted to a newer version.
    """
    has = model.opset_imports.get("")
    if version is None or has == version:
        return model, ""
    from onnxscript import version_converter

    told = f"opset_version={version}: the graph has opset {has}"
    try:
        if version > OWN:
            version_converter.convert_version(model, version)
            if model.opset_imports.get("") == version:
                return model, ""
            raise InvalidArgumentError(f"{told}, the highest version that torch.onnx can give it")
        return _lowered(model, version), ""
    except InvalidArgumentError:
        raise
    except Exception as error:  # each of the two converters has errors of its own
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else type(error).__name__
        reason = reason.rpartition(" failed: ")[2]  # behind a place in the sources of onnx
        if version > OWN:
            raise InvalidArgumentError(f"{told}, and cannot be converted: {reason}") from error
        return model, f"{told}, because onnx cannot convert it to an older version: {reason}"


def _lowered(model: onnx_ir.Model, version: int) -> onnx_ir.Model:
    """Convert a graph to an older version by onnx's converter, without passing it the weights."""
    import onnx
    import onnx_ir
    from onnx_ir.passes.common import InlinePass, RemoveUnusedFunctionsPass, RemoveUnusedOpsetsPass

    for change in (InlinePass(), RemoveUnusedFunctionsPass(), RemoveUnusedOpsetsPass()):
        model = change(model).model
    initializers = dict(model.graph.initializers)
    kept = _marks(model)
    proto = _without_values(model)
    own = len(model.graph.inputs)
    converted = onnx.version_converter.convert_version(proto, version)
    onnx.checker.check_model(_as_checked(converted))
    made = onnx_ir.from_proto(converted)
    for value in list(made.graph.inputs)[own:]:
        before = initializers[value.name]
        value.const_value = before.const_value
        value.metadata_props.update(before.metadata_props)
        made.graph.initializers[value.name] = value
    del made.graph.inputs[own:]
    for node in all_nodes(made):
        node.metadata_props.update(kept.get(_results(node), {}))
    return made


def _marks(model: onnx_ir.Model) -> dict[tuple[Any, ...], dict[str, str]]:
    """Return the node metadata that onnx's converter drops, by the names of the nodes' outputs."""
    return {_results(node): dict(node.metadata_props) for node in all_nodes(model)}


def _results(node: onnx_ir.Node) -> tuple[Any, ...]:
    return tuple(value.name for value in node.outputs)


def _without_values(model: onnx_ir.Model) -> Any:
    """Return the model as a protobuf message in which large initializers are additional inputs.

    Small constants, such as axes, are also initializers, because the converter reads them.
    """
    import onnx_ir

    graph = model.graph
    values, own = list(graph.initializers.values()), list(graph.inputs)
    tensors = {value: value.const_value for value in values}
    large = [value for value, held in tensors.items() if held is None or held.size > _MOST_READ]
    try:
        for value in large:
            del graph.initializers[value.name or ""]
        graph.inputs.extend(value for value in values if value not in own)
        return onnx_ir.to_proto(model)
    finally:
        graph.inputs[:] = own
        for value in values:
            graph.initializers[value.name or ""] = value


def _as_checked(proto: Any) -> Any:
    """Return a model for onnx's checker, which rejects IR versions newer than its own."""
    import onnx

    proto.ir_version = min(proto.ir_version, onnx.IR_VERSION)
    return proto

"""Makes a graph have exactly the opset version that the caller requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._base.errors import InvalidArgumentError

if TYPE_CHECKING:
    import onnx_ir

    from .._lowering.lowering import Refusal

OWN = 18
"""The lowest version for which torch.onnx has translations."""
_LOWEST = 7
"""The lowest version that ONNX Runtime supports."""
_SHOWN = 4
"""The maximum number of operators that an error lists."""


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
            f"opset_version={version!r}: a graph can have opset {_LOWEST} to {newest}"
        )
    return version


def refuse_opset(version: int | None, needed: int = 0) -> None:
    """Raise an error if the graphs of a folder cannot have an opset version.

    Args:
        version: the version that the caller requests; None for any.
        needed: the version of the operators that attention= requires.

    Raises:
        InvalidArgumentError: no export can have the version, or the operators are newer.
    """
    if version is None:
        return
    asked({"opset_version": version})
    if version < needed:
        raise InvalidArgumentError(
            f"opset_version={version}: attention='standard' is an operator of opset {needed}; "
            "attention='fused' is ONNX Runtime's, in any opset"
        )


def of_torch(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for torch.onnx.export in which the opset version is not below its own.

    torch.onnx would convert to a lower version by onnx's converter, which has few conversions and
    drops the metadata of weights. Failures of this converter are only logged.
    """
    version = asked(options)
    return {**options, "opset_version": OWN} if version and version < OWN else dict(options)


def with_opset(model: onnx_ir.Model, version: int | None) -> onnx_ir.Model:
    """Convert a graph to an opset version, unless it already has that version.

    Weights keep their names, their metadata and, if they have any, their values.

    Raises:
        InvalidArgumentError: the version cannot express the graph.
    """
    has = model.opset_imports.get("")
    if version is None or has is None or has == version:
        return model
    return _lowered(model, version) if version < has else _raised(model, version)


def _raised(model: onnx_ir.Model, version: int) -> onnx_ir.Model:
    """Convert a graph to a newer version by torch's converter."""
    from onnxscript import version_converter

    has = model.opset_imports[""]
    told = f"opset_version={version}: the graph has opset {has}"
    try:
        version_converter.convert_version(model, version)
    except Exception as error:  # it has errors of its own
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else type(error).__name__
        raise InvalidArgumentError(
            f"{told}, and torch.onnx cannot convert it: {reason}; opset_version={has} is possible"
        ) from error
    got = model.opset_imports.get("")
    if got != version:
        raise InvalidArgumentError(
            f"{told}, and torch.onnx converts it to opset {got}; opset_version={got} is possible"
        )
    return model


def _lowered(model: onnx_ir.Model, version: int) -> onnx_ir.Model:
    """Rewrite a graph with the operators of an older version."""
    from onnx_ir.passes.common import InlinePass, RemoveUnusedFunctionsPass, RemoveUnusedOpsetsPass

    from .._lowering.lowering import lower  # which needs onnx_ir

    for change in (InlinePass(), RemoveUnusedFunctionsPass(), RemoveUnusedOpsetsPass()):
        model = change(model).model
    refusals = lower(model, version)
    if not refusals:
        return model
    listed = "; ".join(_told(each) for each in refusals[:_SHOWN])
    more = f"; and {len(refusals) - _SHOWN} more" if len(refusals) > _SHOWN else ""
    needed = max(each.since for each in refusals)
    raise InvalidArgumentError(
        f"opset_version={version}: opset {version} cannot express this model: {listed}{more}; "
        f"opset_version={needed} can"
    )


def _told(refusal: Refusal) -> str:
    from .._fusing.matching import scopes_of  # which needs onnx_ir

    scopes = [each for each in scopes_of(refusal.node)[:-1] if each]
    place = f" in {scopes[-1]}" if scopes else ""
    return f"{refusal.operator}{place}, which needs opset {refusal.since} ({refusal.reason})"

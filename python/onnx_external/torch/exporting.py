"""oe.torch.skeleton and oe.torch.export."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..checkpoint import open_checkpoint
from ..meter import Meter, Step, Stepwise, versions
from ..progress import Progress, shown
from ..reports import MemberReport, SaveReport
from ..save import StrPath, save
from ..sources import Weights
from ..transposing import refuse_linked
from .plain_saving import has_no_values, save_alone
from .programs import Captured, Target, captured
from .skeleton import Skeleton, left_of, make_skeleton
from .untouched import has_no_data

if TYPE_CHECKING:
    import onnx_ir

__all__ = ["ExportReport", "Source", "export", "skeleton"]

PACKAGES = ("torch", "onnx", "onnx-ir", "onnxscript", "transformers", "onnx-external")
"""What takes part in an export."""


@dataclass(frozen=True)
class Source:
    """Where the values of an initializer came from."""

    origin: str
    """ "checkpoint", "module" (its own weights), "init" (the module computed it) or "constant" (of
    the trace)."""
    key: str | None = None
    recipe: list[Any] = field(default_factory=list)


@dataclass
class ExportReport(Stepwise):
    """What an export did."""

    path: str
    sources: dict[str, Source]
    steps: list[Step]
    versions: dict[str, str]
    patches: list[str]
    """What was changed in torch and transformers while the model was traced."""
    notes: list[str]
    """How it was traced, if not in the usual way: see docs/python-export.md."""
    left: dict[str, int]
    """What an optimizer that has the weights would have done, and the save did not."""
    save: SaveReport

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists."""
        parts = {
            name: value
            for name, value in vars(self).items()
            if name not in ("save", "sources", "steps")
        }
        sources = {name: asdict(source) for name, source in self.sources.items()}
        steps = [asdict(step) for step in self.steps]
        return {**parts, "sources": sources, "steps": steps, "save": self.save.to_dict()}


def optimized(model: onnx_ir.Model) -> onnx_ir.Model:
    """As torch.onnx.export(optimize=True) does it."""
    program = torch.onnx.ONNXProgram(model, None)
    program.optimize()
    return program.model


def skeleton_of(
    found: Captured,
    meter: Meter,
    *,
    optimize: bool,
    extra: Mapping[str, Any] | None = None,
    keep: Collection[str] = (),
) -> Skeleton:
    """Make the skeleton of a captured graph."""
    with meter.step("optimize"):
        optimizer: Callable[[onnx_ir.Model], onnx_ir.Model] | None = optimized if optimize else None

        def empty(tensor: Any) -> bool:
            return isinstance(tensor, torch.Tensor) and has_no_data(tensor)

        made = make_skeleton(found.program.model, empty, extra or {}, keep, optimizer)
    made.ties = {name: found.ties[name] for name in made.slots if name in found.ties}
    return made


def skeleton(
    target: Target,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    *,
    optimize: bool = True,
    extra: Mapping[str, Any] | None = None,
    keep: Collection[str] = (),
    transpose_weights: bool = False,
    **onnx_options: Any,
) -> Skeleton:
    """Return the graph of a module without weights: typed slots, and values that no file has.

    Args:
        target: a module (its parameters may be real, mapped, or on meta), a function that makes
            one, which is called so that no parameter takes memory, or what torch.export.export or
            torch.onnx.export(optimize=False) returned.
        args: positional inputs of the module.
        kwargs: inputs by name.
        dynamic_shapes: as torch.export.export takes them.
        optimize: run torch's optimizer on the skeleton. Names and shapes of weights stay.
        extra: values for buffers and constants that have none, by name.
        keep: parameters and persistent buffers whose values are the module's and stay in the graph.
        transpose_weights: instead of a weight and a Transpose node the graph has a transposed
            weight, as torch's optimizer would leave it. The slot of `fc.weight` is then called
            `fc.weight.transposed`. `Skeleton.save()` and `oe.save()` do so by default.
        **onnx_options: of torch.onnx.export: `input_names`, `output_names`, `opset_version`,
            `custom_translation_table`.

    Raises:
        ExportError: torch cannot trace or convert the module.
        InvalidArgumentError: buffers or constants have no values, or weights were folded already.
    """
    meter = Meter()
    with captured(target, args, kwargs, dynamic_shapes, onnx_options, meter) as found:
        made = skeleton_of(found, meter, optimize=optimize, extra=extra, keep=keep)
        return made.transposed() if transpose_weights else made


def ties_for(made: Skeleton, keys: Set[str]) -> dict[str, str]:
    """For slots whose name no key has: the key with another name of the same tensor."""
    return {
        slot: next(name for name in names if name in keys)
        for slot, names in made.ties.items()
        if slot not in keys and not keys.isdisjoint(names)
    }


def _names(weights: Weights, options: Mapping[str, Any]) -> set[str]:
    """The keys of a checkpoint in any form that oe.save() takes."""
    if isinstance(weights, Mapping):
        return set(weights)
    if not isinstance(weights, (str, os.PathLike)):
        return {name for one in weights for name in _names(one, options)}
    reading = {name: options[name] for name in ("key", "variant", "overlay") if name in options}
    with open_checkpoint(weights, **reading) as checkpoint:
        return set(checkpoint)


def _weights_of(target: Target, made: Skeleton) -> dict[str, torch.Tensor] | None:
    """The weights of the target that the graph needs. None if it has none with values."""
    program = target.exported_program if isinstance(target, torch.onnx.ONNXProgram) else target
    if isinstance(program, nn.Module):
        state = program.state_dict()
    elif isinstance(program, torch.export.ExportedProgram):
        state = program.state_dict
    else:  # a function: what it makes has no values
        return None
    needed = set(made.slots).union(*made.ties.values())
    return {
        name: tensor.detach()
        for name, tensor in state.items()
        if name in needed and isinstance(tensor, torch.Tensor) and not has_no_data(tensor)
    } or None


def sources_of(
    made: Skeleton, report: SaveReport | MemberReport, origin: str = "checkpoint"
) -> dict[str, Source]:
    """Where each initializer's values came from; `origin`: of those that were filled."""
    found = {name: Source(kind) for name, kind in made.constants.items()}
    for tensor in report.tensors:
        if tensor.key is not None:
            found[tensor.slot] = Source(origin, tensor.key, tensor.recipe)
    return found


def left_in(made: Skeleton, report: SaveReport | MemberReport) -> dict[str, int]:
    """As `Skeleton.left`, of the model that was saved."""
    return left_of(made.model, made.slots.keys() & {tensor.slot for tensor in report.tensors})


def export(
    target: Target,
    args: Sequence[Any],
    path: StrPath,
    kwargs: Mapping[str, Any] | None = None,
    *,
    weights: Weights | nn.Module | None = None,
    extra: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    optimize: bool = True,
    keep: Collection[str] = (),
    transpose_weights: bool | None = None,
    onnx_options: Mapping[str, Any] | None = None,
    progress: Progress = None,
    **options: Any,
) -> ExportReport:
    """Export a module with its weights, or with those of files, which are not read into memory.

    Args:
        target: as for skeleton().
        args: positional inputs of the module.
        path: as for oe.save().
        kwargs: inputs by name.
        weights: the checkpoint, as for oe.save(), or a module that has them. None: the target's
            own; what it has none for (on meta) must be given, or is refused.
        extra: as for skeleton().
        dynamic_shapes: as for skeleton().
        optimize: as for skeleton().
        keep: as for skeleton().
        transpose_weights: as for oe.save(): by default in any layout but "link".
        onnx_options: options of torch.onnx.export, as for skeleton().
        progress: as for oe.save(); the steps before a save are told with sizes of 0.
        **options: of oe.save().

    Raises:
        ExportError: torch cannot trace or convert the module.
        Error: everything else, as oe.save() raises it. Nothing half-written stays.
    """
    refuse_linked(transpose_weights, options.get("layout"))
    with shown(progress) as callback:
        meter = Meter(callback)
        settings = onnx_options or {}
        with captured(target, args, kwargs, dynamic_shapes, settings, meter) as found:
            made = skeleton_of(found, meter, optimize=optimize, extra=extra, keep=keep)
        own = weights is None
        if weights is None or isinstance(weights, nn.Module):
            weights = _weights_of(target if weights is None else weights, made)
        if keep and not own:
            given = options.get("ignore") or []
            ignored = [f"^{re.escape(name)}$" for name in keep]
            options["ignore"] = [*([given] if isinstance(given, str) else given), *ignored]
        if made.ties and "tie" not in options and weights is not None:
            options["tie"] = ties_for(made, _names(weights, options)) or None
        with meter.step("save"):
            if weights is None and has_no_values(made):
                report = save_alone(made, path, options)
            else:
                linked = options.get("layout") == "link"
                graph = made.SerializeToString() if linked else made
                options["transpose_weights"] = transpose_weights
                report = save(graph, path, weights, progress=callback or False, **options)
    return ExportReport(
        path=report.model,
        sources=sources_of(made, report, "module" if own else "checkpoint"),
        steps=meter.steps,
        versions=versions(PACKAGES),
        patches=[],
        notes=[found.note] if found.note else [],
        left=left_in(made, report),
        save=report,
    )

"""Implements oe.torch.skeleton and oe.torch.export."""

from __future__ import annotations

from collections import abc
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from .. import _core
from .._base.argument_types import checks_types, of_class, path_of
from .._base.errors import InvalidArgumentError
from .._base.keywords import only
from .._base.meter import Meter
from .._base.options import (
    Layout,
    Mapping,
    StrPath,
    Weights,
    Writing,
    quantize_options,
)
from .._base.packages import CONVERSION, require
from .._base.progress import shown
from .._folders.preconditions import note_of_state, refuse_existing, warn
from .._saving.transposing import refuse_linked
from .._tracing.classes import known_classes
from ._arguments import check_onnx_options, check_weights, extra_of
from ._checking import refuse_broken
from ._dynamic_shapes import check_shapes
from ._export_reports import ExportReport
from ._exporter import Exporter, refuse_unreached
from ._input_sets import calls_of, fixed_sizes, refuse_no_inputs, shapes_of
from ._keywords import ModuleKeywords, OnnxOptions, RewriteKeywords
from ._optimizing import skeleton_of
from ._programs import captured, check_initialized
from ._rewritten import ModuleWays
from ._skeleton import Skeleton
from ._targets import Target, checked_target, made_of, signature_of, state_of
from ._tracing import Tracer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._base.options import AnyFloatType


@checks_types
@known_classes((), None)  # those of oe.register_class()
def skeleton(
    target: Target,
    args: Any = (),
    kwargs: abc.Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    *,
    optimize: bool = True,
    extra: abc.Mapping[str, Any] | None = None,
    keep: Collection[str] = (),
    transpose_weights: bool = False,
    input_sets: Sequence[Any] = (),
    onnx_options: OnnxOptions | abc.Mapping[str, Any] | None = None,
    **how: Unpack[RewriteKeywords],
) -> Skeleton:
    """Return the graph of a module without weights: a checkpoint fills its typed slots later.

    Args:
        target: a module in eval mode, whose parameters may be real, mapped, or on meta; a function
            that makes such a module, called in such a way that parameters take no memory; or a
            result of torch.export.export or torch.onnx.export(optimize=False).
        args: the arguments of the module: a tensor, a tuple of positional inputs, or a dict of
            inputs by name. numpy arrays become tensors.
        kwargs: inputs by name, in addition to positional inputs.
        dynamic_shapes: as for export().
        optimize: run torch's optimizer on the skeleton. Weights keep their names and shapes.
        extra: values for buffers and constants that have none, by name.
        keep: parameters and persistent buffers whose values are taken from the module and stay in
            the graph.
        transpose_weights: replace a weight and its Transpose node by a transposed weight, as
            torch's optimizer would do. The slot of `fc.weight` is then called
            `fc.weight.transposed`. `Skeleton.save()` and `oe.save()` do so by default.
        input_sets: as for export(). The graph is not run; `Skeleton.guards` lists the assumptions
            of the trace, and a set that violates one is an error.
        onnx_options: options of torch.onnx.export: `input_names`, `output_names`, `opset_version`,
            `custom_translation_table`.
        **how: the keywords of `RewriteKeywords`.

    Raises:
        ExportError: torch cannot trace or convert the module.
        InvalidArgumentError: the module is in training mode, buffers or constants have no values,
            or weights were folded already.
    """
    meter = Meter()
    require("torch.onnx", *CONVERSION)
    extra = extra_of(extra)
    check_onnx_options(onnx_options)
    traced, is_made = made_of(checked_target(target), meter)
    calls = calls_of(traced, args, kwargs, input_sets)
    check_shapes(signature_of(traced), calls, dynamic_shapes)
    shapes = dynamic_shapes or shapes_of(traced, calls)

    def capture(tracer: Tracer) -> Skeleton:
        given = (*ways.example, shapes, onnx_options or {}, meter, tracer, False, is_made)
        with captured(traced, *given) as found:
            refuse_broken(found.sizes, calls)
            made = skeleton_of(found, meter, optimize=optimize, extra=extra, keep=keep)
            return made.transposed() if transpose_weights else made

    ways = ModuleWays(traced, calls, how, capture)
    return ways.right()[0]


@checks_types
@known_classes((), None)  # those of oe.register_class()
def export(
    target: Target,
    args: Any,
    path: StrPath,
    kwargs: abc.Mapping[str, Any] | None = None,
    *,
    weights: Weights | nn.Module | None = None,
    input_sets: Sequence[Any] = (),
    dynamic_shapes: Any = None,
    dtype: AnyFloatType | None = None,
    dry_run: bool = False,
    onnx_options: OnnxOptions | abc.Mapping[str, Any] | None = None,
    **how: Unpack[ModuleKeywords],
) -> ExportReport:
    """Export a module with its own weights or those in files, which are not loaded into memory.

    ```python
    oe.torch.export(module.eval(), (ids,), "out/model.onnx")
    ```

    Args:
        target: a module in eval mode, whose parameters may be real, mapped, or on meta; a function
            that makes such a module, called in such a way that parameters take no memory; or a
            result of torch.export.export or torch.onnx.export(optimize=False).
        args: example arguments of the module, which are traced: a tensor, a tuple of positional
            inputs, or a dict of inputs by name. numpy arrays become tensors.
        path: the model's file ("out/model.onnx"), or the folder of a "model.onnx".
        kwargs: inputs by name, in addition to positional inputs.
        weights: the checkpoint, as for oe.save(), or a module with the weights. None: the target's
            own weights, which must have values (not on meta). Unused keys are accepted if they are
            weights of the target; other unused keys are errors.
        input_sets: further inputs, which take other branches or have other sizes: each a tuple of
            arguments, a dict of keywords, or a pair of both. Without `dynamic_shapes`, sizes that
            differ between sets are dynamic.
        dynamic_shapes: as for torch.export.export; a dimension may also be a string, which makes it
            dynamic with that name. None: all sizes are those of `args`, unless `input_sets` has
            others.
        dtype: as for oe.save(): the float type to which the weights are converted.
        dry_run: trace and plan, but write nothing.
        onnx_options: options of torch.onnx.export: `input_names`, `output_names`, `opset_version`,
            `custom_translation_table`.
        quantize: the quantization of matrices, as for oe.save(). It follows the check, which uses
            floats.
        progress: as for oe.save(); the steps before a save are reported with sizes of 0.
        **how: the keywords of `ModuleKeywords`.

    Returns:
        A report: `complete` (every weight has its value), `verified` (every byte was read back),
        `checked` (input sets on which ONNX Runtime agreed with the module), `rewriting` (the
        `changes`, each with its diff, and `unreached`), `save` (the files).

    Raises:
        RewriteError: a condition or a loop cannot be exported, or (`unreached="refuse"`) no set
            reaches a branch; the message names its line.
        ExportError: torch cannot trace or convert the module, or the graph is wrong for a set.
        MappingError: the module and the weights do not fit, or a weight has no value.
        Error: any other fault, as for oe.save(). No incomplete file is left.
    """
    mapping = of_class("mapping", Mapping, how["mapping"])
    files = of_class("files", Layout, how["files"])
    refuse_linked(files.transpose_weights, how["layout"])
    _core.check_save_options({"layout": how["layout"], **quantize_options(how["quantize"])})
    require("torch.onnx", *CONVERSION)
    target = checked_target(target)
    refuse_no_inputs(args)  # it reports a `path` in this place
    path_of("path", path)
    how["extra"] = extra_of(how["extra"])
    check_onnx_options(onnx_options)
    check_weights(weights, files.max_expand)
    if not how["overwrite"] and not dry_run:
        refuse_existing(path)
    with shown(how["progress"]) as callback:
        meter = Meter(callback)
        traced, is_made = made_of(target, meter)
        if how["state"] == "outputs" and not isinstance(traced, nn.Module):
            raise InvalidArgumentError(
                'state="outputs" needs a module; for a program, let the module return its state'
            )
        calls = calls_of(traced, args, kwargs, input_sets)
        check_shapes(signature_of(traced), calls, dynamic_shapes)
        if isinstance(traced, nn.Module):
            check_initialized(traced)
        early = note_of_state(state_of(traced))
        warn(early)
        saving = {**only(how, Writing.__annotations__), "mapping": mapping, "files": files}
        saving |= {"dtype": dtype, "dry_run": dry_run, "progress": callback or False}
        shapes = dynamic_shapes or shapes_of(traced, calls)
        exporter = Exporter(
            traced, is_made, calls, weights, saving, how, shapes, onnx_options or {}, meter
        )
        attempt, rewriting = exporter.ways.right()
        if how["unreached"] == "refuse":
            refuse_unreached(rewriting)
        report = exporter.save(attempt, path)
    fixed = fixed_sizes(traced, calls, dynamic_shapes)
    return exporter.report(attempt, rewriting, report, early, fixed)

"""Implementation of oe.torch.skeleton and oe.torch.export."""

from __future__ import annotations

from collections import abc
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from .. import _core
from .._base.argument_types import checks_types, of_class, path_of
from .._base.errors import InvalidArgumentError
from .._base.meter import Meter
from .._base.options import (
    FloatType,
    Layout,
    LayoutName,
    Mapping,
    QuantizeArgument,
    StrPath,
    Weights,
    quantize_options,
)
from .._base.packages import CONVERSION, require
from .._base.progress import Progress, shown
from .._folders.preconditions import note_of_state, refuse_existing, warn
from .._saving.transposing import refuse_linked
from .._tracing.classes import known_classes
from ._arguments import check_onnx_options, check_weights, extra_of
from ._checking import (
    refuse_broken,
)
from ._dynamic_shapes import check_shapes
from ._export_reports import ExportReport
from ._exporter import CheckOptions, Exporter, TraceOptions, refuse_unreached
from ._filling import state_of
from ._input_sets import calls_of, fixed_sizes, refuse_no_inputs, shapes_of
from ._optimizing import skeleton_of
from ._programs import captured, check_initialized
from ._rewritten import ModuleWays, Rewrite
from ._skeleton import Skeleton
from ._targets import Target, checked_target, made_of
from ._tracing import Tracer

if TYPE_CHECKING:
    import numpy as np


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
    rewrite: Rewrite = "auto",
    asserts: Literal["omit", "refuse"] = "omit",
    max_iterations: int | None = None,
    onnx_options: abc.Mapping[str, Any] | None = None,
) -> Skeleton:
    """Return the graph of a module without weights: typed slots, and values in no checkpoint.

    Args:
        target: a module in eval mode (its parameters may be real, mapped, or on meta), a function
            that makes one, which is called so that no parameter takes memory, or a result of
            torch.export.export or torch.onnx.export(optimize=False).
        args: the arguments of the module: a tensor, a tuple of positional inputs, or a dict of
            inputs by name. Arrays of numpy become tensors.
        kwargs: inputs by name, beside positional ones.
        dynamic_shapes: as for export().
        optimize: run torch's optimizer on the skeleton. Names and shapes of weights stay.
        extra: values for buffers and constants that have none, by name.
        keep: parameters and persistent buffers whose values stay in the graph, taken from the
            module.
        transpose_weights: instead of a weight and a Transpose node the graph has a transposed
            weight, as torch's optimizer would leave it. The slot of `fc.weight` is then called
            `fc.weight.transposed`. `Skeleton.save()` and `oe.save()` do so by default.
        input_sets: as for export(). The graph is not run; `Skeleton.guards` lists the assumptions
            of the trace, and a set that violates one is an error.
        rewrite: as for export(); so are `asserts` and `max_iterations`.
        asserts: as for export().
        max_iterations: as for export().
        onnx_options: options of torch.onnx.export: `input_names`, `output_names`, `opset_version`,
            `custom_translation_table`.

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
    check_shapes(traced, calls, dynamic_shapes)
    shapes = dynamic_shapes or shapes_of(traced, calls)

    def capture(tracer: Tracer) -> Skeleton:
        given = (*ways.example, shapes, onnx_options or {}, meter, tracer, False, is_made)
        with captured(traced, *given) as found:
            refuse_broken(found.sizes, calls)
            made = skeleton_of(found, meter, optimize=optimize, extra=extra, keep=keep)
            if found.opset_kept:
                raise InvalidArgumentError(found.opset_kept)
            return made.transposed() if transpose_weights else made

    ways = ModuleWays(traced, calls, rewrite, asserts, max_iterations, changes_example=True)
    return ways.first(capture, lambda _: None)[0]


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
    layout: LayoutName = "single",
    dtype: FloatType | torch.dtype | np.dtype[Any] | None = None,
    quantize: QuantizeArgument = None,
    overwrite: bool = False,
    verify: bool = True,
    fsync: bool = True,
    dry_run: bool = False,
    threads: int = 0,
    progress: Progress = None,
    extra: abc.Mapping[str, Any] | None = None,
    mapping: Mapping | None = None,
    files: Layout | None = None,
    optimize: bool = True,
    keep: Collection[str] = (),
    onnx_options: abc.Mapping[str, Any] | None = None,
    check: bool | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    repeat: bool = True,
    rewrite: Rewrite = "auto",
    asserts: Literal["omit", "refuse"] = "omit",
    max_iterations: int | None = None,
    unreached: Literal["note", "refuse"] = "note",
    state: Literal["note", "outputs"] = "note",
) -> ExportReport:
    """Export a module with its weights, or with those of files, which are not loaded into memory.

    ```python
    oe.torch.export(module.eval(), (ids,), "out/model.onnx")
    ```

    Args:
        target: a module in eval mode (its parameters may be real, mapped, or on meta), a function
            that makes one, which is called so that no parameter takes memory, or a result of
            torch.export.export or torch.onnx.export(optimize=False).
        args: example arguments of the module, which are traced: a tensor, a tuple of positional
            inputs, or a dict of inputs by name. Arrays of numpy become tensors.
        path: the model's file ("out/model.onnx"), or the folder of a "model.onnx".
        kwargs: inputs by name, beside positional ones.
        weights: the checkpoint, as for oe.save(), or a module that has them. None: the target's own
            weights; those without values (on meta) must be given, or it is an error. Weights of the
            target that the graph does not use are accepted, other keys are not.
        input_sets: further inputs, which take other branches or have other sizes: each a tuple of
            arguments, a dict of keywords, or a pair of both. Without `dynamic_shapes`, the sizes
            vary that differ among the sets.
        dynamic_shapes: as torch.export.export takes them; a dimension may also be a string, which
            lets it vary under that name. None: all sizes are those of `args`, unless `input_sets`
            has others.
        layout: as for oe.save(): "single", "per-tensor", "shards", "inline" or "link".
        dtype: as for oe.save(): the float type to which the weights are converted.
        quantize: the quantization of matrices, as for oe.save(), after the check of the floats.
        overwrite: replace a model that is there.
        verify: read everything back and compare every byte before the model appears.
        fsync: wait until the disk has it all.
        dry_run: trace and plan, but write nothing.
        threads: the most threads that a save uses; 0 means one per CPU.
        progress: as for oe.save(); the steps before a save are reported with sizes of 0.
        extra: values for buffers and constants that have none, by name.
        mapping: as for oe.save(): which key fills which weight.
        files: the names and contents of the files, as for oe.save().
        optimize: run torch's optimizer on the graph. Names and shapes of weights stay.
        keep: parameters and persistent buffers whose values stay in the graph, taken from the
            module.
        onnx_options: options of torch.onnx.export: `input_names`, `output_names`, `opset_version`,
            `custom_translation_table`.
        check: run the graph on ONNX Runtime before it is saved, and compare it with the module on
            the example and all input sets, or on made-up sizes if there are none. None: if
            onnxruntime is installed, the weights are the module's own, and have no more than 1 GiB.
            False: never; input sets for which a condition on a size was decided differently are
            errors.
        atol: the difference from the module that the check takes for rounding, as for
            oe.validate(). None: by the types and the sizes of the results.
        rtol: likewise, for each unit of a result.
        repeat: trace a module whose lists of layers are alike with few of them, and repeat these in
            the graph, after proving that this is equivalent. False: trace all layers.
        rewrite: rewriting of data-dependent control flow, see docs/python-rewriting.md. "auto":
            only if the plain export fails or is wrong for a set; True: always; False: never. The
            module is restored afterwards.
        asserts: "omit" leaves assertions and exceptions on the values of tensors out of the graph,
            and says so in the report; "refuse" refuses them.
        max_iterations: the largest number of iterations of a loop whose state grows, for which a
            graph needs a bound.
        unreached: the treatment of a branch, or of loops with no or one iteration, that no set
            reaches, so that it was never compared: "note" lists them in
            `report.rewriting.unreached`; "refuse" raises an error.
        state: the treatment of buffers that forward updates, and of inputs that it writes in place:
            "note" names them in `report.notes`, and the graph does not update them; "outputs" adds
            their new values as the last outputs, with their names ("output.NAME" if a weight or an
            input has the name).

    Returns:
        A report: `complete` (every weight has its value), `verified` (every byte was read back),
        `checked` (input sets on which ONNX Runtime agreed with the module), `rewriting` (the
        `changes`, each with its diff, and `unreached`), `save` (the files).

    Raises:
        RewriteError: a condition or a loop has no graph, or (`unreached="refuse"`) no set reaches a
            branch; the message names its line.
        ExportError: torch cannot trace or convert the module, or the graph is wrong for a set.
        MappingError: the module and the weights do not fit, or a weight has no value.
        Error: everything else, as oe.save() raises it. Nothing half-written stays.
    """
    options: dict[str, Any] = {
        "layout": layout,
        "dtype": dtype,
        "overwrite": overwrite,
        "verify": verify,
        "fsync": fsync,
        "dry_run": dry_run,
        "threads": threads,
        "mapping": of_class("mapping", Mapping, mapping),
        "files": of_class("files", Layout, files),
    }
    refuse_linked(options["files"].transpose_weights, layout)
    _core.check_save_options({"layout": layout, **quantize_options(quantize)})
    require("torch.onnx", *CONVERSION)
    target = checked_target(target)
    refuse_no_inputs(args)  # it reports a `path` in this place
    path_of("path", path)
    extra = extra_of(extra)
    check_onnx_options(onnx_options)
    check_weights(weights, options["files"].max_expand)
    if not overwrite and not dry_run:
        refuse_existing(path)
    with shown(progress) as callback:
        meter = Meter(callback)
        traced, is_made = made_of(target, meter)
        gives_state = state == "outputs"
        if gives_state and not isinstance(traced, nn.Module):
            raise InvalidArgumentError(
                'state="outputs" is for a module; of a program, let what was exported return it'
            )
        calls = calls_of(traced, args, kwargs, input_sets)
        check_shapes(traced, calls, dynamic_shapes)
        if isinstance(traced, nn.Module):
            check_initialized(traced)
        early = note_of_state(state_of(traced))
        warn(early)
        shapes = dynamic_shapes or shapes_of(traced, calls)
        exporter = Exporter(
            traced,
            is_made,
            calls,
            weights,
            options,
            TraceOptions(shapes, onnx_options or {}, optimize, extra, keep, repeat, gives_state),
            CheckOptions(check, atol, rtol),
            ModuleWays(traced, calls, rewrite, asserts, max_iterations, changes_example=True),
            meter,
        )
        attempt, rewriting = exporter.first()
        if unreached == "refuse":
            refuse_unreached(rewriting)
        report = exporter.save(attempt, path, callback or False, quantize)
    fixed = fixed_sizes(traced, calls, dynamic_shapes)
    return exporter.report(attempt, rewriting, report, early, fixed)

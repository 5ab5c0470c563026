"""Implements oe.diagnose_export."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from .._base.argument_types import checks_types
from .._base.errors import InvalidArgumentError, NotFoundError
from .._base.notes import Note
from .._base.options import FloatType
from .._base.packages import CONVERSION, require
from .._base.progress import Progress, ProgressCallback, told
from .._base.temporary import temporary_folder
from .._comparing.giving import calls_of
from .._comparing.references import ModuleReference
from .._control_flow import one_thread, outside_kept
from .._folders.gguf.folder import as_folder
from .._folders.models import is_transformers
from .._tracing.classes import known_classes
from .._tracing.dynamic_dimensions import named_dimensions
from .._tracing.process import process_kept
from .._tracing.surroundings import Call, Surroundings, TransformersSurroundings, register_caches
from .._validation.folders import refuse_other_inputs
from ..torch._arguments import check_onnx_options
from ..torch._conversions import conversions_kept
from ..torch._keywords import OnnxOptions
from ..torch._programs import check_initialized
from .attempts import EXPORTERS, Attempts
from .capturing import Captured, capture
from .custom_operators import ShapeFunction, why_not
from .export_reports import MENDED, MENDED_WHOLE, MENDS, ExportDiagnosis, ExportedModule
from .naming import check_choice, check_names, is_named, one_or_several
from .outcomes import Outcome
from .reports import WRONG, Status, is_inside
from .walking import Strategy


def _is_opaque(captured: Captured, opaque: Collection[Any]) -> bool:
    return is_named(captured.name, captured.module, opaque)


@dataclass
class _Tree:
    """The modules of a model, and the outcomes of their exports so far."""

    captured: list[Captured]
    attempts: Attempts
    strategy: Strategy
    opaque: Collection[Any]
    progress: ProgressCallback | None
    found: dict[str, ExportedModule] = field(default_factory=dict)
    shapes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for each in self.captured:
            reason = "" if each.called else "it was not called"
            reason = reason if each.method else "it is not traced"
            status = Status.NONE if each.called else Status.NOINPUT
            self.found[each.name] = ExportedModule(
                each.name,
                each.cls,
                status,
                reason=reason,
                order=each.order,
                inputs=each.forms("input"),
                outputs=each.forms("output"),
            )

    def children(self, of: Captured) -> list[Captured]:
        """Return the nearest called modules inside a module, looking through uncalled modules."""
        nearest: list[Captured] = []
        for each in self.captured:  # a module comes before those inside it
            if not each.called or not is_inside(each.name, of.name):
                continue
            if not any(is_inside(each.name, other.name) for other in nearest):
                nearest.append(each)
        return nearest

    def opaque_in(self, of: Captured) -> Iterator[Captured]:
        """Yield the outermost opaque modules inside a module."""
        for each in self.children(of):
            if _is_opaque(each, self.opaque):
                yield each
            else:
                yield from self.opaque_in(each)

    def attempt(self, captured: Captured, instead: Sequence[Captured]) -> Outcome:
        """Try to export a module, and record the outcome."""
        if self.progress is not None:
            called = [each.name for each in self.captured if each.called]
            self.progress(captured.name, called.index(captured.name) + 1, len(called))
        outcome = self.attempts.attempt(captured, instead)
        found = self.found[captured.name]
        custom = found.status & Status.CUSTOM
        judged = instead and not outcome.unjudged
        found.status = outcome.status | custom | (Status.CHILDC if judged else Status.NONE)
        found.step, found.reason, found.sets = outcome.step, outcome.reason, outcome.sets
        found.instead, found.notes = [each.name for each in instead], outcome.notes
        for each in instead if not outcome.unjudged else ():
            self.found[each.name].status |= Status.CUSTOM
        if captured.name not in self.shapes:
            self.shapes[captured.name] = self.attempts.dynamic_shapes(captured)
            found.dynamic = named_dimensions(self.shapes[captured.name])
        return outcome

    def judge(self, captured: Captured) -> list[Captured]:
        """Try to export a module and, if necessary, the modules inside it.

        Return the modules that have to be replaced so that the code around this module exports.
        """
        opaque = list(self.opaque_in(captured))
        outcome = self.attempt(captured, opaque)
        fails = bool(outcome.status & WRONG)
        if not fails and self.strategy != "always":
            return opaque
        inside = (each for each in self.children(captured) if not _is_opaque(each, self.opaque))
        wrong = [each for child in inside for each in self.judge(child)]
        instead = list({each.name: each for each in (*wrong, *opaque)}.values())
        if not fails:
            return opaque
        if len(instead) > len(opaque):
            outcome = self.attempt(captured, instead)
        return [captured] if outcome.status & WRONG else instead

    def judge_locally(self) -> None:
        """Try to export every module with the modules inside it replaced, where possible."""
        left_out: list[str] = []
        for each in self.captured:
            if any(is_inside(each.name, name) for name in left_out) or not each.called:
                continue
            if _is_opaque(each, self.opaque):
                left_out.append(each.name)
                continue
            inside = self.children(each)
            why = {child.name: why_not(child, self.attempts.functions) for child in inside}
            self.attempt(each, [child for child in inside if not why[child.name]])
            self.found[each.name].notes += filter(None, why.values())

    def try_rewriting(self, wrong: Sequence[Captured]) -> None:
        """Note for each module that fails by itself whether rewriting repairs its export."""
        attempts = replace(self.attempts, rewrites=True)
        model = self.captured[0]
        whole = self.found[model.name]
        if wrong and whole.status & WRONG and (whole.instead or model not in wrong):
            outcome = attempts.attempt(model)  # as oe.torch.export does it
            if outcome.status == Status.OK and outcome.notes:
                told = f"{MENDS}, including the modules inside it: {outcome.notes[0]}"
                whole.rewriting = Note(told, MENDED_WHOLE)
        for each in wrong:
            found = self.found[each.name]
            if found.rewriting:
                continue
            instead = [one for one in self.captured if one.name in found.instead]
            outcome = attempts.attempt(each, instead)
            if outcome.status == Status.OK:
                told = f"{MENDS}: {outcome.notes[0]}" if outcome.notes else MENDS
                found.rewriting = Note(told, MENDED)
            elif found.reason != outcome.reason:
                found.rewriting = f"rewriting does not mend it: {outcome.step}: {outcome.reason}"

    def judged(self) -> list[ExportedModule]:
        """Judge all modules, and return them."""
        if self.strategy == "local":
            self.judge_locally()
        else:
            self.judge(self.captured[0])
        for each in self.found.values():
            if each.status == Status.NONE:
                each.reason = "it was not tried, because the module around it exports"
            elif each.status == Status.CUSTOM:
                each.reason = "it is opaque"
        return list(self.found.values())


@dataclass
class _Model:
    """A model to diagnose, and the arguments of its calls."""

    title: str
    module: Any
    calls: list[Call]
    surroundings: Surroundings = field(default_factory=Surroundings)


def _of_module(module: Any, inputs: Any) -> _Model:
    if not isinstance(module, torch.nn.Module):
        raise InvalidArgumentError(
            f"module: expected a torch module or a transformers folder, not {module!r}"
        )
    check_initialized(module)
    ModuleReference(module)  # which refuses one in training mode
    register_caches(module)
    return _Model(type(module).__name__, module, calls_of(inputs))


def _of_folder(
    folder: Any, inputs: Any, task: str | None, dtype: str | None, dynamic: bool, notes: list[str]
) -> Iterator[_Model]:
    """Yield the graphs that oe.transformers.export would export from a folder."""
    from ..transformers._compared import example_graphs
    from ..transformers._inputs import inputs_of
    from ..transformers._reference import loaded

    refuse_other_inputs(inputs)
    with as_folder(folder) as source:
        model = loaded(Path(source), task, dtype)
        register_caches(model)
        chosen = inputs_of(model, Path(source), inputs)
    parts, left_out = example_graphs(model, chosen, dynamic)
    notes += left_out
    for name, part in parts["example"].items():
        module, surroundings = part.module, TransformersSurroundings(part.module)
        calls = [
            surroundings.prepared(each[name].given)
            for title, each in parts.items()
            if "prompt" not in title  # its cache has no tokens, and other sizes are those of texts
        ]
        yield _Model(f"{os.fspath(folder)} ({name})", module, calls, surroundings)


@checks_types
@known_classes((), None)  # those of oe.register_class()
def diagnose_export(
    module: Any,
    inputs: Any = None,
    *,
    exporter: Literal["export", "onnx", "torchscript"] = "onnx",
    strategy: Strategy = "failing",
    opaque: str | type | Collection[Any] = (),
    traced_method: Mapping[Any, str] | None = None,
    shape_functions: Mapping[Any, ShapeFunction] | None = None,
    dynamic: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
    run: bool = True,
    rewrite: bool = True,
    max_iterations: int | None = None,
    onnx_options: OnnxOptions | Mapping[str, Any] | None = None,
    task: str | None = None,
    dtype: FloatType | None = None,
    progress: Progress = None,
) -> ExportDiagnosis:
    """Find the modules that prevent a model from being exported.

    Args:
        module: a torch module in eval mode, or a transformers folder. For a folder, the first graph
            of oe.transformers.export() that fails is diagnosed.
        inputs: as for oe.diagnose(). Sizes that differ between input sets are dynamic.
        exporter: "export" calls torch.export.export. "onnx" also calls torch.onnx.export, and runs
            the graph on ONNX Runtime. "torchscript" calls torch.onnx.export with dynamo=False, and
            runs the graph.
        strategy: "failing" examines the modules inside a module only if it fails. "always" examines
            all modules. "local" tries each module with the modules inside it replaced by custom
            operators.
        opaque: names or classes of modules that are replaced by custom operators in every attempt.
        traced_method: by module name or class, the method to export instead of forward. If it is
            empty, the module is not tried by itself.
        shape_functions: by module name or class, a function for the shapes of the outputs of its
            custom operator: f(number of the output, *args, **kwargs) returns the shape, or None if
            the shape should be guessed.
        dynamic: make sizes that differ between input sets dynamic. If false, only the first set is
            used.
        atol: as for oe.validate().
        rtol: as for oe.validate().
        run: run the exported graphs, and compare their outputs.
        rewrite: for modules that fail by themselves, try whether it helps to rewrite data-dependent
            control flow, as oe.torch.export() does; not with "torchscript".
        max_iterations: as for oe.torch.export().
        onnx_options: as for oe.torch.export(), with the exporter "onnx".
        task: the task for a folder, as for oe.transformers.export().
        dtype: likewise.
        progress: as for oe.diagnose(), but called before each attempt.

    Returns:
        A diagnosis: `ok`, `sentence` (the first module that does not export), `wrong` (all of
        them), `tree()` (a line for each module, with the reasons), `html()` (a page).

    Raises:
        RunError: the module itself does not run.
        Error: any other fault that prevents the diagnosis.
    """
    check_choice("exporter", exporter, EXPORTERS)
    check_choice("strategy", strategy, get_args(Strategy))
    check_onnx_options(onnx_options)
    if onnx_options and exporter != "onnx":
        raise InvalidArgumentError('onnx_options: only used with exporter="onnx"')
    if exporter == "onnx":
        require("torch.onnx", *CONVERSION)
    opaque = one_or_several(opaque)
    notes: list[str] = []
    models: Iterator[_Model]
    if is_transformers(module):
        models = _of_folder(module, inputs, task, dtype, dynamic, notes)
    elif isinstance(module, (str, os.PathLike)):
        raise NotFoundError(f"{os.fspath(module)}: not a folder with a transformers config.json")
    elif task is not None or dtype is not None:
        raise InvalidArgumentError("task, dtype: only used with a transformers folder")
    else:
        models = iter([_of_module(module, inputs)])
    report = None
    with told(progress, counted=True) as callback, one_thread, process_kept(), outside_kept(module):
        for model in models:
            check_names(
                model.module,
                opaque=opaque,
                traced_method=traced_method or {},
                shape_functions=shape_functions or {},
            )
            attempts = Attempts(
                exporter,
                run,
                dynamic,
                (atol, rtol, set()),
                model.surroundings,
                shape_functions or {},
                onnx_options or {},
                max_iterations=max_iterations,
            )
            if report is not None:
                notes.append(f"{report.model} exports")
            report = _diagnosed(
                model, attempts, strategy, opaque, traced_method or {}, callback, rewrite
            )
            if not report.ok:
                break
    assert report is not None
    report.notes += notes
    return report


def _diagnosed(
    model: _Model,
    attempts: Attempts,
    strategy: Strategy,
    opaque: Collection[Any],
    traced: Mapping[Any, str],
    progress: ProgressCallback | None,
    rewrite: bool,
) -> ExportDiagnosis:
    with temporary_folder() as folder:
        with model.surroundings.recording():
            captured = capture(model.module, model.calls, folder, traced)
        if not captured[0].called or _is_opaque(captured[0], opaque):
            raise InvalidArgumentError(
                "opaque, traced_method: the model itself must not be opaque or left out"
            )
        for each in captured:
            attempts.tolerance[2].update(each.float_types)
        tree = _Tree(captured, attempts, strategy, opaque, progress)
        with conversions_kept():
            report = ExportDiagnosis(
                model.title,
                list(tree.judged()),
                exporter=attempts.exporter,
                strategy=strategy,
                shapes=tree.shapes,
            )
            if rewrite and attempts.exporter != "torchscript":
                names = [each.name for each in report.wrong]
                tree.try_rewriting([each for each in captured if each.name in names])
    return report

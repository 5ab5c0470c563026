"""Conversion of a module, a function that makes one, or a program to a graph of onnx_ir."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from .._base.errors import ExportError, InvalidArgumentError
from .._base.meter import Meter
from .._tracing.silence import quiet
from ._causes import causes_told
from ._converting import converted
from ._dimension_names import names_of_dims, without_names
from ._guards import Sizes, sizes_of
from ._opsets import asked, of_torch
from ._output_names import all_names, names_of_results
from ._repeated import NotRepeatedError, Repetition, repetition
from ._state import Changed, changed_by, titles, with_outputs
from ._targets import Program
from ._tracing import Traced, Tracer, trace
from ._training_mode import refuse_traced_training
from ._untouched import Untouched, stranded, tensors_of


@dataclass
class Captured:
    """An unoptimized graph, and the facts on its initializers."""

    program: torch.onnx.ONNXProgram
    ties: dict[str, list[str]] = field(default_factory=dict)
    """All names of each parameter and buffer that has several, by each of them."""
    sizes: Sizes = field(default_factory=Sizes)
    """The assumptions of the program about sizes."""
    traced: torch.export.ExportedProgram | None = None
    """The converted program."""
    note: str = ""
    """A remark for the caller on the way of tracing; usually empty."""
    repetition: Repetition | None = None
    """The way to turn the graph, then that of a few layers, into the graph of all."""
    sizes_named: dict[str, str] | None = None
    """The names in `dynamic_shapes` for torch's symbols; None if the graph already has its
    names."""
    outputs_named: Sequence[str | None] = ()
    """The names of the outputs in the module's result; empty if the caller names them."""
    opset: int | None = None
    """The opset version that the caller asks for."""
    opset_kept: str = ""
    """The reason why the graph has another opset version."""
    changed: list[Changed] = field(default_factory=list)
    """Buffers and inputs that the module changes."""
    state_named: list[str] = field(default_factory=list)
    """The names by which the outputs for these, after all others, are paired with the module's;
    nothing if nobody asked for them."""


def first_line(error: BaseException) -> str:
    """Return the first line of the innermost error: torch.onnx wraps it in pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


@contextlib.contextmanager
def told(
    what: str,
    program: torch.export.ExportedProgram | None = None,
    kind: type[ExportError] = ExportError,
) -> Iterator[None]:
    """Convert torch's errors to ExportError, and keep its prints off the caller's terminal.

    Args:
        what: the work that fails.
        program: the program to convert; without one, the module's own code runs.
        kind: the class of the error.
    """
    try:
        with quiet():
            yield
    except Exception as error:
        from .._tracing.exporter_reasons import kind_of_reason, reason_of  # needed only here

        reason = reason_of(error, program, program is None, in_full=True)
        made = kind(f"{what}: {reason}; {_way_out(reason)}")
        made.kind = kind_of_reason(reason)
        raise made from error


_WAYS_OUT = (
    ("Unsupported input type", "oe.register_class(cls) makes a class of yours an input"),
    ("in output, which is not a known type", "oe.register_class(cls) makes it an output"),
    (
        "No ONNX function found for",
        "onnx_options={'custom_translation_table': {operator: function}} gives it one, as "
        "examples/custom_operator.py shows",
    ),
)
"""Messages of torch, and advice for each."""


def _way_out(reason: str) -> str:
    """Return advice against the reason of an error, or on finding out more."""
    for said, way in _WAYS_OUT:
        if said in reason:
            return way
    return "oe.diagnose_export(module, inputs) finds the modules that keep it from being exported"


def check_initialized(module: nn.Module) -> None:
    """Raise an error for a module with uninitialized parameters, as LazyLinear has."""
    for kind, tensors in (
        ("parameter", module.named_parameters()),
        ("buffer", module.named_buffers()),
    ):
        for name, tensor in tensors:
            if nn.parameter.is_lazy(tensor):
                raise ExportError(
                    f"{kind} {name!r} is not initialized: a {_owner(module, name)} gets its shape "
                    "from its first input; run the module once first: module(*args)"
                )


def _owner(module: nn.Module, name: str) -> str:
    return type(module.get_submodule(name.rpartition(".")[0])).__name__


def _names_of_tied(module: nn.Module) -> dict[str, list[str]]:
    names: dict[int, list[str]] = {}
    for name, tensor in tensors_of(module):
        names.setdefault(id(tensor), []).append(name)
    return {name: tied for tied in names.values() if len(tied) > 1 for name in tied}


class TraceError(ExportError):
    """torch.export cannot trace a module."""


def _traced(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    tracer: Tracer,
) -> Traced:
    lost = stranded(module)
    try:
        with (
            causes_told(module),
            told("torch.export cannot trace the module", kind=TraceError),
            torch.no_grad(),
        ):
            return tracer(module, args, kwargs, dynamic_shapes)
    except ExportError as error:
        if lost:
            raise InvalidArgumentError(
                f"{', '.join(lost)}: these attributes hold tensors without data (on meta), which "
                "are neither parameters nor buffers, so that nothing can give them values; make "
                f"them buffers, or compute them in forward ({error})"
            ) from error
        raise


def _repetition(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> tuple[Repetition | None, str]:
    """Return how to repeat its layers, if possible, and otherwise the reason."""
    try:
        return repetition(module, args, kwargs), ""
    except NotRepeatedError as reason:
        return None, str(reason)


@contextlib.contextmanager
def captured(
    target: nn.Module | Program,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    onnx_options: Mapping[str, Any],
    meter: Meter,
    tracer: Tracer = trace,
    repeat: bool = False,
    is_made: bool = False,
    gives_state: bool = False,
) -> Iterator[Captured]:
    """Yield the graph; the module's parameters have storage while the context lasts.

    Args:
        target: the module, or a program made of it.
        args: its positional inputs.
        kwargs: its inputs by name.
        dynamic_shapes: as torch.export.export takes them, or with names of sizes.
        onnx_options: options of torch.onnx.export.
        meter: measures the steps.
        tracer: traces a module.
        repeat: trace a module with few of its layers, if it is proved that they can be repeated.
        is_made: the module was made by a function of the caller's.
        gives_state: buffers and inputs of a module that forward changes become outputs.
    """
    opset = asked(onnx_options)
    if isinstance(target, torch.onnx.ONNXProgram):
        copy = torch.onnx.ONNXProgram(target.model.clone(), target.exported_program)
        yield Captured(copy, traced=target.exported_program, opset=opset)
        return
    ties: dict[str, list[str]] = {}
    note, tests, repeated = "", frozenset[tuple[str, int]](), None
    names: dict[str, str] = {}
    module = target if isinstance(target, nn.Module) else None
    lent: Untouched | None = None
    try:
        if not isinstance(target, torch.export.ExportedProgram):
            check_initialized(target)
            ties = _names_of_tied(target)
            lent = Untouched(target)
            if repeat:
                with meter.step("record"):
                    repeated, note = _repetition(target, args, kwargs)
            few = repeated.shallow() if repeated is not None else contextlib.nullcontext()
            with meter.step("trace"), few:
                made = _traced(target, tuple(args), kwargs, without_names(dynamic_shapes), tracer)
            refuse_traced_training(target, made.program, is_made)
            names = names_of_dims(made.program, target, args, kwargs, dynamic_shapes)
            target, tests = made.program, made.tests
            note = "; ".join(filter(None, (note, made.note)))
        sizes = sizes_of(target, tests)  # before the conversion, which adds to them
        outputs: Sequence[str | None]
        outputs = results = [] if onnx_options.get("output_names") else names_of_results(target)
        changed = changed_by(target, module)
        state: list[str] = []
        if gives_state and changed:
            state = titles(changed, results)
            outputs = [*all_names(target, results), *state]
            if not results:  # the module's own outputs are paired by place
                state = [f"state {name}" for name in state]
            with_outputs(target, changed)
        telling = told("torch.onnx cannot convert the program", target)
        with meter.step("convert"), causes_told(module), telling:
            program = converted(target, **of_torch(onnx_options))
        found = Captured(program, ties, sizes, target, note, repeated, names, outputs, opset)
        found.changed, found.state_named = changed, state
        yield found
    finally:
        if lent is not None:
            lent.take_back()

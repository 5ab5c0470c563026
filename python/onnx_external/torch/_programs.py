"""Converts a module, a function that makes one, or a program to an onnx_ir graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from .._base.errors import ExportError, InvalidArgumentError
from .._base.meter import Meter
from .._control_flow import outside_kept
from .._repeating.kinds import find_stacks
from .._repeating.proof import proved
from .._repeating.recording import Unprovable, recorded
from .._repeating.repetition import Repetition, not_repeated
from .._repeating.shallow import shallow
from .._tracing.silence import quiet
from ._causes import causes_told
from ._converting import converted
from ._dimension_names import names_of_dims, without_names
from ._guards import Sizes, sizes_of
from ._opsets import asked, of_torch
from ._output_names import all_names, names_of_results
from ._state import Changed, changed_by, titles, with_outputs
from ._targets import Program, refuse_traced_training, signature_of
from ._tracing import Traced, Tracer, as_torch_onnx, named_line, trace
from ._untouched import Untouched, has_data, stranded, tensors_of


@dataclass
class Captured:
    """An unoptimized graph, with facts about its initializers, sizes and outputs."""

    program: torch.onnx.ONNXProgram
    ties: dict[str, list[str]] = field(default_factory=dict)
    """For each name of a parameter or buffer with several names, all of its names."""
    sizes: Sizes = field(default_factory=Sizes)
    """The assumptions of the program about sizes."""
    traced: torch.export.ExportedProgram | None = None
    """The program that was converted."""
    note: str = ""
    """A remark for the caller on how the module was traced; usually empty."""
    repetition: Repetition | None = None
    """If only a few layers were traced: the data with which the graph of all layers is made."""
    sizes_named: dict[str, str] | None = None
    """The names in `dynamic_shapes` for torch's symbols; None if dimensions are already named."""
    outputs_named: Sequence[str | None] = ()
    """The names of the outputs after the module's result; empty if the caller names them."""
    opset: int | None = None
    """The opset version that the caller requests."""
    changed: list[Changed] = field(default_factory=list)
    """Buffers and inputs that the module changes."""
    state_named: list[str] = field(default_factory=list)
    """The names by which the outputs for `changed` are paired with the module's; these outputs come
    last. Empty if the caller did not request them."""


def first_line(error: BaseException) -> str:
    """Return the first line of the innermost error, because torch.onnx adds pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return named_line(error)


@contextlib.contextmanager
def told(
    what: str,
    program: torch.export.ExportedProgram | None = None,
    kind: type[ExportError] = ExportError,
) -> Iterator[None]:
    """Convert torch's errors to ExportError, and suppress torch's output on the terminal.

    Args:
        what: the message for a failure, to which the reason is appended.
        program: the program to convert; None while the module's own code runs.
        kind: the class of the error to raise.
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
    ("Unsupported input type", "oe.register_class(cls) allows your own class as an input"),
    ("in output, which is not a known type", "oe.register_class(cls) allows it as an output"),
    (
        "No ONNX function found for",
        "onnx_options={'custom_translation_table': {operator: function}} provides one, as "
        "examples/custom_operator.py shows",
    ),
)
"""Parts of torch's messages, with advice for each."""


def _way_out(reason: str) -> str:
    """Return advice on the reason of an error, or on how to find out more."""
    for said, way in _WAYS_OUT:
        if said in reason:
            return way
    return "oe.diagnose_export(module, inputs) finds the modules that prevent the export"


def check_initialized(module: nn.Module) -> None:
    """Raise an error if a module has uninitialized parameters, such as those of LazyLinear."""
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
    """Raised if torch.export cannot trace a module."""


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
                f"{', '.join(lost)}: these attributes are tensors without data (on meta) that are "
                "neither parameters nor buffers, so they cannot get values; make them buffers, or "
                f"compute them in forward ({error})"
            ) from error
        raise


def _repetition(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> Repetition | None:
    """Determine how the module's layers can be repeated; None if no layers are alike.

    Args:
        module: the module.
        args: the positional inputs.
        kwargs: the inputs by name.

    Raises:
        Unprovable: the layers cannot be repeated; the message says why.
    """
    stacks = find_stacks(module, has_data)
    if not stacks:
        return None

    def export() -> None:
        with torch.no_grad(), quiet(), as_torch_onnx(), outside_kept(module):
            torch.export.export(module, tuple(args), kwargs=dict(kwargs or {}), strict=False)

    deep = recorded(module, stacks, export)
    with shallow(module, stacks):
        small = recorded(module, stacks, export)
    proof = proved(stacks, deep, small)
    if any(slot.segment.stack >= 0 for slot in (*proof.inputs.values(), *proof.outputs.values())):
        if len(deep.inputs) != len(small.inputs) or len(deep.outputs) != len(small.outputs):
            raise Unprovable("its layers have inputs or outputs of their own")
    return Repetition(stacks, proof, small)


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
    """Yield the graph of a target; a module's parameters have storage while the context lasts.

    Args:
        target: the module, or a program made from it.
        args: the positional inputs.
        kwargs: the inputs by name.
        dynamic_shapes: as torch.export.export takes them, or with names of sizes.
        onnx_options: options of torch.onnx.export.
        meter: measures the steps.
        tracer: traces a module.
        repeat: trace only few of a module's layers if it is proved that they can be repeated.
        is_made: True if the module was made by a function of the caller.
        gives_state: add outputs for buffers and inputs that forward changes.
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
    taken = signature_of(target)
    lent: Untouched | None = None
    try:
        if not isinstance(target, torch.export.ExportedProgram):
            check_initialized(target)
            ties = _names_of_tied(target)
            lent = Untouched(target)
            if repeat:
                with meter.step("record"):
                    try:
                        repeated = _repetition(target, args, kwargs)
                    except Unprovable as reason:
                        note = not_repeated(reason)
            few = shallow(target, repeated.stacks) if repeated else contextlib.nullcontext()
            with meter.step("trace"), few:
                made = _traced(target, tuple(args), kwargs, without_names(dynamic_shapes), tracer)
            refuse_traced_training(target, made.program, is_made)
            names = names_of_dims(made.program, taken, args, kwargs, dynamic_shapes)
            target, tests = made.program, made.tests
            note = "; ".join(filter(None, (note, made.note)))
        sizes = sizes_of(target, tests)  # before the conversion, which adds to them
        outputs: Sequence[str | None]
        outputs = results = [] if onnx_options.get("output_names") else names_of_results(target)
        changed = changed_by(target, taken)
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

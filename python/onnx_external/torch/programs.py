"""From a module, a function that makes one, or a program to a graph of onnx_ir."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import nn

from ..errors import ExportError, InvalidArgumentError
from ..meter import Meter
from .skeleton import quiet
from .untouched import Untouched, build, stranded

__all__ = ["Captured", "Target", "captured"]

Target: TypeAlias = (
    nn.Module | torch.export.ExportedProgram | torch.onnx.ONNXProgram | Callable[[], nn.Module]
)
"""What can be exported; a function is called to make a module whose parameters take no memory."""


@dataclass
class Captured:
    """A graph that nothing has optimized, and what is known about its initializers."""

    program: torch.onnx.ONNXProgram
    ties: dict[str, list[str]] = field(default_factory=dict)
    """All names of each parameter and buffer that has several, by each of them."""


def first_line(error: BaseException) -> str:
    """Of the innermost error: torch.onnx wraps that of torch.export in pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Make an ExportError of what torch raises, and keep its prints from the caller's stdout."""
    try:
        with quiet(), contextlib.redirect_stdout(io.StringIO()):
            yield
    except Exception as error:
        raise ExportError(f"{what}: {first_line(error)}") from error


def _names_of_tied(module: nn.Module) -> dict[str, list[str]]:
    names: dict[int, list[str]] = {}
    for tensors in (
        module.named_parameters(remove_duplicate=False),
        module.named_buffers(remove_duplicate=False),
    ):
        for name, tensor in tensors:
            names.setdefault(id(tensor), []).append(name)
    return {name: tied for tied in names.values() if len(tied) > 1 for name in tied}


def _trace(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
) -> torch.export.ExportedProgram:
    """As torch.onnx.export does it: without dynamo's analysis of Python first, then with it.

    It would also retry with other dynamic shapes than those that were asked for; this does not.
    """
    options = {"kwargs": dict(kwargs or {}), "dynamic_shapes": dynamic_shapes}
    try:
        return torch.export.export(module, args, strict=False, **options)
    except Exception as first:
        try:
            return torch.export.export(module, args, strict=True, **options)
        except Exception:
            raise first from first.__cause__


def _traced(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    lost = stranded(module)
    try:
        with told("torch.export cannot trace the module"), torch.no_grad():
            return _trace(module, args, kwargs, dynamic_shapes)
    except ExportError as error:
        if lost:
            raise InvalidArgumentError(
                f"{', '.join(lost)}: these attributes hold tensors without data (on meta), which "
                "are neither parameters nor buffers, so that nothing can give them values; make "
                f"them buffers, or compute them in forward ({error})"
            ) from error
        raise


@contextlib.contextmanager
def captured(
    target: Target,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    onnx_options: Mapping[str, Any],
    meter: Meter,
) -> Iterator[Captured]:
    """Yield the graph; the module's parameters have storage as long as the caller works with it."""
    if isinstance(target, torch.onnx.ONNXProgram):
        yield Captured(torch.onnx.ONNXProgram(target.model.clone(), target.exported_program))
        return
    ties: dict[str, list[str]] = {}
    lent: Untouched | None = None
    try:
        if not isinstance(target, torch.export.ExportedProgram):
            if not isinstance(target, nn.Module):
                with meter.step("build"):
                    target = build(target)
            ties = _names_of_tied(target)
            lent = Untouched(target)
            with meter.step("trace"):
                target = _traced(target, tuple(args), kwargs, dynamic_shapes)
        with meter.step("convert"), told("torch.onnx cannot convert the program"):
            program = torch.onnx.export(
                target, (), dynamo=True, optimize=False, verbose=False, **onnx_options
            )
        assert program is not None
        yield Captured(program, ties)
    finally:
        if lent is not None:
            lent.take_back()

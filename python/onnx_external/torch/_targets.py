"""Checks the object to export: a module, a function that makes one, or a torch program."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from .._base.errors import Error, ExportError, InvalidArgumentError, WrongTypeError
from .._base.meter import Meter
from .._comparing.randomness import drawing_of_program
from ._complex_numbers import paired
from ._untouched import build, has_no_data

Program: TypeAlias = torch.export.ExportedProgram | torch.onnx.ONNXProgram
Target: TypeAlias = nn.Module | Program | Callable[[], nn.Module]
"""An object that can be exported. A function is called to make a module, whose parameters take no
memory."""

_MAY_BE = (
    "a target is a module in eval mode, a function without arguments that makes one, or what "
    "torch.export.export returned"
)


def checked_target(target: Any) -> Target:
    """Return the object to export, without wrappers that are only for training or compiling.

    Raises:
        TypeError: the object is not a target; the message says what it is, and what to pass.
    """
    target = unwrapped(target)
    if fault := _fault(target):
        raise WrongTypeError(f"target: {fault}; {_MAY_BE}")
    found: Target = target
    return found


def unwrapped(target: Any) -> Any:
    """Return the module inside DataParallel, DistributedDataParallel or torch.compile wrappers."""
    parallel = nn.DataParallel, nn.parallel.DistributedDataParallel
    while True:
        if isinstance(target, parallel):
            target = target.module
        elif isinstance(target, nn.Module) and isinstance(_original(target), nn.Module):
            target = _original(target)
        else:
            return target


def _original(module: nn.Module) -> Any:
    """Return the module that was passed to torch.compile."""
    return module._modules.get("_orig_mod") if type(module).__name__ == "OptimizedModule" else None


def _fault(target: Any) -> str:
    """Return the reason why an object can never be exported; "" if it may be."""
    if isinstance(target, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return (
            "a TorchScript module (torch.jit) has no code that torch.export could trace; give the "
            "module from which it was made, with weights=scripted.state_dict()"
        )
    if isinstance(target, (nn.Module, torch.export.ExportedProgram, torch.onnx.ONNXProgram)):
        return ""
    if isinstance(target, (str, os.PathLike)):
        return (
            f"{os.fspath(target)!r} is a path, and files of weights have no code; give the module, "
            f"and weights={os.fspath(target)!r}"
        )
    if isinstance(target, Mapping):
        return (
            "a dict is not a module: a state dict has no code; give its module, and "
            "weights=state_dict"
        )
    if not callable(target):
        return f"{_called(target)} is not a module"
    return _fault_of_function(target)


def _fault_of_function(function: Any) -> str:
    try:
        taken = inspect.signature(function)
    except (TypeError, ValueError):  # it has no signature
        return ""
    try:
        taken.bind()
    except TypeError:
        parameters = ", ".join(taken.parameters)
        told = f"{_called(function)} takes ({parameters})"
        if isinstance(getattr(function, "__self__", None), nn.Module):
            return f"{told}: it is a method of a module; give the module itself"
        if inspect.isclass(function):
            return f"{told}: it is a class; give lambda: {function.__name__}(...).eval()"
        return told
    return ""


def _called(value: Any) -> str:
    """Return the name of a value as used in messages."""
    if value is None:
        return "None"
    name = getattr(value, "__qualname__", "")
    return name.rpartition("<locals>.")[2] or f"a value of type {type(value).__name__}"


def made_of(target: Target, meter: Meter) -> tuple[nn.Module | Program, bool]:
    """Return the object to trace, and whether the caller's function has just made it.

    Args:
        target: a result of `checked_target`.
        meter: measures the step.

    Raises:
        ExportError: the function raised an exception, which is the cause of the error.
        TypeError: the function returned something other than a module.
        InvalidArgumentError: the module is in training mode.
    """
    is_made = not isinstance(
        target, (nn.Module, torch.export.ExportedProgram, torch.onnx.ONNXProgram)
    )
    if is_made:
        with meter.step("build"):
            target = _built(target)
    refuse_training(target, is_made)
    return target, is_made


def _built(make: Any) -> Any:
    try:
        made = unwrapped(build(make))
    except Error:
        raise
    except Exception as error:
        raise ExportError(
            f"target: {_called(make)}() raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, nn.Module):
        raise WrongTypeError(
            f"target: {_called(make)}() returned {_called(made)}, not a module; {_MAY_BE}"
        )
    if fault := _fault(made):
        raise WrongTypeError(f"target: what {_called(make)}() returned: {fault}; {_MAY_BE}")
    return made


def signature_of(target: nn.Module | Program) -> inspect.Signature | None:
    """Return the signature of a module's forward; None for a program, or if there is none."""
    try:
        return inspect.signature(target.forward) if isinstance(target, nn.Module) else None
    except (TypeError, ValueError):  # of a script
        return None


def weights_of(target: nn.Module | Program, needed: Set[str]) -> dict[str, torch.Tensor] | None:
    """Return the needed weights of a target, by name; None if none of them has values."""
    return {
        name: paired(tensor.detach())
        for name, tensor in state_of(target).items()
        if name in needed and not has_no_data(tensor)
    } or None


def state_of(target: nn.Module | Program) -> dict[str, torch.Tensor]:
    """Return the tensors in a target's state dict; extra state that is not a tensor is left out."""
    program = target.exported_program if isinstance(target, torch.onnx.ONNXProgram) else target
    state: Mapping[str, Any] = {}
    if isinstance(program, nn.Module):
        state = program.state_dict()
    elif program is not None:
        state = program.state_dict
    return {name: each for name, each in state.items() if isinstance(each, torch.Tensor)}


def refuse_training(target: Any, is_made: bool = False) -> None:
    """Raise an error if a module has active dropout or updates running statistics.

    In training mode, every run changes the buffers of normalizations, and a trace runs the module.

    Args:
        target: the object to export; objects other than modules are accepted.
        is_made: True if the module was made by the caller's function.

    Raises:
        InvalidArgumentError: there is such a layer; the message names the first one.
    """
    if isinstance(target, nn.Module) and not any(map(is_lazy, target.parameters())):
        for name, each in _in_training(target):
            where = f"{name} ({type(each).__name__})" if name else "it"
            raise _refusal(type(target).__name__, f"{where} computes", is_made)


def refuse_traced_training(target: nn.Module, program: Any, is_made: bool) -> None:
    """Raise an error if the module's own code applies dropout in a program.

    Args:
        target: the traced module.
        program: the torch.export program of the module.
        is_made: True if the module was made by the caller's function.

    Raises:
        InvalidArgumentError: there is such an operator; the message names the first one.
    """
    if any(each.training for each in target.modules()):
        for each in drawing_of_program(program):
            if "dropout" in each or "attention" in each:
                raise _refusal(type(target).__name__, f"{each} computes", is_made)


def _refusal(name: str, what: str, is_made: bool) -> InvalidArgumentError:
    evaluated = f"lambda: {name}().eval()" if is_made else "module.eval()"
    return InvalidArgumentError(
        f"{name} is in training mode, in which {what} something else than a model that is "
        f"deployed; call its eval(), and give {evaluated}. If training mode is intended, give "
        "torch.export.export(module, args), which is exported unchanged"
    )


def _in_training(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the torch layers whose results are affected by their training mode."""
    for name, each in module.named_modules():
        if each.training and (
            (isinstance(each, nn.modules.dropout._DropoutNd) and each.p > 0)
            or (isinstance(each, nn.modules.batchnorm._NormBase) and each.track_running_stats)
            or (isinstance(each, (nn.RNNBase, nn.MultiheadAttention)) and each.dropout > 0)
            or isinstance(each, nn.RReLU)
        ):
            yield name, each

"""Raises errors for modules with layers whose results differ in training mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from .._base.errors import InvalidArgumentError
from .._comparing.randomness import drawing_of_program


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

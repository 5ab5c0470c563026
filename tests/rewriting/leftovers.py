"""Compares the state that a rewriting could leave behind, before and after."""

from __future__ import annotations

import sys
import types
import warnings
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack


def functions_of(space: dict[str, Any]) -> dict[str, types.FunctionType]:
    """Return the functions of a Python module and its classes."""
    found = {}
    for name, each in space.items():
        if isinstance(each, types.FunctionType):
            found[name] = each
        elif isinstance(each, type):
            for inner, method in vars(each).items():
                plain = getattr(method, "__func__", getattr(method, "fget", method))
                if isinstance(plain, types.FunctionType):
                    found[f"{name}.{inner}"] = plain
    return found


def is_traced(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and type(value).__name__ in ("FakeTensor", "FunctionalTensor")


def taken(module: nn.Module) -> dict[str, Any]:
    """Return the state by name. Values in a module's attributes are left out, because a module may store results."""
    space = vars(sys.modules[type(module).__module__])
    codes = {f"code of {name}": each.__code__ for name, each in functions_of(space).items()}
    return {
        **codes,
        "globals": tuple(sorted(name for name in space if name != "__warningregistry__")),
        "nn.Module.__setattr__": nn.Module.__setattr__,
        "nn.Module.__call__": nn.Module.__call__,
        "no_grad": (torch.no_grad.__enter__, torch.no_grad.__exit__),
        "gradients": torch.is_grad_enabled(),
        "modes": (_get_current_function_mode_stack(), _get_current_dispatch_mode_stack()),
        "tensor functions": (
            torch.Tensor.item,
            torch.Tensor.__bool__,
            torch.tensor,
            torch.cond,
            torch.stack,
            torch.cat,
        ),
        "builtins": tuple(
            getattr(__builtins__, "__dict__", __builtins__)[each] for each in ("int", "float", "max", "range")
        ),
        "profile": (sys.getprofile(), sys.gettrace()),
        "hooks": (len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks)),
        "own hooks": tuple(len(each._forward_hooks) + len(each._forward_pre_hooks) for each in module.modules()),
        "warnings": list(warnings.filters),
        "pytree": len(pytree.SUPPORTED_NODES),
        "default type": torch.get_default_dtype(),
        "training": tuple(each.training for each in module.modules()),
        "parameters": {name: (id(each), each._version) for name, each in module.named_parameters()},
    }


def left(before: dict[str, Any], module: nn.Module) -> str:
    """Return the first difference in words."""
    after = taken(module)
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            return f"{name} is not as it was: {before.get(name)!r}, then {after.get(name)!r}"[:300]
    for each in module.modules():
        for name, value in vars(each).items():
            if is_traced(value):
                return f"{name} of {type(each).__name__} is a tensor of the trace"
    return ""

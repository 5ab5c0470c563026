"""Gives parameters storage that is never written or read, and so takes no memory.

An anonymous mapping takes no memory until it is written to, and reads as zeros. A module whose
parameters are in such mappings can therefore be traced like any other module: its tensors are on
the CPU, have types, shapes and strides, and can even be used in computations.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from .._base.argument_types import check_type
from .._base.swapping import exchanged

_T = TypeVar("_T")

_MAPPED = 1 << 16
"""The size in bytes from which a tensor gets a mapping; smaller tensors are plain zeros."""
_NO_RESERVE = 0x4000
"""Linux's MAP_NORESERVE (in mmap since Python 3.13), which allows mappings larger than memory."""

_made: set[StorageWeakRef] = set()
"""The untouched storages; references to freed storages are removed from time to time."""
_MANY = 10_000


def _note(tensor: torch.Tensor) -> torch.Tensor:
    if len(_made) % _MANY == _MANY - 1:
        _made.difference_update({each for each in list(_made) if each.expired()})
    _made.add(StorageWeakRef(tensor.untyped_storage()))
    return tensor


def has_no_data(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has no values: in untouched storage, on meta, or fake."""
    if tensor.device.type == "meta" or type(tensor).__name__ == "FakeTensor":
        return True
    if tensor.layout is not torch.strided:  # sparse values are never untouched
        return False
    return StorageWeakRef(tensor.untyped_storage()) in _made


def has_data(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has values."""
    return not has_no_data(tensor)


def tensors_of(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the parameters and buffers of a module under each of their names."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def untouched(shape: tuple[int, ...] | torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor of zeros that takes no memory until it is written to."""
    size = dtype.itemsize * torch.Size(shape).numel()
    if size < _MAPPED:
        return _note(torch.zeros(shape, dtype=dtype))
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    memory = mmap.mmap(-1, size, flags=flags)
    return _note(torch.frombuffer(memory, dtype=torch.uint8).view(dtype).view(shape))


_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)


class ZeroProducts(TorchDispatchMode):  # type: ignore[misc]
    """A mode in which products with untouched matrices are zeros that are not computed.

    A library that multiplies matrices may first copy them into its own layout, and the copy of an
    untouched matrix would take memory.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Return zeros for products with untouched matrices, and call other operators as usual."""
        kwargs = kwargs or {}
        if func in _PRODUCTS and has_no_data(args[1]):
            return args[0].new_zeros(*args[0].shape[:-1], args[1].shape[-1])
        if func is torch.ops.aten.addmm.default and has_no_data(args[2]):
            scaled = args[0] * kwargs.get("beta", 1)
            return scaled.expand(args[1].shape[0], args[2].shape[1]).contiguous()
        return func(*args, **kwargs)


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """Return an untouched tensor with the class, type, shape and attributes of another."""
    made = untouched(tensor.shape, tensor.dtype)
    if isinstance(tensor, nn.Parameter):
        made = nn.Parameter(made, requires_grad=tensor.requires_grad)
    made.__dict__.update(tensor.__dict__)
    return made


class Untouched:
    """Gives a module's meta tensors untouched storage, and can undo this.

    Tied parameters stay tied. Tensors with data are not changed.
    """

    def __init__(self, module: nn.Module) -> None:
        self._places: list[tuple[dict[str, torch.Tensor | None], str, torch.Tensor]] = []
        made: dict[int, torch.Tensor] = {}
        for each in module.modules():
            for tensors in (each._parameters, each._buffers):
                for name, tensor in tensors.items():
                    if tensor is None or tensor.device.type != "meta":
                        continue
                    if id(tensor) not in made:
                        made[id(tensor)] = _like(tensor)
                    self._places.append((tensors, name, tensor))
                    tensors[name] = made[id(tensor)]

    def take_back(self) -> None:
        """Restore the meta tensors."""
        for tensors, name, tensor in self._places:
            tensors[name] = tensor
        self._places = []


def stranded(module: nn.Module) -> list[str]:
    """Return the names of attributes that are meta tensors but neither parameters nor buffers."""
    found = []
    for prefix, each in module.named_modules():
        for name, value in vars(each).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            inside = value.values() if isinstance(value, dict) else value
            among = inside if isinstance(value, (list, tuple, dict)) else [value]
            if any(isinstance(one, torch.Tensor) and one.device.type == "meta" for one in among):
                found.append(f"{prefix}.{name}" if prefix else name)
    return found


def _on_meta(parameter: nn.Parameter) -> nn.Parameter:
    made = nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
    made.__dict__.update(parameter.__dict__)
    return made


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Move each parameter to meta when this thread adds it to a module; buffers remain real."""
    register = nn.Module.register_parameter
    thread = threading.get_ident()
    moved: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def register_parameter(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        is_ours = threading.get_ident() == thread and not nn.parameter.is_lazy(param)
        if is_ours and param is not None and param.device.type != "meta":
            if param not in moved:
                moved[param] = _on_meta(param)
            param = moved[param]
        register(self, name, param)

    with exchanged(nn.Module, "register_parameter", register_parameter):
        yield


def build(make: Callable[[], _T]) -> _T:
    """Call a function that makes a module, without memory for the module's parameters.

    Each parameter's values are dropped as soon as the parameter is added to its module, before it
    is initialized, so at most one at a time is in memory. Buffers that are not computed from
    parameters keep their values.

    Args:
        make: a function without arguments, such as `lambda: Model(config)`.

    Raises:
        WrongTypeError: `make` is not a function, or it takes arguments.
    """
    check_type("make", make)
    with _parameters_on_meta():
        made = make()
    if isinstance(made, nn.Module):
        Untouched(made)
    return made

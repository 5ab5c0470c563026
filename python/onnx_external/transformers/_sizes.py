"""Checks a config's numbers against the checkpoint before a model is built from them.

A model cannot have more layers than its checkpoint has tensors, or a dimension larger than the
whole checkpoint, or many parameters that the checkpoint lacks. Numbers that contradict this would
keep transformers busy for hours, or exhaust the memory.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from .._base.errors import MismatchError
from .._base.swapping import exchanged

_LAYERS = re.compile(r"layers?(_count)?$|(^|_)depths?$|_blocks?$|(^|_)stages$|^n_layer$")
_AT_LEAST_ONE = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
_LABELS = re.compile(r"^_?num_(labels|classes)$")
_NUMBER_OF = re.compile(r"^_?(num|n)_")
_DIMENSION = re.compile(r"(size|sizes|dim|dims|width|channels)$|^d_")
_PLACES = re.compile(r"length$|positions$|position_embeddings$")
"""Settings for sequence lengths, to which no tensor may correspond."""

# Numbers up to these make no model that takes seconds or much memory.
_FEW_LAYERS = 256
_FEW_LABELS = 1 << 16
_SMALL = 1 << 20
_MORE_PARAMETERS = 2_000
"""The number of parameters that a model may have in addition to 4 per checkpoint tensor."""
_MORE_ELEMENTS = 1 << 26
"""The number of elements that parameters may have in addition to 8 times the checkpoint's."""
_BUFFER_BYTES = 1 << 29
"""The number of bytes that buffers may have in addition to 8 per element of the checkpoint."""


class _Number(NamedTuple):
    where: str
    """The path in the config, such as "text_config.num_hidden_layers" or "depths[2]"."""
    key: str
    value: float


def _numbers(config: Any, where: str = "", key: str = "") -> Iterator[_Number]:
    if isinstance(config, dict):
        for name, value in config.items():
            if name not in ("id2label", "label2id"):
                yield from _numbers(value, f"{where}.{name}" if where else str(name), str(name))
    elif isinstance(config, list):
        for place, value in enumerate(config):
            yield from _numbers(value, f"{where}[{place}]", key)
    elif isinstance(config, (int, float)) and not isinstance(config, bool):
        yield _Number(where, key, config)


def _is_size(key: str) -> bool:
    return bool(_NUMBER_OF.match(key) or _DIMENSION.search(key))


class Sizes:
    """Compares the numbers in a config with the shapes in a checkpoint."""

    def __init__(self, path: Path, config: Mapping[str, Any], shapes: Mapping[str, Any]) -> None:
        """Store the config's path and content, and the shapes of the checkpoint's tensors."""
        self._path = path
        self._numbers = list(_numbers(dict(config)))
        self._shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self._elements = sum(map(math.prod, self._shapes.values()))
        self._largest = max((max(shape, default=0) for shape in self._shapes.values()), default=0)

    def check(self) -> None:
        """Raise an error for numbers that are wrong in any model.

        Raises:
            MismatchError: the checkpoint contradicts a number.
        """
        if not self._shapes:
            return
        layers: dict[str, float] = {}
        for number in self._numbers:
            counts_layers = _LAYERS.search(number.key) and _NUMBER_OF.match(number.key)
            if counts_layers and number.value < (number.where in _AT_LEAST_ONE):
                raise self._other_layers(number.where, number.value)
            if _LAYERS.search(number.key):
                whole = number.where.split("[")[0]
                layers[whole] = layers.get(whole, 0) + max(1, number.value)
                if layers[whole] > max(len(self._shapes), _FEW_LAYERS):
                    raise self._other_layers(whole, layers[whole])
            elif _LABELS.match(number.key) and number.value > max(self._largest, _FEW_LABELS):
                raise self._too_large(number)
            elif _PLACES.search(number.key) or not _is_size(number.key):
                continue
            elif number.value > max(self._elements, _SMALL):
                raise self._too_large(number)

    def _other_layers(self, where: str, value: float) -> MismatchError:
        return self._contradiction(
            where, value, f"the checkpoint has {len(self._shapes)} tensors", self._last_layer()
        )

    def _too_large(self, number: _Number, shape: tuple[int, ...] = ()) -> MismatchError:
        nearest = self._nearest(shape)
        what = "no tensor of the checkpoint has that size"
        return self._contradiction(number.where, number.value, what, nearest)

    def _contradiction(self, where: str, value: float, what: str, tensor: str) -> MismatchError:
        shown = f"{value:.0f}" if float(value).is_integer() and value < 1e15 else f"{value:g}"
        shape = list(self._shapes[tensor])
        error = MismatchError(
            f"{self._path}: {where} is {shown}, but {what}: {tensor} has the shape {shape}; "
            "correct the number, or replace the weights by those that belong to the config"
        )
        error.code = "mismatch"
        return error

    def _last_layer(self) -> str:
        """Return the name of a tensor in the last layer of the checkpoint."""

        def number(name: str) -> int:
            return max((int(part) for part in name.split(".") if part.isdecimal()), default=-1)

        return max(self._shapes, key=number)

    def _nearest(self, shape: tuple[int, ...]) -> str:
        """Return the name of a tensor that shares dimensions with a shape, else the largest one."""

        def alike(name: str) -> tuple[bool, int, int]:
            own = self._shapes[name]
            same = sum(a == b for a, b in zip(own, shape, strict=False))
            return len(own) == len(shape), same, max(own, default=0)

        return max(self._shapes, key=alike)

    @contextlib.contextmanager
    def bounding(self) -> Iterator[None]:
        """Stop the building of a model inside the context when it outgrows the checkpoint.

        Raises:
            MismatchError: the model is too large; the error names the number that may cause it.
        """
        if not self._shapes:
            yield
            return
        bound = _Bound(len(self._shapes), self._elements, self._refuse)
        register, buffer = nn.Module.register_parameter, nn.Module.register_buffer
        thread = threading.get_ident()

        def parameter(self: nn.Module, name: str, param: Any) -> None:
            if param is not None and threading.get_ident() == thread:
                bound.add_parameter(param)
            register(self, name, param)

        def buffered(self: nn.Module, name: str, tensor: Any, persistent: bool = True) -> None:
            if tensor is not None and threading.get_ident() == thread:
                bound.add_buffer(tensor)
            buffer(self, name, tensor, persistent)

        try:
            with (
                exchanged(nn.Module, "register_parameter", parameter),
                exchanged(nn.Module, "register_buffer", buffered),
            ):
                yield
        except (RuntimeError, OverflowError, MemoryError) as error:
            found = self._suspect(())  # e.g. a size whose product is not a number of torch
            if found is None or found.value <= _SMALL:
                raise
            raise self._too_large(found) from error

    def _refuse(self, shape: tuple[int, ...] | None) -> MismatchError:
        """Return the error for a shape that is too large; None means too many parameters."""
        if shape is None:
            counts = [each for each in self._numbers if _LAYERS.search(each.key)]
            counts = counts or [each for each in self._numbers if _NUMBER_OF.match(each.key)]
            if counts:
                most = max(counts, key=lambda each: each.value)
                return self._other_layers(most.where, most.value)
        found = self._suspect(shape or ())
        if found is not None:
            return self._too_large(found, shape or ())
        largest = self._nearest(())
        return MismatchError(
            f"{self._path}: describes a model that is many times as large as the checkpoint, which "
            f"has {self._elements} elements in {len(self._shapes)} tensors: {largest} has the "
            f"shape {list(self._shapes[largest])}; replace the weights by those that belong to it"
        )

    def _suspect(self, shape: tuple[int, ...]) -> _Number | None:
        """Return the largest number that is in a shape but in no tensor of the checkpoint."""
        dims = {dim for own in self._shapes.values() for dim in own}
        unknown = [
            each
            for each in self._numbers
            if each.value not in dims and (_is_size(each.key) or _PLACES.search(each.key))
        ]
        inside = [each for each in unknown if each.value in shape]
        larger = [each for each in unknown if each.value > self._largest]
        return max(inside or larger, key=lambda each: each.value, default=None)


class _Bound:
    """Counts a model's parameters and buffers, and raises an error if there are too many."""

    def __init__(self, tensors: int, elements: int, refuse: Callable[[Any], Exception]) -> None:
        self._parameters = 4 * tensors + _MORE_PARAMETERS
        self._elements = 8 * elements + _MORE_ELEMENTS
        self._bytes = 8 * elements + _BUFFER_BYTES
        self._refuse = refuse

    def add_parameter(self, parameter: Any) -> None:
        self._parameters -= 1
        self._elements -= parameter.numel()
        if self._elements < 0:
            raise self._refuse(tuple(parameter.shape))
        if self._parameters < 0:
            raise self._refuse(None)

    def add_buffer(self, buffer: Any) -> None:
        self._bytes -= buffer.numel() * buffer.element_size()
        if self._bytes < 0:
            raise self._refuse(tuple(buffer.shape))

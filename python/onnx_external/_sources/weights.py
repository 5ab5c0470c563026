"""Converts the caller's weights to the forms that the extension module takes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from .. import _core
from .._base.argument_types import path_of
from .._base.errors import Error, NotFoundError, WrongTypeError
from .._base.options import StrPath, Weights
from .checkpoint import Checkpoint, Tensor, open_checkpoint
from .tensors import Loose, checked_name, describe

Selection = tuple[_core.Checkpoint, list[tuple[int, str]]]
Source = StrPath | _core.Checkpoint | list[Loose] | Selection
"""A source of weights for the extension module; a selection lists tensors with new names."""


def given_sources(what: str, given: Weights | None) -> list[Source] | None:
    """Convert weights to sources; `what` is the name of the argument for messages."""
    if given is None:
        return None
    if isinstance(given, (str, os.PathLike)):
        return [path_of(what, given)]
    if isinstance(given, Checkpoint):
        return [given.core]
    if hasattr(given, "read"):
        return [_of_stream(what, given)]
    if isinstance(given, Mapping):
        return _of_tensors(what, given)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.nn.Module):
        return _of_tensors(what, _state_of(given, torch))
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise WrongTypeError(
            f"{what}: expected a path, a dict from names to tensors, an open Checkpoint, or "
            f"several of these, not {type(given).__name__}"
        )
    return [source for one in given for source in given_sources(what, one) or ()]


def _state_of(module: Any, torch: Any) -> dict[str, Any]:
    """Return the tensors in the state dict of a module."""
    state = module.state_dict()
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def _of_stream(what: str, stream: Any) -> _core.Checkpoint:
    """Open the rest of a stream, from its current position, as a file in memory."""
    with os.fdopen(os.memfd_create("checkpoint"), "wb") as memory:
        try:
            import shutil  # which imports all kinds of compression

            shutil.copyfileobj(stream, memory)
        except TypeError as error:
            raise WrongTypeError(f"{what}: expected a binary stream, not a text stream") from error
        memory.flush()
        path = f"/proc/self/fd/{memory.fileno()}"
        try:
            return _core.Checkpoint.open([path], {})
        except Error as error:
            error.args = (str(error.args[0]).replace(path, f"{what} (a stream)"),)
            raise


def _of_tensors(what: str, given: Mapping[str, Any]) -> list[Source]:
    loose: list[Loose] = []
    selections: dict[int, Selection] = {}
    for name, tensor in given.items():
        checked_name(what, name)
        if isinstance(tensor, Tensor):
            core, index = tensor.place
            selections.setdefault(id(core), (core, []))[1].append((index, name))
        else:
            loose.append(describe(name, tensor))
    sources: list[Source] = [*selections.values()]
    return sources if sources and not loose else [loose, *sources]


def given_extra(given: Weights | None) -> list[Source] | None:
    """Convert the tensors in `extra`, which may be a dict that maps some names to files."""
    if isinstance(given, Mapping) and not isinstance(given, Checkpoint):
        given = {
            name: _tensor_of_file(name, value) if isinstance(value, (str, os.PathLike)) else value
            for name, value in given.items()
        }
    return given_sources("extra", given)


def _tensor_of_file(name: str, path: StrPath) -> Tensor:
    """Return the tensor with this name in a checkpoint, or its only tensor."""
    checkpoint = open_checkpoint(path)
    if name in checkpoint:
        return checkpoint[name]
    if len(checkpoint) == 1:
        return next(iter(checkpoint.values()))
    raise NotFoundError(
        f"extra: {os.fspath(path)!r} contains {len(checkpoint)} tensors, but not {name!r}"
    )

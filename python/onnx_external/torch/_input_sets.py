"""Brings the inputs of a module in several sets into the form of the first set."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .._base.errors import InvalidArgumentError, WrongTypeError
from .._base.notes import Note
from .._comparing.giving import call_of, is_no_input, with_tensors
from .._tracing.surroundings import Call

_FIXED = Note(
    "all sizes are fixed as in the example; to let them vary, give dynamic_shapes=..., or a set "
    "with other sizes in input_sets=[...]",
    "fixed-sizes",
)
"""The note on an export for which no dynamic sizes were declared."""


def calls_of(
    target: Any, args: Any, kwargs: Mapping[str, Any] | None, input_sets: Sequence[Any]
) -> list[Call]:
    """Return the arguments of all calls: those of the example, and of each further set.

    Args:
        target: the object to export; for a module, arguments may be given by position or by name.
        args: the example: a tensor, positional inputs, or a dict of inputs by name.
        kwargs: the example's inputs by name, in addition to positional inputs.
        input_sets: further sets: a tuple of arguments, a dict of keywords, or a pair of both.
    """
    example = with_tensors(_example(args, kwargs))
    program = getattr(target, "exported_program", target)
    if not any(example) and getattr(program, "example_inputs", None):
        example = program.example_inputs  # a program needs none to be exported
    _refuse_misfit(target, example)
    if isinstance(input_sets, Mapping) or not isinstance(input_sets, Sequence):
        raise InvalidArgumentError(f"input_sets: {_short(input_sets)} is not a list; {_SETS}")
    sets = (with_tensors(_set(each, example)) for each in input_sets)
    return [example, *(_alike(target, example, each) for each in sets)]


def refuse_no_inputs(args: Any) -> None:
    """Raise an error for a path or a module in place of a module's arguments."""
    if is_no_input(args):
        raise WrongTypeError(
            f"args: expected the arguments of the module, not {_short(args)}; {_CALL}"
        )


def _example(args: Any, kwargs: Mapping[str, Any] | None) -> Call:
    refuse_no_inputs(args)
    if args is None or isinstance(args, (tuple, list)):
        return tuple(args or ()), dict(kwargs or {})
    if isinstance(args, Mapping) and kwargs:
        raise InvalidArgumentError("args, kwargs: both are inputs by name; give only one of them")
    found, named = call_of(args, "args")
    return found, named | dict(kwargs or {})


_CALL = (
    "one input is x or (x,), several are (x, y), inputs by name are {'name': x}: "
    'oe.torch.export(module, (x,), "out/model.onnx")'
)


def _set(given: Any, example: Call) -> Call:
    """Return one further set; a list is treated as a tuple, unless the module takes a list."""
    if is_no_input(given):
        raise InvalidArgumentError(f"input_sets: {_short(given)} is not a set of inputs; {_SETS}")
    if isinstance(given, list):
        takes_list = len(example[0]) == 1 and isinstance(example[0][0], list)
        if not takes_list or (len(given) == 1 and isinstance(given[0], list)):
            given = tuple(given)
    return call_of(given, "input_sets")


_SETS = (
    "expected a list of sets, each a tuple of positional inputs, a dict of inputs by name, or a "
    "pair of both: input_sets=[(x,), (longer_x,)]"
)


def _short(value: Any) -> str:
    return repr(value) if isinstance(value, str) else type(value).__name__


def _refuse_misfit(target: Any, example: Call) -> None:
    """Raise an error if the module cannot be called with such inputs, whatever their values."""
    if not isinstance(target, nn.Module) or target._forward_pre_hooks:  # which may change them
        return
    try:
        taken = inspect.signature(target.forward, follow_wrapped=False)
    except (TypeError, ValueError):  # of a script
        return
    args, kwargs = example
    try:
        taken.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidArgumentError(
            f"args: {type(target).__name__} takes ({', '.join(taken.parameters)}), not "
            f"{_told(args, kwargs)}: {error}; {_CALL}"
        ) from None


def _alike(target: Any, example: Call, call: Call) -> Call:
    """Return the arguments of an input set in the positions and the order of the example."""
    args, kwargs = call
    if isinstance(target, nn.Module) and (
        len(args) != len(example[0]) or kwargs.keys() != example[1].keys()
    ):
        args, kwargs = _placed(target, example, call)
    if len(args) != len(example[0]) or kwargs.keys() != example[1].keys():
        raise InvalidArgumentError(
            f"input_sets: a set has {_told(args, kwargs)}, the example has {_told(*example)}; all "
            f"sets must have the same inputs: {_SETS}"
        )
    kwargs = {name: kwargs[name] for name in example[1]}
    names = _positional(target)
    given, wanted = (pytree.tree_leaves(each) for each in ((args, kwargs), example))
    _refuse_other_none(example, (args, kwargs), names)
    if len(given) != len(wanted):
        raise InvalidArgumentError(
            f"input_sets: a set has {len(given)} values in its lists and dicts, the example has "
            f"{len(wanted)}; the number of a graph's inputs is fixed: stack the tensors of a list "
            "into one whose first size varies, or export a model for each length"
        )
    _refuse_other_kind(example, (args, kwargs), names)
    return args, kwargs


def _positional(target: Any) -> list[str]:
    """Return the names of forward's positional arguments; an empty list for a program."""
    if not isinstance(target, nn.Module):
        return []
    parameters = inspect.signature(target.forward).parameters
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [name for name, each in parameters.items() if each.kind in kinds]


def _placed(target: nn.Module, example: Call, call: Call) -> Call:
    """Return a set whose arguments are positional where those of the example are positional.

    Omitted arguments become None if that is their default.

    Raises:
        InvalidArgumentError: the set has other arguments than the example; the message names them.
    """
    parameters, plain = inspect.signature(target.forward).parameters, _positional(target)
    if max(len(call[0]), len(example[0])) > len(plain):  # forward takes *args
        return call
    given, wanted = (
        dict(zip(plain, args, strict=False)) | named for args, named in (call, example)
    )
    left_out = {name for name, each in parameters.items() if each.default is None}
    given |= {n: None for n in wanted if n not in given and wanted[n] is None and n in left_out}
    given = {n: v for n, v in given.items() if n in wanted or v is not None or n not in left_out}
    told = [f"no {name}, which the example has" for name in wanted if name not in given]
    told += [f"{name}, which the example lacks" for name in given if name not in wanted]
    if told:
        raise InvalidArgumentError(
            f"input_sets: a set has {' and '.join(told)}; all sets must have the same inputs, and "
            f"{type(target).__name__} takes ({', '.join(parameters)}): {_SETS}"
        )
    return tuple(given.pop(name) for name in plain[: len(example[0])]), given


def _refuse_other_none(example: Call, call: Call, names: Sequence[str]) -> None:
    """Raise an error if a set has None where the example has a value, or the reverse."""
    leaves = (pytree.tree_flatten_with_path(each)[0] for each in (example, call))
    for (path, one), (_, other) in zip(*leaves, strict=False):
        if (one is None) != (other is None):
            sides = "a value in a set, and None" if one is None else "None in a set, and a value"
            raise InvalidArgumentError(
                f"input_sets: {_place(path, names)} is {sides} in the example; the number of a "
                "graph's inputs is fixed: export a model for each case"
            )


def _refuse_other_kind(example: Call, call: Call, names: Sequence[str]) -> None:
    """Raise an error if a set has another string than the example, or a tensor of another form.

    A string cannot be an input of a graph, and the type and rank of an input are fixed.
    """
    leaves = (pytree.tree_flatten_with_path(each)[0] for each in (example, call))
    for (path, one), (_, other) in zip(*leaves, strict=True):
        if one != other if isinstance(one, str) else isinstance(other, str):
            raise InvalidArgumentError(
                f"input_sets: {_place(path, names)} is {other!r} in a set, but {one!r} in the "
                "example; a string is not an input of a graph, and the example's string "
                "determines what the graph computes: export a model for each string"
            )
        sides = isinstance(one, torch.Tensor), isinstance(other, torch.Tensor)
        if any(sides) and _form(one) != _form(other):
            raise InvalidArgumentError(
                f"input_sets: {_place(path, names)} is {_form(other)} in a set, but {_form(one)} "
                "in the example; the type and the number of dimensions of a graph's input are "
                "fixed, and only sizes may vary"
            )


def _form(tensor: Any) -> str:
    """Describe the properties of a value that must be equal in all sets."""
    if not isinstance(tensor, torch.Tensor):
        return f"a value of type {type(tensor).__name__}"
    dimensions = "dimension" if tensor.dim() == 1 else "dimensions"
    return f"{str(tensor.dtype).removeprefix('torch.')} with {tensor.dim()} {dimensions}"


def _place(path: Sequence[Any], names: Sequence[str]) -> str:
    """Return the name of a leaf in positional or keyword inputs, such as `x.mode`."""
    where, first, *rest = path
    if where.idx:
        name = str(first.key)
    else:
        name = names[first.idx] if first.idx < len(names) else f"positional input {first.idx}"
    return f"{name}{pytree.keystr(tuple(rest))}"


def _told(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    count = f"{len(args)} positional input{'' if len(args) == 1 else 's'}"
    return count + (f" and {', '.join(kwargs)}" if kwargs else "")


def fixed_sizes(target: Any, calls: Sequence[Call], dynamic_shapes: Any) -> list[str]:
    """Return a note if sizes could vary but the caller did not say whether they should.

    Args:
        target: a module, or a program, whose dynamic sizes are already determined.
        calls: the example, and further input sets.
        dynamic_shapes: the caller's argument, or None.
    """
    programs = torch.export.ExportedProgram, torch.onnx.ONNXProgram
    if dynamic_shapes is not None or len(calls) > 1 or isinstance(target, programs):
        return []
    leaves = pytree.tree_leaves(calls[0])
    return [_FIXED] if any(isinstance(each, torch.Tensor) and each.dim() for each in leaves) else []


def shapes_of(target: Any, calls: Sequence[Call]) -> dict[str, Any] | None:
    """Return dynamic_shapes in which sizes that differ between the sets are dynamic."""
    if not isinstance(target, nn.Module) or len(calls) < 2:
        return None
    from .._tracing.dynamic_dimensions import guessed_shapes

    return guessed_shapes(target.forward, calls)

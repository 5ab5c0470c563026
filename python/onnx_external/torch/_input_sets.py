"""The inputs of a module in several sets, all in the form of the first."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .._errors import InvalidArgumentError
from .._validation.giving import call_of, is_no_input, with_tensors
from ._guards import Call

FIXED = (
    "all sizes are fixed as in the example; dynamic_shapes=..., or a set of other sizes in "
    "input_sets=[...], lets them vary"
)
"""What a report says of an export to which nobody told a size that varies."""


def calls_of(
    target: Any, args: Any, kwargs: Mapping[str, Any] | None, input_sets: Sequence[Any]
) -> list[Call]:
    """Return what the module is called with: the example, and each further set.

    Args:
        target: the module, if it is one; then arguments may be given by place or by name.
        args: the example: a tensor, positional inputs, or a dict of inputs by name.
        kwargs: its inputs by name, beside positional ones.
        input_sets: further sets: a tuple of arguments, a dict of keywords, or a pair of both.
    """
    example = with_tensors(_example(args, kwargs))
    program = getattr(target, "exported_program", target)
    if not any(example) and getattr(program, "example_inputs", None):
        example = program.example_inputs  # a program needs none to be exported
    _refuse_misfit(target, example)
    if isinstance(input_sets, Mapping) or not isinstance(input_sets, Sequence):
        raise InvalidArgumentError(
            "input_sets: expected a list of sets, each a tuple of positional inputs, a dict of "
            "inputs by name, or a pair of both: input_sets=[(x,), (longer_x,)]"
        )
    sets = (with_tensors(call_of(each)) for each in input_sets)
    return [example, *(_alike(target, example, each) for each in sets)]


def _example(args: Any, kwargs: Mapping[str, Any] | None) -> Call:
    if is_no_input(args):
        raise TypeError(
            f"args: expected what the module is called with, not {_short(args)}; {_CALL}"
        )
    if args is None or isinstance(args, (tuple, list)):
        return tuple(args or ()), dict(kwargs or {})
    if isinstance(args, Mapping) and kwargs:
        raise InvalidArgumentError("args, kwargs: both are inputs by name; give one of them")
    found, named = call_of(args)
    return found, named | dict(kwargs or {})


_CALL = (
    "one input is x or (x,), several are (x, y), inputs by name are {'name': x}: "
    'oe.torch.export(module, (x,), "out/model.onnx")'
)


def _short(value: Any) -> str:
    return repr(value) if isinstance(value, str) else type(value).__name__


def _refuse_misfit(target: Any, example: Call) -> None:
    """Refuse inputs that the module cannot be called with, whatever their values are."""
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
    """A call with as many positional arguments as the example, and its order of keywords."""
    args, kwargs = call
    if isinstance(target, nn.Module) and len(args) != len(example[0]):
        parameters = inspect.signature(target.forward).parameters.values()
        plain = [each.name for each in parameters if each.kind == each.POSITIONAL_OR_KEYWORD]
        given = {**dict(zip(plain, args, strict=False)), **kwargs}
        names = plain[: len(example[0])]
        if len(args) <= len(plain) and all(name in given for name in names):
            args = tuple(given.pop(name) for name in names)
            kwargs = given
    if len(args) != len(example[0]) or kwargs.keys() != example[1].keys():
        raise InvalidArgumentError(
            f"input_sets: a set has {_told(args, kwargs)}, the example {_told(*example)}; all sets "
            "must have the same inputs"
        )
    kwargs = {name: kwargs[name] for name in example[1]}
    given, wanted = (pytree.tree_leaves(each) for each in ((args, kwargs), example))
    if any((one is None) != (other is None) for one, other in zip(given, wanted, strict=False)):
        raise InvalidArgumentError(
            "input_sets: what is None in the example is a value in a set, or the other way round; "
            "a graph has one number of inputs: export a model for each case"
        )
    if len(given) != len(wanted):
        raise InvalidArgumentError(
            f"input_sets: a set has {len(given)} values in its lists and dicts, the example "
            f"{len(wanted)}; a "
            "graph has one number of inputs: stack the tensors of a list into one whose first size "
            "varies, or export a model for each length"
        )
    _refuse_other_kind(example, (args, kwargs))
    return args, kwargs


def _refuse_other_kind(example: Call, call: Call) -> None:
    """Refuse a set in which a text is another one, or a tensor has another form.

    A text is no input of a graph, and an input has one type and one number of dimensions.
    """
    leaves = (pytree.tree_flatten_with_path(each)[0] for each in (example, call))
    for (path, one), (_, other) in zip(*leaves, strict=True):
        if one != other if isinstance(one, str) else isinstance(other, str):
            raise InvalidArgumentError(
                f"input_sets: {_place(path)} is {other!r} in a set, and {one!r} in the example; a "
                "text is no input of a graph, which does what the example's text says: export a "
                "model for each"
            )
        tensors = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        if tensors and _form(one) != _form(other):
            raise InvalidArgumentError(
                f"input_sets: {_place(path)} is {_form(other)} in a set, and {_form(one)} in the "
                "example; an input of a graph has one type and one number of dimensions, of which "
                "only the sizes vary"
            )


def _form(tensor: torch.Tensor) -> str:
    """What must be the same in all sets, as text."""
    dimensions = "dimension" if tensor.dim() == 1 else "dimensions"
    return f"{str(tensor.dtype).removeprefix('torch.')} with {tensor.dim()} {dimensions}"


def _place(path: Sequence[Any]) -> str:
    """The name of a leaf in a pair of positional inputs and inputs by name, as in `x.mode`."""
    where, first, *rest = path
    name = str(first.key) if where.idx else f"positional input {first.idx}"
    return f"{name}{pytree.keystr(tuple(rest))}"


def _told(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    count = f"{len(args)} positional input{'' if len(args) == 1 else 's'}"
    return count + (f" and {', '.join(kwargs)}" if kwargs else "")


def fixed_sizes(target: Any, calls: Sequence[Call], dynamic_shapes: Any) -> list[str]:
    """Return a note if sizes could vary, and nobody said whether they should.

    Args:
        target: a module, or a function that makes one: programs have their sizes already.
        calls: the example, and further sets.
        dynamic_shapes: as the caller gave it; None: not at all.
    """
    programs = torch.export.ExportedProgram, torch.onnx.ONNXProgram
    if dynamic_shapes is not None or len(calls) > 1 or isinstance(target, programs):
        return []
    leaves = pytree.tree_leaves(calls[0])
    return [FIXED] if any(isinstance(each, torch.Tensor) and each.dim() for each in leaves) else []


def shapes_of(target: Any, calls: Sequence[Call]) -> dict[str, Any] | None:
    """Return dynamic_shapes in which the sizes vary that differ among the sets."""
    if not isinstance(target, nn.Module) or len(calls) < 2:
        return None
    from .._diagnosis.dynamic_dimensions import guessed_shapes

    return guessed_shapes(target.forward, calls)

"""Chooses the input sets that a validation runs."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .._base.errors import InvalidArgumentError, WrongTypeError
from .._tracing.surroundings import Call
from .inputs import Given, InputSet, Making, made_sets
from .recorded import is_recorded, read_set, recorded_sets
from .references import ModuleReference, RecordedReference, Reference
from .running import Session
from .values import Value, from_torch, to_torch


def is_path(value: Any) -> bool:
    """Return whether a value is a path."""
    return isinstance(value, (str, os.PathLike))


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _value(given: Any) -> Value:
    """Convert a value from the caller to an input value of the model."""
    if _is_tensor(given):
        return from_torch(given)
    if given is None or isinstance(given, np.ndarray):
        return given
    if isinstance(given, list) and any(isinstance(each, np.ndarray) for each in given):
        return [np.asarray(each) for each in given]
    array = np.asarray(given)
    return array.astype(object) if array.dtype.kind in "UT" else array


def _from_files(paths: Sequence[Any], session: Session) -> list[InputSet]:
    found = [each for path in paths for each in recorded_sets(Path(path))]

    def read(path: Path) -> Given:
        feed, expected = read_set(path, session.inputs, session.outputs)
        return Given(feed, expected, origin="recorded")

    names = [path.name for path in found]
    unique = len(set(names)) == len(names)
    return [InputSet(path.name if unique else str(path), partial(read, path)) for path in found]


_NO_INPUTS = (str, os.PathLike, bytes, bytearray, set, frozenset, type)


def is_no_input(given: Any) -> bool:
    """Return whether a value cannot be an argument of a module, such as a path, module or class."""
    torch = sys.modules.get("torch")
    is_module = torch is not None and isinstance(given, torch.nn.Module)
    return is_module or isinstance(given, _NO_INPUTS) or inspect.isroutine(given)


def calls_of(inputs: Any) -> list[Call]:
    """Return the module's arguments in each input set, in the form that callers pass them."""
    sets = inputs if isinstance(inputs, list) else [inputs]
    if inputs is None or not sets or any(map(is_no_input, sets)):
        given = "nothing" if inputs is None or not sets else repr(inputs)
        raise InvalidArgumentError(
            "inputs: expected at least one set in a form that the module takes (a tensor, a tuple "
            f"of arguments, a dict of keywords, or a list of these), not {given}"
        )
    return [with_tensors(call_of(each)) for each in sets]


def with_tensors(call: Call) -> Call:
    """Return a call of a module in which numpy arrays are replaced by tensors."""
    torch = sys.modules["torch"]
    args, kwargs = torch.utils._pytree.tree_map(
        lambda leaf: to_torch(leaf) if isinstance(leaf, np.ndarray) else leaf, call
    )
    return args, kwargs


def call_of(given: Any, argument: str = "inputs") -> Call:
    """Return the module's arguments in one input set.

    Args:
        given: the input set that the caller passed.
        argument: the name of the caller's argument, for messages.

    Raises:
        WrongTypeError: an input has a name that is not a str.
    """
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(given, Mapping):
        kwargs = dict(given)
    elif not isinstance(given, tuple):
        args = (given,)
    elif len(given) == 2 and isinstance(given[0], tuple) and isinstance(given[1], Mapping):
        args, kwargs = given[0], dict(given[1])
    else:
        args = given
    for name in kwargs:
        if not isinstance(name, str):
            raise WrongTypeError(f"{argument}: the name of an input must be a str, not {name!r}")
    return args, kwargs


def _given(given: Any, expected: Mapping[str, Any], session: Session, native: bool) -> Given:
    """Convert one input set passed by the caller to the form that validation uses.

    Args:
        given: the inputs.
        expected: the expected outputs, if the caller passed them.
        session: the model.
        native: True if a torch module is called with the inputs, so that they may be nested.
    """
    names = [form.name for form in session.inputs]
    args, kwargs = call_of(given)
    wanted = {name: _value(value) for name, value in expected.items()}
    by_name = not args and set(kwargs) == set(names)
    if native and not by_name:
        return Given({}, wanted, call=with_tensors((args, kwargs)))
    if len(args) > len(names):
        raise InvalidArgumentError(
            f"inputs: {len(args)} values for {len(names)} inputs ({', '.join(names)})"
        )
    unknown = [name for name in kwargs if name not in names]
    if unknown:
        raise InvalidArgumentError(
            f"inputs: the model has no {', '.join(unknown)}; it takes {', '.join(names)}"
        )
    feed = dict(zip(names, map(_value, args), strict=False))
    return Given(feed | {name: _value(value) for name, value in kwargs.items()}, wanted)


def _from_caller(
    inputs: Any, against: Any, session: Session, reference: Reference
) -> list[InputSet]:
    sets = inputs if isinstance(inputs, list) else [inputs]
    outputs: list[Any] = [{}] * len(sets)
    if isinstance(against, (Mapping, list, tuple)):
        outputs = [against] if isinstance(against, Mapping) else list(against)
    if len(outputs) != len(sets) or not all(isinstance(each, Mapping) for each in outputs):
        raise InvalidArgumentError(
            f"against: expected one dict of outputs for each of the {len(sets)} input sets"
        )
    native = isinstance(reference, ModuleReference)
    made = [_given(*pair, session, native) for pair in zip(sets, outputs, strict=True)]

    def load(given: Given) -> Callable[[], Given]:
        return lambda: given

    return [InputSet(f"given_{number}", load(given)) for number, given in enumerate(made)]


def _refuse_nothing(source: Any, against: Any, reference: Reference) -> None:
    if against is None and isinstance(reference, RecordedReference):
        shown = repr(os.fspath(source)) if is_path(source) else "model"
        raise InvalidArgumentError(
            "there is nothing to compare with: there is no test_data_set_0 next to the model; give "
            f"another model, oe.validate({shown}, 'other.onnx'), recorded outputs, or, in Python, "
            f"the module that was exported, oe.validate({shown}, module.eval(), x)"
        )


def chosen_sets(
    session: Session,
    source: Any,
    reference: Reference,
    against: Any,
    inputs: Any,
    making: Making,
) -> list[InputSet]:
    """Return the caller's input sets or, if there are none, recorded or else generated ones.

    Args:
        session: the model.
        source: the model's path or bytes.
        reference: the reference of the comparison.
        against: the caller's argument for the reference.
        inputs: the caller's argument for the inputs.
        making: the settings for generating input sets.
    """
    recorded = is_path(against) and isinstance(reference, RecordedReference)
    if making.is_asked and (inputs is not None or recorded):
        raise InvalidArgumentError(
            "dims, ranges and sets only apply to generated inputs; given or recorded inputs have "
            "their own sizes"
        )
    if inputs is not None:
        several = inputs if isinstance(inputs, list) else [inputs]
        if several and all(map(is_path, several)):
            return _from_files(several, session)
        _refuse_nothing(source, against, reference)
        return _from_caller(inputs, against, session, reference)
    if recorded:
        return _from_files([against], session)
    if not making.is_asked:
        if isinstance(reference, ModuleReference) and reference.example() is not None:
            call = reference.example()
            return [InputSet("example", lambda: Given({}, call=call))]
        if is_path(source) and is_recorded(Path(source).parent):
            return _from_files([Path(source).parent], session)
    _refuse_nothing(source, against, reference)
    if isinstance(reference, RecordedReference):
        raise InvalidArgumentError(
            f"against: a dict gives the expected outputs ({', '.join(session.output_names)}) for "
            "inputs=, which are missing; if the dict is a state dict, give the module instead: "
            "oe.validate(model, module.eval(), x)"
        )
    return made_sets(session.inputs, making)

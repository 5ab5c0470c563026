"""Calls functions with values of the wrong kind for each argument, and checks the errors."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import onnx_external as oe
from onnx_external._base.keywords import keywords_of

WRONG: dict[str, Any] = {
    "a number": 7,
    "a float": 2.5,
    "a set": {1, 2},
    "bytes": b"\xff",
    "an object": object(),
    "a class": dict,
    "a function": len,
    "a list of numbers": [1, 2],
    "a dict of numbers": {1: 2},
    "a dict of None": {"x": None},
    "an array of objects": np.array([object()]),
    "a text": "no\x00where",
}


class Reached(Exception):
    """Raised when the work begins, which means that all arguments were accepted."""


def reach(*args: Any, **kwargs: Any) -> Any:
    raise Reached


def _wrongly(call: Callable[..., Any], base: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for name, each in inspect.signature(call).parameters.items():
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            for what, value in WRONG.items():
                yield name, what, {**base, name: value}
    for name in keywords_of(call):
        for what, value in WRONG.items():
            yield name, what, {**base, name: value}


def faults(
    call: Callable[..., Any], base: Mapping[str, Any], fits: Mapping[str, set[str]] | None = None
) -> list[str]:
    """Call a function with wrong values for each argument; return the faults in its errors.

    Args:
        call: the function. base: arguments for which the call succeeds. fits: the valid values of
        each argument. None if the function may do its work.
    """
    found = []
    for argument, what, keywords in _wrongly(call, base):
        told = f"{argument}={what}"
        try:
            call(**keywords)
        except oe.WrongTypeError as error:
            if argument not in str(error) and "'x'" not in str(error):  # a tensor in a dict
                found.append(f"{told}: not named: {str(error)[:100]}")
        except oe.Error:
            continue
        except Reached:
            if what not in (fits or {}).get(argument, set()):
                found.append(f"{told}: not refused")
        except Exception as error:
            found.append(f"{told}: {type(error).__name__}: {str(error)[:100]}")
        else:
            if fits is not None and what not in fits.get(argument, set()):
                found.append(f"{told}: not refused")
    return found

"""Makes calls twice, once for each outcome of a condition inside the called function.

The results of such a call differ in kind between the two branches, so a graph has no single value
for them. Therefore the caller first asks for the condition (`decided`), and the call runs only up
to the condition. Then each branch of the caller makes the whole call, with the condition decided
(`taken`), and continues.
"""

from __future__ import annotations

from typing import Any

from torch._guards import detect_fake_mode

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.runtime.branches import Function
from onnx_external._control_flow.runtime.lifting import probe
from onnx_external._control_flow.runtime.places import Places
from onnx_external._control_flow.runtime.state import Decision, State


class _Reached(BaseException):
    """Raised when the condition is reached; no exception handler of the user catches it."""

    def __init__(self, key: str, test: Any) -> None:
        super().__init__(key)
        self.key, self.test = key, test


def answer(state: State, key: str, test: Any) -> Any:
    """Return the outcome of a condition if it is decided, otherwise the condition itself.

    Args:
        state: the state of the runtime.
        key: the key of the condition.
        test: a tensor or a SymBool.
    """
    asked = state.asked[-1] if state.asked else None
    if asked is not None and asked.key == key:
        _check_depth(state, asked)
        raise _Reached(key, test)
    given = state.given[-1] if state.given else None
    if given is None or given.key != key or given.used:
        return test
    _check_depth(state, given)
    given.used = True
    return given.outcome


def _check_depth(state: State, decision: Decision) -> None:
    if decision.depth != state.depth:
        raise RewriteError(
            "a function returns values that cannot be merged, and the condition that chooses "
            "between them is in a branch or a loop; return a tensor in both branches, for instance "
            "of zeros",
            decision.key,
        )


def decided(state: State, call: Function, key: str) -> Any:
    """Return the condition that decides a call's result; True if it does not depend on a tensor.

    Args:
        state: the state of the runtime.
        call: a function that makes the call.
        key: the key of the call.
    """
    inner = state.splits[key]
    if detect_fake_mode(None) is None:
        state.kept.setdefault(key, []).append(call())
        return True
    places = Places([call])
    _check_writes(state, call, inner, places)
    value, reached = _run_up_to(state, call, inner)
    if reached is not None:
        places.restore(places.changes())  # both branches do it again
        return reached.test
    state.kept.setdefault(key, []).append(value)
    return True


def _run_up_to(state: State, call: Function, inner: str) -> tuple[Any, _Reached | None]:
    """Return a call's result, or the condition at which it was stopped."""
    state.asked.append(Decision(inner, state.depth))
    try:
        return call(), None
    except _Reached as reached:
        if reached.key != inner:
            raise
        return None, reached
    finally:
        state.asked.pop()


def _check_writes(state: State, call: Function, inner: str, places: Places) -> None:
    """Raise an error if a call, which is made twice, writes to a tensor before the condition."""

    def attempt() -> None:
        _run_up_to(state, call, inner)

    if probe(state, attempt, places).mutated:
        raise RewriteError(
            "a function returns values that cannot be merged, and it writes to a tensor before the "
            "condition that chooses between them; write to a clone instead, or return a tensor in "
            "both branches",
            inner,
        )


def taken(state: State, call: Function, key: str, outcome: bool) -> Any:
    """Return a call's result for the given outcome of the condition inside it."""
    if state.kept.get(key):
        return state.kept[key].pop()
    state.given.append(Decision(state.splits[key], state.depth, outcome))
    try:
        return call()
    finally:
        state.given.pop()

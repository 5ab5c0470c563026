"""Traces the branch of a condition with sizes for which the branch is taken.

By default, torch traces a branch with the sizes of the example, for which it may never run. For
instance, `x.expand(4, 4)` after `if n == 1` is traced with n = 3. Therefore, while a branch is
traced, its condition is assumed, and sizes are used for which the branch is taken. What torch finds
out about sizes there (that two are equal, or that one is positive or divisible) is forgotten
afterwards. Torch records decisions that depend on the value of a size as guards; those made in a
branch apply only if the branch is taken.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.functions import Mod, PythonMod

from onnx_external._base.swapping import exchanged
from onnx_external._tracing.chosen import choosing, expanded, guards_on_chosen
from onnx_external._tracing.evaluating import evaluated

_RANGES = ("var_to_range", "var_to_range_sloc")
_FACTS = ("axioms", "divisible", "replacements", "replacements_slocs", *_RANGES)
"""The attributes of a ShapeEnv that store what torch found out about sizes."""
_HINTS = ("backed_var_to_val", "var_to_val")
"""The attribute of a ShapeEnv with the sizes of the example, in several versions of torch."""
_DIVIDES = "_resimplify_floor_div_axioms"
"""The attribute of a ShapeEnv which tells that facts with a `//` may be simplified, because a
remainder is now known."""
_MOST = 64
"""Sizes up to this one, or up to twice the example's, are tried until the branch is taken."""
_OF_TWO = 24
"""The number of sizes that are tried for each of two sizes that have to change together."""


class Conditional(NamedTuple):
    """A guard in a branch, and the conditions under which it applies."""

    tests: tuple[Any, ...]
    """The sympy expressions that are true if the branch is taken."""
    guard: Any
    """The guard, as torch represents it."""


_stacks: weakref.WeakKeyDictionary[ShapeEnv, list[Any]] = weakref.WeakKeyDictionary()
"""The conditions of the branches that are currently traced."""
_found: weakref.WeakKeyDictionary[ShapeEnv, dict[Any, Any]] = weakref.WeakKeyDictionary()
"""The sizes for which branches are taken, by their conditions."""
_guards: weakref.WeakKeyDictionary[ShapeEnv, list[Conditional]] = weakref.WeakKeyDictionary()


def conditional_guards(environment: ShapeEnv) -> list[Conditional]:
    """Return the guards on sizes that apply only in branches."""
    return list(_guards.get(environment, ()))


@contextlib.contextmanager
def assuming(test: Any, outcome: bool) -> Iterator[None]:
    """Assume in the context that a condition on sizes has this `outcome`; ignore all others."""
    expression = _expression(test, outcome)
    if expression is None:
        yield
        return
    environment = test.node.shape_env
    stack = _stacks.setdefault(environment, [])
    if expression in stack:
        yield
        return
    with _forgotten_afterwards(environment, (*stack, expression)):
        stack.append(expression)
        try:
            _assume(environment, expression, stack)
            yield
        finally:
            stack.pop()


def _expression(test: Any, outcome: bool) -> Any:
    """Return the condition that holds in a branch; None if it does not restrict sizes."""
    import sympy  # type: ignore[import-untyped]

    if not isinstance(test, torch.SymBool):
        return None
    found = test.node.expr
    found = found if outcome else sympy.Not(found)
    return None if found in (sympy.true, sympy.false) else found


@contextlib.contextmanager
def _forgotten_afterwards(environment: Any, tests: tuple[Any, ...]) -> Iterator[None]:
    """Forget facts about sizes at the end; new guards become guards of the branch.

    Facts about values that were created meanwhile are kept, because these values belong to the
    branch.
    """
    facts = {name: getattr(environment, name).copy() for name in _FACTS}
    hints = dict(_hints(environment))
    collected = [environment.guards, guards_on_chosen(environment)]
    many = list(map(len, collected))
    divides = environment.__dict__.get(_DIVIDES, True)
    cache = environment.__dict__.pop("fake_tensor_cache", None)
    environment.fake_tensor_cache = {}
    own = environment.__dict__.get("evaluate_expr")
    environment.evaluate_expr = _by_its_own_sizes(environment.evaluate_expr)
    try:
        _changed(environment)
        yield
    finally:
        _restore(environment, facts, hints)
        known = _guards.setdefault(environment, [])
        for guards, before in zip(collected, many, strict=True):
            known += [Conditional(tests, guard) for guard in guards[before:]]
            del guards[before:]
        for name, value in (("evaluate_expr", own), ("fake_tensor_cache", cache)):
            delattr(environment, name)
            if value is not None:
                setattr(environment, name, value)
        setattr(environment, _DIVIDES, divides)
        _changed(environment)


def _restore(environment: Any, facts: Mapping[str, Any], hints: Mapping[Any, Any]) -> None:
    for name, before in facts.items():
        now = getattr(environment, name)
        new = {key: now[key] for key in now if key not in before} if name in _RANGES else {}
        now.clear()
        now.update(before)
        if new:
            now.update(new)
    _hints(environment).update(hints)


def _hints(environment: Any) -> dict[Any, Any]:
    """Return the sizes in the example, by torch's symbol for each size."""
    found: dict[Any, Any] = next(
        getattr(environment, name) for name in _HINTS if hasattr(environment, name)
    )
    return found


def _changed(environment: Any) -> None:
    """Make torch discard its cached facts about sizes."""
    for each in vars(ShapeEnv).values():
        if hasattr(each, "cache_clear"):
            each.cache_clear()
    environment._version_counter += 1
    environment._replacements_version_counter += 1


def _by_its_own_sizes(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that evaluates expressions without the sizes of the example."""

    def evaluated(expression: Any, hint: Any = None, *more: Any, **rest: Any) -> Any:
        return evaluate(expression, None, *more, **rest)

    return evaluated


def _assume(environment: Any, expression: Any, tests: list[Any]) -> None:
    found = _sizes_for(environment, tests)
    if found is not None:
        _hints(environment).update(found)
    simple = environment.simplify(expression)
    environment.axioms.update(dict(environment.get_implications(simple)))
    if found is not None:
        with contextlib.suppress(AssertionError):  # a range that other facts contradict
            environment._maybe_guard_rel(simple)
    if expression.atoms(Mod, PythonMod):
        setattr(environment, _DIVIDES, True)
    _changed(environment)


# Sizes with which a branch is taken.


def _sizes_for(environment: Any, tests: list[Any]) -> dict[Any, Any] | None:
    """Return sizes close to the example's that meet all conditions; None if none are found.

    Args:
        environment: torch's ShapeEnv.
        tests: the expressions of the conditions; conditions on values known only in the graph are
            ignored.
    """
    hints = _hints(environment)
    known = [expanded(environment, each) for each in tests]
    known = [each for each in known if each.free_symbols <= hints.keys()]
    symbols = sorted({symbol for each in known for symbol in each.free_symbols}, key=str)
    found: dict[Any, dict[Any, Any]] = _found.setdefault(environment, {})
    again = [found[tuple(known)]] if tuple(known) in found else []  # branches are traced often
    for changed in itertools.chain(again, _candidates(environment, known, symbols)):
        sizes = {**hints, **changed}
        if all(_holds(each, sizes) for each in known) and _fits(environment, sizes, changed):
            found[tuple(known)] = changed
            return changed
    return None


def _candidates(environment: Any, tests: list[Any], symbols: list[Any]) -> Iterator[dict[Any, Any]]:
    yield {}
    tried = {each: list(_near(environment, each, tests)) for each in symbols}
    for symbol in symbols:
        yield from ({symbol: size} for size in tried[symbol])
    for one, other in itertools.combinations(symbols, 2):
        for first, second in itertools.product(tried[one][:_OF_TWO], tried[other][:_OF_TWO]):
            yield {one: first, other: second}


def _near(environment: Any, symbol: Any, tests: list[Any]) -> Iterator[Any]:
    """Yield sizes to try for one dimension, those closest to the example's first."""
    import sympy

    size = int(_hints(environment)[symbol])
    numbers = {int(each) for test in tests for each in test.atoms(sympy.Integer)}
    more = {each + step for each in numbers for step in (-1, 0, 1)}
    bounds = environment.var_to_range.get(symbol)
    every = {*range(1, max(2 * size, _MOST) + 1), *more}
    for each in sorted(every, key=lambda number: (abs(number - size), number)):
        if each >= 0 and (bounds is None or each in bounds):
            yield sympy.Integer(each)


def _holds(test: Any, sizes: Mapping[Any, Any]) -> bool:
    try:
        return bool(evaluated(test, sizes))
    except Exception:  # a division by zero, say
        return False


def _fits(environment: Any, sizes: dict[Any, Any], changed: Mapping[Any, Any]) -> bool:
    """Return whether these sizes also meet the assumptions made outside branches."""
    for guard in (*environment.guards, *guards_on_chosen(environment)):
        if not guard.expr.free_symbols.isdisjoint(changed):
            try:
                if not evaluated(guard.expr, sizes):
                    return False
            except KeyError:  # it is on values that only the graph knows
                continue
            except Exception:
                return False
    return True


# torch.cond traces its branches repeatedly: each time with its condition as a fact.


class _Branch:
    """A branch that is run as if its condition had chosen it."""

    def __init__(self, test: Any, outcome: bool, function: Callable[..., Any]) -> None:
        self.test, self.outcome, self.function = test, outcome, function

    def __call__(self, *operands: Any) -> Any:
        from torch._higher_order_ops.utils import _maybe_run_with_interpreter

        with assuming(self.test, self.outcome):
            return _maybe_run_with_interpreter(self.function)(*operands)


@contextlib.contextmanager
def branches_assume_tests() -> Iterator[None]:
    """Trace each branch of a torch.cond in the context with its condition assumed."""
    kind = type(torch.ops.higher_order.cond)
    plain = kind.__call__

    def call(self: Any, test: Any, then: Any, other: Any, operands: Any) -> Any:
        if isinstance(test, torch.SymBool):
            then, other = _branch(test, True, then), _branch(test, False, other)
        with choosing(test):
            return plain(self, test, then, other, operands)

    with exchanged(kind, "__call__", call):
        yield


def _branch(test: Any, outcome: bool, function: Any) -> Any:
    return function if isinstance(function, _Branch) else _Branch(test, outcome, function)

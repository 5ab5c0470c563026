"""Rewrites a module's data-dependent control flow until the module can be exported.

The module is run on all input sets, and conditions that saw tensors or had different outcomes are
rewritten. If a trace then fails, the error shows what else to rewrite: the innermost condition at
which it failed, or a condition whose branches have results that cannot be merged. The rest of the
function then has to be moved into these branches.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils import _pytree as pytree

from onnx_external._base.errors import RewriteError, UnmergeableError, chain
from onnx_external._base.meter import screen
from onnx_external._control_flow.applying import applied, compiled
from onnx_external._control_flow.finding.blaming import (
    add_running,
    asks_for_value,
    blamed,
    blamed_by_guard,
    caller_of,
    is_key_of_tensor,
    line_of,
)
from onnx_external._control_flow.finding.functions import Function
from onnx_external._control_flow.finding.observing import InputSet, Observation, observe
from onnx_external._control_flow.passes import rewrite
from onnx_external._control_flow.runtime.compiling import answered_as_in_eager
from onnx_external._control_flow.runtime.helpers import Runtime
from onnx_external._control_flow.runtime.outer import state_kept
from onnx_external._control_flow.showing import Change, shown, untaken

_T = TypeVar("_T")

_MOST_TRIES = 40
"""The maximum number of traces for a rewriting; each may find one more condition."""


@dataclass
class Rewriting:
    """The rewritten functions, and what is known about the paths through them."""

    changes: list[Change] = field(default_factory=list)
    """The changes to the source code, one for each rewritten function."""
    places: list[str] = field(default_factory=list)
    """The lines of the rewritten conditions and loops: "model.py:12"."""
    notes: list[str] = field(default_factory=list)
    """Code that the graph does not contain: assertions and exceptions that depend on tensor
    values."""
    unreached: list[str] = field(default_factory=list)
    """Branches and iteration counts that no input set reached."""
    missing: list[str] = field(default_factory=list)
    """Functions that ran, but whose source could not be examined."""

    def __bool__(self) -> bool:
        """Return whether anything was rewritten."""
        return bool(self.changes)

    def __str__(self) -> str:
        """Return the changes line by line, without the diffs; `repr()` includes them."""
        if not self.changes:
            told = ["nothing was rewritten"]
        else:
            told = [f"rewritten functions: {len(self.changes)}"]
            told += [f"  {each.name} ({each.path}:{each.line})" for each in self.changes]
        titles = {
            "rewritten lines": self.places,
            "notes": self.notes,
            "paths that no input set takes": self.unreached,
            "functions that could not be examined": self.missing,
        }
        for title, lines in titles.items():
            told += [f"{title}:", *(f"  {each}" for each in lines)] if lines else []
        if self.changes:
            told.append("changes[0].diff shows the changes in the first function")
        return screen(told)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dicts and lists."""
        changes = [
            {"name": each.name, "path": each.path, "line": each.line, "diff": each.diff}
            for each in self.changes
        ]
        return {**vars(self), "changes": changes}


class Rewriter:
    """Rewrites the control flow of a module; failed traces show what else to rewrite."""

    def __init__(
        self,
        module: nn.Module,
        input_sets: Sequence[InputSet],
        *,
        asserts: str = "omit",
        max_iterations: int | None = None,
    ) -> None:
        self.module = module
        self.input_sets = list(input_sets)
        self.observed: Observation = observe(module, self.input_sets)
        self._absorbed: set[str] = set()
        self._splits: dict[str, str] = {}
        """For calls that are made for both outcomes of a condition inside them, the key of the
        condition."""
        self._as_in_eager = ""
        """The reason why code that asks whether it is being exported gets the answer "no"."""
        self._asserts = asserts
        self._max_iterations = max_iterations

    @contextlib.contextmanager
    def applied(self, module: nn.Module | None = None) -> Iterator[Rewriting]:
        """Apply the rewriting in the context, in which the module can be run and traced.

        Args:
            module: the module to trace, if it is another module of the same classes.
        """
        made = Rewriting(missing=[str(each) for each in self.observed.missing])
        codes: dict[FunctionType, CodeType] = {}
        for function in self.observed.functions:
            self._rewrite(function, codes, made)
        made.unreached = untaken(self.observed)
        runtime = Runtime(
            self._max_iterations,
            self._asserts,
            self._absorbed,
            _some_empty(self.input_sets),
            self._splits,
        )
        told = answered_as_in_eager() if self._as_in_eager else contextlib.nullcontext()
        try:
            with applied(codes, runtime), runtime.tracing(module or self.module), told:
                yield made
        finally:
            notes = [self._as_in_eager] if self._as_in_eager else []
            made.notes = list(dict.fromkeys([*notes, *runtime.notes]))

    def _rewrite(
        self, function: Function, codes: dict[FunctionType, CodeType], made: Rewriting
    ) -> None:
        done = rewrite(
            function.tree(),
            self.observed.chosen,
            self._absorbed,
            path=function.path,
            shadowed=function.shadowed,
        )
        if done.count:
            codes[function.function] = compiled(function, done.tree)
            made.changes.append(shown(function, done.tree, done.count))
            lines = [key.rpartition(":")[0] for key in done.keys]
            made.places = list(dict.fromkeys([*made.places, *lines]))

    def check(self) -> None:
        """Compare the rewritten module with the original module on all input sets.

        Raises:
            RewriteError: the results differ.
        """
        plain = [self._results(one) for one in self.input_sets]
        with self.applied() as made:
            rewritten = [self._results(one) for one in self.input_sets]
        for number, (wanted, got) in enumerate(zip(plain, rewritten, strict=True)):
            if not _alike(wanted, got):
                names = ", ".join(each.name for each in made.changes)
                raise RewriteError(
                    "the results of the rewritten module differ from those of the module for input "
                    f"set {number}; please report this, with the code of {names}"
                )

    def _results(self, one: InputSet) -> list[Any]:
        args, kwargs = copy.deepcopy(one)
        state = torch.random.get_rng_state()
        try:
            with torch.no_grad(), state_kept(self.module):
                return list(pytree.tree_leaves(self.module(*args, **kwargs)))
        finally:
            torch.random.set_rng_state(state)

    def learn(self, error: BaseException) -> bool:
        """Choose more conditions after a trace error; return whether to try again."""
        for each in chain(error):
            if isinstance(each, UnmergeableError):
                if each.key in self._absorbed:
                    return self._split(each)
                self._absorbed.add(each.key)
                return True
            if isinstance(each, RewriteError):
                return False
        added = add_running(error, self.observed)
        chosen = self.observed.choose(blamed(error, self.observed))
        return bool(chosen) or added or self._tell_less(error)

    def _split(self, error: UnmergeableError) -> bool:
        """Let the calling function run its remaining code once for each outcome of the call."""
        call = caller_of(error, error.key, self.observed)
        if not call or call in self._absorbed:
            return False
        self._absorbed.add(call)
        self._splits[call] = error.key
        return True

    def _tell_less(self, error: BaseException) -> bool:
        """Make code that fails only during an export behave as in eager mode."""
        if self._as_in_eager or not self.observed.asks or asks_for_value(error):
            return False
        cause = list(chain(error))[-1]
        self._as_in_eager = (
            "torch.compiler.is_compiling() and is_exporting() return False in the trace, because "
            f"the code fails otherwise ({type(cause).__name__}: {cause})".splitlines()[0]
        )
        return True

    def _refuse_lookup(self, error: Exception) -> None:
        """Raise an error if a tensor's value is looked up as text, because graphs lack strings."""
        if any(map(is_key_of_tensor, chain(error))):
            raise RewriteError(
                "an item is looked up by the text of a tensor's value, but a graph has no strings; "
                'write the string in the lookup itself, as in self.experts[f"expert_{index}"], '
                "loop over all items, or stack their weights and index the stack",
                line_of(error, self.observed),
            ) from error

    def learn_guard(self, text: str, place: tuple[str, int] | None = None) -> bool:
        """Choose the conditions on sizes that a guard comes from; return whether any is new.

        Args:
            text: the guard, such as "x.size()[1] > 6".
            place: the file and line that made the guard, if torch knows them.
        """
        stack = [] if place is None else [place]
        return bool(self.observed.choose(blamed_by_guard(self.observed, stack, text)))

    def exported(
        self, export: Callable[[], _T], module: nn.Module | None = None
    ) -> tuple[_T, Rewriting]:
        """Export with the rewriting applied, and repeat while errors show what else to rewrite.

        Args:
            export: the function that exports.
            module: the module to export, if it is another module of the same classes.

        Raises:
            RewriteError: a condition or a loop cannot be rewritten.
            Exception: `export` raised an exception that is not about control flow.
        """
        for _ in range(_MOST_TRIES):
            try:
                with self.applied(module) as made:
                    return export(), made
            except Exception as error:
                if not self.learn(error):
                    self._refuse_lookup(error)
                    raise
        raise RewriteError(f"the module could not be rewritten in {_MOST_TRIES} attempts")


def _some_empty(input_sets: Sequence[InputSet]) -> bool:
    """Return whether a tensor in the input sets has a dimension of size 0."""
    leaves = pytree.tree_leaves(list(input_sets))
    return any(isinstance(each, torch.Tensor) and 0 in each.shape for each in leaves)


def _alike(wanted: list[Any], got: list[Any]) -> bool:
    if len(wanted) != len(got):
        return False
    for one, other in zip(wanted, got, strict=True):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            if one.shape != other.shape or one.dtype != other.dtype:
                return False
            if not torch.equal(one, other) and not torch.allclose(
                one.double(), other.double(), 1e-5, 1e-5, equal_nan=True
            ):
                return False
        elif isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
            return False
        elif one != other and one == one:
            return False
    return True

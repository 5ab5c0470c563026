"""Exports that are tried plainly first, and then with data-dependent control flow rewritten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .._base.errors import Error, ExportError, InvalidArgumentError, RewriteError, chain
from .._base.keywords import only
from .._control_flow import Missing, Rewriter, Rewriting, one_thread, outside_kept
from .._tracing.process import process_kept
from .._tracing.surroundings import Call
from ._checking import WrongGraphError
from ._guards import Guard
from ._keywords import RewriteKeywords
from ._programs import TraceError
from ._tracing import Traced, Tracer, trace
from ._untouched import has_no_data

REWRITER_KEYWORDS = ("asserts", "max_iterations")
"""Keywords for the rewriter."""
_T = TypeVar("_T")
_Capture = Callable[[Tracer], _T]
_Judge = Callable[[_T], None]


@dataclass
class ModuleWays:
    """The ways of exporting a module to try.

    Args:
        target: the module, or another object to export.
        calls: the example, and all further input sets.
        how: whether and how code is rewritten.
        changes_example: True if the capture takes `example`, which may become another call.
    """

    target: Any
    calls: Sequence[Call]
    how: RewriteKeywords
    changes_example: bool = False
    example: Call = field(init=False)
    """The call to trace."""

    def __post_init__(self) -> None:
        """Check the options."""
        self.example = self.calls[0]
        if self.how["rewrite"] is True and self._why_not():
            raise InvalidArgumentError(f"rewrite=True: {self._why_not()}")

    def _why_not(self) -> str:
        """Return why nothing can be rewritten; "" if something can."""
        if not isinstance(self.target, nn.Module):
            return "only the functions of a module can be rewritten, and the target is not a module"
        tensors = [*self.target.parameters(), *self.target.buffers()]
        if any(nn.parameter.is_lazy(each) or has_no_data(each) for each in tensors):
            return "the module has no weights of its own, so it cannot be run to see its tests"
        return ""

    def first(self, capture: _Capture[_T], judge: _Judge[_T]) -> tuple[_T, Rewriting]:
        """Return the first right result of the first way; other threads wait for it.

        Args:
            capture: traces, by its argument, and converts.
            judge: raises a WrongGraphError if the graph is wrong.

        Raises:
            ExportError: no attempt gives a graph that agrees with the module.
        """
        with one_thread, process_kept(), outside_kept(self.target):
            return self._first(capture, judge)

    def _first(self, capture: _Capture[_T], judge: _Judge[_T]) -> tuple[_T, Rewriting]:
        if self.how["rewrite"] is False or self._why_not():
            return _judged(capture(trace), judge), Rewriting()
        plain: ExportError | None = None
        if self.how["rewrite"] == "auto":
            try:
                return self._plain(capture, judge), Rewriting()
            except ExportError as error:
                plain = error
        try:
            return self._rewritten(capture, judge, plain)
        except ExportError as error:
            if plain is None:
                raise
            refused = error
        if not isinstance(plain, WrongGraphError):
            try:
                return _judged(capture(trace), judge), Rewriting()
            except ExportError:  # the reasons of the usual way are better ones
                pass
        if isinstance(refused, (RewriteError, WrongGraphError)):
            raise refused from plain
        raise plain if refused is plain else not_helped(plain, refused)

    def _plain(self, capture: _Capture[_T], judge: _Judge[_T]) -> _T:
        try:
            return _judged(capture(_without_dynamo), judge)
        except WrongGraphError as error:
            if not self._takes_other_example(error):
                raise
        return _judged(capture(_without_dynamo), judge)

    def _takes_other_example(self, error: WrongGraphError) -> bool:
        """Trace another call later, if the graph only holds for sizes of 1.

        Decisions of torch by the strides of an example change if a size is 1.
        """
        tested = error.guards and all(each.is_test for each in error.guards)
        best = min(self.calls, key=_sizes_of_one)
        if not self.changes_example or tested or _sizes_of_one(best) >= _sizes_of_one(self.example):
            return False
        self.example = best
        return True

    def _rewritten(
        self, capture: _Capture[_T], judge: _Judge[_T], plain: ExportError | None
    ) -> tuple[_T, Rewriting]:
        rewriter = self._rewriter()
        if plain is not None:
            learned = learn(rewriter, plain)
            if not rewriter.observed.chosen and not learned:
                raise _without_source(plain, rewriter.observed.missing)
        self._check(rewriter)
        rewritings: list[Rewriting] = []

        def tracer(*given: Any) -> Traced:
            traced, rewriting = rewriter.exported(partial(_of_branches, *given))
            rewritings.append(rewriting)
            return traced

        for _ in range(MOST_GRAPHS):
            try:
                return _judged(capture(tracer), judge), rewritings[-1]
            except WrongGraphError as error:
                if not self._takes_other_example(error) and not learn(rewriter, error):
                    raise
            except ExportError as error:
                raise refusal_in(error) or error from error.__cause__
        raise RewriteError(
            f"after {MOST_GRAPHS} attempts, no graph agrees with the module for all input sets"
        )

    def _check(self, rewriter: Rewriter) -> None:
        try:
            rewriter.check()
        except Error:
            raise
        except Exception as error:  # of the module's own code
            raise ExportError(
                f"rewritten, the module does not run: {type(error).__name__}: {error}"
            ) from error

    def _rewriter(self) -> Rewriter:
        try:
            return Rewriter(self.target, self.calls, **only(self.how, REWRITER_KEYWORDS))
        except Error:
            raise
        except Exception as error:  # of the module's own code
            raise ExportError(
                f"the module does not run on the inputs that it is given: {type(error).__name__}: "
                f"{error}"
            ) from error


MOST_NAMED = 3
"""The most functions that one message names."""
MOST_GRAPHS = 10
"""The maximum number of graphs to try: each wrong one shows further conditions on sizes."""


_without_dynamo = partial(trace, fall_back=False)
_of_branches = partial(trace, fall_back=False, repeats_calls=True)


def _sizes_of_one(call: Call) -> int:
    tensors = [each for each in pytree.tree_leaves(call) if isinstance(each, torch.Tensor)]
    return sum(size <= 1 for each in tensors for size in each.shape)


def may_repeat(tracer: Tracer) -> bool:
    """Return whether a tracer runs the module's own code, whose layers can be recorded."""
    return tracer in (trace, _without_dynamo)


def _judged(found: _T, judge: _Judge[_T]) -> _T:
    judge(found)
    return found


def learn(rewriter: Rewriter, error: ExportError) -> bool:
    """Choose more by an error; return whether anything is new."""
    if isinstance(error, WrongGraphError):
        return any([rewriter.learn_guard(each.text, _place(each)) for each in error.guards])
    return rewriter.learn(error)


def _place(guard: Guard) -> tuple[str, int] | None:
    path, _, rest = guard.where.partition(".py:")
    line = rest.partition(":")[0]
    return (f"{path}.py", int(line)) if line.isdigit() else None


def not_helped(plain: ExportError, refused: ExportError) -> ExportError:
    """Return the error of the plain way, extended by why rewriting does not help.

    If rewriting solves the problem of the plain trace, the next problem is reported.
    """
    if plain.kind == _BY_VALUES and not isinstance(refused, TraceError):
        refused.args = (f"{refused.args[0]}; its control flow was rewritten before",)
        return refused
    if str(refused) != str(plain):
        plain.args = (f"{plain.args[0]}; rewriting its control flow does not help: {refused}",)
        plain.kind = plain.kind or refused.kind
    return plain


_BY_VALUES = "by-values"
"""The kind of errors on data-dependent control flow, which rewriting fixes."""


def _without_source(plain: ExportError, missing: Sequence[Missing]) -> ExportError:
    """Return the error of the plain way, naming the functions whose source is unavailable."""
    if missing:
        told = ", ".join(map(str, missing[:MOST_NAMED]))
        way_out = f"put the class into a file, so that its control flow can be rewritten ({told})"
        text = str(plain.args[0])
        first = plain.kind == _BY_VALUES or isinstance(plain, WrongGraphError)
        plain.args = (f"{way_out}; as it is: {text}" if first else f"{text}; {way_out}",)
    return plain


def refusal_in(error: BaseException) -> RewriteError | None:
    """Return the RewriteError that an error was raised from."""
    return next((each for each in chain(error) if isinstance(each, RewriteError)), None)

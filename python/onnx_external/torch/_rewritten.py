"""Exports modules unchanged or, if this does not work, with their control flow rewritten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .._base.errors import Error, ExportError, InvalidArgumentError, RewriteError
from .._base.keywords import only
from .._control_flow import Rewriter, Rewriting, one_thread, outside_kept
from .._tracing.process import process_kept
from .._tracing.surroundings import Call
from ._checking import WrongGraphError
from ._keywords import RewriteKeywords
from ._tracing import Traced, Tracer, trace
from ._untouched import has_no_data
from ._ways import REWRITER_KEYWORDS, Ways

_T = TypeVar("_T")

_without_dynamo = partial(trace, fall_back=False)
_of_branches = partial(trace, fall_back=False, repeats_calls=True)


class ModuleWays(Ways[_T]):
    """The ways in which the export of a module is tried.

    Args:
        target: the module, or another object to export.
        calls: the example, and all further input sets.
        how: whether and how code is rewritten.
        capture: a function that traces the module with the given tracer, and converts the program.
        judge: a function that raises an error if the graph is wrong.
    """

    def __init__(
        self,
        target: Any,
        calls: Sequence[Call],
        how: RewriteKeywords,
        capture: Callable[[Tracer], _T],
        judge: Callable[[_T], None] = lambda _: None,
    ) -> None:
        super().__init__(how)
        self.target, self.calls = target, calls
        self.example = calls[0]
        """The call to trace."""
        self._capture, self._judge = capture, judge
        self._is_judged = False
        why_not = self._why_not()
        if how["rewrite"] is True and why_not:
            raise InvalidArgumentError(f"rewrite=True: {why_not}")
        self.may_rewrite = self.may_rewrite and not why_not

    def _why_not(self) -> str:
        """Return the reason why nothing can be rewritten; "" if something can be."""
        if not isinstance(self.target, nn.Module):
            return "only the functions of a module can be rewritten, and the target is not a module"
        tensors = [*self.target.parameters(), *self.target.buffers()]
        if any(nn.parameter.is_lazy(each) or has_no_data(each) for each in tensors):
            return (
                "the module has no weights of its own, so it cannot be run to find its conditions"
            )
        return ""

    def right(self) -> tuple[_T, Rewriting]:
        """Return the first correct result, and the rewriting; other threads wait meanwhile.

        Raises:
            ExportError: no attempt leads to a graph that agrees with the module.
        """
        with one_thread, process_kept(), outside_kept(self.target):
            made = self.first()
            while not self._is_judged:
                try:
                    self._judge(made)
                    break
                except ExportError as error:
                    wrong = error
                made = self.again(wrong)
            return made, self.rewriting or Rewriting()

    def traced(self) -> _T:
        """Capture the module without rewriting."""
        return self._capture(_without_dynamo if self.may_rewrite else trace)

    def traced_rewritten(self, rewriter: Rewriter) -> _T:
        """Capture the module with its functions rewritten."""

        def tracer(*given: Any) -> Traced:
            traced, self.rewriting = rewriter.exported(partial(_of_branches, *given))
            return traced

        return self._capture(tracer)

    def other(self, error: ExportError) -> Callable[[], _T] | None:
        """Return a function that traces another call if the graph is valid only for sizes of 1.

        Some decisions of torch depend on the strides of the example, and differ if a size is 1.
        """
        if not self.may_rewrite or not isinstance(error, WrongGraphError):
            return None
        tested = error.guards and all(each.is_test for each in error.guards)
        best = min(self.calls, key=_sizes_of_one)
        if tested or _sizes_of_one(best) >= _sizes_of_one(self.example):
            return None
        self.example = best
        return partial(self.tried, self.traced if self.rewriter is None else self.retraced)

    def instead(self, refused: ExportError, plain: ExportError | None) -> Callable[[], _T] | None:
        """Try TorchDynamo last, because its errors are less clear than those of the usual way."""
        if plain is None or isinstance(plain, WrongGraphError):
            return None
        try:
            made = self._capture(trace)
            self._judge(made)
        except ExportError:
            return None
        self.rewriting, self._is_judged = None, True
        return lambda: made

    def prefers(self, refused: ExportError, plain: ExportError) -> bool:
        """Return whether the error of the rewritten code is more informative."""
        return isinstance(refused, (RewriteError, WrongGraphError))

    def check(self, rewriter: Rewriter) -> None:
        """Compare the rewritten module with the original one on all calls."""
        _run(rewriter.check, "rewritten, the module does not run")

    def observed(self) -> Rewriter:
        """Run the module on all calls, and return the rewriter that observed it."""
        make = partial(Rewriter, self.target, self.calls, **only(self.how, REWRITER_KEYWORDS))
        return _run(make, "the module does not run on the given inputs")


def _run(run: Callable[[], _T], told: str) -> _T:
    """Run code from the module, and turn its exceptions into this package's errors."""
    try:
        return run()
    except Error:
        raise
    except Exception as error:
        raise ExportError(f"{told}: {type(error).__name__}: {error}") from error


def _sizes_of_one(call: Call) -> int:
    tensors = [each for each in pytree.tree_leaves(call) if isinstance(each, torch.Tensor)]
    return sum(size <= 1 for each in tensors for size in each.shape)


def may_repeat(tracer: Tracer) -> bool:
    """Return whether a tracer runs the module's own code, so that layers can be recorded."""
    return tracer in (trace, _without_dynamo)

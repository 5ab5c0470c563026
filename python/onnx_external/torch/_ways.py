"""Tries to make a right graph, first plainly, and then with control flow rewritten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from .._base.errors import ExportError, RewriteError, chain
from .._control_flow import Missing, Rewriter, Rewriting
from ._checking import WrongGraphError
from ._guards import Guard
from ._keywords import RewriteKeywords
from ._programs import TraceError

_T = TypeVar("_T")

REWRITER_KEYWORDS = ("asserts", "max_iterations")
"""The keywords that are passed to the rewriter."""
_MOST_NAMED = 3
"""The maximum number of functions that one message names."""
_MOST_GRAPHS = 10
"""The maximum number of graphs to try; each wrong graph reveals further conditions on sizes."""
_BY_VALUES = "by-values"
"""The kind of errors about data-dependent control flow, which rewriting fixes."""


class Ways(Generic[_T]):
    """Makes graphs in different ways until one is right, and remembers why each way failed.

    Subclasses define how a graph is traced, and further ways in addition to these two.

    Args:
        how: whether code is rewritten: where the plain graph fails or is wrong ("auto"), always
            (True), or never (False).
        title: the beginning of messages.
    """

    def __init__(self, how: RewriteKeywords, title: str = "") -> None:
        self.how, self.title = how, title
        self.may_rewrite = how["rewrite"] is not False
        self.start()

    def start(self) -> None:
        """Forget all graphs that were made, so that all ways can be tried again."""
        self.rewriter: Rewriter | None = None
        self.rewriting: Rewriting | None = None
        """The rewriting of the last graph; None if it was made without rewriting."""
        self._plain: ExportError | None = None
        self._tries = 0

    def first(self) -> _T:
        """Make the first graph, in the plain way or with rewriting.

        Raises:
            ExportError: no attempt leads to a graph.
        """
        return self.again(None) if self.how["rewrite"] is True else self.tried(self.traced)

    def tried(self, make: Callable[[], _T]) -> _T:
        """Make a graph by the given function or, if it fails, in another way."""
        try:
            return make()
        except ExportError as error:
            failed = error
        return self.again(failed)  # whose errors have no context, which would be searched, too

    def again(self, error: ExportError | None) -> _T:
        """Make a graph in another way.

        Args:
            error: the error of the previous graph; None if there was no previous graph.

        Raises:
            ExportError: no other way helps; the message says what was tried.
        """
        if error is not None:
            other = self.other(error)
            if other is not None:
                return other()
            if not self.may_rewrite:
                raise error
            self._plain = self._plain or (error if self.rewriter is None else None)
        try:
            return self._rewritten(error)
        except ExportError as found:
            refused, plain = found, self._plain
        last = self.instead(refused, plain)
        if last is not None:
            return last()
        if plain is None or refused is plain:
            raise refused
        if self.prefers(refused, plain):
            raise refused from plain
        raise _not_helped(plain, refused) from plain.__cause__

    def _rewritten(self, error: ExportError | None) -> _T:
        is_first = self.rewriter is None
        rewriter = self.rewriter = self.rewriter or self.observed()
        if error is not None:
            if not is_first and not isinstance(error, WrongGraphError):
                raise _refusal_in(error) or error from error.__cause__
            learned = _learn(rewriter, error)
            if not learned and self.rewriting is not None:
                raise error
            if not learned and not rewriter.observed.chosen:
                raise _without_source(error, rewriter.observed.missing)
        self._tries += 1
        if self._tries > _MOST_GRAPHS:
            raise RewriteError(
                f"{self.title}after {_MOST_GRAPHS} attempts, no graph agrees with the module for "
                "all input sets"
            )
        if self.rewriting is None:
            self.check(rewriter)
        return self.retraced()

    def retraced(self) -> _T:
        """Make a graph by tracing the rewritten code."""
        assert self.rewriter is not None
        try:
            return self.traced_rewritten(self.rewriter)
        except ExportError as error:
            raise _refusal_in(error) or error from error.__cause__

    def traced(self) -> _T:
        """Make a graph from the unchanged code."""
        raise NotImplementedError

    def observed(self) -> Rewriter:
        """Run the code on all inputs, and return the rewriter that observed the run.

        Raises:
            ExportError: the code does not run.
        """
        raise NotImplementedError

    def check(self, rewriter: Rewriter) -> None:
        """Compare the results of the rewritten code with those of the original code."""
        raise NotImplementedError

    def traced_rewritten(self, rewriter: Rewriter) -> _T:
        """Make a graph from the rewritten code, and set `rewriting`."""
        raise NotImplementedError

    def other(self, error: ExportError) -> Callable[[], _T] | None:
        """Return a function that makes a graph without more rewriting, or None if there is none."""
        raise NotImplementedError

    def instead(self, refused: ExportError, plain: ExportError | None) -> Callable[[], _T] | None:
        """Return a function that makes a graph if rewriting does not help, or None."""
        raise NotImplementedError

    def prefers(self, refused: ExportError, plain: ExportError) -> bool:
        """Return whether the error of rewritten code is reported instead of the plain error."""
        raise NotImplementedError


def _learn(rewriter: Rewriter, error: ExportError) -> bool:
    """Use an error to choose more conditions to rewrite; return whether anything is new."""
    if isinstance(error, WrongGraphError):
        return any([rewriter.learn_guard(each.text, _place(each)) for each in error.guards])
    return rewriter.learn(error)


def _place(guard: Guard) -> tuple[str, int] | None:
    path, _, rest = guard.where.partition(".py:")
    line = rest.partition(":")[0]
    return (f"{path}.py", int(line)) if line.isdigit() else None


def _not_helped(plain: ExportError, refused: ExportError) -> ExportError:
    """Return the error of the plain way, extended by the reason why rewriting does not help.

    If rewriting solves the problem of the plain trace, the problem after it is reported instead.
    """
    if plain.kind == _BY_VALUES and not isinstance(refused, TraceError):
        refused.args = (f"{refused.args[0]}; its control flow was rewritten before",)
        return refused
    if str(refused) != str(plain):
        plain.args = (f"{plain.args[0]}; rewriting its control flow does not help: {refused}",)
        plain.kind = plain.kind or refused.kind
    return plain


def _without_source(plain: ExportError, missing: Sequence[Missing]) -> ExportError:
    """Return the error of the plain way, naming the functions whose source is unavailable."""
    if missing:
        told = ", ".join(map(str, missing[:_MOST_NAMED]))
        way_out = f"define the class in a file so that its control flow can be rewritten ({told})"
        text = str(plain.args[0])
        first = plain.kind == _BY_VALUES or isinstance(plain, WrongGraphError)
        plain.args = (f"{way_out}; otherwise: {text}" if first else f"{text}; {way_out}",)
    return plain


def _refusal_in(error: BaseException) -> RewriteError | None:
    """Return the RewriteError from which an error was raised; None if there is none."""
    return next((each for each in chain(error) if isinstance(each, RewriteError)), None)

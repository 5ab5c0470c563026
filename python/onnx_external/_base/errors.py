"""The exceptions of this package.

Every exception is an `Error`, whose text is the library's message. The attribute `code` is the
library's name for the cause ("not-found", "mismatch", ...), and `kind` is a more specific name
("missing", "not-linked", ...). `lists` contains in full the names that the message only counts or
shows in part. `remedies` contains options that may make the call succeed; the text shows them as
arguments. Programs should use these attributes, and never the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .spelling import spelled


class Item(NamedTuple):
    """An entry in a list of an error: a weight of the graph, or a key of the checkpoint."""

    name: str
    form: str
    """The type and shape, e.g. "FLOAT [64, 3, 7, 7]"; empty if unknown."""
    note: str
    candidates: list[str]
    """Names on the other side (keys for a weight, weights for a key), the closest match first."""
    owner: str = ""
    """The node that the name belongs to, or the graph if there are several graphs."""


class Remedy(NamedTuple):
    """An option that may help, and when to use it."""

    option: str
    """The name of an option, such as "ignore": a field of `Mapping` or `Layout`, or an argument."""
    value: str
    """The value to pass, or a placeholder ("NAMES"); empty for a flag."""
    when: str
    """The case in which the option helps; may be empty."""


class Error(Exception):
    """Base class of all exceptions of this package.

    Attributes:
        code: the library's name for the cause (docs/python.md lists all codes).
        kind: a more specific name for the cause, which stays the same when texts change: the kind
            of the first list, or of an error that some program recognizes; empty if the code
            suffices.
        lists: the names that the message only counts or shows in part, by kind.
        remedies: options that may make the call succeed.
    """

    code: str = ""
    kind: str = ""
    lists: dict[str, list[Item]]
    remedies: list[Remedy]

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lists = {}
        self.remedies = []
        self._reader: str | None = None

    def __str__(self) -> str:
        """Return the message and, below it, the remedies."""
        lines = [str(self.args[0])]
        for remedy in self.remedies:
            argument = spelled(remedy.option, remedy.value, self._reader)
            lines.append(f"  {argument}: {remedy.when}" if remedy.when else f"  {argument}")
        return "\n".join(lines)


@contextmanager
def checkpoint_is(argument: str) -> Iterator[None]:
    """Record in errors from the context which argument of the caller is the checkpoint."""
    try:
        yield
    except Error as error:
        error._reader = argument
        raise


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors that it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


class InvalidArgumentError(Error, ValueError):
    """The caller asked for something that is not possible."""

    code = "invalid-argument"


class WrongTypeError(InvalidArgumentError, TypeError):
    """An argument, or a tensor among the weights, has an invalid type."""


class NotFoundError(Error, FileNotFoundError):
    """A file or a name does not exist."""

    code = "not-found"


class ExistsError(Error, FileExistsError):
    """The operation would replace something; `overwrite=True` allows that."""

    code = "already-exists"


class FormatError(Error, ValueError):
    """A file breaks the rules of its format, or uses a feature that is not supported."""

    code = "corrupt"


class MismatchError(Error, ValueError):
    """Two inputs contradict each other in shapes, element types or bytes."""

    code = "mismatch"


class MappingError(Error, ValueError):
    """Weights and keys do not match one to one, so nothing was saved."""

    code = "ambiguous"

    @property
    def missing(self) -> list[str]:
        """Weights of the graph, or of several graphs, that get no value.

        Either the checkpoint has no key for such a weight, or no checkpoint is given and the graph
        has no data for it.
        """
        return self._named(_MISSING)

    @property
    def unexpected(self) -> list[str]:
        """Keys of the checkpoint that the graph does not use."""
        return self._named(["unused"])

    @property
    def ambiguous(self) -> list[str]:
        """Names that match several candidates, or that the caller has to confirm."""
        return self._named(kind for kind in self.lists if kind not in (*_MISSING, "unused"))

    def _named(self, kinds: Iterable[str]) -> list[str]:
        wanted = set(kinds)
        return [item.name for kind in self.lists if kind in wanted for item in self.lists[kind]]


_MISSING = ("missing", "left-out", "without-data", "inner-without-data")


class ReadWriteError(Error, OSError):
    """The operating system reported an error, such as a full disk or a missing permission."""

    code = "io"


class ExportError(Error, RuntimeError):
    """torch or transformers cannot export the module; `__cause__` is the original exception.

    Its `kind` is "by-values" if torch rejected code that makes decisions based on tensor values.
    """

    code = "unsupported"


class RunError(Error, RuntimeError):
    """ONNX Runtime or a reference cannot run a model; `__cause__` is the original exception.

    Its `kind` is an element of `NO_KERNEL` if ONNX Runtime lacks a kernel for an operator.
    """

    code = "unsupported"


class RewriteError(ExportError):
    """Control flow cannot be rewritten; the message says why, and how to fix it.

    Attributes:
        where: the location in the user's source, "FILE:LINE:COLUMN"; may be empty.
    """

    def __init__(self, message: str, where: str = "") -> None:
        place = re.sub(r"(:\d+)-\d+$", r"\1", where)  # the key of a call also has its end
        super().__init__(f"{place}: {message}" if where else message)
        self.where = where


class UnmergeableError(RewriteError):
    """The values of two branches cannot be merged into one."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message, key)
        self.key = key


NO_KERNEL = ("no-kernel", "no-bfloat16-kernel")
"""The kinds of errors raised for models that other runtimes may run: ONNX Runtime lacks a kernel,
in the second case one for bfloat16."""

_CLASSES: dict[str, type[Error]] = {
    "invalid-argument": InvalidArgumentError,
    "not-found": NotFoundError,
    "already-exists": ExistsError,
    "corrupt": FormatError,
    "unsupported": FormatError,
    "mismatch": MismatchError,
    "ambiguous": MappingError,
    "io": ReadWriteError,
    "busy": ReadWriteError,
    "cancelled": Error,
}

# The names for tracebacks and for a caller's `except`.
for _each in (
    *_CLASSES.values(),
    ExportError,
    RewriteError,
    RunError,
    UnmergeableError,
    WrongTypeError,
):
    _each.__module__ = "onnx_external"


def _make(
    code: str,
    kind: str,
    message: str,
    lists: list[tuple[str, list[tuple[str, str, str, list[str], str]]]],
    remedies: list[tuple[str, str, str]],
) -> Error:
    """Make the Python exception for an error of the C++ library; called by the extension module."""
    error = (MappingError if lists else _CLASSES[code])(message)
    error.code, error.kind = code, kind
    for each, items in lists:
        error.lists.setdefault(each, []).extend(Item(*item) for item in items)
    error.remedies = [Remedy(*remedy) for remedy in remedies]
    return error

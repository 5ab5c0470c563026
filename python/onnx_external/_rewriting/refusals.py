"""What cannot be rewritten, as exceptions that name the line of the user's source."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onnx_external._errors import ExportError


class RewriteError(ExportError):
    """The control flow cannot be rewritten; the message says why, and the way out.

    Attributes:
        where: the place in the user's source, "FILE:LINE:COLUMN"; may be empty.
    """

    def __init__(self, message: str, where: str = "") -> None:
        place = re.sub(r"(:\d+)-\d+$", r"\1", where)  # the key of a call has its end, too
        super().__init__(f"{place}: {message}" if where else message)
        self.where = where


class UnmergeableError(RewriteError):
    """Two branches give values that cannot be one."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message, key)
        self.key = key


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and those that it was made of."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__

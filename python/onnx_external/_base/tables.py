"""Formats text tables for the Python commands and the reports."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_LEAST = 12
"""The number of characters to which a cell can be shortened."""


def terminal_columns() -> int | None:
    """Return the width of the terminal on stdout, or None if stdout is not a terminal."""
    import shutil  # which imports all kinds of compression

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrapped(text: str, columns: int | None) -> str:
    """Break a sentence between words if it is longer than a line of the terminal."""
    if columns is None or len(text) <= columns:
        return text
    import textwrap

    return textwrap.fill(text, columns, break_long_words=False, break_on_hyphens=False)


def highlighted(line: str, is_wrong: bool) -> str:
    """Return the line, in red if it reports a fault and stdout is a terminal with colors."""
    colors = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return f"\x1b[31m{line}\x1b[0m" if colors and is_wrong else line


def table(rows: Sequence[Sequence[str]], columns: int | None = None) -> list[str]:
    """Return one line of text for each row; each column is as wide as its widest cell.

    A column that is empty below its heading is omitted.

    Args:
        rows: the heading, and the rows below it.
        columns: the width of the terminal. Until lines fit, cells are shortened in the middle:
            first those of the last column, down to _LEAST characters, then those of the widest
            column.
    """
    used = [each for each in zip(*rows, strict=True) if any(each[1:])]
    widths = [max(map(len, column)) for column in used]
    while columns is not None and sum(widths) + 2 * (len(widths) - 1) > columns:
        widest = widths[-1] if widths[-1] > _LEAST else max(widths)
        if widest <= _LEAST:
            break
        widths[len(widths) - 1 - widths[::-1].index(widest)] -= 1
    lines = zip(*used, strict=True) if used else [() for _ in rows]
    return [
        "  ".join(
            _shortened(cell, width).ljust(width) for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


def _shortened(text: str, width: int) -> str:
    """Shorten text that is too long by replacing its middle with "..."."""
    if len(text) <= width:
        return text
    end = (width - 3) // 2
    return f"{text[: width - 3 - end]}...{text[len(text) - end :]}"

"""Frames: which belong to the user, where they are, and whether they test a value."""

from __future__ import annotations

import contextlib
import dis
import os
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy
import torch

LIBRARIES = tuple(
    str(Path(place)) + "/" for place in (Path(torch.__file__).parent, Path(__file__).parents[1])
)
"""Folders whose lines do not help a user: torch's, and this package's."""


def _folder(module: Any) -> str:
    return os.path.join(os.path.dirname(os.path.abspath(module.__file__)), "")


_STANDARD = sysconfig.get_path("stdlib") + os.sep
_PACKAGES = ("site-packages", "dist-packages")
_PARTS_OF_TORCH = ("torchgen", "functorch", "triton")
_OTHERS = (
    _folder(torch),
    _folder(numpy),
    os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), ""),
    *(
        os.path.join(os.path.dirname(os.path.dirname(_folder(torch))), p, "")
        for p in _PARTS_OF_TORCH
    ),
)
_TESTING = ("POP_JUMP", "JUMP_IF", "UNARY_NOT", "TO_BOOL")
"""The names of instructions that evaluate the truth of a value."""


Place = tuple[int, int | None, int | None, int | None]
"""Line, last line, column, last column; the line alone on Python 3.10."""


def is_users(path: str) -> bool:
    """Return whether this file's code belongs to the user.

    Files of torch, of Python's library, of NumPy and of this package do not, nor code made by
    torch.fx. Files of other packages (above all, models) count as the user's.
    """
    if path.startswith(("<frozen", "<eval_with_key>", *_OTHERS)):
        return False
    if path.startswith((_STANDARD, _folder(contextlib))):
        return any(f"{os.sep}{name}{os.sep}" in path for name in _PACKAGES)
    return True


def outside(frame: FrameType | None, hidden: Callable[[str], bool]) -> FrameType | None:
    """Return the innermost frame, starting with this one, whose file is not hidden."""
    while frame is not None and hidden(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def tests_value(frame: FrameType, *others: str) -> bool:
    """Return whether a frame is evaluating the truth of a value.

    Args:
        frame: a frame at an instruction.
        others: the prefixes of further instructions that count.
    """
    instruction = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return instruction.startswith((*_TESTING, *others))


def place_of(code: CodeType, instruction: int, line: int) -> Place:
    """Return the place of an instruction in its file; `line` is used if columns are unknown."""
    if hasattr(code, "co_positions"):  # since Python 3.11
        first, last, column, last_column = list(code.co_positions())[instruction // 2]
        if first is not None:
            return first, last, column, last_column
    return line, None, None, None

"""Which frame of the stack is the user's, and whether it tests a value."""

from __future__ import annotations

import dis
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch

LIBRARIES = tuple(
    str(Path(place)) + "/" for place in (Path(torch.__file__).parent, Path(__file__).parents[1])
)
"""Folders whose lines tell a user nothing: torch's, and this package's."""
_TESTING = ("POP_JUMP", "JUMP_IF", "UNARY_NOT", "TO_BOOL")
"""What instructions are called that ask a value whether it is true."""


def outside(frame: FrameType | None, hidden: Callable[[str], bool]) -> FrameType | None:
    """Return the innermost frame, from this one on, whose file is not hidden."""
    while frame is not None and hidden(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def tests_value(frame: FrameType, *others: str) -> bool:
    """Return whether a frame asks a value whether it is true.

    Args:
        frame: which is at an instruction.
        others: what further instructions that count begin with.
    """
    instruction = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return instruction.startswith((*_TESTING, *others))

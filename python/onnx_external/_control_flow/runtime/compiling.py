"""Makes torch's tests for compiling or exporting return False in the code of the user.

Some code skips a step when it is being exported, and then fails because the step is missing.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from onnx_external._base.swapping import exchanged

_TORCH = os.path.dirname(torch.__file__) + os.sep
_QUESTIONS = ("is_compiling", "is_dynamo_compiling", "is_exporting")


@dataclass
class Asked:
    """A flag that is set if the user's code asks whether it is being compiled."""

    ever: bool = False


@contextmanager
def answered_as_in_eager() -> Iterator[Asked]:
    """Make torch's tests for compiling return False in this thread inside the context.

    torch's own code still gets the true answer.
    """
    asked, caller = Asked(), threading.get_ident()

    def answering(plain: Callable[[], bool]) -> Callable[[], bool]:
        def answer() -> bool:
            inside = sys._getframe(1).f_code.co_filename.startswith(_TORCH)
            if inside or threading.get_ident() != caller:
                return plain()
            asked.ever = True
            return False

        return answer

    with ExitStack() as undone:
        for name in _QUESTIONS:
            plain: Any = getattr(torch.compiler, name, None)
            if plain is not None:
                undone.enter_context(exchanged(torch.compiler, name, answering(plain)))
        yield asked

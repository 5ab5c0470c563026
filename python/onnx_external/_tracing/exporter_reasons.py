"""States in one line why an exporter failed on a module, with the source line."""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from .._base.errors import Error
from .silence import silent

_NOT_THE_USERS = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (torch.__file__, str(Path(__file__).parent))
)
"""The folders of torch, and of this package."""
_OTHERS = re.compile(
    r"[/\\](onnxscript|onnx_ir|onnxruntime|numpy|contextlib\.py|transformers[/\\](exporters|utils))\b"
)
_NODE = re.compile(r"translating node %?(\w+)")
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_ADVICE = re.compile(
    r"For more information|If you're using mark_dynamic|If you're using Dim|To register|"
    r"Failure message|\(unhinted|For more information about this error|You can suppress"
)
"""The places at which torch's messages change from a fault to advice."""
_CONSTRAINT = re.compile(r"-\s+(You marked .*? to be a constant \(\d+\))")
_LONGEST = 300


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, and then its causes."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__


def _is_users(path: str) -> bool:
    return not (path.startswith(("<", *_NOT_THE_USERS)) or _OTHERS.search(path))


_Place = tuple[str, int, str]
"""A file, a line number and a function name."""


def _told(place: _Place, in_full: bool) -> str:
    path, line, function = place
    code = linecache.getline(path, line).strip()
    told = f"{path if in_full else os.path.basename(path)}:{line}"
    told += f", in {function}" if function else ""
    return f"{told}: {code}" if code else told


def _raised_at(error: BaseException) -> _Place | None:
    """Return the innermost line that belongs neither to torch nor to this package."""
    found = None
    for each in traceback.extract_tb(error.__traceback__):
        if _is_users(each.filename) and each.lineno is not None:
            found = each.filename, each.lineno, each.name
    return found


def _made_at(program: Any, name: str) -> _Place | None:
    """Return the source line that a node of a program comes from."""
    for node in program.graph.nodes:
        if node.name == name:
            frames = _FRAME.findall(node.meta.get("stack_trace") or "")
            users = [each for each in frames if _is_users(each[0])]
            return (users[-1][0], int(users[-1][1]), users[-1][2]) if users else None
    return None


def _node_at(text: str, program: Any) -> _Place | None:
    """Return the source line of the node that cannot be converted, according to an error's text."""
    match = _NODE.search(text)
    if match is None or program is None:
        return None
    place = _made_at(program, match[1])
    if not place:  # torch.onnx has taken the operators apart before
        with contextlib.suppress(Exception), silent():
            place = _made_at(program.run_decompositions(), match[1])
    return place


def _fixed_at(error: BaseException) -> _Place | None:
    """Return the last source line at which a size became constant."""
    for path, place in reversed(getattr(error, "fixed_sizes", [])):
        if _is_users(path):
            return path, place[0], ""
    return None


def _sentence(error: BaseException) -> str:
    """Return the first statement in an error's text, without advice."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    constraint = _CONSTRAINT.search(text)
    line = constraint[1] if constraint else lines[0] if lines else "no message"
    line = _ADVICE.split(line)[0].strip().rstrip(".!;: (")
    line = re.sub(r"<OpOverload\(op='([^']+)', overload='([^']+)'\)>", r"\1.\2", line)
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


_FIXED = "your code specialized it to be a constant"
"""A part of torch's message about a dynamic size that became constant, which names no line."""
_TWO_WAYS_OUT = (
    "change the line so that it holds for all sizes, or leave the dimension out of dynamic_shapes; "
    "with torch.export.Dim.AUTO, it is dynamic if possible"
)
_MEANINGS = {
    "GuardOnDataDependentSymNode": (
        "the code branches on a value that is known only when the graph runs; use torch.where or "
        "torch.cond"
    ),
    "DataDependentOutputException": (
        "the code reads a value from a tensor, which is known only when the graph runs"
    ),
}
"""The meaning of torch's errors for the author of the module."""
_MEANINGS_OF_WORDS = {
    "unhashable type: non-nested SymInt": (
        "a dynamic size cannot be a dict key or the argument of a cached function; compute the "
        "value from the size in each call, or leave the dimension out of dynamic_shapes"
    ),
}
"""The meaning of errors of general classes, by a part of the error's text."""


_GRADIENTS = (
    "forward computes gradients: torch.autograd.grad, torch.func.grad, vjp and jacrev can be "
    "traced, but Tensor.backward() and forward-mode derivatives (jvp, jacfwd) cannot"
)


def kind_of_reason(reason: str) -> str:
    """Return "by-values" if torch failed on data-dependent control flow, which rewriting fixes."""
    return "by-values" if any(name in reason for name in _MEANINGS) else ""


def reason_of(error: BaseException, program: Any, inside_model: bool, in_full: bool = False) -> str:
    """Return the first sentence of the innermost error, and the user's source line for it.

    Args:
        error: the exporter's exception.
        program: the exported program, if there is one.
        inside_model: True if the error was raised while the module's own code ran.
        in_full: True to state the full path of the file.
    """
    every = list(chain(error))
    inner = every[-1]
    if isinstance(inner, Error):
        return str(inner).partition("\n")[0]
    text = f"{type(inner).__name__}: {_sentence(inner)}"
    if type(inner).__name__ in _MEANINGS:
        text += f" ({_MEANINGS[type(inner).__name__]})"
    text += "".join(f" ({what})" for words, what in _MEANINGS_OF_WORDS.items() if words in text)
    if any(getattr(each, "gradients", None) for each in every):
        text = f"{_GRADIENTS} ({text})"
    place = _raised_at(inner) if inside_model else None
    if place is None:
        place = next(filter(None, (_node_at(str(each), program) for each in every)), None)
    if place is None and _FIXED in text:
        place = next(filter(None, map(_fixed_at, every)), None)
        text += f" ({_TWO_WAYS_OUT})"
    return text if place is None else f"{text}, at {_told(place, in_full)}"

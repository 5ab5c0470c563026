"""The text of a picture: what fits, and what XML and a reader can take."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from .picture_tree import Node

__all__ = ["FONT", "escaped", "shortened", "text_width", "tooltip", "wrapped"]

FONT = 11
"""The usual size, in pixels."""

_LETTER, _BOLD = 0.55, 0.59
"""The width of a letter as a part of the font's size, for sans-serif on average."""

_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
"""Control characters, those that turn the direction of writing, and what XML forbids."""

_LONGEST = 300
"""Letters of a line of a tooltip."""


def _code(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else "\ufffd"


def _plain(text: str) -> str:
    return _HIDDEN.sub(_code, text)


def escaped(text: str) -> str:
    """Return text for an element; lines stay lines."""
    return "\n".join(escape(_plain(line)) for line in text.split("\n"))


def text_width(text: str, bold: bool = False) -> float:
    """Return about how wide a text is in pixels."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return FONT * ((len(text) - wide) * (_BOLD if bold else _LETTER) + wide)


def shortened(text: str, room: float, middle: bool = False) -> str:
    """Return what fits into some pixels, with a mark for what is left out.

    Args:
        text: one line.
        room: in pixels, at the usual size.
        middle: leave out the middle, for names that begin alike; else the end.
    """
    text = _plain(text)
    width = text_width(text)
    if width <= room:
        return text
    kept = int(len(text) * room / width)
    while kept > 1:
        kept -= 1
        end = kept // 2 if middle else 0
        short = f"{text[: kept - end]}\u2026{text[len(text) - end :]}"
        if text_width(short) <= room:
            return short
    return ""


def wrapped(text: str, room: float, most: int) -> list[str]:
    """Return the lines of a text, at most so many."""
    lines = [""]
    for word in map(_plain, text.split()):
        longer = f"{lines[-1]} {word}".lstrip()
        if text_width(longer) <= room:
            lines[-1] = longer
        elif lines[-1]:
            lines.append(shortened(word, room, middle=True))
        else:
            lines[-1] = shortened(word, room, middle=True)
    if len(lines) > most:
        lines[most - 1 :] = [shortened(" ".join(lines[most - 1 :]), room)]
    return lines


def _limited(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}\u2026"


def tooltip(node: Node) -> str:
    """Return what is known about a module, in lines."""
    module = node.module
    lines = [module.name or "(model)", module.cls, str(module.status)]
    worst = module.worst
    if worst is not None:
        lines.append(f"{worst.output}: {worst.expected_dtype} {worst.expected_shape}")
        if worst.problem:
            lines.append(worst.problem)
        if worst.max_abs is not None:
            told = f"largest difference {worst.max_abs:.3g} ({node.times})"
            if worst.max_abs:
                told += f" at {worst.max_abs_at}: {worst.actual}, expected {worst.expected}"
            lines.append(told)
        if worst.beyond:
            lines.append(f"{worst.beyond} of {worst.elements} elements do not agree")
    if node.reason:
        lines.append(node.reason)
    return "\n".join(_limited(_plain(line)) for line in lines)

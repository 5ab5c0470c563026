"""Converts the options named in errors to arguments of Python functions."""

from __future__ import annotations

from dataclasses import fields

from .options import Layout, Mapping

READING = ("key", "variant", "densify", "widen_complex32")
"""The options for reading files; in Python, they are arguments of `oe.open_checkpoint`."""

_TEXTS = ("prefix",)
"""The options for which an empty value is an empty string, not a missing option."""


_FLAGS = {
    ("dtype", "slot"): "cast",
    ("convert", "sparse"): "densify",
    ("convert", "complex32"): "widen_complex32",
}
"""Values of command options that are separate keywords in Python."""


def spelled(option: str, value: str, reader: str | None) -> str:
    """Return an option of the library as it is written in a call of a Python function.

    Args:
        option: the name of the option, such as "learn-map".
        value: the value as text; "" for a flag.
        reader: the caller's argument that is a checkpoint; None if the caller is
            `oe.open_checkpoint`.

    Returns:
        Text such as "mapping=oe.Mapping(ignore='^ema')".
    """
    name = option.replace("-", "_")
    if (option, value) in _FLAGS:
        name, value = _FLAGS[option, value], ""
    if name.startswith("no_"):
        return _placed(name[3:], f"{name[3:]}=False", reader)
    return _placed(name, f"{name}={value!r}" if value or name in _TEXTS else f"{name}=True", reader)


def _placed(name: str, text: str, reader: str | None) -> str:
    """Wrap the text of an argument in the call that takes it, such as `mapping=oe.Mapping(...)`."""
    if name in _fields(Mapping):
        return f"mapping=oe.Mapping({text})"
    if name in _fields(Layout):
        return f"files=oe.Layout({text})"
    return f"{reader}=oe.open_checkpoint(..., {text})" if reader and name in READING else text


def _fields(kind: type[Mapping | Layout]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))

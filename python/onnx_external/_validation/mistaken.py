"""Rejects paths that cannot be a reference."""

from __future__ import annotations

import os
from pathlib import Path

from .._base.errors import Error, InvalidArgumentError
from .._base.options import StrPath
from .._sources.checkpoint import open_checkpoint


def refuse_mistaken(against: StrPath, model: StrPath | None, function: str, wanted: str) -> None:
    """Raise an error if a reference is a checkpoint without a module, or a Python program.

    Args:
        against: the path of the reference.
        model: the path of the model; None if the model is not in a file.
        function: the name of the function that was called, such as "oe.validate".
        wanted: the kinds of references that the function takes.
    """
    path, shown = os.fspath(against), "model" if model is None else repr(os.fspath(model))
    call = f"{function}({shown}, module.eval(), x)"
    if Path(path).suffix == ".py":
        raise InvalidArgumentError(
            f"{path}: is a Python program, which is not run; expected {wanted}. In your own "
            f"program: from {Path(path).stem} import Module; module = Module(); {call}"
        )
    try:
        with open_checkpoint(path) as checkpoint:
            count = len(checkpoint)
    except Error:
        return
    weights = "" if model is None else f"oe.verify({shown}, {path!r}) compares its weights; or "
    raise InvalidArgumentError(
        f"{path}: is a checkpoint of {count} tensor{'' if count == 1 else 's'}, which computes "
        f"nothing; expected {wanted}. {weights}load the weights in a program: "
        f"module.load_state_dict(oe.open_checkpoint({path!r}).state_dict()); {call}"
    )

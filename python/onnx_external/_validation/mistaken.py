"""Errors for paths that are given as a reference but cannot be one."""

from __future__ import annotations

import os
from pathlib import Path

from .._base.errors import Error, InvalidArgumentError
from .._base.options import StrPath
from .._sources.checkpoint import open_checkpoint


def refuse_mistaken(against: StrPath, model: StrPath | None, function: str, wanted: str) -> None:
    """Raise an error for weights without a module, and for a program; others handle the rest.

    Args:
        against: the path that was given.
        model: the model's path; None if it is not in a file.
        function: the one that was called, such as "oe.validate".
        wanted: the references that it takes.
    """
    path, shown = os.fspath(against), "model" if model is None else repr(os.fspath(model))
    call = f"{function}({shown}, module.eval(), x)"
    if Path(path).suffix == ".py":
        raise InvalidArgumentError(
            f"{path}: is a program, which does not run here; wanted: {wanted}. In a program of "
            f"your own: from {Path(path).stem} import Module; module = Module(); {call}"
        )
    try:
        with open_checkpoint(path) as checkpoint:
            count = len(checkpoint)
    except Error:
        return
    weights = "" if model is None else f"oe.verify({shown}, {path!r}) compares its weights; or "
    raise InvalidArgumentError(
        f"{path}: is a checkpoint of {count} tensor{'' if count == 1 else 's'}, which computes "
        f"nothing; wanted: {wanted}. {weights}load them in a program: "
        f"module.load_state_dict(oe.open_checkpoint({path!r}).state_dict()); {call}"
    )

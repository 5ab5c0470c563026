"""Compares a model with the model that a quantization library makes from the same folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from .._base.errors import Error
from .._folders.config import read_leniently
from .._folders.gguf.folder import weights_of
from .._sources.checkpoint import open_checkpoint
from ._guarding import LOCAL
from ._loading import told

_METHOD = "quant_method"


def note_on_own_model(folder: Path, model: Any, given: Mapping[str, Any]) -> list[str]:
    """Return a note on how far the quantization library's model is from the floats of the codes.

    transformers loads the library's model if it supports the library and the library is installed.
    The library's kernels round differently, so the difference is only a note.

    Args:
        folder: the folder of the model; if its weights are not quantized, there is no note.
        model: transformers' model with the floats of the codes.
        given: inputs of the model.
    """
    settings = read_leniently(folder).get("quantization_config")
    method = settings.get(_METHOD) if isinstance(settings, Mapping) else None
    if not isinstance(method, str) or weights_of(folder) != [folder]:
        return []
    library = f"the model of the quantization library ({method})"
    try:
        with open_checkpoint(folder) as checkpoint:
            if not checkpoint.core.quantized_names():
                return []
        with told("it is not available"), torch.no_grad():
            own = type(model).from_pretrained(folder, **LOCAL).eval()
            found, wanted = (_first_floats(each(**given)) for each in (own, model))
            error = float(((found - wanted).square().mean() / wanted.square().mean()).sqrt())
    except Error as refusal:
        return [f"{library} was not compared: {refusal}"]
    return [
        f"{library} differs by {100 * error:.2g} % (root mean square) from the floats of the codes"
    ]


def _first_floats(result: Any) -> torch.Tensor:
    """Return the logits or, if there are none, the first output, as float64."""
    value = result.get("logits", result[0]) if isinstance(result, Mapping) else result[0]
    return value.double()

"""What becomes of weights that the checkpoint of a folder holds quantized."""

from __future__ import annotations

from .._base.options import Quantize, QuantizeArgument
from ._loading import Loaded

FLOATS = "float"
"""As a scheme: weights become floats, those of quantized checkpoints, too."""


def given_scheme(quantize: QuantizeArgument) -> QuantizeArgument:
    """Return what is to be quantized without looking at a checkpoint: None for floats."""
    scheme = quantize.scheme if isinstance(quantize, Quantize) else quantize
    return None if scheme == FLOATS else quantize


def scheme_of(quantize: QuantizeArgument, loaded: Loaded, *, plain: bool) -> QuantizeArgument:
    """Return how matrices become codes: those of a quantized checkpoint are kept by default.

    Args:
        quantize: as it was given.
        loaded: the model.
        plain: the graph may only have operators of ONNX, none of which takes all codes.
    """
    if quantize is None and loaded.quantized and not plain:
        return Quantize("keep")
    return given_scheme(quantize)


def note_on_codes(quantize: QuantizeArgument, loaded: Loaded) -> list[str]:
    """Return the note on what becomes of quantized weights.

    Args:
        quantize: as scheme_of() gives it.
        loaded: the model.
    """
    count = len(loaded.quantized)
    if not count:
        return []
    what = f"the checkpoint holds {count} weight{'s' if count > 1 else ''} quantized"
    scheme = quantize.scheme if isinstance(quantize, Quantize) else quantize
    if scheme is None:
        return [f"{what}; they are floats now"]
    if scheme.split(",")[0].strip() != "keep":
        return [f"{what}; their floats were quantized again"]
    return [f"{what}; where a node can multiply by its codes, they are kept (quantize='float': no)"]

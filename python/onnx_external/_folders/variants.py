"""Variants of a model that differ in the types of numbers, and are stored side by side.

Names and suffixes are those of transformers.js: `model_fp16.onnx` is next to `model.onnx`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from .._base.errors import InvalidArgumentError
from .._base.options import FloatType, LayoutName, Quantize, QuantizeArgument


class Variant(NamedTuple):
    """The type of a graph's computation, the storage of its matrices, the names of its files."""

    suffix: str = ""
    """Behind the name of a graph."""
    dtype: FloatType | None = None
    quantize: QuantizeArgument = None
    client_name: str = "fp32"
    """The name in transformers.js."""

    def with_float_tables(self) -> Variant:
        """Return the variant with embeddings and head in floats; the two may share a weight."""
        if not isinstance(self.quantize, str):
            return self
        return self._replace(quantize=Quantize(self.quantize, head="float"))


VARIANTS = {
    "fp32": Variant("", "float32"),
    "fp16": Variant("_fp16", "float16", None, "fp16"),
    "int8": Variant("_quantized", "float32", "int8", "q8"),
    "uint8": Variant("_uint8", "float32", "int8, zero points", "uint8"),
    "q4": Variant("_q4", "float32", "int4", "q4"),
    "q4f16": Variant("_q4f16", "float16", "int4", "q4f16"),
}
_OTHER_NAMES = {"q8": "int8", "int4": "q4"}
_FOREIGN = ("bnb4", "q2", "q2f16", "q1", "q1f16")
"""Variants of transformers.js that do not correspond to codes of 4 or 8 bits."""


def variants_of(
    names: Any, dtype: str | None, quantize: QuantizeArgument, layout: LayoutName, path: Any
) -> list[Variant]:
    """Return the variants of an export; one without a suffix if none are named.

    Args:
        names: the caller's names.
        dtype: the type that an export without variants computes in.
        quantize: the scheme for its matrices.
        layout: as for oe.save().
        path: the target.

    Raises:
        InvalidArgumentError: a name is not known, or other options exclude variants.
    """
    given = names.split(",") if isinstance(names, str) else list(names)
    known = [_OTHER_NAMES.get(str(each), str(each)) for each in given]
    for name in known:
        if name not in VARIANTS:
            more = "; codes have 4 or 8 bits" if name in _FOREIGN else ""
            raise InvalidArgumentError(
                f"{name!r} is not one of the names for variants=: {', '.join(VARIANTS)}{more}"
            )
    if not known:
        return [Variant("", dtype, quantize)]  # type: ignore[arg-type]
    for option, value in (("dtype", dtype), ("quantize", quantize)):
        if value is not None:
            raise InvalidArgumentError(f"variants say what {option}= would; leave {option} out")
    if layout == "link":
        raise InvalidArgumentError(
            "layout='link' copies nothing, and variants are copies in other types; choose another "
            "layout"
        )
    if str(path).endswith(".onnx"):
        raise InvalidArgumentError(f"{path}: variants are several files; give a folder for them")
    return [VARIANTS[name] for name in dict.fromkeys(known)]


def suffix_in(folder: Path, name: str) -> str:
    """Return the suffix of a graph's variant in a folder, or "": that of the plainest one."""
    found = (each.suffix for each in VARIANTS.values())
    return next((each for each in found if (folder / f"{name}{each}.onnx").is_file()), "")


def base_name(stem: str) -> str:
    """Return the name of a graph without the suffix of its variant: "model" for "model_q4"."""
    suffixes = sorted((each.suffix for each in VARIANTS.values()), key=len, reverse=True)
    return next((stem.removesuffix(s) for s in suffixes if s and stem.endswith(s)), stem)

"""Defines variants of a model, which differ in number formats and share one folder.

Names and suffixes are those of transformers.js, such as `model_fp16.onnx` next to `model.onnx`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from .._base.errors import InvalidArgumentError
from .._base.options import FloatType, LayoutName, Quantize, QuantizeArgument


class Variant(NamedTuple):
    """A variant of a model: the types in which it computes and stores matrices, and its names."""

    suffix: str = ""
    """The suffix that is appended to the name of each graph."""
    dtype: FloatType | None = None
    quantize: QuantizeArgument = None
    client_name: str = "fp32"
    """The name of the variant in transformers.js."""

    def with_float_tables(self) -> Variant:
        """Return a copy that keeps embeddings and head, which may share a weight, as floats."""
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
"""Variants in transformers.js that are not supported: their codes do not have 4 or 8 bits."""


def variants_of(
    names: Any, dtype: str | None, quantize: QuantizeArgument, layout: LayoutName, path: Any
) -> list[Variant]:
    """Return the variants to export; without names, a single variant that has no suffix.

    Args:
        names: the names that the caller gave.
        dtype: the type in which an export without variants computes.
        quantize: the quantization scheme of an export without variants.
        layout: as for oe.save().
        path: the target of the export.

    Raises:
        InvalidArgumentError: a name is not known, or another option does not allow variants.
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
            raise InvalidArgumentError(f"variants determine {option}; leave {option}= out")
    if layout == "link":
        raise InvalidArgumentError(
            "layout='link' does not copy weights, and variants are copies in other types; choose "
            "another layout"
        )
    if str(path).endswith(".onnx"):
        raise InvalidArgumentError(f"{path}: variants need several files; give a folder for them")
    return [VARIANTS[name] for name in dict.fromkeys(known)]


def suffix_in(folder: Path, name: str) -> str:
    """Return the suffix of a graph's first variant that exists in a folder, or ""."""
    found = (each.suffix for each in VARIANTS.values())
    return next((each for each in found if (folder / f"{name}{each}.onnx").is_file()), "")


def base_name(stem: str) -> str:
    """Return the name of a graph without its variant's suffix: "model" for "model_q4"."""
    suffixes = sorted((each.suffix for each in VARIANTS.values()), key=len, reverse=True)
    return next((stem.removesuffix(s) for s in suffixes if s and stem.endswith(s)), stem)

"""The options of a save: `Mapping`, `Layout`, `Quantize`, and the names of choices.

Each option is defined here once. The fields have the names of the options of `save-external`.
"""

from __future__ import annotations

import os
from collections import abc
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias, TypedDict

from .keywords import define
from .progress import Progress

StrPath = str | os.PathLike[str]

Weights = StrPath | BinaryIO | abc.Mapping[str, Any] | abc.Iterable[Any]
"""A checkpoint: a file, a shard index, a folder, a binary stream, an open `Checkpoint`, a dict of
names to tensors (a state dict), a torch module (its state dict), or several of these."""

LayoutName = Literal["single", "per-tensor", "shards", "inline", "link"]
"""Where a model's data is stored; `oe.save` describes each layout."""

FloatType = Literal["float64", "float32", "float16", "bfloat16"]
"""The float types to which values may be converted."""

if TYPE_CHECKING:
    import numpy as np
    import torch

    AnyFloatType: TypeAlias = FloatType | torch.dtype | np.dtype[Any]

Size = int | str
"""A number of bytes, or text such as "2GB", "500M" or "4GiB"."""


@dataclass(frozen=True, kw_only=True)
class Mapping:
    r"""Rules that assign checkpoint keys to graph weights where names alone do not decide.

    By default the assignment is strict: every weight needs a key, and every key a weight.

    ```python
    oe.save("graph.onnx", "out", "checkpoint.pt", mapping=oe.Mapping(prefix="model", ignore="^ema"))
    ```

    Args:
        prefix: use only keys that begin with this prefix, and remove it from them; "" means that
            keys have no prefix. None: a common prefix is detected.
        rename: `s/PATTERN/REPLACEMENT/`, or several such rules, which are applied to all keys in
            turn. The pattern is an RE2 regular expression, `\1` stands for its first group, and
            with a final `g` every match is replaced.
        map: a dict from weights to keys, such as {"val_12": "fc.weight"}, or a map file with the
            same content. A key may be transformed by a recipe, and a weight may be joined from
            several keys (docs/mapping.md).
        inputs: the names of all graph inputs that the caller supplies at run time; any other input
            is a weight. None: the caller supplies the inputs that no key fits.
        keep: names of weights that keep the data in the graph.
        overlay: if several of `weights` have the same key, take the tensor of the last one. By
            default this is an error.
        ignore: RE2 regular expressions; a key in which any of them matches is not used.
        unmatched: the treatment of keys that no weight uses: "strict" raises an error, "skip" lists
            them in the report, "keep" adds them to the graph as initializers.
        partial: also save a model that lacks weights. The report then has `complete=False`.
        cast: convert tensors whose float type differs from that of their weight. By default such a
            tensor is an error.
        keep_inputs: weights that are graph inputs remain inputs, and get a default value.
        learn_map: the weights that the graph was exported with, in any form that `weights` of
            `oe.save` may have. The graph's own data then identifies the key of each weight, even
            where the exporter renamed or transposed it. This works only if a single graph is saved.

    Raises:
        InvalidArgumentError: (on use) a name in an option does not exist, or an expression is not
            valid.
    """

    prefix: str | None = None
    rename: str | Sequence[str] | None = None
    map: StrPath | abc.Mapping[str, Any] | None = None
    inputs: str | Sequence[str] | None = None
    keep: str | Sequence[str] | None = None
    overlay: bool = False
    ignore: str | Sequence[str] | None = None
    unmatched: Literal["strict", "skip", "keep"] = "strict"
    partial: bool = False
    cast: bool = False
    keep_inputs: bool = False
    learn_map: Weights | None = None


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Names and contents of the files that a save writes; `layout` itself is a separate argument.

    ```python
    oe.save(program, "out", layout="shards", files=oe.Layout(max_shard_size="500MB"))
    ```

    Args:
        data_name: the name of the data file for the layout "single". By default, it is the model's
            name followed by ".data" ("model.onnx.data"), or "initializers.data" for several models.
            For "shards", the names of the shards are derived from it.
        data_dir: the folder for the layout "per-tensor", next to the model.
        max_shard_size: the maximum size of a shard in bytes, 2 GB by default: a number, or text
            such as "2GB" or "500MiB". A larger tensor gets a shard of its own.
        align: the alignment of tensor offsets in bytes. None: 4096 for tensors of 1 MiB or more,
            and 64 for smaller tensors.
        dedup: which data to store only once: "storage" means tensors that share memory (tied
            weights), "content" also tensors with equal bytes, which have to be read for that, and
            "off" none.
        inline_below: tensors of fewer bytes than this are kept inside the model file. None: tensors
            of fewer than 1024 bytes, if they are already inside.
        attributes: also move the tensors that are node attributes, such as the values of Constant
            nodes, to the data files. None: only initializers.
        transpose_weights: if only Transpose nodes use a matrix, store it transposed and remove
            these nodes, so that tools such as quantizers find the weight of a MatMul. None: do so
            if the graph is a torch program or an onnx_ir.Model and `weights` are given, in any
            layout but "link".
        checksum: "sha1" adds the digest of the data file to each external data entry.
        resume: continue a save of the same model that was killed. False starts again from the
            beginning.
        max_expand: the maximum size of the tensors as a multiple of the size of their files, which
            e.g. views that repeat elements can exceed. A larger size is an error, because it may be
            an attack on memory.
        base_dir: the folder with the external data of the given model. None: the model's own
            folder, or the current folder if the model is not a file.
        test_data: files with recorded inputs, as written by torch.save((args, kwargs), FILE). Each
            file becomes a folder test_data_set_N next to the model.

    Raises:
        InvalidArgumentError: (on use) a name is not a plain file name, or options exclude each
            other.
    """

    data_name: str | None = None
    data_dir: str = "initializers"
    max_shard_size: Size | None = None
    align: Size | None = None
    dedup: Literal["storage", "content", "off"] = "storage"
    inline_below: Size | None = None
    attributes: bool | None = None
    transpose_weights: bool | None = None
    checksum: Literal["sha1"] | None = None
    resume: bool = True
    max_expand: int = 4
    base_dir: StrPath | None = None
    test_data: StrPath | Sequence[StrPath] | None = None


@dataclass(frozen=True, kw_only=True)
class Quantize:
    """Quantization of matrices to 4 or 8 bits, in a form for which ONNX Runtime has kernels.

    docs/quantize.md describes which matrices are quantized, the quantization rules, and the cost.

    ```python
    oe.save("graph.onnx", "out", "llama/", quantize=oe.Quantize("int4/32", head="float"))
    ```

    Args:
        scheme: "int4", "int8", or a longer form, such as "int4/32", "int4/64, zero points, 5 steps"
            or "int8/128, symmetric, nearest"; parts that are omitted have the defaults in
            docs/quantize.md. "keep": weights that are quantized in the checkpoint keep their codes,
            and are converted to floats where no node can multiply by the codes; "keep, int8": they
            are converted to int8 there.
        head: the type of the embeddings and of the head (the matrix that computes the logits):
            "int8", "int4" or "float". With "keep", "int8" means the checkpoint's codes.
        weights: schemes that replace `scheme` and `head` for single weights, by patterns with * and
            ? for the names of weights in the graph, or their keys: {"*.down_proj.*": "int4/128"},
            or a list of texts PATTERN=SCHEME. If several patterns match, the last one decides.
        keep_float: patterns, of the same kind, for weights that are not quantized.
        accuracy_level: 4 rounds activations to 8 bits before they are multiplied, which is several
            times faster; 0 computes with floats.
        form: "matmulnbits" writes operators of ONNX Runtime; "qdq" writes ONNX DequantizeLinear
            nodes (opset 21 and newer).

    Raises:
        InvalidArgumentError: (on use) the value of an option is not listed here.
        NotFoundError: (on use) a pattern in `weights` decides the scheme of no weight.
    """

    scheme: str = field(default="int4", kw_only=False)
    head: Literal["int8", "int4", "float"] = "int8"
    weights: abc.Mapping[str, str] | str | Sequence[str] | None = None
    keep_float: str | Sequence[str] | None = None
    accuracy_level: Literal[0, 4] = 4
    form: Literal["matmulnbits", "qdq"] = "matmulnbits"


QuantizeArgument = Quantize | str | None
"""The quantization. A string is a scheme, such as "int4" or "int8/64"; None: not quantized."""


def scheme_text(quantize: QuantizeArgument) -> str | None:
    """Return the scheme as text; None if nothing is quantized."""
    return quantize.scheme if isinstance(quantize, Quantize) else quantize


def quantize_options(quantize: QuantizeArgument) -> dict[str, Any]:
    """Return the options of `save-external` for a quantization."""
    if quantize is None:
        return {}
    given = Quantize(quantize) if isinstance(quantize, str) else quantize
    return {
        "quantize": given.scheme,
        "quantize_head": given.head,
        "quantize_weights": _as_texts(given.weights),
        "keep_float": given.keep_float,
        "accuracy_level": given.accuracy_level,
        "quantize_form": given.form,
    }


def _as_texts(
    weights: abc.Mapping[str, str] | str | Sequence[str] | None,
) -> str | Sequence[str] | None:
    """Return schemes of single weights in the form of the option."""
    if not isinstance(weights, abc.Mapping):
        return weights
    return [f"{pattern}={scheme}" for pattern, scheme in weights.items()]


NOT_QUANTIZED = dict.fromkeys(quantize_options(Quantize()))
"""The options that are passed if nothing is quantized."""


class Writing(TypedDict, total=False):
    """The keywords of all functions that save a model.

    Args:
        layout: where the data is stored. "single": in one file next to the model; "per-tensor": in
            one file for each tensor, in a folder; "shards": in files of at most
            `Layout.max_shard_size` bytes (a larger tensor gets a file of its own); "inline": in the
            model file, which is limited to 2 GiB; "link": no data is written, and the model refers
            to the files of the weights, which must be in its folder or below.
        quantize: "int4", "int8", another scheme, or `oe.Quantize(scheme, head=, weights=,
            keep_float=, accuracy_level=, form=)`: matrices are quantized to 4 or 8 bits while they
            are written (docs/quantize.md). None: nothing is quantized.
        overwrite: replace an existing model, which remains intact until the new model is complete.
        verify: read everything back and compare every byte before the model is put in place.
        fsync: wait until all data is on the disk, so that a power failure loses nothing.
        threads: the maximum number of threads that a save uses at a time; 0 means one per CPU. The
            threads end before the function returns. The number does not affect the files.
        progress: a callable (phase, bytes done, bytes in total), True for a progress bar, or False
            for no progress. None: a bar if stderr is a terminal and tqdm is installed.
        mapping: `oe.Mapping(prefix=, rename=, map=, inputs=, keep=, overlay=, ignore=, unmatched=,
            partial=, cast=, keep_inputs=, learn_map=)`: which key fills which weight. None: names
            must be equal, except for a common prefix, and the rules in docs/mapping.md apply.
        files: `oe.Layout(data_name=, data_dir=, max_shard_size=, align=, dedup=, inline_below=,
            attributes=, transpose_weights=, checksum=, resume=, max_expand=, base_dir=,
            test_data=)`: the names and contents of the files. None: the layout "single" writes
            "model.onnx.data".
    """

    layout: LayoutName
    quantize: QuantizeArgument
    overwrite: bool
    verify: bool
    fsync: bool
    threads: int
    progress: Progress
    mapping: Mapping | None
    files: Layout | None


define(
    Writing,
    {
        "layout": "single",
        "quantize": None,
        "overwrite": False,
        "verify": True,
        "fsync": True,
        "threads": 0,
        "progress": None,
        "mapping": None,
        "files": None,
    },
)


class SaveKeywords(Writing, total=False):
    """The keywords of `oe.save` and `oe.plan`.

    Args:
        dtype: a float type, such as "float16" or torch.float16, to which all float tensors in
            `weights` are converted, with torch's rounding. The graph is not changed and must
            already have that type: export `module.half()` with its float inputs in half. None:
            nothing is converted.
        extra: tensors in addition to the weights, in the same forms; in a dict, a value may also be
            a file. They fill the weights with the same names, such as buffers that no state dict
            contains, and take precedence over the tensors in `weights`.
    """

    dtype: AnyFloatType | None
    extra: Weights | None


define(SaveKeywords, {"dtype": None, "extra": None}, Writing)


def flat(options: Mapping | Layout) -> dict[str, Any]:
    """Return the fields by name, in the form that the extension module takes."""
    return {field.name: getattr(options, field.name) for field in fields(options)}


def contents_of(files: Layout) -> Layout:
    """Return the options that determine the bytes of the data, but not where they are stored."""
    names = ("attributes", "transpose_weights", "max_expand", "base_dir", "dedup")
    return Layout(**{name: getattr(files, name) for name in names})

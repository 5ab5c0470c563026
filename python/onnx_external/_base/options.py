"""Options of a save: `Mapping`, `Layout`, `Quantize`, and the names of choices.

Each option is defined here once; the fields are named like the options of `save-external`.
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
names to tensors (a state dict), a module of torch (its state dict), or several of these."""

LayoutName = Literal["single", "per-tensor", "shards", "inline", "link"]
"""The place of a model's data; `oe.save` describes each."""

FloatType = Literal["float64", "float32", "float16", "bfloat16"]
"""The types that values may be converted to."""

if TYPE_CHECKING:
    import numpy as np
    import torch

    AnyFloatType: TypeAlias = FloatType | torch.dtype | np.dtype[Any]

Size = int | str
"""A number of bytes, or text such as "2GB", "500M" or "4GiB"."""


@dataclass(frozen=True, kw_only=True)
class Mapping:
    r"""Assignments of checkpoint keys to graph weights that names alone do not decide.

    The defaults are strict: every weight needs a key, and every key a weight.

    ```python
    oe.save("graph.onnx", "out", "checkpoint.pt", mapping=oe.Mapping(prefix="model", ignore="^ema"))
    ```

    Args:
        prefix: use only keys that begin with this, and take it off; "" means that keys have no
            prefix. None: a prefix is found where there is one.
        rename: `s/PATTERN/REPLACEMENT/`, or several, which are applied to all keys in turn. The
            pattern is a regular expression of RE2, `\1` its first group, and a final `g` replaces
            every match.
        map: the key of each weight that is named: a map file, or its document as a dict, such as
            {"val_12": "fc.weight"}. A key may have a recipe, and tensors may be joined from several
            keys (docs/mapping.md).
        inputs: names of the graph's inputs that are the caller's own, in full; any other input is
            a weight. None: the inputs that no key fits are the caller's.
        keep: names of weights that keep the data which the graph has for them.
        overlay: for a key that several of `weights` have, take the last one's tensor. By default
            this is an error.
        ignore: regular expressions of RE2; a key that contains a match of one is not used.
        unmatched: the treatment of keys that no weight takes: "strict" raises an error, "skip"
            lists them in the report, "keep" adds them to the graph as initializers.
        partial: also save a model that lacks weights. The report then has `complete=False`.
        cast: convert a key whose float type differs from that of its weight. By default this is an
            error.
        keep_inputs: weights that are inputs of the graph stay inputs, with a default value.
        learn_map: the weights that the graph was exported from, as `weights` of `oe.save`. The
            graph's own data then identifies the key of each weight, even where the exporter renamed
            or transposed it. Only for a save of one graph.

    Raises:
        InvalidArgumentError: (on use) an option names nothing, or is not a valid expression.
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
    """Names and contents of the files that a save writes, beside `layout`.

    ```python
    oe.save(program, "out", layout="shards", files=oe.Layout(max_shard_size="500MB"))
    ```

    Args:
        data_name: the data file of the layout "single", by default the model's name followed by
            ".data" ("model.onnx.data"), and "initializers.data" for several models; for "shards",
            the base of their names.
        data_dir: the folder of the layout "per-tensor", beside the model.
        max_shard_size: the most bytes of a shard, 2 GB by default: a number, or text such as "2GB"
            or "500MiB". A larger tensor gets a shard of its own.
        align: offsets of tensors are multiples of so many bytes. None: of 4096 for tensors of 1 MiB
            and more, of 64 for others.
        dedup: the data to store once: "storage" means tensors that share their bytes (tied
            weights), "content" also tensors of equal bytes, which are read for that, "off" nothing.
        inline_below: tensors of fewer bytes stay inside the model file. None: those of fewer than
            1024 bytes that are already inside.
        attributes: also move tensors of the graph that are attributes of nodes, such as values of
            Constant nodes. None: only initializers.
        transpose_weights: store matrices that only Transpose nodes use transposed, without these
            nodes, so that quantizers and others find the weight of a MatMul. None: for a program of
            torch or an onnx_ir.Model that gets `weights`, in any layout but "link".
        checksum: "sha1" adds the digest of its file to each entry of external data.
        resume: continue a killed save of the same model. False starts from the beginning.
        max_expand: the largest size of the data as a multiple of its files, e.g. by views that
            repeat elements. More is an error, as an attack on memory.
        base_dir: the folder of external data that the given model refers to. None: the model's own
            folder, or the current one for a model that is not a file.
        test_data: files of recorded inputs, as torch.save((args, kwargs), FILE) writes them. Each
            becomes a folder test_data_set_N beside the model.

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
    """Quantization of matrices to 4 or 8 bits, in a form that ONNX Runtime multiplies.

    docs/quantize.md describes what is quantized, by which rule, and the cost.

    ```python
    oe.save("graph.onnx", "out", "llama/", quantize=oe.Quantize("int4/32", head="float"))
    ```

    Args:
        scheme: "int4", "int8", or all parts, such as "int4/32", "int4/64, zero points, 5 steps" or
            "int8/128, symmetric, nearest"; parts that are left out have the defaults of
            docs/quantize.md. "keep": weights that the checkpoint holds quantized keep its codes,
            and become floats where no node multiplies by these; "keep, int8": they become int8
            there.
        head: the type of the head (the matrix that makes the logits) and the embeddings: "int8",
            "int4" or "float". With "keep", "int8" means the checkpoint's codes.
        keep_float: patterns, with * and ?, of weights to leave in floats: names of the graph or
            keys.
        accuracy_level: 4 rounds activations to 8 bits for the products, which is several times
            faster; 0 computes with floats.
        form: "matmulnbits" writes operators of ONNX Runtime, "qdq" DequantizeLinear of ONNX (opset
            21 and newer).

    Raises:
        InvalidArgumentError: (on use) an option has a value that is not listed here.
    """

    scheme: str = field(default="int4", kw_only=False)
    head: Literal["int8", "int4", "float"] = "int8"
    keep_float: str | Sequence[str] | None = None
    accuracy_level: Literal[0, 4] = 4
    form: Literal["matmulnbits", "qdq"] = "matmulnbits"


QuantizeArgument = Quantize | str | None
"""The quantization: a string is a scheme, such as "int4" or "int8/64"; None leaves floats."""


def scheme_text(quantize: QuantizeArgument) -> str | None:
    """Return the scheme as text; None for floats."""
    return quantize.scheme if isinstance(quantize, Quantize) else quantize


def quantize_options(quantize: QuantizeArgument) -> dict[str, Any]:
    """Return the equivalent options of `save-external`."""
    if quantize is None:
        return {}
    given = Quantize(quantize) if isinstance(quantize, str) else quantize
    return {
        "quantize": given.scheme,
        "quantize_head": given.head,
        "keep_float": given.keep_float,
        "accuracy_level": given.accuracy_level,
        "quantize_form": given.form,
    }


NOT_QUANTIZED = dict.fromkeys(quantize_options(Quantize()))
"""The options of quantization that are at these defaults if there is none."""


class Writing(TypedDict, total=False):
    """Keywords of everything that saves a model.

    Args:
        layout: where the data goes. "single": into one file beside the model; "per-tensor":
            into a file for each tensor, in a folder; "shards": into files of at most
            `Layout.max_shard_size` (a larger tensor has one of its own); "inline": into the model
            file, of at most 2 GiB; "link": nowhere, the model refers to the files of the weights,
            which must lie in its folder or below.
        quantize: "int4", "int8", another scheme, or `oe.Quantize(scheme, head=, keep_float=,
            accuracy_level=, form=)`: matrices become codes of 4 or 8 bits while they are written
            (docs/quantize.md). None: floats stay floats.
        overwrite: replace an existing model. It stays whole until the new one is.
        verify: read everything back and compare every byte before the model appears.
        fsync: wait until the disk has it all, so that a power cut loses nothing.
        threads: the most threads that a save uses at a time; 0 means one per CPU. They end
            before this returns. The files do not depend on it.
        progress: a callable (phase, bytes done, bytes in all), True for a bar, or False for
            none. None: a bar if stderr is a terminal and tqdm is installed.
        mapping: `oe.Mapping(prefix=, rename=, map=, inputs=, keep=, overlay=, ignore=,
            unmatched=, partial=, cast=, keep_inputs=, learn_map=)`: which key fills which weight.
            None: equal names, except for a common prefix, and the rules of docs/mapping.md.
        files: `oe.Layout(data_name=, data_dir=, max_shard_size=, align=, dedup=, inline_below=,
            attributes=, transpose_weights=, checksum=, resume=, max_expand=, base_dir=,
            test_data=)`: the names and contents of the files. None: the data of "single" is
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
        dtype: a float type, such as "float16" or torch.float16, to which all floats of
            `weights` are converted, with torch's rounding. It does not change the graph, which must
            state that type: export `module.half()` with float inputs in half. None: none is
            converted.
        extra: tensors beside the weights, in the same forms; a dict may also have a file for a
            name. They fill the slots of their names, such as buffers that no state dict has, and go
            before those of `weights`.
    """

    dtype: AnyFloatType | None
    extra: Weights | None


define(SaveKeywords, {"dtype": None, "extra": None}, Writing)


def flat(options: Mapping | Layout) -> dict[str, Any]:
    """Return the fields by name, in the form that the extension takes."""
    return {field.name: getattr(options, field.name) for field in fields(options)}


def contents_of(files: Layout) -> Layout:
    """Return the options that decide the bytes, without those that decide their place."""
    names = ("attributes", "transpose_weights", "max_expand", "base_dir", "dedup")
    return Layout(**{name: getattr(files, name) for name in names})

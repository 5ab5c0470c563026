"""Merges the LoRA adapter in a peft folder into its base model before an export.

`W + scale * B @ A` is computed in float32, one weight after another, and rounded once. The result
is written into a folder that exists only during the export. peft's merge_and_unload() does the
same, but in the type of the weights.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch

from .._base.errors import (
    ExportError,
    FormatError,
    InvalidArgumentError,
    MappingError,
    NotFoundError,
)
from .._base.options import StrPath
from .._base.temporary import remove_abandoned, temporary_folder
from .._folders.config import ADAPTER, base_of, document_of, is_adapter
from .._folders.gguf.folder import is_made, link_weights, weights_of
from .._folders.side_files import files_beside
from .._sources.checkpoint import Checkpoint, Tensor, open_checkpoint
from ._disagreeing import QUANTIZATION_FILES

_PREFIX = "base_model.model."
_KEY = re.compile(r"(?P<module>.+)\.lora_(?P<embedding>embedding_)?(?P<side>[AB])(?:\.weight)?")
_REFUSED = (
    "use_dora",
    "lora_bias",
    "layer_replication",
    "trainable_token_indices",
    "target_parameters",
    "use_bdlora",
    "arrow_config",
    "alora_invocation_tokens",
    "velora_config",
    "kappa_tuner_config",
    "corda_config",
)
"""Settings that make an adapter more than a product of two matrices, and so cannot be merged."""
_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e8m0fnu: "F8_E8M0",
}
_WITH_CONV1D = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
"""The values of `model_type` for models in which some modules are Conv1D and the others Linear."""
_CONV1D = ("c_attn", "q_attn", "c_proj", "c_fc")
_FILE = "model.safetensors"
_TEMPORARY = ".merged-adapter-"
_OF_THE_BASE = ("config.json", "generation_config.json")
"""Files of the base model that training may have written into the adapter's folder."""


@dataclass(frozen=True)
class _Pair:
    """The two matrices whose product is added to one weight."""

    first: str
    """The key of the LoRA matrix A in the adapter's checkpoint."""
    second: str
    """The key of the LoRA matrix B in the adapter's checkpoint."""
    scale: float
    is_transposed: bool
    """True if the weight's first dimension is that of inputs, as in Embedding and Conv1D."""


class Source(NamedTuple):
    """The folder from which a model is exported."""

    folder: Path
    variant: str | None
    """The variant of the weights to read."""
    notes: list[str]
    """Remarks on how the folder was made."""


@contextlib.contextmanager
def merged(
    folder: Path, base: StrPath | None, near: Path, options: Mapping[str, Any]
) -> Iterator[Source]:
    """Yield the folder of a model: the given one or, for an adapter, a temporary merged one.

    Args:
        folder: the folder of a model or an adapter.
        base: the folder of the adapter's base model; None: the one that adapter_config.json names.
        near: the output, next to which the merged weights are stored temporarily.
        options: the options of the save.

    Raises:
        NotFoundError: the base model is not there.
        ExportError: the adapter is not a plain LoRA.
    """
    variant = options.get("variant")
    place = near.parent
    while not place.is_dir():
        place = place.parent
    remove_abandoned(place, _TEMPORARY)
    if not is_adapter(folder):
        if base is not None:
            raise InvalidArgumentError(f"base: {folder} is not an adapter: it has no {ADAPTER}")
        yield Source(folder, variant, [])
        return
    if options.get("layout") == "link":
        raise InvalidArgumentError(
            f"{folder}: layout='link' refers to existing weights, but an adapter is merged into "
            "new weights; use another layout"
        )
    whole = base_of(folder, Path(base) if base is not None else None)
    if is_made(folder):  # of a GGUF file, which is merged where it is read
        with temporary_folder() as made:
            _copy(whole, folder, made)
            link_weights(made, [*weights_of(whole), *weights_of(folder)])
            yield Source(made, variant, [])
        return
    settings = document_of(folder, ADAPTER)
    _refuse(folder, settings)
    with temporary_folder(place, _TEMPORARY) as made:
        with (
            open_checkpoint(weights_of(whole), variant=variant) as weights,
            open_checkpoint(weights_of(whole), variant=variant, raw=True) as stored,
            open_checkpoint(_weights_of(folder)) as adapter,
        ):
            _copy(whole, folder, made)
            parts = None if is_made(whole) else stored
            changed = _write(weights, parts, adapter, settings, folder, made / _FILE)
            codes = len(changed.intersection(weights.core.quantized_names()))
        note = f"{folder}: an adapter, merged into {len(changed)} weights of {weights_of(whole)[0]}"
        yield Source(made, None, [note + (f"; {codes} of them were quantized" if codes else "")])


def _weights_of(folder: Path) -> Path:
    for name in ("adapter_model.safetensors", "adapter_model.bin"):
        if (folder / name).is_file():
            return folder / name
    raise NotFoundError(f"{folder}/adapter_model.safetensors: not found next to {ADAPTER}")


def _refuse(folder: Path, settings: Mapping[str, Any]) -> None:
    path, kind = folder / ADAPTER, settings.get("peft_type")
    way_out = "load it with peft, merge_and_unload(), save_pretrained() and export that folder"
    if kind != "LORA":
        raise ExportError(
            f"{path}: an adapter of the type {kind}, which onnx-external cannot merge; {way_out}"
        )
    for name in _REFUSED:
        if settings.get(name):
            raise ExportError(f"{path}: {name} is set, which onnx-external cannot merge; {way_out}")
    if settings.get("bias", "none") != "none":
        raise ExportError(
            f"{path}: bias is {settings['bias']!r}, which onnx-external cannot merge; {way_out}"
        )


def _copy(base: Path, folder: Path, made: Path) -> None:
    """Copy the small files of the base model, then the adapter's tokenizer over them."""
    for source in (base, folder):
        for file in files_beside(source):
            if source == base or file.name not in _OF_THE_BASE:
                (made / file.name).parent.mkdir(exist_ok=True, parents=True)
                shutil.copyfile(file.path, made / file.name)
    for name in QUANTIZATION_FILES:
        if (base / name).is_file():
            shutil.copyfile(base / name, made / name)


def _with_parts(
    base: Checkpoint, stored: Checkpoint | None, changed: set[str]
) -> dict[str, Tensor]:
    """Return the tensors of a merged checkpoint; unchanged quantized weights remain quantized.

    torchao's tensors are meaningless without the metadata of their file, so floats are written.
    Floats are also written for a GGUF file, for which `stored` is None.
    """
    codes = set(base.core.quantized_names()) - changed
    method = base.core.quantization()
    if stored is None or not codes or (method is not None and "torchao" in method[0]):
        return dict(base.items())
    listed = {name: tensor for name, tensor in base.items() if name not in codes}
    modules = tuple(name.removesuffix("weight") for name in changed)
    parts = {name: each for name, each in stored.items() if not name.startswith(modules)}
    return parts | listed


def _write(
    base: Checkpoint,
    stored: Checkpoint | None,
    adapter: Checkpoint,
    settings: Mapping[str, Any],
    folder: Path,
    path: Path,
) -> set[str]:
    """Write the merged checkpoint, and return the names of the changed weights."""
    kind = document_of(path.parent).get("model_type")
    pairs, replaced = _targets(base, adapter, settings, folder, kind)
    changed = {*pairs, *replaced}
    tensors = _with_parts(base, stored, changed)
    header: dict[str, Any] = {}
    place = 0
    for name, tensor in tensors.items():
        dtype = _TYPES.get(getattr(torch, tensor.dtype, None))
        if dtype is None:
            raise ExportError(
                f"{folder}: the base model's {name} has the unsupported type {tensor.dtype}"
            )
        ends = [place, place + tensor.nbytes]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": ends}
        place = ends[1]
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, tensor in tensors.items():
            value = tensor.torch()
            if name in replaced:
                value = _instead(value, adapter[replaced[name]], name, folder)
            if name in pairs:
                value = _sum(value, adapter, pairs[name], name, folder)
            _append(out, value)
    return changed


def _append(out: BinaryIO, value: torch.Tensor) -> None:
    flat = value.contiguous().reshape(-1)
    if flat.numel():
        out.write(memoryview(flat.view(torch.uint8).numpy()))


def _instead(weight: torch.Tensor, other: Tensor, name: str, folder: Path) -> torch.Tensor:
    if other.shape != weight.shape:
        raise MappingError(
            f"{folder}: {other.name} is {list(other.shape)}, but {name} in its base is "
            f"{list(weight.shape)}; load both with peft, resize the base's embeddings, "
            "merge_and_unload(), save_pretrained() and export that folder"
        )
    return other.torch().to(weight.dtype)


def _sum(
    weight: torch.Tensor,
    adapter: Checkpoint,
    pair: _Pair,
    name: str,
    folder: Path,
) -> torch.Tensor:
    """Return `W + scale * B @ A`, computed in float32 and rounded to the type of W."""
    first, second = (adapter[key].torch().float() for key in (pair.first, pair.second))
    if first.dim() != 2 or second.dim() != 2 or first.shape[0] != second.shape[1]:
        raise ExportError(
            f"{folder}: {pair.first} {list(first.shape)} and {pair.second} {list(second.shape)} "
            "are not the two matrices of a Linear; merge it with peft"
        )
    delta = (second @ first) * pair.scale
    if pair.is_transposed:
        delta = delta.T
    if delta.shape != weight.shape:
        raise MappingError(
            f"{folder}: {pair.second} @ {pair.first} is {list(delta.shape)}, but {name} in its "
            f"base is {list(weight.shape)}: the adapter belongs to another model"
        )
    return (weight.float() + delta).to(weight.dtype)


def _is_conv1d(module: str, settings: Mapping[str, Any], kind: Any) -> bool:
    """Return whether a module is a transformers Conv1D, a Linear with a transposed weight.

    peft's fan_in_fan_out applies to all modules; if they differ, it is that of the last one.
    """
    if kind in _WITH_CONV1D:
        return module.rpartition(".")[2] in _CONV1D
    return bool(settings.get("fan_in_fan_out"))


def _targets(
    base: Checkpoint, adapter: Checkpoint, settings: Mapping[str, Any], folder: Path, kind: Any
) -> tuple[dict[str, _Pair], dict[str, str]]:
    """Return, by base key, the products to add to weights, and the weights to replace."""
    sides: dict[tuple[str, bool], dict[str, str]] = {}
    replaced: dict[str, str] = {}
    for key in adapter:
        name = key.removeprefix(_PREFIX)
        found = _KEY.fullmatch(name)
        if found is not None:
            at = found["module"], bool(found["embedding"])
            sides.setdefault(at, {})[found["side"]] = key
        elif ".lora_" in name:
            raise ExportError(
                f"{folder}: {key} is not a matrix of a plain LoRA; merge it with peft"
            )
        else:  # modules_to_save, and embeddings, which peft saves whole
            plain = name.replace(".modules_to_save.", ".").replace(".base_layer.", ".")
            replaced[_key_of(base, plain, folder)] = key
    pairs = {}
    for (module, is_embedding), keys in sides.items():
        if keys.keys() != {"A", "B"}:
            raise FormatError(f"{folder}: {module} has only lora_{next(iter(keys))}")
        rank = adapter[keys["A"]].shape[0]
        scale = _scale(module, rank, settings, folder)
        name = _key_of(base, f"{module}.weight", folder)
        turned = is_embedding or _is_conv1d(module, settings, kind)
        pairs[name] = _Pair(keys["A"], keys["B"], scale, turned)
    return pairs, replaced


def _key_of(base: Checkpoint, name: str, folder: Path) -> str:
    """Return the base's key for a parameter: its name, or the only key with the same ending."""
    if name in base:
        return name
    ends = [key for key in base if name.endswith(f".{key}") or key.endswith(f".{name}")]
    if len(ends) == 1:
        return ends[0]
    raise MappingError(
        f"{folder}: the adapter changes {name}, but its base has no such tensor; load both with "
        "peft, merge_and_unload(), save_pretrained() and export that folder"
    )


def _scale(module: str, rank: int, settings: Mapping[str, Any], folder: Path) -> float:
    """Return the factor of the product: alpha / rank, or alpha / sqrt(rank)."""
    alpha: Any = settings.get("lora_alpha", 8)
    patterns = settings.get("alpha_pattern") or {}
    for pattern, value in patterns.items() if isinstance(patterns, dict) else ():
        if re.fullmatch(rf"(.*\.)?({pattern})", module):
            alpha = value
            break
    if not isinstance(alpha, (int, float)) or not rank:
        raise FormatError(f"{folder}/{ADAPTER}: lora_alpha is {alpha!r}")
    return float(alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank))

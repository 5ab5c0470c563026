"""Provides transformers' own model, with its weights, as a reference."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._comparing.inputs import Given
from .._comparing.references import ModuleReference
from .._comparing.values import Value, from_torch, is_equal
from .._folders.config import check_folder
from .._folders.gguf.folder import weights_of
from ._batches import attention_of
from ._generation import plain_generation, token_ids, without_checked_settings
from ._guarding import LOCAL, alone
from ._loading import model_class, opened, told
from ._naming import input_names, output_name, state_name
from ._sentences import TASK, with_sentences
from ._switches import without_switches


def loaded(folder: Path, task: str | None, dtype: str | None, variant: str | None = None) -> Any:
    """Return the model in a folder as from_pretrained() makes it."""
    check_folder(folder)
    given = {"dtype": getattr(torch, dtype) if dtype else "auto", "variant": variant, **LOCAL}
    with opened(folder, model_class(folder, task), variant) as (made_by, config, sizes, _, held):
        without_checked_settings(config)
        without_switches(config, made_by)
        words = token_ids(config)
        loading = told(f"{folder}: transformers cannot load {made_by.__name__}")
        source: Path | None = folder
        if held.core.quantized_names() or weights_of(folder) != [folder]:
            # transformers would need the library that made the codes, and reads GGUF otherwise
            source, given["state_dict"] = None, {name: each.torch() for name, each in held.items()}
        with loading, sizes.bounding():
            model = made_by.from_pretrained(source, config=config, generation_config=words, **given)
    if task == TASK:
        model = with_sentences(model, folder)
    if model.can_generate():
        plain_generation(model, folder)
    return model.eval().requires_grad_(False)


def _without(empty: Any, value: Value) -> Value:
    """Return an output with zeros in place of tokens that are not compared.

    Args:
        empty: a boolean array [batch, all tokens]; True marks the tokens.
        value: an extended cache, or a result for the new tokens, which come last.
    """
    if not isinstance(value, np.ndarray) or value.ndim < 3 or len(value) != len(empty):
        return value
    if value.ndim == 4 and value.shape[2] == empty.shape[1]:
        return np.where(empty[:, None, :, None], np.zeros((), value.dtype), value)
    if value.ndim == 3 and value.shape[1] <= empty.shape[1]:
        last = empty[:, empty.shape[1] - value.shape[1] :, None]
        return np.where(last, np.zeros((), value.dtype), value)
    return value


class TransformersReference(ModuleReference):
    """A model, or part of a model, whose inputs and outputs are named as in the export.

    Args:
        module: the model or part.
        kept: the names of the graph's outputs. Outputs that only return an input are not in graphs.
        graph: the ONNX graph. For tokens that attend to nothing (padding before a text), fused
            attention returns other values than some models do; with sequence lengths, for all
            padding.
    """

    def __init__(self, module: Any, kept: Collection[str], graph: Any = None) -> None:
        super().__init__(module)
        self._kept = kept
        self._state = state_name(getattr(module, "config", None))
        config = getattr(module, "config", None)
        own = getattr(config, "_attn_implementation", "") == "eager"
        attention = None if graph is None else attention_of(graph)
        self._by_lengths = attention is not None and attention.by_lengths
        self._leaves_out = self._by_lengths or (
            own and attention is not None and attention.is_fused
        )

    def outputs(self, given: Given, what: str) -> dict[str, Value]:
        """Call the module inside alone(), and return the outputs that the graph also has."""
        with alone():
            found = super().outputs(given, what)
        args, kwargs = given.call if given.call is not None else ((), {})
        inputs = [from_torch(tensor) for _, tensor in self._arguments(args, kwargs)]
        kept = {
            name: value
            for name, value in found.items()
            if name in self._kept or not any(is_equal(value, each) for each in inputs)
        }
        return self.comparable(given, kept)

    def comparable(self, given: Given, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return the outputs with zeros for tokens that are not compared."""
        mask = given.call[1].get("attention_mask") if self._leaves_out and given.call else None
        if not isinstance(mask, torch.Tensor) or mask.dim() != 2:
            return dict(values)
        empty = ((mask if self._by_lengths else mask.cumsum(1)) == 0).numpy()
        return {name: _without(empty, value) for name, value in values.items()}

    def named(self, result: Any) -> Iterator[tuple[str, Any]]:
        """Yield the tensors in a result, including those in caches."""
        from transformers.exporters.utils import get_leaf_tensors

        for path, tensor in get_leaf_tensors(result).items():
            yield output_name(path, self._state), tensor

    def named_inputs(self, given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield the tensors in the arguments, with the names of a graph's inputs."""
        return self._arguments((), given)

    def _arguments(self, args: Any, kwargs: Any) -> Iterator[tuple[str, Any]]:
        from transformers.exporters.utils import get_leaf_tensors

        found = get_leaf_tensors(kwargs)
        names = input_names(found, self._state)
        for path, tensor in found.items():
            yield names[path], tensor

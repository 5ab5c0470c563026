"""transformers' own model, with its weights, as a reference."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import torch

from .._comparing.inputs import Given
from .._comparing.references import ModuleReference
from .._comparing.values import Value, from_torch, is_equal
from .._folders.config import check_folder
from ._generation import plain_generation, token_ids, without_checked_settings
from ._guarding import LOCAL, alone
from ._loading import model_class, opened, told
from ._naming import input_names, output_name
from ._switches import without_switches


def loaded(folder: Path, task: str | None, dtype: str | None, variant: str | None = None) -> Any:
    """Return the model of a folder as from_pretrained() makes it."""
    check_folder(folder)
    given = {"dtype": getattr(torch, dtype) if dtype else "auto", "variant": variant, **LOCAL}
    with opened(folder, model_class(folder, task), variant) as (made_by, config, sizes, _, _):
        without_checked_settings(config)
        without_switches(config, made_by)
        words = token_ids(config)
        loading = told(f"{folder}: transformers cannot load {made_by.__name__}")
        with loading, sizes.bounding():
            model = made_by.from_pretrained(folder, config=config, generation_config=words, **given)
    if model.can_generate():
        plain_generation(model, folder)
    return model.eval().requires_grad_(False)


class TransformersReference(ModuleReference):
    """A model, or a part of one, whose inputs and outputs are named as the export names them.

    Args:
        module: the part.
        kept: the outputs of the graph, which does not have those that only hand an input on.
    """

    def __init__(self, module: Any, kept: Collection[str]) -> None:
        super().__init__(module)
        self._kept = kept

    def outputs(self, given: Given, what: str) -> dict[str, Value]:
        """Call it; even while it runs, it loads nothing from elsewhere."""
        with alone():
            found = super().outputs(given, what)
        args, kwargs = given.call if given.call is not None else ((), {})
        inputs = [from_torch(tensor) for _, tensor in self._arguments(args, kwargs)]
        return {
            name: value
            for name, value in found.items()
            if name in self._kept or not any(is_equal(value, each) for each in inputs)
        }

    def named(self, result: Any) -> Iterator[tuple[str, Any]]:
        """Yield the tensors of a result, those of caches among them."""
        from transformers.exporters.utils import get_leaf_tensors

        for path, tensor in get_leaf_tensors(result).items():
            yield output_name(path), tensor

    def named_inputs(self, given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield the tensors of what it is called with, with the names of a graph's inputs."""
        return self._arguments((), given)

    def _arguments(self, args: Any, kwargs: Any) -> Iterator[tuple[str, Any]]:
        from transformers.exporters.utils import get_leaf_tensors

        found = get_leaf_tensors(kwargs)
        names = input_names(found)
        for path, tensor in found.items():
            yield names[path], tensor

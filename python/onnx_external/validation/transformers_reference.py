"""transformers' own model, with its weights, as a reference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..folders import check_folder
from ..transformers.generation import plain_generation, token_ids, without_checked_settings
from ..transformers.guarding import LOCAL, alone
from ..transformers.loading import model_class, opened, told
from .inputs import Given
from .references import ModuleReference
from .values import Value

__all__ = ["TransformersReference", "loaded"]


def loaded(folder: Path, task: str | None, dtype: str | None, variant: str | None = None) -> Any:
    """Return the model of a folder as from_pretrained() makes it."""
    check_folder(folder)
    given = {"dtype": getattr(torch, dtype) if dtype else "auto", "variant": variant, **LOCAL}
    with opened(folder, model_class(folder, task), variant) as (made_by, config, sizes, _, _):
        without_checked_settings(config)
        words = token_ids(config)
        loading = told(f"{folder}: transformers cannot load {made_by.__name__}")
        with loading, sizes.bounding():
            model = made_by.from_pretrained(folder, config=config, generation_config=words, **given)
    if model.can_generate():
        plain_generation(model, folder)
    return model.eval().requires_grad_(False)


class TransformersReference(ModuleReference):
    """A model, or a part of one, whose inputs and outputs are named as the export names them."""

    def outputs(self, given: Given, what: str) -> dict[str, Value]:
        """Call it; even while it runs, it loads nothing from elsewhere."""
        with alone():
            return super().outputs(given, what)

    def named(self, result: Any) -> Iterator[tuple[str, Any]]:
        """Yield the tensors of a result, those of caches among them."""
        from transformers.exporters.utils import get_leaf_tensors

        yield from get_leaf_tensors(result).items()

    def _arguments(self, args: Any, kwargs: Any) -> Iterator[tuple[str, Any]]:
        from transformers.exporters.utils import get_leaf_tensors

        yield from get_leaf_tensors(kwargs).items()

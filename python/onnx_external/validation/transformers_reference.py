"""transformers' own model, with its weights, as a reference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..checkpoint import open_checkpoint
from ..transformers.guarding import LOCAL, alone
from ..transformers.loading import chosen, model_class, sizes_of, told
from .inputs import Given
from .references import ModuleReference
from .values import Value

__all__ = ["TransformersReference", "loaded"]


def loaded(folder: Path, task: str | None, dtype: str | None) -> Any:
    """Return the model of a folder as from_pretrained() makes it."""
    made_by = model_class(folder, task)
    with open_checkpoint(folder) as checkpoint:
        sizes = sizes_of(folder, checkpoint)
    made_by, config = chosen(folder, made_by)
    dtypes = getattr(torch, dtype) if dtype else "auto"
    loading = told(f"{folder}: transformers cannot load {made_by.__name__}")
    with loading, sizes.bounding():
        model = made_by.from_pretrained(folder, config=config, dtype=dtypes, **LOCAL)
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

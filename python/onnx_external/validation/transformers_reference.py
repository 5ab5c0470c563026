"""transformers' own model, with its weights, as a reference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..transformers.loading import model_class, told
from .references import ModuleReference

__all__ = ["TransformersReference", "loaded"]


def loaded(folder: Path, task: str | None, dtype: str | None) -> Any:
    """Return the model of a folder as from_pretrained() makes it."""
    made_by = model_class(folder, task)
    with told(f"{folder}: transformers cannot load {made_by.__name__}"):
        model = made_by.from_pretrained(folder, dtype=getattr(torch, dtype) if dtype else "auto")
    return model.eval().requires_grad_(False)


class TransformersReference(ModuleReference):
    """A model, or a part of one, whose inputs and outputs are named as the export names them."""

    def named(self, result: Any) -> Iterator[tuple[str, Any]]:
        """Yield the tensors of a result, those of caches among them."""
        from transformers.exporters.utils import get_leaf_tensors

        yield from get_leaf_tensors(result).items()

    def _arguments(self, args: Any, kwargs: Any) -> Iterator[tuple[str, Any]]:
        from transformers.exporters.utils import get_leaf_tensors

        yield from get_leaf_tensors(kwargs).items()

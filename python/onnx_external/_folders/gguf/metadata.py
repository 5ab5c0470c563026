"""The keys of a GGUF file, read with their types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..._base.errors import ExportError, FormatError

Shapes = Mapping[str, tuple[int, ...]]
"""The tensors of the model, by transformers' names."""
FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that are settings, like the keys."""
_MOST = 1 << 31
"""The bound of a size or a number of layers, heads or tokens."""
_HARMLESS = (
    "vocab_size", "tensor_data_layout", "rope.scaling.finetuned", "use_parallel_residual",
    "context_length_train",
)  # fmt: skip
"""Settings that affect no result of the model, or that also follow from its tensors."""


def shortest(number: float) -> float:
    """Return the number that a float32 was rounded from: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(number)))


class Metadata:
    """The keys of a file; those of the architecture are looked up without its name."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        """Take the file, for messages, and its keys as returned by `gguf_metadata`."""
        self.path, self._values = path, values
        self._asked: set[str] = set()
        self.architecture = self._architecture()

    def _architecture(self) -> str:
        found = self._values.get("general.architecture")
        if not isinstance(found, str) or not found:
            raise FormatError(f"{self.path}: general.architecture: no text; the file has no model")
        return found

    def get(self, key: str) -> Any:
        """Return a value by its full key; None if there is none."""
        return self._values.get(key)

    def own(self, name: str) -> Any:
        """Return a setting of the architecture; None if there is none."""
        self._asked.add(name)
        return self._values.get(f"{self.architecture}.{name}")

    def size(self, name: str, default: int | None = None) -> int:
        """Return a positive integer; a list with a value for each layer counts if all are equal.

        Raises:
            FormatError: it is something else, or there is none and no default.
            ExportError: the layers differ.
        """
        found = self.own(name)
        if isinstance(found, list) and found:
            if any(each != found[0] for each in found):
                raise ExportError(
                    f"{self.path}: {self.architecture}.{name} differs from layer to layer, for "
                    "which transformers' model of this architecture has no setting"
                )
            found = found[0]
        if found is None and default is not None:
            return default
        if isinstance(found, bool) or not isinstance(found, int) or not 0 < found < _MOST:
            raise self._wrong(name, found, "a positive integer")
        return found

    def size_if_any(self, name: str) -> int | None:
        """Return a positive integer; None without one, or for 0, which some writers use instead."""
        return self.size(name) if self.own(name) else None

    def number(self, name: str, default: float | None = None) -> float:
        """Return a finite number, written as short as a float32 of the same bits allows.

        Raises:
            FormatError: it is something else, or there is none and no default.
        """
        found = self.own(name)
        if found is None and default is not None:
            return default
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not abs(found) < 1e38:
            raise self._wrong(name, found, "a number")
        return shortest(found)

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean.

        Raises:
            FormatError: it is something else.
        """
        found = self.own(name)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise self._wrong(name, found, "true or false")
        return found

    def factors(self, name: str) -> list[float] | None:
        """Return the numbers of a tensor of FACTORS; None if the file has none.

        Raises:
            FormatError: they are not positive numbers.
        """
        found = self._values.get(name)
        if found is None:
            return None
        if not isinstance(found, list) or not all(
            isinstance(each, float) and 0 < each < 1e38 for each in found
        ):
            raise FormatError(f"{self.path}: {name}: expected positive numbers")
        return [shortest(each) for each in found]

    def unknown(self) -> list[str]:
        """Return the settings of the architecture that were never looked up and are not 0."""
        start = f"{self.architecture}."
        return sorted(
            key
            for key, value in self._values.items()
            if key.startswith(start)
            and value not in (0, 0.0, False, "", [])
            and key.removeprefix(start) not in self._asked
            and key.removeprefix(start) not in _HARMLESS
        )

    def _wrong(self, name: str, found: Any, expected: str) -> FormatError:
        said = "missing" if found is None else f"{found!r:.60}"
        return FormatError(f"{self.path}: {self.architecture}.{name}: {said}; expected {expected}")

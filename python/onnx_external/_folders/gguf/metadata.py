"""Reads the keys of a GGUF file and checks their types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..._base.errors import ExportError, FormatError

Shapes = Mapping[str, tuple[int, ...]]
"""The shapes of the model's tensors, by their names in transformers."""
FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that are settings of the rotary embedding and not weights."""
_MOST = 1 << 31
"""The upper bound of sizes, and of the numbers of layers, heads and tokens."""
_HARMLESS = (
    "vocab_size", "tensor_data_layout", "rope.scaling.finetuned", "use_parallel_residual",
    "context_length_train",
)  # fmt: skip
"""Settings that do not affect the model's results, or that its tensors also determine."""


def shortest(number: float) -> float:
    """Return the shortest decimal for the same float32: 1e-05 instead of 9.999999747378752e-06."""
    return float(str(np.float32(number)))


class Metadata:
    """The keys of a GGUF file, with lookups that add the architecture's prefix."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        """Create the metadata from the file's path (for messages) and the keys."""
        self.path, self._values = path, values
        self._asked: set[str] = set()
        self.architecture = self._architecture()

    def _architecture(self) -> str:
        found = self._values.get("general.architecture")
        if not isinstance(found, str) or not found:
            raise FormatError(
                f"{self.path}: general.architecture: no string; the file has no model"
            )
        return found

    def get(self, key: str) -> Any:
        """Return a value by its full key; None if the file does not have the key."""
        return self._values.get(key)

    def own(self, name: str) -> Any:
        """Return a setting of the architecture; None if the file does not have it."""
        self._asked.add(name)
        return self._values.get(f"{self.architecture}.{name}")

    def size(self, name: str, default: int | None = None) -> int:
        """Return a positive integer setting; a list must have the same value for each layer.

        Raises:
            FormatError: the setting is not a positive integer, or is missing without a default.
            ExportError: the layers have different values.
        """
        found = self.own(name)
        if isinstance(found, list) and found:
            if any(each != found[0] for each in found):
                raise ExportError(
                    f"{self.path}: {self.architecture}.{name} differs from layer to layer, which "
                    "transformers' model of this architecture does not support"
                )
            found = found[0]
        if found is None and default is not None:
            return default
        if isinstance(found, bool) or not isinstance(found, int) or not 0 < found < _MOST:
            raise self._wrong(name, found, "a positive integer")
        return found

    def size_if_any(self, name: str) -> int | None:
        """Return a positive integer setting; None if it is missing, or 0 as some writers store."""
        return self.size(name) if self.own(name) else None

    def number(self, name: str, default: float | None = None) -> float:
        """Return a finite number setting, as the shortest decimal for the same float32.

        Raises:
            FormatError: the setting is not a finite number, or is missing without a default.
        """
        found = self.own(name)
        if found is None and default is not None:
            return default
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not abs(found) < 1e38:
            raise self._wrong(name, found, "a number")
        return shortest(found)

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean setting.

        Raises:
            FormatError: the setting is not a boolean.
        """
        found = self.own(name)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise self._wrong(name, found, "true or false")
        return found

    def factors(self, name: str) -> list[float] | None:
        """Return the values of a tensor named in FACTORS; None if the file does not have it.

        Raises:
            FormatError: the values are not positive numbers.
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
        """Return the nonzero settings of the architecture that were never looked up."""
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

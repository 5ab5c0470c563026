"""Lists programs that open an exported folder, and their additional requirements.

The usual folder suits ONNX Runtime, optimum, OpenVINO, fastembed and sentence-transformers. Each
further requirement of a client is a field of one table; code for a single client is in a module of
its own in `transformers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._base.errors import ExportError, InvalidArgumentError


@dataclass(frozen=True)
class Client:
    """A program that opens the folder, and its requirements."""

    place: str = ""
    """The subfolder of the model's folder in which the client looks for the graphs."""
    merges: bool = False
    """True if the client expects a decoder as a single graph."""
    apart: bool = False
    """True if each graph has a data file of its own, named after the graph."""
    crosses: bool = False
    """True if the encoder also returns keys and values for the decoder's cache, and the only
    decoder graph is the graph for the steps."""
    plain: bool = False
    """True if the client does not support ONNX Runtime's own operators, such as fused attention."""
    float_tables: bool = False
    """True if the client cannot look up rows of quantized embeddings."""
    needs: tuple[str, ...] = ()
    """Files that the client requires, from the model's folder or created next to the graphs."""


CLIENTS = {
    "fastembed": Client(needs=("tokenizer.json", "tokenizer_config.json")),
    "genai": Client(crosses=True, needs=("genai_config.json", "tokenizer.json")),
    "openvino": Client(plain=True),
    "optimum": Client(),
    "sentence-transformers": Client(needs=("tokenizer_config.json",)),
    "transformers.js": Client("onnx", merges=True, apart=True, float_tables=True),
}


@dataclass(frozen=True)
class Wanted:
    """The combined requirements of the chosen clients."""

    names: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The subfolder of the model's folder in which the graphs are stored."""
        return next((each.place for each in self._clients() if each.place), "")

    @property
    def merges(self) -> bool:
        """True if a decoder is stored as a single graph."""
        return any(each.merges for each in self._clients())

    @property
    def apart(self) -> bool:
        """True if each graph has a data file of its own."""
        return any(each.apart for each in self._clients())

    @property
    def crosses(self) -> bool:
        """True if the encoder also returns keys and values for the decoder's cache."""
        return any(each.crosses for each in self._clients())

    @property
    def plain(self) -> bool:
        """True if the graphs may only use standard ONNX operators."""
        return any(each.plain for each in self._clients())

    @property
    def float_tables(self) -> bool:
        """True if embeddings must not be quantized.

        ONNX Runtime Web, for example, has no GatherBlockQuantized.
        """
        return any(each.float_tables for each in self._clients())

    def _clients(self) -> list[Client]:
        return [CLIENTS[name] for name in self.names]

    def refuse(self, layout: str, target: Path) -> None:
        """Raise an error before the trace if a client could not open the result.

        Raises:
            InvalidArgumentError: a client is not known, or needs another layout or path.
        """
        for name in self.names:
            if name not in CLIENTS:
                raise InvalidArgumentError(
                    f"{name!r} is not one of the programs for clients=: {', '.join(CLIENTS)}"
                )
            if CLIENTS[name].apart and layout not in ("single", "inline"):
                raise InvalidArgumentError(
                    f"{name} expects one data file for each graph, named after the graph, which "
                    f"layout={layout!r} does not create; leave layout out"
                )
        if self.place and target.suffix == ".onnx" and not target.is_dir():
            raise InvalidArgumentError(
                f"{target}: the graphs for {', '.join(self.names)} are stored in a subfolder, "
                f"{self.place}/; give the model's folder as the target"
            )

    def refuse_lacking(self, beside: Sequence[str]) -> None:
        """Raise an error if a file that a client requires is missing.

        Args:
            beside: the names of the files next to the graphs.

        Raises:
            ExportError: a file is missing.
        """
        for name in self.names:
            lacking = [each for each in CLIENTS[name].needs if each not in beside]
            if lacking:
                raise ExportError(
                    f"{name} needs {', '.join(lacking)}, which the model's folder does not contain "
                    "and which cannot be created for these graphs; add the missing files, or leave "
                    f"{name} out of clients="
                )


def wanted(names: Any) -> Wanted:
    """Return the combined requirements of the clients with these names."""
    given = (names,) if isinstance(names, str) else tuple(names)
    return Wanted(tuple(dict.fromkeys(map(str, given))))

"""Programs that open a folder of graphs, and their requirements beyond the usual names.

The usual folder is right for ONNX Runtime, optimum, OpenVINO, fastembed and sentence-transformers.
The needs of a client beyond that are a row of one table; code for one of them has a module of its
own in `transformers`.
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
    """The folder of the graphs in that of the model."""
    merges: bool = False
    """True if a decoder is one graph."""
    apart: bool = False
    """True if each graph has a data file of its own, named after it."""
    crosses: bool = False
    """True if an encoder returns the keys and values that the decoder keeps of it, and the decoder
    is the one for the steps."""
    plain: bool = False
    """True if it does not support ONNX Runtime's own operators, such as fused attention."""
    float_tables: bool = False
    """True if it cannot look up rows of embeddings that have codes."""
    needs: tuple[str, ...] = ()
    """Files of the model's folder, or made beside it, that it requires."""


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
    """The combined needs of the chosen clients."""

    names: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The folder of the graphs inside that of the model."""
        return next((each.place for each in self._clients() if each.place), "")

    @property
    def merges(self) -> bool:
        """True if a decoder is one graph."""
        return any(each.merges for each in self._clients())

    @property
    def apart(self) -> bool:
        """True if each graph has a data file of its own."""
        return any(each.apart for each in self._clients())

    @property
    def crosses(self) -> bool:
        """True if an encoder returns the keys and values that the decoder keeps of it."""
        return any(each.crosses for each in self._clients())

    @property
    def plain(self) -> bool:
        """True if the graphs only have standard ONNX operators."""
        return any(each.plain for each in self._clients())

    @property
    def float_tables(self) -> bool:
        """True if embeddings must not have codes: ONNX Runtime Web has no GatherBlockQuantized."""
        return any(each.float_tables for each in self._clients())

    def _clients(self) -> list[Client]:
        return [CLIENTS[name] for name in self.names]

    def refuse(self, layout: str, target: Path) -> None:
        """Raise an error for what a client cannot open, before the trace.

        Raises:
            InvalidArgumentError: there is no such client, or it takes another layout or path.
        """
        for name in self.names:
            if name not in CLIENTS:
                raise InvalidArgumentError(
                    f"{name!r} is not one of the programs for clients=: {', '.join(CLIENTS)}"
                )
            if CLIENTS[name].apart and layout not in ("single", "inline"):
                raise InvalidArgumentError(
                    f"{name} finds the data of a graph by the name of the graph, one file "
                    f"for each, which layout={layout!r} does not have; leave layout out"
                )
        if self.place and target.suffix == ".onnx" and not target.is_dir():
            raise InvalidArgumentError(
                f"{target}: the graphs for {', '.join(self.names)} lie in a folder of the model's, "
                f"{self.place}/; give the model's folder as the target"
            )

    def refuse_lacking(self, beside: Sequence[str]) -> None:
        """Raise an error for a folder that a client could not open.

        Args:
            beside: the names of the files beside the graphs.

        Raises:
            ExportError: a file is missing.
        """
        for name in self.names:
            lacking = [each for each in CLIENTS[name].needs if each not in beside]
            if lacking:
                raise ExportError(
                    f"{name} needs {', '.join(lacking)}, which the model's folder does not have "
                    f"and its graphs do not allow to be made; add it, or leave {name} out of "
                    "clients="
                )


def wanted(names: Any) -> Wanted:
    """Return the combined needs of the clients of these names."""
    given = (names,) if isinstance(names, str) else tuple(names)
    return Wanted(tuple(dict.fromkeys(map(str, given))))

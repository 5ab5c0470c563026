"""Turns the graph of a shallow model into the graph of the deep model, once this is proved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .kinds import Stack
from .naming import Names
from .proof import Proof
from .recording import Record, Unprovable

if TYPE_CHECKING:
    import onnx_ir

    from .numbers import Starts


@dataclass
class Repetition:
    """The data with which the graph of few layers becomes the graph of all layers."""

    stacks: Sequence[Stack]
    proof: Proof
    record: Record
    """The recorded trace of the model with few layers."""

    def starts(self, model: onnx_ir.Model) -> Starts:
        """Return where layer numbers begin in the names of a graph that is not yet optimized."""
        from .numbers import starts_of  # which needs onnx_ir

        return starts_of(model, self.stacks)

    def repeat(
        self, model: onnx_ir.Model, exported: Any, starts: Starts, names: Names | None = None
    ) -> None:
        """Turn a graph of few layers into the graph of all layers.

        Args:
            model: the graph of few layers.
            exported: the program from which the graph was converted.
            starts: the first layer numbers, from starts().
            names: the names of inputs and outputs. None: both graphs have the same names.

        Raises:
            Unprovable: the layers of the graph do not correspond to those of the model.
        """
        from .stamping import stamp  # which needs onnx_ir

        try:
            stamp(model, self.stacks, names or self._same_names(model), exported, starts)
        except Exception as error:  # the graph is dropped then, whatever it is
            raise Unprovable(str(error)) from error

    def _same_names(self, model: onnx_ir.Model) -> Names:
        inputs = [value.name or "" for value in model.graph.inputs]
        outputs = [value.name or "" for value in model.graph.outputs]
        if (len(inputs), len(outputs)) != (len(self.record.inputs), len(self.record.outputs)):
            raise Unprovable("the graph does not have the inputs and outputs of the module")
        return Names(self.stacks, self.proof, inputs, outputs, inputs, outputs, True)


def not_repeated(reason: Exception) -> str:
    """Return the note on a graph whose layers are traced in full."""
    return f"traced in full, not repeated: {reason}"

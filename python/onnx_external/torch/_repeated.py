"""Makes the full graph of a module from a graph of the module with only few layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .._base.errors import ExportError
from .._control_flow import outside_kept
from .._repeating.kinds import Stack, find_stacks
from .._repeating.naming import Names
from .._repeating.proof import Proof, proved
from .._repeating.recording import Record, Unprovable, recorded
from .._repeating.shallow import shallow
from .._tracing.silence import quiet
from ._tracing import as_torch_onnx
from ._untouched import has_data

if TYPE_CHECKING:
    import onnx_ir

    from .._repeating.numbers import Starts


class NotRepeatedError(ExportError):
    """Raised if a graph of few layers does not represent the module; all layers are traced then."""


@dataclass
class Repetition:
    """The data with which the graph of few layers becomes the graph of all layers."""

    module: nn.Module
    stacks: Sequence[Stack]
    proof: Proof
    record: Record
    """The recorded trace of the module with few layers."""

    def shallow(self) -> AbstractContextManager[None]:
        """Return a context in which the module has few layers."""
        return shallow(self.module, self.stacks)

    def starts(self, model: onnx_ir.Model) -> Starts:
        """Return where layer numbers begin in the names of a graph that is not yet optimized."""
        from .._repeating.numbers import starts_of  # which needs onnx_ir

        return starts_of(model, self.stacks)

    def repeat(self, model: onnx_ir.Model, exported: Any, starts: Starts) -> None:
        """Turn a graph of few layers into the graph of all layers.

        Args:
            model: the graph of few layers.
            exported: the program from which the graph was converted.
            starts: the first layer numbers, from starts().

        Raises:
            ExportError: the layers of the graph do not correspond to those of the module.
        """
        from .._repeating.stamping import stamp  # which needs onnx_ir

        inputs = [value.name or "" for value in model.graph.inputs]
        outputs = [value.name or "" for value in model.graph.outputs]
        counts = len(self.record.inputs), len(self.record.outputs)
        try:
            if (len(inputs), len(outputs)) != counts:
                raise Unprovable("the graph does not have the inputs and outputs of the module")
            names = Names(self.stacks, self.proof, inputs, outputs, inputs, outputs, True)
            stamp(model, self.stacks, names, exported, starts)
        except Exception as error:  # the graph is dropped then, whatever it is
            raise NotRepeatedError(f"traced in full, not repeated: {error}") from error


def repetition(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> Repetition | None:
    """Determine how the module's layers can be repeated; None if no layers are alike.

    Args:
        module: the module.
        args: the positional inputs.
        kwargs: the inputs by name.

    Raises:
        NotRepeatedError: the layers cannot be repeated; the message says why.
    """
    stacks = find_stacks(module, has_data)
    if not stacks:
        return None

    def export() -> None:
        with torch.no_grad(), quiet(), as_torch_onnx(), outside_kept(module):
            torch.export.export(module, tuple(args), kwargs=dict(kwargs or {}), strict=False)

    try:
        deep = recorded(module, stacks, export)
        with shallow(module, stacks):
            small = recorded(module, stacks, export)
        proof = proved(stacks, deep, small)
        if any(
            slot.segment.stack >= 0 for slot in (*proof.inputs.values(), *proof.outputs.values())
        ):
            if len(deep.inputs) != len(small.inputs) or len(deep.outputs) != len(small.outputs):
                raise Unprovable("its layers have inputs or outputs of their own")
    except Unprovable as reason:
        raise NotRepeatedError(f"traced in full, not repeated: {reason}") from reason
    return Repetition(module, stacks, proof, small)

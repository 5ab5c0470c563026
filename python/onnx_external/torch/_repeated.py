"""Determines how the layers of a module can be repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .._control_flow import outside_kept
from .._repeating.kinds import find_stacks
from .._repeating.proof import proved
from .._repeating.recording import Unprovable, recorded
from .._repeating.repetition import Repetition
from .._repeating.shallow import shallow
from .._tracing.silence import quiet
from ._tracing import as_torch_onnx
from ._untouched import has_data


def repetition(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> Repetition | None:
    """Determine how the module's layers can be repeated; None if no layers are alike.

    Args:
        module: the module.
        args: the positional inputs.
        kwargs: the inputs by name.

    Raises:
        Unprovable: the layers cannot be repeated; the message says why.
    """
    stacks = find_stacks(module, has_data)
    if not stacks:
        return None

    def export() -> None:
        with torch.no_grad(), quiet(), as_torch_onnx(), outside_kept(module):
            torch.export.export(module, tuple(args), kwargs=dict(kwargs or {}), strict=False)

    deep = recorded(module, stacks, export)
    with shallow(module, stacks):
        small = recorded(module, stacks, export)
    proof = proved(stacks, deep, small)
    if any(slot.segment.stack >= 0 for slot in (*proof.inputs.values(), *proof.outputs.values())):
        if len(deep.inputs) != len(small.inputs) or len(deep.outputs) != len(small.outputs):
            raise Unprovable("its layers have inputs or outputs of their own")
    return Repetition(stacks, proof, small)

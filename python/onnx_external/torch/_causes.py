"""Finds known causes why a module cannot be traced, by looking at its parts."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .._base.errors import ExportError, chain
from ._untouched import tensors_of


@contextlib.contextmanager
def causes_told(module: Any) -> Iterator[None]:
    """Add a known cause, if the module has one, to export errors raised inside the context."""
    try:
        yield
    except ExportError as error:
        if isinstance(module, nn.Module) and (cause := cause_in(module, error)):
            what, _, reason = str(error.args[0]).partition(": ")
            error.args = (f"{what}: {cause} ({reason.rpartition('; ')[0]})",)
        raise


def cause_in(module: nn.Module, error: BaseException) -> str:
    """Return the first known reason why a module cannot be traced; "" if none is known."""
    every = list(chain(error))
    if any(map(_meets_packed, every)):
        return (
            "a packed sequence (pack_padded_sequence) has sizes that depend on the lengths; run "
            "the layer on the padded tensor, and mask the padding"
        )
    text = " ".join(map(str, every))
    unrolled = [name for name, each in module.named_modules() if type(each) is nn.RNN]
    if unrolled and "specialized it to be a constant" in text:
        return (
            f"{unrolled[0] or 'the module'} (RNN) is traced for a single sequence length; leave "
            "that size out of dynamic_shapes, or use nn.GRU or nn.LSTM, whose length may vary"
        )
    drawn = _generator_of(module) if "enerator" in text else ""
    if drawn:
        return (
            f"{drawn} is a torch.Generator, which ONNX does not have; draw without generator=, or "
            "make the random numbers an input"
        )
    return next(_causes(module), "")


def _generator_of(module: nn.Module) -> str:
    """Return the name of an attribute that is a torch.Generator; "" if there is none."""
    for prefix, each in module.named_modules():
        for name, value in vars(each).items():
            if isinstance(value, torch.Generator):
                return f"{prefix}.{name}" if prefix else name
    return ""


def _meets_packed(error: BaseException) -> bool:
    """Return whether an error arose where a sequence is packed, or a packed sequence is used."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        path = frame.f_code.co_filename.replace(os.sep, "/")
        if path.endswith("torch/nn/utils/rnn.py"):
            return True
        if (
            path.endswith("torch/nn/modules/rnn.py")
            and frame.f_locals.get("batch_sizes") is not None
        ):
            return True
    return False


def _causes(module: nn.Module) -> Iterator[str]:
    for name, each in module.named_modules():
        told = f"{name or 'the module'} ({type(each).__name__})"
        if ".ao.nn.quantized" in type(each).__module__ or ".nn.quantized" in type(each).__module__:
            yield (
                f"{told} is quantized by torch.ao, whose packed weights cannot be represented in a "
                "graph; export the module before it is quantized, and quantize the model with "
                "onnxruntime.quantization.quantize_dynamic"
            )
        elif isinstance(each, torch.jit.ScriptModule):
            yield (
                f"{told} is a TorchScript module (torch.jit), which torch.export cannot trace; "
                "replace it with the module from which it was made"
            )
        elif type(each).__name__ in ("DistributedDataParallel", "FullyShardedDataParallel"):
            yield f"{told} distributes the module inside it; replace it with the plain module"
        elif type(each).__name__ == "OptimizedModule":
            yield f"{told} is compiled by torch.compile; replace it with its _orig_mod"
    for name, tensor in tensors_of(module):
        if type(tensor).__name__ == "DTensor":
            yield (
                f"{name} is distributed over processes (DTensor); load the full state dict into a "
                "plain module"
            )
        elif tensor.layout is not torch.strided:
            yield (
                f"{name} has the layout {tensor.layout}, for which ONNX has no operators; make it "
                "dense: tensor.to_dense()"
            )
        elif tensor.is_quantized:
            yield f"{name} is a quantized tensor; make it plain: tensor.dequantize()"

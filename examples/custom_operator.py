# %% [markdown]
# # Operators of your own
#
# Code that torch cannot trace (a C++ extension, another library) becomes an operator of torch by
# `torch.library.custom_op`. The exporter then needs to know what it is in ONNX: a function of
# onnxscript, given in `custom_translation_table`.

# %%
import numpy as np
import onnx
import onnxruntime
import torch
from onnxscript import opset18 as op

import onnx_external as oe


@torch.library.custom_op("examples::gate", mutates_args=())
def gate(x: torch.Tensor, limit: float) -> torch.Tensor:
    """Return the values beyond the limit, by code that torch does not see into."""
    return torch.from_numpy(np.where(x.numpy() > limit, x.numpy(), 0).astype(np.float32))


gate.register_fake(lambda x, limit: torch.empty_like(x))  # the shape of its result


# %% [markdown]
# The second operator writes into its argument. ONNX has no writes, and torch.onnx does not
# translate the node that torch.export makes of such a call (`auto_functionalized_v2`). The way out
# is an operator that does the same on a copy and returns it.


# %%
def squash_(x: torch.Tensor) -> None:
    x.numpy()[...] /= 1 + np.abs(x.numpy())


@torch.library.custom_op("examples::squash", mutates_args=())
def squash(x: torch.Tensor) -> torch.Tensor:
    copy = x.clone()
    squash_(copy)
    return copy


squash.register_fake(torch.empty_like)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return gate(squash(self.linear(x)), 0.1)


# %%
def gate_in_onnx(x, limit: float):  # type: ignore[no-untyped-def]
    return op.Where(op.Greater(x, limit), x, 0.0)


def squash_in_onnx(x):  # type: ignore[no-untyped-def]
    return op.Softsign(x)


table = {
    torch.ops.examples.gate.default: gate_in_onnx,
    torch.ops.examples.squash.default: squash_in_onnx,
}
torch.manual_seed(0)
model, x = Model().eval(), torch.randn(2, 4)
options = {"custom_translation_table": table}
report = oe.torch.export(model, (x,), "custom.onnx", onnx_options=options, overwrite=True)
print("compared on", report.checked, "input sets")
print(*(node.op_type for node in onnx.load("custom.onnx").graph.node))

# %%
session = onnxruntime.InferenceSession("custom.onnx")
(found,) = session.run(None, {"x": x.numpy()})
print(f"largest difference from torch: {abs(found - model(x).detach().numpy()).max():.1e}")

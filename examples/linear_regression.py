# %% [markdown]
# # A linear regression, to ONNX and back
#
# An ONNX file has two parts: a *graph* (which operators run on which values) and *initializers*
# (the weights). This page fits a line with torch, writes it as ONNX, runs it with ONNX Runtime, and
# reads the weights back into torch.

# %%
from pathlib import Path

import onnx
import onnxruntime
import torch

import onnx_external as oe

torch.manual_seed(0)
x = torch.rand(100, 2)
y = x @ torch.tensor([[2.0], [-3.0]]) + 0.5

model = torch.nn.Sequential(torch.nn.Linear(2, 1))
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=100)


def loss() -> torch.Tensor:
    optimizer.zero_grad()
    error = torch.nn.functional.mse_loss(model(x), y)
    error.backward()
    return error


optimizer.step(loss)
a, b, c = *model[0].weight[0].tolist(), model[0].bias.item()
print(f"torch fits y = {a:.3f} x0 {b:+.3f} x1 {c:+.3f}")

# %% [markdown]
# The second input set has another number of rows, so that size varies in the graph. Before anything
# is written, the graph is run on both sets and compared with the module.

# %%
folder = Path("linear")
path = folder / "model.onnx"
args, other = (x[:4],), (x[:9],)
report = oe.torch.export(model.eval(), args, path, input_sets=[other], overwrite=True)
print("compared on", report.checked, "input sets; verified on disk:", report.save.verified)

# %% [markdown]
# The graph is one operator. Its weights lie in `model.onnx.data`; the graph has their names, types,
# shapes and places.

# %%
graph = onnx.load(path, load_external_data=False).graph
print(*(f"{node.op_type}({', '.join(node.input)}) -> {node.output[0]}" for node in graph.node))
for tensor in oe.inspect(path).tensors:
    print(tensor.name, tensor.dtype, tensor.shape)
print(*sorted(file.name for file in folder.iterdir()))

# %%
session = onnxruntime.InferenceSession(path)
(predicted,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
print(f"largest difference from torch: {abs(predicted - model(x).detach().numpy()).max():.1e}")

# %% [markdown]
# And back: `onnx` reads the weights, and a new module takes them by their names, because an export
# keeps those of the state dict.

# %%
weights = {
    tensor.name: torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy())
    for tensor in onnx.load(path).graph.initializer
}
again = torch.nn.Sequential(torch.nn.Linear(2, 1))
again.load_state_dict(weights)
print("the same module:", torch.equal(again(x), model(x)))

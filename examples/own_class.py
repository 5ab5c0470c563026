# %% [markdown]
# # A class of your own among the inputs
#
# torch looks into tuples, lists and dicts. It does not know which attributes of your class hold
# tensors, so it refuses an object of it. `oe.register_class` says which they are, for exports and
# for checkpoints in which such objects are pickled.

# %%
import onnxruntime
import torch
from torch.utils import _pytree as pytree

import onnx_external as oe


class Batch:
    def __init__(self, values: torch.Tensor, weights: torch.Tensor) -> None:
        self.values = values
        self.weights = weights


class WeightedMean(torch.nn.Module):
    def forward(self, batch: Batch) -> torch.Tensor:
        return (batch.values * batch.weights).sum(0) / batch.weights.sum(0)


torch.manual_seed(0)
batch = Batch(torch.rand(6, 3), torch.rand(6, 1))
other = Batch(torch.rand(9, 3), torch.rand(9, 1))
try:
    torch.export.export(WeightedMean(), (batch,))
except ValueError as error:
    print(str(error).split(". ")[0])

# %%
oe.register_class(Batch, ["values", "weights"])
report = oe.torch.export(
    WeightedMean(), (batch,), "mean.onnx", input_sets=[(other,)], overwrite=True
)
print("compared on", report.checked, "input sets")
session = onnxruntime.InferenceSession("mean.onnx")
for value in session.get_inputs():
    print(value.name, value.shape)
given = (other.values.numpy(), other.weights.numpy())
feeds = dict(zip((value.name for value in session.get_inputs()), given, strict=True))
(found,) = session.run(None, feeds)
difference = abs(found - WeightedMean()(other).numpy()).max()
print(f"largest difference from torch: {difference:.1e}")

# %% [markdown]
# What happens inside: while a model is exported, torch takes the object apart (*flatten*) and puts
# it together again (*unflatten*). `oe.torch.patches` does the same around `torch.export.export`.

# %%
with oe.torch.patches(classes=[(Batch, ["values", "weights"])]):
    leaves, form = pytree.tree_flatten(batch)
    again = pytree.tree_unflatten(leaves, form)
    print(len(leaves), "tensors inside;", type(again).__name__, "outside")

# %% [markdown]
# Nothing of it is left afterwards: to torch the object is one leaf again. `unregister_class` takes
# back what `register_class` said.

# %%
oe.unregister_class(Batch)
leaves, _ = pytree.tree_flatten(batch)
print(len(leaves), "leaf:", type(leaves[0]).__name__)

# %% [markdown]
# # A module with an `if` and a loop
#
# A trace takes one way through the Python code of a module. Where a test depends on the values of a
# tensor, `torch.export` and `torch.onnx.export` stop. `oe.torch.export` rewrites the test and the
# loop as operators, compares the rewritten module with yours, and puts everything back.

# %%
import onnxruntime
import torch

import onnx_external as oe


class Halves(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            y = x
        else:
            y = -x
        while y.max() > 1:
            y = y / 2
        return y


small, large, negative = torch.rand(3), 100 * torch.rand(5), -7 * torch.rand(2)

# %% [markdown]
# The further input sets take the other ways through the code, and differ in length.

# %%
sets = [(small,), (negative,)]
report = oe.torch.export(Halves(), (large,), "halves.onnx", input_sets=sets, overwrite=True)
print("compared on", report.checked, "input sets")
for change in report.rewriting.changes:
    print(change.diff.split("\n", 2)[2])
print("never reached:", report.rewriting.unreached)

# %%
session = onnxruntime.InferenceSession("halves.onnx")
for x in (small, large, negative, 1000 * torch.rand(8)):
    (found,) = session.run(None, {"x": x.numpy()})
    print(len(x), "values, as the module:", torch.equal(torch.from_numpy(found), Halves()(x)))

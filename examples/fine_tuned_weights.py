# %% [markdown]
# # Fine-tuned weights into a graph that was exported once
#
# A graph does not depend on the values of the weights. So it is exported once, without them (a
# *skeleton*), and each checkpoint of a training is attached to it later, in a fraction of a second
# and without the code of the model. The command does the same without Python:
#
#     save-external graph.onnx tuned.pt -o out/

# %%
import onnxruntime
import torch

import onnx_external as oe


def make(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)]
    return torch.nn.Sequential(*layers).eval()


x = torch.rand(2, 16)
oe.torch.skeleton(make(0), (x,)).save("graph.onnx", overwrite=True)

# %% [markdown]
# A trainer saved its weights in its own way: nested, and with a prefix. A plan, which writes
# nothing, shows which key fills which weight.

# %%
tuned = make(1)
state = {f"module.{name}": tensor for name, tensor in tuned.state_dict().items()}
torch.save({"epoch": 3, "state_dict": state}, "tuned.pt")

plan = oe.plan("graph.onnx", path="tuned/model.onnx", weights="tuned.pt", overwrite=True)
for pair in plan.pairs:
    print(f"{pair.slot:9} from {pair.key} by the rule {pair.rule}")
print("verified:", plan.save().verified)

# %%
session = onnxruntime.InferenceSession("tuned/model.onnx")
(found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
print(f"largest difference from torch: {abs(found - tuned(x).detach().numpy()).max():.1e}")

# %% [markdown]
# A checkpoint that lacks a weight is refused, as strictly as by `load_state_dict(strict=True)`. The
# model that is there stays as it is.

# %%
del state["module.2.bias"]
try:
    oe.save("graph.onnx", "tuned/model.onnx", state, overwrite=True)
except oe.MappingError as error:
    print("missing:", error.missing)
print("the old model is whole:", oe.verify("tuned/model.onnx", against=tuned).ok)

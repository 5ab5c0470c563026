# %% [markdown]
# # Several graphs over one store
#
# Models that are served together often share weights: an encoder and a decoder one embedding, many
# heads one trunk. A dict of graphs is saved as one set, in which each byte is stored once.

# %%
from pathlib import Path

import onnxruntime
import torch

import onnx_external as oe

torch.manual_seed(0)
trunk = torch.nn.Sequential(torch.nn.Embedding(1000, 64), torch.nn.Linear(64, 64), torch.nn.ReLU())
heads = {"topic": torch.nn.Linear(64, 20), "mood": torch.nn.Linear(64, 3)}
modules = {name: torch.nn.Sequential(trunk, head).eval() for name, head in heads.items()}
ids = torch.tensor([[5, 17, 999]])
graphs = {
    f"{name}.onnx": torch.onnx.export(module, (ids,), dynamo=True, verbose=False)
    for name, module in modules.items()
}

# %%
report = oe.save(graphs, "shared", overwrite=True)
for model in report.models:
    print(f"{model.model}: {model.bytes} of {report.bytes} bytes")
print("stored twice, they would take", sum(model.bytes for model in report.models))
print(*sorted(file.name for file in Path("shared").iterdir()))

# %% [markdown]
# Both models load from the one folder. `oe.verify` of the folder reads what they share once.

# %%
print("verified:", oe.verify("shared").ok)
for name, module in modules.items():
    session = onnxruntime.InferenceSession(f"shared/{name}.onnx")
    (scores,) = session.run(None, {session.get_inputs()[0].name: ids.numpy()})
    print(f"{name}: differs by {abs(scores - module(ids).detach().numpy()).max():.1e} at most")

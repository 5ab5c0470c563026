# %% [markdown]
# # A model that is larger than memory, from its folder
#
# `torch.onnx.export` needs all weights in memory. Here the folder of a model of transformers is
# exported without them: torch traces a model whose tensors have no data, and the library then
# attaches the files of the folder. The model here is small; a Llama of 70e9 parameters (141 GB)
# takes the same lines and less than 2 GiB of memory (docs/measurements.md has the figures).

# %%
from pathlib import Path

from small_llama import make_folder

import onnx_external as oe

folder = make_folder(Path("llama"))
size = (folder / "model.safetensors").stat().st_size
print("model.safetensors:", size, "bytes")

# %% [markdown]
# With `layout="link"` the disk gets no copy either: the graph is put beside `model.safetensors` and
# points into it. Without it, the weights are copied into the layout that you choose, and the output
# may be any folder. The command is `onnx-external export llama/ -o llama/ --layout link`.

# %%
report = oe.transformers.export(folder, folder, layout="link", overwrite=True, progress=False)
print("graphs:", *report.graphs)
print("compared with transformers on", report.checked["model"], "input sets")
print("bytes written for weights:", report.save.bytes)
print("bytes that the graph refers to:", report.save.linked_bytes)
print("in:", *{tensor.file for tensor in report.save.models[0].tensors})

# %% [markdown]
# The inputs and outputs have the names that runtimes of decoders expect.

# %%
for name, form in [*report.inputs["model"].items()][:4]:
    print(f"takes {name}: {form}")
for name, form in [*report.outputs["model"].items()][:2]:
    print(f"gives {name}: {form}")
print("equals the folder's weights:", oe.verify(folder / "model.onnx", against=folder).ok)

# %% [markdown]
# `generate_text.py` lets the model speak.

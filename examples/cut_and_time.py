# %% [markdown]
# # Cut one layer out of a model, and time it
#
# A piece of a model is a small model that refers to the data files of the large one, so cutting
# takes milliseconds, whatever the size of the model. It runs by itself: on other inputs, under a
# profiler, on another provider. The command is
#
#     cut-external deep/model.onnx -o deep/layer.onnx --module 3

# %%
import statistics
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import onnx_external as oe


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


torch.manual_seed(0)
model = torch.nn.Sequential(*(Layer() for _ in range(6))).eval()
x = torch.rand(16, 256)
oe.torch.export(model, (x,), "deep/model.onnx", overwrite=True)

# %%
piece = oe.cut("deep/model.onnx", "layer.onnx", module="3", overwrite=True)
print(piece.nodes, "nodes; takes", piece.inputs, "and gives", piece.outputs)
print("bytes of weights that it refers to:", piece.weight_bytes)
print(f"written: {Path('deep/layer.onnx').stat().st_size / 1000:.1f} kB")


# %%
def milliseconds(path: str, value: np.ndarray) -> float:
    """Return the median of 20 runs, of the processor's time, after one that is not counted."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    feeds = {session.get_inputs()[0].name: value}
    times = []
    for _ in range(21):
        start = time.process_time()
        session.run(None, feeds)
        times.append(1000 * (time.process_time() - start))
    return statistics.median(times[1:])


whole = milliseconds("deep/model.onnx", x.numpy())
layer = milliseconds("deep/layer.onnx", x.numpy())
print(f"the model: {whole:.2f} ms, the layer: {layer:.2f} ms, {100 * layer / whole:.1f} %")

# %% [markdown]
# `oe.validate` times a piece, too, and compares it with the module that it was cut from.

# %%
report = oe.validate("deep/layer.onnx", against=model[3], inputs=(x,), latency=20)
print("the piece gives what the module gives:", report.ok)

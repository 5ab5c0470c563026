# %% [markdown]
# # A convolutional network, saved in one line
#
# If you call `torch.onnx.export` already, change only the line that saves: `oe.save(program, path)`
# in the place of `program.save(path)`. It writes the weights from where they are, without a copy,
# reads every byte back from the disk, and puts the model in place only if all is right.

# %%
import onnxruntime
import torch

import onnx_external as oe

torch.manual_seed(0)
cnn = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(16, 32, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(32, 10),
).eval()
image = torch.rand(1, 3, 32, 32)
program = torch.onnx.export(cnn, (image,), dynamo=True, verbose=False)

# %%
report = oe.save(program, "cnn/model.onnx", overwrite=True)  # program.save("cnn/model.onnx")
print(report.verified, report.complete, report.bytes, "bytes")
for tensor in report.tensors:
    print(f"{tensor.slot:9} {tensor.length:6} bytes in {tensor.file} at {tensor.offset}")

# %% [markdown]
# The save is a transaction: after an error, a full disk or Ctrl-C the folder is as it was. A second
# save refuses to replace a model unless `overwrite=True` says so.

# %%
try:
    oe.save(program, "cnn/model.onnx")
except oe.ExistsError as error:
    print(error)

# %% [markdown]
# What lies on the disk can be checked at any later time, against the module or against the
# checksums in the manifest.

# %%
print("equals the module's weights:", oe.verify("cnn/model.onnx", against=cnn).ok)
session = onnxruntime.InferenceSession("cnn/model.onnx")
(scores,) = session.run(None, {session.get_inputs()[0].name: image.numpy()})
print(f"largest difference from torch: {abs(scores - cnn(image).detach().numpy()).max():.1e}")

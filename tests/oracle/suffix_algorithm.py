"""The first-suffix algorithm, for comparison: quadratic, and wrong on common models.

Every checkpoint tensor's name has its dots replaced by underscores and goes to the first graph input
where one name is a suffix of the other. Written anew after a description of it; not used to judge.

usage: suffix_algorithm.py GRAPH.onnx CHECKPOINT.pt OUT_DIR
"""

import os
import sys

import onnx
import torch
from onnx import TensorProto

_ONNX_TYPES = {
    torch.float32: TensorProto.FLOAT,
    torch.float64: TensorProto.DOUBLE,
    torch.float16: TensorProto.FLOAT16,
    torch.bfloat16: TensorProto.BFLOAT16,
    torch.int64: TensorProto.INT64,
    torch.int32: TensorProto.INT32,
    torch.int16: TensorProto.INT16,
    torch.int8: TensorProto.INT8,
    torch.uint8: TensorProto.UINT8,
    torch.bool: TensorProto.BOOL,
}


def _first_match(name: str, inputs: list) -> str:
    for candidate in inputs:
        if candidate.endswith(name) or name.endswith(candidate):
            return candidate
    return name


def _external_tensor(tensor, name: str, location: str, folder: str) -> TensorProto:
    path = os.path.join(folder, location)
    if os.path.exists(path):
        os.remove(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as stream:
        stream.write(tensor.detach().numpy().tobytes())
    proto = TensorProto(name=name, data_type=_ONNX_TYPES[tensor.dtype], dims=tensor.shape)
    proto.data_location = TensorProto.EXTERNAL
    length = tensor.storage().nbytes()  # the whole storage, also when the tensor is a part of it
    for key, value in (("location", location), ("offset", 0), ("length", length)):
        proto.external_data.add(key=key, value=str(value))
    return proto


def save_model_with_external_data(folder, model_name, data_folder, checkpoints, model) -> None:
    result = onnx.ModelProto()
    result.CopyFrom(model)
    inputs = [value.name for value in model.graph.input]
    for checkpoint in checkpoints:
        for name, tensor in torch.load(checkpoint).items():
            refined = _first_match(name.replace(".", "_"), inputs)
            proto = _external_tensor(tensor, refined, os.path.join(data_folder, refined), folder)
            result.graph.initializer.append(proto)
    onnx.save(result, os.path.join(folder, model_name))


if __name__ == "__main__":
    graph, checkpoint, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    save_model_with_external_data(out, "model.onnx", "initializers", (checkpoint,), onnx.load(graph))

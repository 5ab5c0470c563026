"""Run the Python tools that compare.py measures, each as a process, and make their graphs.

usage: peers.py seed GRAPH CHECKPOINT OUT_DIR       the seed's algorithm
       peers.py onnx GRAPH CHECKPOINT OUT_DIR       onnx.save_model, a file a tensor
       peers.py relayout MODEL OUT_DIR             onnx.load and onnx.save_model, a file a tensor
       peers.py graph TENSORS.json GRAPH            makes the graph whose weights the tensors are
"""

import json
import os
import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "oracle"))


def seed(graph: str, checkpoint: str, out: str) -> None:
    import suffix_algorithm

    os.makedirs(out)
    model = onnx.load(graph)
    suffix_algorithm.save_model_with_external_data(out, "model.onnx", "initializers", (checkpoint,), model)


def onnx_save_model(graph: str, checkpoint: str, out: str) -> None:
    import torch
    from onnx import numpy_helper

    os.makedirs(out)
    model = onnx.load(graph)
    for name, tensor in torch.load(checkpoint).items():
        model.graph.initializer.append(numpy_helper.from_array(tensor.numpy(), name.replace(".", "_")))
    settings = dict(save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0)
    onnx.save_model(model, os.path.join(out, "model.onnx"), **settings)


def relayout(given: str, out: str) -> None:
    os.makedirs(out)
    settings = dict(save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0)
    onnx.save_model(onnx.load(given), os.path.join(out, "model.onnx"), **settings)


def consumer(index: int, name: str, shape: list) -> onnx.NodeProto:
    """Return a node that uses the weight like a language model."""
    output = f"value_{index}"
    if "embed" in name:
        return helper.make_node("Gather", [name, "input_ids"], [output])
    if len(shape) == 2:
        return helper.make_node("Transpose", [name], [output], perm=[1, 0])
    return helper.make_node("Mul", [name, name], [output])


def make_graph(listing: str, path: str, dtype: str = "FLOAT16") -> None:
    """Write the graph. Its names have underscores instead of dots, as the seed's algorithm expects."""
    tensors = json.loads(Path(listing).read_text())
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])]
    nodes = []
    for index, (name, shape) in enumerate(tensors):
        name = name.replace(".", "_")
        inputs.append(helper.make_tensor_value_info(name, getattr(TensorProto, dtype), shape))
        nodes.append(consumer(index, name, shape))
    output = helper.make_tensor_value_info(nodes[-1].output[0], getattr(TensorProto, dtype), None)
    graph = helper.make_graph(nodes, "benchmark", inputs, [output])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, path)


if __name__ == "__main__":
    jobs = {"seed": seed, "onnx": onnx_save_model, "relayout": relayout, "graph": make_graph}
    jobs[sys.argv[1]](*sys.argv[2:])
